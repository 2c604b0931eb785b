"""One run: a database, its memories, a server of its own, and every operation through it."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from recall_server.bench.clients import plain, sdk
from recall_server.bench.databases import fsync_ms, scratch, settings, settle
from recall_server.bench.fill import fill
from recall_server.bench.load import FLOOR, Measured, Operation, measure
from recall_server.bench.process import target
from recall_server.bench.scale import Scale, ScaleWishes, scale
from recall_server.bench.texts import Texts
from recall_server.bootstrap import open_application
from recall_server.domain.namespace import namespace

SEED = 20260301
SMALL = 1_000
CONCURRENCIES = (1, 8, 32)


@dataclass(frozen=True)
class Wishes:
    """What is asked for on the command line."""

    memories: int
    seconds: float
    worker_jobs: int
    db_url: str | None
    scale: ScaleWishes | None


@dataclass(frozen=True)
class Run:
    """What one engine did."""

    engine: str
    memories: int
    worker_jobs: int
    fsync_ms: float | None
    measured: tuple[Measured, ...]
    scale: Scale | None


Say = Callable[[str], None]


async def run(engine: str, wishes: Wishes, say: Say) -> Run:
    """Measure on a database that is made for it. Raises `Invalid` without a Postgres server."""
    with scratch(engine, wishes.db_url) as database:
        say(f"{engine}: writing {SMALL:,} and {wishes.memories:,} memories")
        operations = await _prepared(database, wishes.memories, say)
        settle(database)
        async with target(database, wishes.worker_jobs) as server:
            address = server.address
            measured: list[Measured] = []
            for concurrency in CONCURRENCIES:
                say(f"{engine}: concurrency {concurrency}")
                measured += await measure(
                    operations, partial(plain, address), "socket", concurrency, wishes.seconds
                )
            say(f"{engine}: concurrency 1, through the client of the SDK")
            measured += await measure(operations, partial(sdk, address), "sdk", 1, wishes.seconds)
        scaled = None
        if wishes.scale is not None:
            scaled = await scale(engine, database, wishes.scale, say)
        folder = database.parent if isinstance(database, Path) else None
        disk = fsync_ms(folder) if folder else None
    return Run(engine, wishes.memories, wishes.worker_jobs, disk, tuple(measured), scaled)


async def _prepared(database: Path | str, memories: int, say: Say) -> list[Operation]:
    texts = Texts(SEED)
    async with open_application(settings(database)) as built:

        async def tenant(name: str, count: int) -> str:
            ns = namespace(name)
            entry = built.services.audit.begin(ns, "create_token", "bench", None)
            token, _ = await built.services.access.issue(ns, label="bench", entry=entry)
            statements = [texts.statement() for _ in range(count)]
            await fill(built, ns, statements, lambda done: say(f"{name}: {done:,} of {count:,}"))
            return token

        small, large = await tenant("small", SMALL), await tenant("large", memories)
        empty = await tenant("empty", 0)
    questions = ({"query": texts.question()} for _ in _forever())
    stores = ({"text": texts.conversation()} for _ in _forever())
    return [
        Operation(FLOOR, empty, "whoami", dict),
        Operation("store", empty, "store_memory", lambda: next(stores)),
        Operation(f"search {SMALL:,}", small, "search_memories", lambda: next(questions)),
        Operation(f"search {memories:,}", large, "search_memories", lambda: next(questions)),
        Operation(f"inspect {memories:,}", large, "inspect_memories", dict),
    ]


def _forever() -> Iterator[None]:
    while True:
        yield None
