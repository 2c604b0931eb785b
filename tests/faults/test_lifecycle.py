"""A server is stopped or a client disconnects during a call. The call is done or not, and the same
key shows which.

Open streams: tests/security/test_streams.py; jobs: tests/integration/tasks/test_worker.py; clients
that never finish: tests/api/test_request_validation.py; tasks: tests/api/test_a2a_faults.py.
"""

import asyncio
from pathlib import Path

import httpx2
import pytest

from tests.support.faults import held
from tests.support.processes import Caller, Server, calling, new_token, until
from tests.support.stored import ALICE, opened, select

TEXT = "User: I live in Lisbon."
KEY = "key"
WITHIN_S = 60.0


async def stored(call: Caller) -> bool:
    """Return True if the text had been stored before."""
    answer = await call("store_memory", text=TEXT, idempotency_key=KEY)
    return bool(answer.get("cached"))


async def at_work(server: Server, token: str) -> "asyncio.Task[bool]":
    """Start a store, and return once the server has received it and waits for the database."""

    async def store() -> bool:
        async with calling(server.address, token) as call:
            return await stored(call)

    task = asyncio.create_task(store())
    async with httpx2.AsyncClient(verify=False, trust_env=False) as http:
        for _ in range(20):  # The requests sent before have arrived.
            assert (await http.get(f"{server.address}/health")).status_code == 200
    assert not task.done()
    return task


async def test_a_call_under_way_is_finished_by_a_server_that_is_told_to_stop(
    database: Path | str,
) -> None:
    """The server accepts no new caller, and exits with 0."""
    token = (await new_token(database, ALICE))["token"]
    async with Server(database, worker_jobs=0, embedder="none", drain_s=10) as server:
        async with calling(server.address, token) as call:
            await call("get_memory_stats")
        async with held(database):
            waiting = await at_work(server, token)
            stopping = asyncio.create_task(server.stop())

            async def closed() -> bool:
                async with httpx2.AsyncClient(verify=False, trust_env=False) as http:
                    try:
                        answer = await http.get(f"{server.address}/ready")
                    except httpx2.TransportError:
                        return True
                    return answer.status_code == 503

            await until(closed, WITHIN_S, "nobody new is let in")
            assert not waiting.done()
        answer, code = await waiting, await stopping
    async with opened(database) as store:
        rows = await select(store, "SELECT text FROM episodes")

    assert (answer, code) == (False, 0), server.log()
    assert [row["text"] for row in rows] == [TEXT]


async def test_a_client_that_hangs_up_in_the_midst_of_a_call_leaves_all_of_it_or_nothing(
    database: Path | str,
) -> None:
    """The same key shows whether the call was done, and does it once."""
    token = (await new_token(database, ALICE))["token"]
    async with Server(database, worker_jobs=0, embedder="none") as server:
        async with held(database):
            waiting = await at_work(server, token)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with calling(server.address, token) as call:
            await stored(call)
            again = await stored(call)
        async with opened(database) as store:
            rows = await select(store, "SELECT text FROM episodes")
            jobs = await select(store, "SELECT id FROM operations")
            turns = await select(store, "SELECT episode_id FROM turns")

    assert again
    assert [row["text"] for row in rows] == [TEXT]
    assert len(jobs) == len(turns) == 1
