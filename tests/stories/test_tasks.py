"""A paused task is still there after the process, and the first answer counts."""

import asyncio
import json
import re
import sys
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from a2a.client import Client
from a2a.types import SubscribeToTaskRequest, Task, TaskState
from a2a.utils.errors import TaskNotFoundError, UnsupportedOperationError

from tests.support.a2a_clients import (
    COMPLETED,
    INPUT_REQUIRED,
    LISBON,
    PORTO,
    Reachable,
    agent,
    asked,
    got,
    result,
    sent,
)
from tests.support.engines import Postgres
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.paths import ROOT
from tests.support.processes import Database, Server, calling, new_token, recall
from tests.support.stored import ALICE

ANSWERS = 10


def answer(question: dict[str, object], choice: str = "keep_new") -> dict[str, object]:
    return {"resolutions": [{"id": question["id"], "choice": choice}]}


async def paused(server: Reachable, token: str) -> Task:
    async with agent(server, token) as client:
        await sent(client, LISBON)
        task = await sent(client, PORTO)
    assert task.status.state == INPUT_REQUIRED
    return task


@pytest.mark.slow
async def test_a_paused_task_outlives_a_kill_and_is_answered_by_another_agent(
    database: Database,
) -> None:
    mine, another, foreign = [
        (await new_token(database, name))["token"] for name in (ALICE, ALICE, "mallory")
    ]
    async with Server(database) as server:
        task = await paused(server, mine)
        (question,) = asked(task)
        await server.kill()
        await server.start()

        async with agent(server, foreign) as client:
            with pytest.raises(TaskNotFoundError):
                await got(client, task.id)
            with pytest.raises(TaskNotFoundError):
                await sent(client, answer(question), task_id=task.id)
        async with agent(server, another) as client:
            assert (await got(client, task.id)).status == task.status
            done = await sent(client, answer(question), task_id=task.id)

        outcome = result(done)
        (memory,) = outcome["memories"]
        assert memory["value"] == "Porto"
        assert outcome["superseded"] == [question["existing"][0]["memory_id"]]
        async with calling(server.address, mine) as call:
            told = await call("inspect_memories", memory_id=memory["id"])
        assert [one["value"] for one in told["memories"]] == ["Lisbon", "Porto"]
        (decision,) = told["memories"][1]["decisions"]
        assert decision["choice"] == "keep_new"
        assert decision["decided_by"].startswith("acc_")


@pytest.mark.slow
async def test_of_ten_answers_at_once_over_two_replicas_one_takes_effect(
    postgres: Postgres, migrated: str
) -> None:
    async with AsyncExitStack() as stack:
        database = stack.enter_context(postgres.database(migrated))
        token = (await new_token(database, ALICE))["token"]
        servers = [Server(database), Server(database)]
        await asyncio.gather(*map(stack.enter_async_context, servers))
        task = await paused(servers[0], token)
        (question,) = asked(task)

        async def answers(number: int) -> str:
            choice = ("keep_new", "keep_existing")[number % 2]
            async with agent(servers[number % 2], token) as client:
                try:
                    done = await sent(client, answer(question, choice), task_id=task.id)
                except UnsupportedOperationError as error:
                    return str((error.data or {})["code"])
                assert done.status.state == COMPLETED, done.status.message
                return choice

        said = Counter(await asyncio.gather(*map(answers, range(ANSWERS))))
        # These answers come while the server works on the first one, or after the task has ended.
        assert said.pop("NOT_WAITING", 0) + said.pop("TASK_ENDED", 0) == ANSWERS - 1
        (won,) = said
        async with agent(servers[1], token) as client:
            outcome = result(await got(client, task.id))
        async with calling(servers[0].address, token) as call:
            active = (await call("inspect_memories"))["memories"]
            (kept,) = [one["value"] for one in active]

        assert [one["choice"] for one in outcome["resolutions"]] == [won]
        assert kept == {"keep_new": "Porto", "keep_existing": "Lisbon"}[won]


@on_both_at_full_length
@has_full_length
@pytest.mark.slow
async def test_a_person_answers_on_the_command_line_or_over_http(database: Database) -> None:
    token = (await new_token(database, ALICE))["token"]
    async with Server(database) as server:
        task = await paused(server, token)
        (question,) = asked(task)

        listed = json.loads(await recall(database, "conflicts", "list", ALICE, "--json"))
        assert [(one["id"], one["task_id"]) for one in listed] == [(question["id"], task.id)]
        shown = await recall(database, "conflicts", "show", ALICE, question["id"])
        assert "I live in Lisbon" in shown
        assert "I live in Porto" in shown
        told = await recall(database, "conflicts", "resolve", ALICE, question["id"], "keep_both")
        assert task.id in told

        async with agent(server, token) as client:
            done = await completed(client, task.id)
        assert result(done)["resolutions"][0]["decided_by"] == "operator"


async def completed(client: Client, task_id: str) -> Task:
    """Wait until the server has completed the task that the command line answered."""
    async with asyncio.timeout(20):
        while True:
            task = await got(client, task_id)
            if task.status.state == COMPLETED:
                return task
            await asyncio.sleep(0.05)


@pytest.mark.slow
async def test_the_client_in_the_documents_works_as_it_is_written(tmp_path: Path) -> None:
    page = (ROOT / "docs/guide/a2a.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    program = tmp_path / "client.py"
    program.write_text(code, encoding="utf-8")
    database = tmp_path / "recall.db"
    token = (await new_token(database, ALICE))["token"]

    async with Server(database) as server:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            str(program),
            env={"RECALL_URL": server.address, "RECALL_TOKEN": token},
            stdout=asyncio.subprocess.PIPE,
        )
        printed, _ = await process.communicate()

    assert printed.decode().splitlines() == [
        "The user lives in Lisbon. / The user lives in Porto.",
        "fact - The user lives in Porto.",
    ]


@pytest.mark.slow
async def test_a_subscriber_on_another_replica_sees_every_event_in_order(
    postgres: Postgres, migrated: str
) -> None:
    async with AsyncExitStack() as stack:
        database = stack.enter_context(postgres.database(migrated))
        token = (await new_token(database, ALICE))["token"]
        servers = [Server(database), Server(database, worker_jobs=0)]
        await asyncio.gather(*map(stack.enter_async_context, servers))
        task = await paused(servers[0], token)
        (question,) = asked(task)
        seen: list[str] = []
        watching = asyncio.Event()

        async def watch(server: Server) -> None:
            async with agent(server, token, streaming=True) as client:
                async for event in client.subscribe(SubscribeToTaskRequest(id=task.id)):
                    kind = event.WhichOneof("payload")
                    state = event.status_update.status.state if kind == "status_update" else 0
                    seen.append(TaskState.Name(state) if state else str(kind))
                    watching.set()

        async with asyncio.TaskGroup() as group, asyncio.timeout(20):
            group.create_task(watch(servers[1]))
            await watching.wait()
            async with agent(servers[0], token) as client:
                done = await sent(client, answer(question), task_id=task.id)

        assert done.status.state == COMPLETED
        assert seen == [
            "task",
            "TASK_STATE_WORKING",
            "artifact_update",
            "TASK_STATE_COMPLETED",
        ]
