"""Several servers and workers share one Postgres and act as one server."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack

import psycopg
import pytest

from tests.support.engines import Postgres
from tests.support.processes import (
    START_S,
    Caller,
    Process,
    Refused,
    Server,
    calling,
    new_token,
    recall,
    until,
)
from tests.support.stored import ALICE, applied, done, fact, opened, select

STORES = 40
REPLICAS = 8
DRAINED_S = 180.0


@pytest.mark.slow
async def test_two_servers_and_two_workers_on_one_postgres_are_one_memory(
    postgres: Postgres, migrated: str
) -> None:
    async with AsyncExitStack() as stack:
        database = stack.enter_context(postgres.database(migrated))
        token, other = await asyncio.gather(new_token(database, ALICE), new_token(database, ALICE))
        servers = [Server(database, worker_jobs=0, turn_wait_s=60) for _ in range(2)]
        workers = [Process(database, "worker", worker_poll_s=0.05) for _ in range(2)]
        store = await stack.enter_async_context(opened(database))
        await asyncio.gather(*map(stack.enter_async_context, [*servers, *workers]))
        first, second = [
            await stack.enter_async_context(calling(server.address, token["token"]))
            for server in servers
        ]

        async with asyncio.timeout(DRAINED_S), asyncio.TaskGroup() as group:
            for number in range(STORES):
                group.create_task(_stored(first, number))
        at_once = await second("search_memories", query="colour number 17", mode="keyword")
        await until(lambda: done(store), DRAINED_S, "all jobs are done")
        found = await second("search_memories", query="favourite colour number 17")
        told = await second("get_memory_stats")
        jobs = await select(store, "SELECT id, kind, state FROM operations")
        lines = await applied(store)

        assert "number 17" in at_once["results"][0]["text"]
        assert "number 17" in found["results"][0]["text"]
        assert found["results"][0]["type"] == "preference"
        assert (told["total"], told["pending_extractions"]) == (STORES, 0)
        assert Counter((job["kind"], job["state"]) for job in jobs) == {
            ("extract", "complete"): STORES,
            ("embed", "complete"): STORES,
        }
        assert lines == dict.fromkeys((job["id"] for job in jobs), 1)

        await recall(database, "tokens", "revoke", token["accessor"])
        for call in (first, second):
            with pytest.raises(Refused) as refused:
                await call("get_memory_stats")
            assert refused.value.status == 401
        third = await stack.enter_async_context(calling(servers[0].address, other["token"]))
        assert (await third("get_memory_stats"))["total"] == STORES
        assert [await process.stop() for process in (*servers, *workers)] == [0, 0, 0, 0]


@pytest.mark.slow
async def test_a_memory_stored_through_one_server_is_searched_by_its_vector_through_another(
    postgres: Postgres, migrated: str
) -> None:
    async with AsyncExitStack() as stack:
        database = stack.enter_context(postgres.database(migrated))
        token = (await new_token(database, ALICE))["token"]
        servers = [Server(database), Server(database, worker_jobs=0)]
        store = await stack.enter_async_context(opened(database))
        await asyncio.gather(*map(stack.enter_async_context, servers))
        writer, reader = [
            await stack.enter_async_context(calling(server.address, token)) for server in servers
        ]

        # The reader loads its matrix before the second memory is stored.
        texts = ("User: My favourite dish is ramen.", "User: My favourite colour is teal.")
        seen = []
        for text in texts:
            await writer("store_memory", text=text)
            await until(lambda: done(store), DRAINED_S, "all jobs are done")
            answer = await reader("search_memories", query=text, mode="vector")
            seen.append([hit["text"] for hit in answer["results"]])

        ramen, teal = "The user's favourite dish is ramen.", "The user's favourite colour is teal."
        assert seen == [[ramen], [teal, ramen]]


@pytest.mark.slow
async def test_eight_replicas_started_at_once_migrate_one_fresh_database(
    postgres: Postgres,
) -> None:
    async with AsyncExitStack() as stack:
        database = stack.enter_context(postgres.database())
        servers = [Server(database, worker_jobs=0) for _ in range(REPLICAS)]
        raw = stack.enter_context(psycopg.connect(database))
        # A process waits for a table with this name until its transaction ends. All eight wait
        # here, however long each took to start, until the table is rolled back.
        raw.execute("CREATE TABLE schema_version (version INTEGER)")

        async with asyncio.TaskGroup() as group:
            for server in servers:
                group.create_task(stack.enter_async_context(server))
            await until(lambda: _waiting(database, REPLICAS), START_S, "all replicas wait")
            raw.rollback()

        assert all(server.alive for server in servers)
        token = (await new_token(database, ALICE))["token"]
        async with calling(servers[-1].address, token) as call:
            assert (await call("get_memory_stats"))["total"] == 0
        versions = [row[0] for row in raw.execute("SELECT version FROM schema_version ORDER BY 1")]
        assert versions
        assert versions == list(range(1, len(versions) + 1))


async def _stored(call: Caller, number: int) -> None:
    """Store it, again if the server refuses it for now: on a slow machine so many wait too long for
    one another's locks.
    """
    while True:
        try:
            await call("store_memory", text=fact(number), idempotency_key=f"store-{number}")
        except Refused as refused:
            if refused.status != 503:
                raise
        else:
            return


async def _waiting(database: str, count: int) -> bool:
    """Return True if this many connections wait for a lock."""
    async with await psycopg.AsyncConnection.connect(database) as raw:
        cursor = await raw.execute(
            "SELECT count(*) FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        row = await cursor.fetchone()
    return row == (count,)
