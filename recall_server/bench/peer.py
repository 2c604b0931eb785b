"""The same load on this server and on `szl-recall`, the closest one on PyPI, in one run.

Both extract nothing meanwhile, and the client is the same: JSON-RPC on a plain socket.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from recall_server.bench.clients import Arguments, CallTool, session
from recall_server.bench.databases import scratch, settings
from recall_server.bench.fill import fill
from recall_server.bench.load import FLOOR, Measured, Operation, measure
from recall_server.bench.peer_server import VERSION, installed, serving
from recall_server.bench.process import target
from recall_server.bench.texts import Texts
from recall_server.bootstrap import open_application
from recall_server.domain.namespace import namespace

SEED = 20260303
SIZES = (10_000, 100_000)
CONCURRENCIES = (8, 32)
# Searches of each size before any is measured.
SETTLED = 100
READY_S = 120.0
AGAIN_S = 1.0
OURS, PEER = "ours", "peer"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wishes:
    """What is asked for on the command line."""

    seconds: float


@dataclass(frozen=True)
class Run:
    """What both did: operations by who, at one concurrency after the other."""

    measured: tuple[Measured, ...]
    errors: dict[tuple[str, int], int]
    """Calls that failed, by operation and concurrency."""
    finds_the_oldest: dict[str, bool]
    """Of the memories of the smaller size, asked for by its own words."""


@dataclass(frozen=True)
class _Side:
    """One of both: where it listens, and its tokens by the number of memories."""

    name: str
    address: str
    tokens: dict[int, str]


async def run(wishes: Wishes, say: Say) -> Run:
    """Raises `Invalid` where the peer cannot be installed or started."""
    texts = Texts(SEED)
    statements = [texts.statement() for _ in range(max(SIZES))]
    with scratch("sqlite", None) as database:
        assert isinstance(database, Path)
        say(f"installing szl-recall {VERSION}")
        program = await asyncio.to_thread(installed, database.parent / "peer")
        say("writing memories")
        ours = await _filled(database, statements, say)
        async with (
            serving(program, database.parent / "peer.db", statements, SIZES) as (address, theirs),
            target(database, 0) as server,
        ):
            sides = [_Side(OURS, server.address, ours), _Side(PEER, address, theirs)]
            return await _compared(sides, statements[0], wishes, say)


async def _compared(sides: Sequence[_Side], oldest: str, wishes: Wishes, say: Say) -> Run:
    found = {side.name: await _finds(side, oldest) for side in sides}
    for side in sides:
        say(f"{side.name}: searching until all is held that will be")
        await _settled(side)
    measured: list[Measured] = []
    errors: Counter[tuple[str, int]] = Counter()
    say("concurrency 1")
    alone = [
        operation
        for operations in zip(*(_operations(side) for side in sides), strict=False)
        for operation in operations
    ]
    # In windows: after each call of the other one's, nothing of ours would be in the processor's
    # caches, and the other way round.
    measured += await measure(
        alone, _connect(sides, errors, 1), "session", 1, wishes.seconds, one_by_one=False
    )
    crowd = [_floor(sides[0]), *(_searching(side, SIZES[0]) for side in sides)]
    for concurrency in CONCURRENCIES:
        say(f"concurrency {concurrency}")
        measured += await measure(
            crowd, _connect(sides, errors, concurrency), "session", concurrency, wishes.seconds
        )
    return Run(tuple(measured), dict(errors), found)


def _operations(side: _Side) -> list[Operation]:
    texts = Texts(SEED + 2)
    stores = [_floor(side)] if side.name == OURS else []
    return [
        *(_searching(side, size) for size in SIZES),
        Operation(
            f"{side.name}: store",
            side.tokens[0],
            "store_memory",
            lambda: {"text": texts.conversation(), "topic": "general"},
        ),
        *stores,
    ]


def _floor(side: _Side) -> Operation:
    return Operation(f"{side.name}: {FLOOR}", side.tokens[0], "whoami", dict)


def _searching(side: _Side, size: int) -> Operation:
    texts = Texts(SEED + 1)
    return Operation(
        f"{side.name}: search {size:,}",
        side.tokens[size],
        "search_memories",
        lambda: {"query": texts.question()},
    )


def _connect(
    sides: Sequence[_Side], errors: Counter[tuple[str, int]], concurrency: int
) -> Callable[[str], AbstractAsyncContextManager[CallTool]]:
    known = {
        token: (side, f"search {size:,}" if size else "store")
        for side in sides
        for size, token in side.tokens.items()
    }

    @asynccontextmanager
    async def connect(token: str) -> AsyncIterator[CallTool]:
        side, operation = known[token]
        async with session(side.address, token) as ask:

            async def counted(tool: str, arguments: Arguments) -> None:
                try:
                    await ask(tool, arguments)
                except (RuntimeError, OSError, EOFError, TimeoutError):
                    errors[f"{side.name}: {operation}", concurrency] += 1

            yield counted

    return connect


async def _finds(side: _Side, text: str) -> bool:
    async with session(side.address, side.tokens[SIZES[0]]) as ask:
        answer = await _answered(lambda: ask("search_memories", {"query": text}))
    return json.dumps(text)[1:-1].encode() in answer.replace(b'\\"', b'"')


async def _settled(side: _Side) -> None:
    for size in SIZES:
        operation = _searching(side, size)
        async with session(side.address, operation.token) as ask:
            for _ in range(SETTLED):
                await ask(operation.tool, operation.arguments())


async def _answered(ask: Callable[[], Awaitable[bytes]]) -> bytes:
    """The first answer that is none of a failure: the peer rewrites all its memories as it starts,
    and refuses calls while it waits for its own lock. Raises `TimeoutError`.
    """
    async with asyncio.timeout(READY_S):
        while True:
            try:
                return await ask()
            except RuntimeError:
                await asyncio.sleep(AGAIN_S)


async def _filled(database: Path, statements: Sequence[str], say: Say) -> dict[int, str]:
    tokens = {}
    async with open_application(settings(database)) as built:
        for size in (0, *SIZES):
            ns = namespace(f"of-{size}")
            entry = built.services.audit.begin(ns, "create_token", "bench", None)
            tokens[size], _ = await built.services.access.issue(ns, label="bench", entry=entry)
            await fill(built, ns, statements[:size], lambda done: say(f"{OURS}: {done:,} memories"))
    return tokens
