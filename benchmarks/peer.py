"""The same load on this server and on `szl-recall`, the closest one on PyPI, in one run.

Neither extracts anything during the run, and the client is the same: JSON-RPC on a plain socket.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.clients import Arguments, CallTool, session
from benchmarks.databases import scratch, settings
from benchmarks.fill import Say, tenant
from benchmarks.measure import NOOP, Measured, Operation, measure, noop, search, store
from benchmarks.peer_server import VERSION, installed, serving
from benchmarks.report import Check, Report, Row
from benchmarks.servers import target
from benchmarks.texts import Texts
from recall_server.bootstrap import open_application

SEED = 20260303
SIZES = SMALL, LARGE = (10_000, 100_000)
CONCURRENCIES = CROWD, GREAT_CROWD = (8, 32)
# The searches of each size before the first measured one.
SETTLED = 100
READY_S = 120.0
AGAIN_S = 1.0
OURS, PEER = "ours", "peer"


@dataclass(frozen=True)
class _Server:
    """One of the two servers: its address, and its tokens by the number of memories."""

    name: str
    address: str
    tokens: dict[int, str]

    def search(self, size: int) -> Operation:
        return search(f"{self.name}: search {size:,}", self.tokens[size], SEED + 1)


async def peer(say: Say, *, seconds: float) -> Report:
    """Measure both. Raises `Invalid` if the peer cannot be installed or started."""
    statements = Texts(SEED).statements(max(SIZES))
    with scratch("sqlite", None) as database:
        assert isinstance(database, Path)
        say(f"installing szl-recall {VERSION}")
        program = await asyncio.to_thread(installed, database.parent / "peer")
        async with open_application(settings(database)) as built:
            ours = {
                size: await tenant(built, f"of-{size}", statements[:size], say)
                for size in (0, *SIZES)
            }
        say("writing the memories of the peer")
        async with (
            serving(program, database.parent / "peer.db", statements, SIZES) as (address, theirs),
            target(database) as server,
        ):
            both = _Server(OURS, server.address, ours), _Server(PEER, address, theirs)
            return await _compared(*both, statements[0], seconds, say)


async def _compared(
    ours: _Server, theirs: _Server, oldest: str, seconds: float, say: Say
) -> Report:
    both = (ours, theirs)
    finds = {one.name: await _finds(one, oldest) for one in both}
    for one in both:
        say(f"{one.name}: searching until its caches are full")
        await _jobs_done(one)
    failed: Counter[str] = Counter()
    floor = noop(f"{OURS}: {NOOP}", ours.tokens[0])
    alone = [
        *(one.search(size) for size in SIZES for one in both),
        *(store(f"{one.name}: store", one.tokens[0], SEED + 2) for one in both),
        floor,
    ]
    say("one caller")
    # In windows, since each call of the other server would empty the processor's caches.
    found = {1: await measure(alone, _connect(both, failed), 1, seconds, one_by_one=False)}
    errors = {1: dict(failed)}
    crowd = [floor, *(one.search(SMALL) for one in both)]
    for at in CONCURRENCIES:
        say(f"{at} callers")
        failed.clear()
        found[at] = await measure(crowd, _connect(both, failed), at, seconds)
        errors[at] = dict(failed)
    return _report(found, errors, finds)


def _report(
    found: dict[int, list[Measured]], errors: dict[int, dict[str, int]], finds: dict[str, bool]
) -> Report:
    by_name = {(at, one.name): one for at, measured in found.items() for one in measured}
    rows = [
        Row(f"{at} at once", name, {**one.row("").figures, "errors": errors[at].get(name, 0)})
        for (at, name), one in by_name.items()
    ]
    small = f"search {SMALL:,}"
    checks = []
    for operation, bound in ((small, 3.0), (f"search {LARGE:,}", 8.0), ("store", 1.3)):
        ratio = by_name[1, f"{PEER}: {operation}"].p50 / by_name[1, f"{OURS}: {operation}"].p50
        checks.append(Check(f"{operation}: p50 of the peer x ours", ratio, bound, at_least=True))
    ours, theirs = by_name[CROWD, f"{OURS}: {small}"], by_name[CROWD, f"{PEER}: {small}"]
    floor, name = by_name[CROWD, f"{OURS}: {NOOP}"], f"{small}, {CROWD} at once"
    ratio = ours.per_second / theirs.per_second
    checks += [
        Check(f"{name}: calls/s x the peer's", ratio, 2.5, at_least=True),
        Check(f"{name}: calls/s x {NOOP}", ours.per_second / floor.per_second, 0.3, at_least=True),
        Check(f"{name}: p99 x p50", ours.quantile(0.99) / ours.p50, 4.0),
        Check(f"errors of ours, {GREAT_CROWD} at once", _ours(errors[GREAT_CROWD]), 0),
        Check(f"ours finds the oldest of {SMALL:,}", float(finds[OURS]), 1, at_least=True),
    ]
    facts = {f"{who} finds the oldest": "yes" if it else "no" for who, it in finds.items()}
    notes = f"The peer is szl-recall {VERSION}. Both on SQLite, through the same client, in turn."
    return Report("peer", "sqlite", rows, checks, facts, notes)


def _ours(errors: dict[str, int]) -> int:
    return sum(count for name, count in errors.items() if name.startswith(OURS))


def _connect(
    both: Sequence[_Server], failed: Counter[str]
) -> Callable[[str], AbstractAsyncContextManager[CallTool]]:
    """Return callers that count failed calls, by operation, and go on."""
    known = {
        token: (one, f"search {size:,}" if size else "store")
        for one in both
        for size, token in one.tokens.items()
    }

    @asynccontextmanager
    async def connect(token: str) -> AsyncIterator[CallTool]:
        server, operation = known[token]
        async with session(server.address, token) as ask:

            async def counted(tool: str, arguments: Arguments) -> None:
                try:
                    await ask(tool, arguments)
                except (RuntimeError, OSError, EOFError, TimeoutError):
                    failed[f"{server.name}: {operation}"] += 1

            yield counted

    return connect


async def _finds(server: _Server, text: str) -> bool:
    """Return True if a search finds the oldest memory by its own words.

    The peer rewrites all its memories when it starts, and refuses calls until then: a refused
    search is repeated. Raises `TimeoutError`.
    """
    async with (
        asyncio.timeout(READY_S),
        session(server.address, server.tokens[SMALL]) as ask,
    ):
        while True:
            try:
                answer = await ask("search_memories", {"query": text})
            except RuntimeError:
                await asyncio.sleep(AGAIN_S)
            else:
                return json.dumps(text)[1:-1].encode() in answer.replace(b'\\"', b'"')


async def _jobs_done(server: _Server) -> None:
    for size in SIZES:
        operation = server.search(size)
        async with session(server.address, operation.token) as ask:
            for _ in range(SETTLED):
                await ask(operation.tool, operation.arguments())
