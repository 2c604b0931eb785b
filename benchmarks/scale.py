"""Costs that grow with the number of memories and of other namespaces: time, memory, starts."""

import asyncio
import statistics
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter

import numpy as np

from benchmarks.clients import plain
from benchmarks.databases import another, multiply, settings, settle
from benchmarks.fill import Say, tenant
from benchmarks.measure import Measured, measure, search
from benchmarks.report import Check, Report, Row
from benchmarks.servers import target
from benchmarks.texts import Texts
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.ids import Namespace, namespace
from recall_server.services.search import POOL_MIN
from recall_server.storage.index.vector_cache import Floats, unpacked

SEED = 20260302
NEIGHBOUR = 1_000
COLD_STARTS = 3
# After this many searches the server's caches are as full as they ever will be.
SETTLED = 200
SETTLED_AT_ONCE = 8
# The bounds of p50, by how many times more memories there are than in the smallest namespace.
GROWTH_MAX = {100: 2.0, 1_000: 10.0}
RECALL_MIN = 0.98
NEIGHBOURS_MAX = 1.2
RESIDENT_AT, RESIDENT_MB_MAX = 100_000, 400.0
COLD_START_MAX = 3.0
# For the vector index: questions, results, and how much nearer counts as nearer.
QUESTIONS, NEAREST, NOISE = 100, 10, 1e-6
# The vectors that are read at a time: 5 MB.
PAGE = 5_000


@dataclass(frozen=True)
class Scale:
    """The figures of one engine: a search for each size in their order, recall@10 of the vector
    index by size, and starts and memory over the greatest size.
    """

    engine: str
    sizes: tuple[int, ...]
    sweep: tuple[Measured, ...]
    recall: Mapping[int, float]
    resident_mb: float | None
    cold_start_s: float
    empty_start_s: float
    alone: Measured | None = None
    beside: Measured | None = None

    def report(self) -> Report:
        rows = [
            Row(
                "searches in turn, by memories of the namespace",
                one.name,
                {
                    **one.row("", self.sweep[0], one_of).figures,
                    "recall@10 of vectors": self.recall[size],
                },
            )
            for one_of in [self.sweep[0].name]
            for size, one in zip(self.sizes, self.sweep, strict=True)
        ]
        if self.alone and self.beside:
            group = f"searches of {NEIGHBOUR:,} memories"
            rows += [one.row(group, self.alone, "alone") for one in (self.alone, self.beside)]
        greatest = f"{max(self.sizes):,} memories"
        facts = {
            f"start to first answer with {greatest}, s": self.cold_start_s,
            "without memories, s": self.empty_start_s,
            f"resident with {greatest}, MB": self.resident_mb,
        }
        return Report("scale", self.engine, rows, self.checks(), facts)

    def checks(self) -> list[Check]:
        least = self.sweep[0]
        checks = []
        for size, one in zip(self.sizes, self.sweep, strict=True):
            if limit := GROWTH_MAX.get(size // self.sizes[0]):
                checks.append(Check(f"{one.name}: p50 x {least.name}", one.p50 / least.p50, limit))
            name = f"recall@10 of the vectors of {size:,}"
            checks.append(Check(name, self.recall[size], RECALL_MIN, at_least=True))
        if self.alone and self.beside:
            name = f"search {self.beside.name}: p50 x alone"
            checks.append(Check(name, self.beside.p50 / self.alone.p50, NEIGHBOURS_MAX))
        if self.resident_mb is not None and max(self.sizes) == RESIDENT_AT:
            checks.append(Check("MB resident", self.resident_mb, RESIDENT_MB_MAX))
        name = "start to first answer, x without memories"
        return [*checks, Check(name, self.cold_start_s / self.empty_start_s, COLD_START_MAX)]


async def scale(
    engine: str,
    database: Path | str,
    say: Say,
    *,
    sizes: Sequence[int],
    neighbours: int,
    seconds: float,
) -> Report:
    """Measure over one namespace of each size in `database`, and over one of `NEIGHBOUR` memories
    alone and with others of that size.
    """
    tokens: dict[int, str] = {}
    async with open_application(settings(database)) as built:
        for size in sizes:
            tokens[size] = await tenant(built, f"scale-{size}", Texts(SEED).statements(size), say)
    settle(database)
    found: dict[int, float] = {}
    async with open_application(settings(database)) as built:
        for size in sizes:
            say(f"{engine}: comparing all vectors of {size:,} memories")
            found[size] = await recall_of_vectors(built, namespace(f"scale-{size}"), SEED + 1)
    greatest = tokens[max(sizes)]
    say(f"{engine}: starting with and without memories")
    cold, empty = await _starts(database, greatest)
    async with target(database) as server:
        await _jobs_done(server.address, greatest)
        resident = server.resident_mb()
        say(f"{engine}: searching in turn")
        searches = [search(f"search {size:,}", token, SEED + 1) for size, token in tokens.items()]
        sweep = await measure(searches, partial(plain, server.address), 1, seconds)
    pair: list[Measured] = []
    if neighbours:
        pair = await _beside(database, neighbours, seconds, say)
    return Scale(engine, tuple(sizes), tuple(sweep), found, resident, cold, empty, *pair).report()


async def _starts(database: Path | str, token: str) -> tuple[float, float]:
    """Measure the seconds from the start of a server to its first answer, with memories and with
    none.
    """
    with another(database) as nothing:
        async with open_application(settings(nothing)) as built:
            unused = await tenant(built, "nobody")
        times: dict[str, list[float]] = {token: [], unused: []}
        # The two take turns, so that drift affects both alike.
        for _ in range(COLD_STARTS):
            for where, key in ((database, token), (nothing, unused)):
                started = perf_counter()
                async with target(where) as server, plain(server.address, key) as call:
                    await call("search_memories", {"query": Texts(SEED + 1).question()})
                    times[key].append(perf_counter() - started)
    return statistics.median(times[token]), statistics.median(times[unused])


async def _jobs_done(address: str, token: str) -> None:
    """Search until the server's caches are full."""
    operation = search("", token, SEED + 1)

    async def loop() -> None:
        call = await stack.enter_async_context(plain(address, token))
        for _ in range(SETTLED // SETTLED_AT_ONCE):
            await call(operation.tool, operation.arguments())

    async with AsyncExitStack() as stack:
        await asyncio.gather(*(loop() for _ in range(SETTLED_AT_ONCE)))


async def _beside(
    database: Path | str, neighbours: int, seconds: float, say: Say
) -> list[Measured]:
    """Measure the same search over the same memories, alone and with other namespaces."""
    with another(database) as quiet, another(database) as crowded:
        tokens = []
        for where in (quiet, crowded):
            async with open_application(settings(where)) as built:
                texts = Texts(SEED).statements(NEIGHBOUR)
                tokens.append(await tenant(built, "one", texts, say))
                if where == crowded:
                    await tenant(built, "other", texts, say)
        multiply(crowded, "other", neighbours, say)
        settle(crowded)
        settle(quiet)
        say(f"searching alone and beside {neighbours:,} others")
        async with target(quiet) as first, target(crowded) as second:
            address = {tokens[0]: first.address, tokens[1]: second.address}
            names = ("alone", f"beside {neighbours:,} namespaces")
            return await measure(
                [search(*pair, SEED + 1) for pair in zip(names, tokens, strict=True)],
                lambda token: plain(address[token], token),
                1,
                seconds,
            )


async def recall_of_vectors(built: Application, owner: Namespace, seed: int) -> float:
    """Return recall@10, the mean over `QUESTIONS` questions: how many of the ten nearest are among
    the nearest that a search compares. A vector as near as the tenth counts as one of them.
    """
    assert built.embedder is not None
    texts = Texts(seed)
    asked = await built.embedder.embed([texts.question() for _ in range(QUESTIONS)])
    model, dimensions = built.embedder.model, built.embedder.dimensions
    tenth = await _tenth(built, owner, model, asked)
    found = 0
    async with built.store.transaction(owner, write=False) as tx:
        known = await tx.words.statistics()
        documents = await tx.words.documents(known)
        vectors = await tx.vectors.of_search(model, dimensions, known)
        for query, least in zip(asked, tenth, strict=True):
            pool = await vectors.nearest(query, documents.findable, POOL_MIN)
            cosines = np.sort(await vectors.cosines(query, pool))[-NEAREST:]
            found += int(np.count_nonzero(cosines > least - NOISE))
    return found / (QUESTIONS * NEAREST)


async def _tenth(built: Application, owner: Namespace, model: str, asked: Floats) -> list[float]:
    """Return for each question the cosine of the tenth of all vectors."""
    best = np.full((len(asked), NEAREST), -1.0)
    async with built.store.transaction(owner, write=False) as tx:
        (last,) = await tx.bound.fetch("last_slot", model=model)
        for start in range(1, last["slot"] + 1, PAGE):
            rows = await tx.bound.fetch(
                "vectors_at", model=model, slots=list(range(start, start + PAGE))
            )
            cosines = asked @ unpacked(rows).T
            both = np.concatenate([best, cosines], axis=1)
            best = -np.partition(-both, NEAREST - 1, axis=1)[:, :NEAREST]
    return [float(cosine) for cosine in best.min(axis=1)]
