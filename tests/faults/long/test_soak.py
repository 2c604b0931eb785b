"""Minutes of work while something breaks at random every few seconds. Afterwards acknowledged data
is stored once, and the server is as large as before.

`make soak`; SOAK_S=600 for ten minutes, SEED=… for the same run again. The clocks do not change
here: see test_time.py.
"""

import asyncio
import os
import random
import resource
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest
from starlette.types import Receive, Scope, Send

from recall_server.storage.postgres import POOL_SIZE
from recall_server.storage.sqlite.connection import JOURNAL_BYTES
from tests.support.engines import ENGINES
from tests.support.faults import held, limit, own_postgres, terminate, whole
from tests.support.models import ScriptedModel, _send, error, memories
from tests.support.network import Network, network
from tests.support.processes import (
    Database,
    Process,
    Refused,
    Server,
    calling,
    new_token,
    recall,
    until,
)
from tests.support.runtime import NOON
from tests.support.stored import ALICE, done, opened, select

SOAK_S = float(os.environ.get("SOAK_S", "120"))
SEED = int(os.environ.get("SEED", str(int(NOON.timestamp()))))
WRITERS = 4
READERS = 2
# A pause before the next fault, so that the server recovers from each one by itself.
CALM_S = (0.5, 3.0)
BROKEN_S = (0.5, 3.0)
# The share of the soak in which the server is killed too. After that it stays up, and is measured.
KILLING = 0.3
# The pause of a client without an answer.
REST_S = 0.1
RECOVERED_S = 60.0
SETTLED_S = 300.0
LEASE_S = 3
MEMORY = {"text": "Alice owns a bicycle.", "quote": "I own a bicycle"}


class MoodyModel(ScriptedModel):
    """A model that finds one memory in each text, or is overloaded."""

    overloaded = 0
    up = True

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self.overloaded += not self.up
        await _send(memories([MEMORY]) if self.up else error(529), receive, send)


@dataclass(frozen=True)
class Size:
    """The size of an idle process."""

    rss_kb: int
    files: int
    threads: int
    journal_bytes: int

    @classmethod
    def of(cls, process: Process, database: Database) -> "Size":
        folder = Path(f"/proc/{process.pid}")
        told = (folder / "status").read_text("utf-8")

        def number(name: str) -> int:
            return int(told.partition(f"{name}:")[2].split()[0])

        journal = Path(f"{database}-wal")
        length = journal.stat().st_size if isinstance(database, Path) and journal.exists() else 0
        return cls(number("VmRSS"), len(list((folder / "fd").iterdir())), number("Threads"), length)


@dataclass
class Soak:
    """A server and a worker, their clients, and the faults."""

    database: Database
    server: Server
    worker: Process
    model: MoodyModel
    between: Network | None
    restart: Callable[[], None] | None
    rng: random.Random
    token: str = ""
    acknowledged: list[str] = field(default_factory=list)
    numbers: Counter[int] = field(default_factory=Counter)
    found: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    broken: Counter[str] = field(default_factory=Counter)
    over: bool = False

    async def write(self, writer: int) -> None:
        """Store texts, each until it is acknowledged, with the same key each time."""
        async with calling(self.server.address, self.token) as call:
            while not self.over:
                key = f"{writer}-{self.numbers[writer]}"
                text = f"Alice: I own a bicycle. It is number {key}."
                if await self._tried(call("store_memory", text=text, idempotency_key=key)):
                    self.acknowledged.append(text)
                    self.numbers[writer] += 1

    async def read(self) -> None:
        async with calling(self.server.address, self.token) as call:
            while not self.over:
                search = call("search_memories", query="bicycle", mode="keyword")
                self.found += await self._tried(search)

    async def _tried(self, call: Awaitable[object]) -> bool:
        """Return True if a call was answered. The client may disconnect from it."""
        try:
            async with asyncio.timeout(self.rng.choice((0.02, 20.0, 20.0, 20.0))):
                await call
        except (Refused, httpx2.TransportError, TimeoutError) as failed:
            self.refused[type(failed).__name__] += 1
            await asyncio.sleep(REST_S)
            return False
        return True

    async def break_(self, seconds: float, *, killing: bool) -> None:
        """Cause one fault after the other for this many seconds."""
        ends = time.monotonic() + seconds
        ways = self._ways(killing=killing)
        while time.monotonic() < ends:
            await asyncio.sleep(self.rng.uniform(*CALM_S))
            name = self.rng.choice(sorted(ways))
            self.broken[name] += 1
            await ways[name]()

    def _ways(self, *, killing: bool) -> Mapping[str, Callable[[], Awaitable[None]]]:
        ways = {"worker killed": lambda: self._killed(self.worker), "model overloaded": self._moody}
        if killing:
            ways["server killed"] = lambda: self._killed(self.server)
        if self.between is None:
            return {**ways, "disk full": self._full, "database locked": self._locked}
        more = {"link down": self._vanished, "cut off": self._cut}
        if killing:  # A failover does the same, and gives the same answer.
            more["postgres killed"] = self._fallen
        return {**ways, **more}

    async def _while(self) -> None:
        await asyncio.sleep(self.rng.uniform(*BROKEN_S))

    async def _killed(self, process: Process) -> None:
        await process.kill()
        await process.start()

    async def _moody(self) -> None:
        before, self.model.up = self.model.overloaded, False

        async def asked() -> bool:
            return self.model.overloaded > before

        await until(asked, RECOVERED_S, "the model is asked")
        await self._while()
        self.model.up = True

    async def _full(self) -> None:
        """A file that may not grow stands for the full disk."""
        assert isinstance(self.database, Path)
        size = max(self.database.stat().st_size, Size.of(self.server, self.database).journal_bytes)
        room = limit(self.server, resource.RLIMIT_FSIZE, size)
        await self._while()
        limit(self.server, resource.RLIMIT_FSIZE, room)

    async def _locked(self) -> None:
        async with held(self.database):
            await self._while()

    async def _vanished(self) -> None:
        assert self.between is not None
        self.between.vanish()
        await self._while()
        self.between.return_()

    async def _cut(self) -> None:
        await asyncio.to_thread(terminate, str(self.database))

    async def _fallen(self) -> None:
        assert self.restart is not None
        await asyncio.to_thread(self.restart)

    async def settled(self) -> Size:
        """Return how large the server is when no job is left."""
        async with opened(self.database) as store:
            await until(lambda: done(store), SETTLED_S, "all jobs are done")
        return Size.of(self.server, self.database)

    async def run(self, seconds: float, *, killing: bool) -> None:
        """Run clients and faults for this many seconds. Then everything works again within a
        minute.
        """
        self.over = False
        writers = [asyncio.create_task(self.write(n)) for n in range(WRITERS)]
        readers = [asyncio.create_task(self.read()) for _ in range(READERS)]
        await self.break_(seconds, killing=killing)
        before = len(self.acknowledged)

        async def goes_on() -> bool:
            return len(self.acknowledged) > before + WRITERS

        await until(goes_on, RECOVERED_S, "it takes texts again")
        self.over = True
        await asyncio.gather(*writers, *readers)


@asynccontextmanager
async def soaking(engine: str, folder: Path) -> AsyncIterator[Soak]:
    async with AsyncExitStack() as stack:
        model = await stack.enter_async_context(MoodyModel())
        database: Database = folder / "recall.db"
        between = restart = None
        if engine == "postgres":
            postgres, restart = stack.enter_context(own_postgres())
            database = stack.enter_context(postgres.database())
        token = (await new_token(database, ALICE))["token"]
        at = database
        if isinstance(database, str):
            between = await stack.enter_async_context(network(database))
            at = between.url
        settings = {"lease_s": LEASE_S, "embedder": "none", "extractor": "anthropic"}
        server = Server(at, worker_jobs=0, **settings)
        worker = Process(at, "worker", **settings)
        for process in (server, worker):
            process._environment |= {
                "ANTHROPIC_API_KEY": "sk-ant-nobody",
                "ANTHROPIC_BASE_URL": model.url,
            }
            await stack.enter_async_context(process)
        rng = random.Random(SEED)
        yield Soak(database, server, worker, model, between, restart, rng, token)


@pytest.mark.parametrize("engine", ENGINES)
async def test_what_was_acknowledged_outlasts_whatever_breaks_and_nothing_grows(
    engine: str, tmp_path: Path
) -> None:
    print(f"\n{engine}: {SOAK_S:.0f} s, seed {SEED}")
    async with soaking(engine, tmp_path) as soak:
        await soak.run(KILLING * SOAK_S, killing=True)
        first = await soak.settled()
        await soak.run((1 - KILLING) * SOAK_S, killing=False)
        last = await soak.settled()
        log = await recall(soak.database, "audit", "verify")
        async with opened(soak.database) as store:
            rows = await select(store, "SELECT text FROM episodes")
            jobs = await select(store, "SELECT kind, state FROM operations")
        stopped = await soak.server.stop()
    kept, told = Counter(row["text"] for row in rows), Counter(soak.acknowledged)
    print(f"broken: {dict(soak.broken)}; not answered: {dict(soak.refused)}")
    print(f"{len(told)} texts acknowledged, {soak.found} searches, {len(rows)} texts kept")
    print(f"first {first}\nlast  {last}\n{log.strip()}")

    assert told, "nothing was acknowledged, so nothing could be lost"
    assert len(soak.broken) >= 3
    assert soak.model.overloaded
    assert set(told) <= set(kept)
    assert set(kept.values()) == {1}
    assert {job["state"] for job in jobs} == {"complete"}
    assert stopped == 0
    if isinstance(soak.database, Path):
        assert whole(soak.database)
    assert last.threads <= first.threads * 1.1
    # The server keeps an idle connection to Postgres for ten minutes.
    pool = 0 if isinstance(soak.database, Path) else POOL_SIZE
    assert last.files <= first.files * 1.1 + pool
    assert last.journal_bytes <= JOURNAL_BYTES
    assert last.rss_kb <= first.rss_kb * 1.1
