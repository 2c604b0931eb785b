"""What grows with the number of memories and of neighbours, and what must not."""

import asyncio
import statistics
from collections.abc import Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

from recall_server.application import Application
from recall_server.bench.clients import CallTool, plain
from recall_server.bench.databases import another, multiply, settings, settle
from recall_server.bench.fill import fill
from recall_server.bench.load import Measured, Operation, measure
from recall_server.bench.nearest import recall_of_vectors
from recall_server.bench.process import target
from recall_server.bench.texts import Texts
from recall_server.bootstrap import open_application
from recall_server.domain.namespace import namespace

SEED = 20260302
NEIGHBOUR = 1_000
COLD_STARTS = 3
# Searches after which a server holds what it is going to hold.
SETTLED = 200
SETTLED_AT_ONCE = 8

Say = Callable[[str], None]


@dataclass(frozen=True)
class ScaleWishes:
    """What is asked for on the command line."""

    sizes: Sequence[int]
    neighbours: int
    seconds: float


@dataclass(frozen=True)
class Scale:
    """What one engine did."""

    engine: str
    sizes: tuple[int, ...]
    sweep: tuple[Measured, ...]
    """One search for each of the sizes, in their order."""
    recall: Mapping[int, float]
    """Size to recall@10 of the vector index against all vectors compared."""
    resident_mb: float | None
    """Of a server that has searched the greatest size; None where the system does not tell."""
    cold_start_s: float
    """From the start of the process to the first answer, over the greatest size."""
    empty_start_s: float
    neighbours: int
    alone: Measured | None
    beside: Measured | None


async def scale(engine: str, database: Path | str, wishes: ScaleWishes, say: Say) -> Scale:
    """Measure over one namespace of each size in `database`, and over one of `NEIGHBOUR` memories
    alone and beside others of that size.
    """
    tokens: dict[int, str] = {}
    async with open_application(settings(database)) as built:
        for size in wishes.sizes:
            tokens[size] = await tenant(built, f"scale-{size}", size, say)
    settle(database)
    found: dict[int, float] = {}
    async with open_application(settings(database)) as built:
        for size in wishes.sizes:
            say(f"{engine}: comparing all vectors of {size:,} memories")
            found[size] = await recall_of_vectors(built, namespace(f"scale-{size}"), SEED + 1)
    greatest = tokens[max(wishes.sizes)]
    say(f"{engine}: starting with and without memories")
    cold, empty = await _starts(database, greatest)
    async with target(database, 0) as server:
        await _settled(server.address, greatest)
        resident = server.resident_mb()
        say(f"{engine}: searching in turn")
        sweep = await measure(
            [_search(f"search {size:,}", token) for size, token in tokens.items()],
            partial(plain, server.address),
            "socket",
            1,
            wishes.seconds,
        )
    alone = beside = None
    if wishes.neighbours:
        alone, beside = await _neighbours(database, wishes, say)
    return Scale(
        engine,
        tuple(wishes.sizes),
        tuple(sweep),
        found,
        resident,
        cold,
        empty,
        wishes.neighbours,
        alone,
        beside,
    )


async def tenant(built: Application, name: str, memories: int, say: Say) -> str:
    """A new namespace with so many memories; its token."""
    texts = Texts(SEED)
    ns = namespace(name)
    entry = built.services.audit.begin(ns, "create_token", "bench", None)
    token, _ = await built.services.access.issue(ns, label="bench", entry=entry)
    statements = [texts.statement() for _ in range(memories)]
    await fill(built, ns, statements, lambda done: say(f"{name}: {done:,} of {memories:,}"))
    return token


def _search(name: str, token: str) -> Operation:
    texts = Texts(SEED + 1)
    return Operation(name, token, "search_memories", lambda: {"query": texts.question()})


async def _starts(database: Path | str, token: str) -> tuple[float, float]:
    """Seconds from the start of a server to its first answer, with memories and with none."""
    with another(database) as nothing:
        async with open_application(settings(nothing)) as built:
            unused = await tenant(built, "nobody", 0, lambda _: None)
        times: dict[str, list[float]] = {token: [], unused: []}
        # In turn, so that drift hits both alike.
        for _ in range(COLD_STARTS):
            for where, whose in ((database, token), (nothing, unused)):
                started = perf_counter()
                async with target(where, 0) as server, plain(server.address, whose) as call:
                    await call("search_memories", {"query": Texts(SEED + 1).question()})
                    times[whose].append(perf_counter() - started)
    return statistics.median(times[token]), statistics.median(times[unused])


async def _settled(address: str, token: str) -> None:
    """Search as often as it takes until a server holds what it is going to hold."""
    operation = _search("", token)

    async def loop(call: CallTool) -> None:
        for _ in range(SETTLED // SETTLED_AT_ONCE):
            await call(operation.tool, operation.arguments())

    async with AsyncExitStack() as stack:
        calls = [
            await stack.enter_async_context(plain(address, token)) for _ in range(SETTLED_AT_ONCE)
        ]
        await asyncio.gather(*map(loop, calls))


async def _neighbours(
    database: Path | str, wishes: ScaleWishes, say: Say
) -> tuple[Measured, Measured]:
    """The same search over the same memories, alone and beside others."""
    with another(database) as quiet, another(database) as crowded:
        tokens = []
        for where in (quiet, crowded):
            async with open_application(settings(where)) as built:
                tokens.append(await tenant(built, "one", NEIGHBOUR, say))
                if where == crowded:
                    await tenant(built, "other", NEIGHBOUR, say)
        multiply(crowded, "other", wishes.neighbours, say)
        settle(crowded)
        settle(quiet)
        say(f"searching alone and beside {wishes.neighbours:,} others")
        async with target(quiet, 0) as first, target(crowded, 0) as second:
            address = {tokens[0]: first.address, tokens[1]: second.address}
            alone, beside = await measure(
                [_search("alone", tokens[0]), _search("beside", tokens[1])],
                lambda token: plain(address[token], token),
                "socket",
                1,
                wishes.seconds,
            )
    return alone, beside
