"""One run: a database, its memories, a server of its own, and every operation through it."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from recall_server.app import house
from recall_server.bench.clients import plain, sdk
from recall_server.bench.databases import fsync_ms, scratch, settle
from recall_server.bench.fill import fill
from recall_server.bench.load import FLOOR, Measured, Operation, measure
from recall_server.bench.texts import Texts
from recall_server.config import Settings
from recall_server.domain.errors import Unavailable
from recall_server.domain.model import namespace

SEED = 20260301
SMALL = 1_000
START_S = 30.0
STOP_S = 15.0
CONCURRENCIES = (1, 8, 32)


@dataclass(frozen=True)
class Wishes:
    """What is asked for on the command line."""

    memories: int
    seconds: float
    worker_jobs: int
    db_url: str | None


@dataclass(frozen=True)
class Run:
    """What one engine did."""

    engine: str
    memories: int
    worker_jobs: int
    fsync_ms: float | None
    measured: tuple[Measured, ...]


Say = Callable[[str], None]


async def run(engine: str, wishes: Wishes, say: Say) -> Run:
    """Measure on a database that is made for it. Raises `Invalid` without a Postgres server."""
    with scratch(engine, wishes.db_url) as database:
        say(f"{engine}: writing {SMALL:,} and {wishes.memories:,} memories")
        operations = await _prepared(database, wishes.memories, say)
        settle(database)
        async with _served(database, wishes.worker_jobs) as address:
            measured: list[Measured] = []
            for concurrency in CONCURRENCIES:
                say(f"{engine}: concurrency {concurrency}")
                measured += await measure(
                    operations, partial(plain, address), "socket", concurrency, wishes.seconds
                )
            say(f"{engine}: concurrency 1, through the client of the SDK")
            measured += await measure(operations, partial(sdk, address), "sdk", 1, wishes.seconds)
        folder = database.parent if isinstance(database, Path) else None
        disk = fsync_ms(folder) if folder else None
    return Run(engine, wishes.memories, wishes.worker_jobs, disk, tuple(measured))


def _settings(database: Path | str, worker_jobs: int = 0) -> Settings:
    given = {"extractor": "rules", "port": 0, "worker_jobs": worker_jobs}
    if isinstance(database, str):
        return Settings(db_url=database, **given)
    # The environment may name the operator's own Postgres: nothing is measured on that.
    return Settings(db_path=database, **given).model_copy(update={"db_url": None})


async def _prepared(database: Path | str, memories: int, say: Say) -> list[Operation]:
    texts = Texts(SEED)
    async with house(_settings(database)) as built:

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
        Operation(FLOOR, empty, "noop", dict),
        Operation("store", empty, "store_memory", lambda: next(stores)),
        Operation(f"search {SMALL:,}", small, "search_memories", lambda: next(questions)),
        Operation(f"search {memories:,}", large, "search_memories", lambda: next(questions)),
        Operation(f"inspect {memories:,}", large, "inspect_memories", dict),
    ]


def _forever() -> Iterator[None]:
    while True:
        yield None


@asynccontextmanager
async def _served(database: Path | str, worker_jobs: int) -> AsyncIterator[str]:
    """The address of a server in a process of its own, with the settings of production."""
    settings = _settings(database, worker_jobs)
    given = {
        "RECALL_DB_URL" if isinstance(database, str) else "RECALL_DB_PATH": str(database),
        "RECALL_EXTRACTOR": settings.extractor,
        "RECALL_PORT": "0",
        "RECALL_WORKER_JOBS": str(worker_jobs),
    }
    ours = {key: value for key, value in os.environ.items() if not key.startswith("RECALL_")}
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "recall_server.bench.target"),
            env={**ours, **given},
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(START_S):
                address = (await process.stdout.readline()).decode().strip()
            if not address:
                log.seek(0)
                raise Unavailable(f"The server did not start: {log.read()[-500:].decode()}")
            yield address
        finally:
            if process.returncode is None:
                process.terminate()
            async with asyncio.timeout(STOP_S):
                await process.wait()
