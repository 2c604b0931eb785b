"""Another worker takes the jobs of a killed process at once. A living process keeps its jobs."""

import socket

import psycopg

from recall_server.bootstrap import open_application
from recall_server.storage.store import Store
from tests.support.application import settings_for
from tests.support.engines import on_postgres
from tests.support.processes import Database, Process, Server, calling, new_token, until
from tests.support.stored import ALICE, applied, done, fact, opened, select

HOUR_S = 3600
WITHIN_S = 60.0


async def test_a_killed_worker_loses_its_job_at_once_and_one_that_lives_keeps_it(
    database: Database,
) -> None:
    """The lease would hold the job for an hour. The worker keeps it busy with a model that never
    answers.
    """
    token = (await new_token(database, ALICE))["token"]
    async with Server(database, worker_jobs=0) as server, calling(server.address, token) as call:
        await call("store_memory", text=fact(1))
    with socket.create_server(("127.0.0.1", 0)) as silent:
        victim = Process(database, "worker", lease_s=HOUR_S, extractor="anthropic", embedder="none")
        victim._environment |= {
            "ANTHROPIC_API_KEY": "sk-ant-nobody",
            "ANTHROPIC_BASE_URL": f"http://127.0.0.1:{silent.getsockname()[1]}",
        }
        async with victim, opened(database) as store:

            async def taken() -> bool:
                (job,) = await select(store, "SELECT state FROM operations")
                return bool(job["state"] == "processing")

            await until(taken, WITHIN_S, f"the victim has the job: {victim.log()}")
            (held,) = await select(store, "SELECT holder FROM operations")
            settings = settings_for(database, lease_s=HOUR_S)
            async with open_application(settings) as looking:
                assert await looking.worker.take_back() == 0  # The control.
            async with Process(database, "worker", lease_s=HOUR_S, embedder="none") as heir:
                await victim.kill()
                await until(lambda: done(store), WITHIN_S, f"the job is done: {heir.log()}")
                jobs = await select(store, "SELECT id, attempt, failures FROM operations")
                lines = await applied(store)

    assert held["holder"] is not None
    assert [(job["attempt"], job["failures"]) for job in jobs] == [(2, 1)]
    assert lines == {jobs[0]["id"]: 1}


@on_postgres
async def test_a_worker_whose_connection_was_lost_shows_again_that_it_lives(
    store: Store, database: str
) -> None:
    async with store.driver.holding() as holder:
        assert holder.id is not None
        mine = [holder.id]
        assert await store.driver.gone(mine) == []
        with psycopg.connect(database, autocommit=True) as raw:
            raw.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_locks WHERE locktype = 'advisory'"
            )

        async def back() -> bool:
            return holder.id in mine and not await store.driver.gone(mine)

        await until(back, WITHIN_S, "it is held again")

    async def ended() -> bool:
        return list(await store.driver.gone(mine)) == mine

    await until(ended, WITHIN_S, "the server has ended the connection")
