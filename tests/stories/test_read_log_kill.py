"""A server is killed during reads and changes. The audit log is whole, and has every change."""

import asyncio
import json
from datetime import UTC, datetime

import pytest

from recall_server.storage.driver import moment
from tests.support.length import at_full_length, has_full_length
from tests.support.processes import Database, Server, calling, new_token, recall
from tests.support.stored import ALICE, fact, opened, select

SEARCHES = at_full_length(1_000, otherwise=200)
STORES = at_full_length(100, otherwise=20)
CALLERS = 4


@has_full_length
@pytest.mark.slow
async def test_a_kill_loses_no_record_of_a_change_and_those_of_the_last_reads_only(
    database: Database,
) -> None:
    """Records are written in the order of the reads. So a read is lost only if no read that began
    after its answer is recorded.
    """
    token = (await new_token(database, ALICE))["token"]
    searches, stores = iter(range(SEARCHES)), iter(range(STORES))
    acknowledged: list[str] = []
    answered: list[datetime] = []

    async with Server(database, embedder="none") as server:

        async def search() -> None:
            async with calling(server.address, token) as call:
                for number in searches:
                    await call("search_memories", query=f"favourite colour number {number}")
                    answered.append(datetime.now(UTC))

        async def store() -> None:
            async with calling(server.address, token) as call:
                for number in stores:
                    stored = await call("store_memory", text=fact(number))
                    acknowledged.append(stored["job_id"])

        async with asyncio.TaskGroup() as group:
            for _ in range(CALLERS):
                group.create_task(search())
            group.create_task(store())
        await server.kill()

    verified = json.loads(await recall(database, "audit", "verify", "--json"))
    async with opened(database) as opened_store:
        lines = await select(
            opened_store,
            "SELECT operation, count(*) AS n, max(at) AS last FROM tool_call_records "
            "WHERE operation IN ('search_memories', 'store_memory') GROUP BY operation",
        )
    recorded = {line["operation"]: line["n"] for line in lines}
    (last,) = [moment(one["last"]) for one in lines if one["operation"] == "search_memories"]
    before = sum(at < last for at in answered)
    print(f"{recorded} of {len(answered)} searches, {before} before the last that is recorded")
    assert [one["namespace"] for one in verified] == [ALICE]
    assert verified[0]["seq"] >= recorded["search_memories"] + recorded["store_memory"]
    assert len(acknowledged) == recorded["store_memory"] == STORES
    assert before <= recorded["search_memories"] <= len(answered) == SEARCHES


async def test_a_server_that_is_told_to_stop_has_recorded_every_read(database: Database) -> None:
    token = (await new_token(database, ALICE))["token"]
    async with Server(database) as server, calling(server.address, token) as call:
        for _ in range(3):
            await call("search_memories", query="jam")
        assert await server.stop() == 0

    book = json.loads(await recall(database, "audit", "tail", "--json"))
    assert [line["operation"] for line in book] == ["create_token", *["search_memories"] * 3]
