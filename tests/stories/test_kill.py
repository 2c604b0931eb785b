"""A server that is killed many times loses nothing and does nothing twice."""

import asyncio
import random
from collections import Counter

import httpx2
import pytest

from tests.support.length import at_full_length, has_full_length
from tests.support.processes import Caller, Database, Server, calling, new_token, until
from tests.support.stored import ALICE, applied, done, fact, opened, select

SEED = 20260301
STORES = at_full_length(1_000, otherwise=60)
KILLS = at_full_length(10, otherwise=2)
CALLERS = 8
# After this time, another worker takes the jobs of a killed server.
LEASE_S = 3
DRAINED_S = 180.0


class Story:
    """Callers store until each text is acknowledged, and the server is killed meanwhile."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._open = iter(range(STORES))
        self._up = asyncio.Event()
        self._changed = asyncio.Condition()
        self.acknowledged: list[int] = []
        self.unanswered = 0

    async def run(self, token: str, kills: list[tuple[int, float]]) -> None:
        """Let `CALLERS` store, and kill at each of `kills`: after this many stores and this many
        more seconds.
        """
        self._up.set()
        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(self._call(token))
            group.create_task(self._kill(kills))

    async def _call(self, token: str) -> None:
        async with calling(self._server.address, token) as call:
            for number in self._open:
                await self._store(call, number)
                async with self._changed:
                    self.acknowledged.append(number)
                    self._changed.notify_all()

    async def _store(self, call: Caller, number: int) -> None:
        """Store a text until it is acknowledged, with the same key each time."""
        while True:
            await self._up.wait()
            try:
                await call("store_memory", text=fact(number), idempotency_key=f"store-{number}")
            except httpx2.TransportError:
                self.unanswered += 1
                # If the server was not killed, another attempt would hide a defect.
                assert not self._server.alive or not self._up.is_set(), self._server.log()
            else:
                return

    async def _kill(self, kills: list[tuple[int, float]]) -> None:
        for count, seconds in kills:
            async with self._changed:
                while len(self.acknowledged) < count:
                    await self._changed.wait()
            await asyncio.sleep(seconds)  # This is the random moment.
            self._up.clear()
            await self._server.kill()
            await self._server.start()
            self._up.set()


@has_full_length
@pytest.mark.slow
async def test_acknowledged_stores_survive_kills_and_each_job_is_applied_once(
    database: Database,
) -> None:
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    kills = [(n, rng.uniform(0, 0.03)) for n in sorted(rng.sample(range(20, STORES - 20), KILLS))]
    token = (await new_token(database, ALICE))["token"]
    async with Server(database, lease_s=LEASE_S) as server, opened(database) as store:
        story = Story(server)
        await story.run(token, kills)
        await until(lambda: done(store), DRAINED_S, "all jobs are done")

        texts = [row["text"] for row in await select(store, "SELECT text FROM episodes")]
        jobs = await select(store, "SELECT id, kind, state FROM operations")
        memories = await select(store, "SELECT status, reinforcements FROM memories")
        words = await select(store, "SELECT documents FROM namespaces")
        vectors = await select(store, "SELECT item_id FROM embeddings")
        lines = await applied(store)
    print(f"{story.unanswered} stores were not answered")
    assert sorted(story.acknowledged) == list(range(STORES))
    assert sorted(texts) == sorted(map(fact, range(STORES)))
    assert Counter((job["kind"], job["state"]) for job in jobs) == {
        ("extract", "complete"): STORES,
        ("embed", "complete"): STORES,
    }
    assert lines == dict.fromkeys((job["id"] for job in jobs), 1)
    assert len(memories) == STORES
    assert {(m["status"], m["reinforcements"]) for m in memories} == {("active", 0)}
    # Words find each memory and its passage once.
    assert [row["documents"] for row in words] == [2 * STORES]
    assert len(vectors) == 2 * STORES
