"""A task when something fails inside, a client disconnects, or the server stops, and what callers
and the log see of it.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from recall_server.api.a2a import wire
from recall_server.api.app import create_app
from recall_server.domain.errors import DatabaseUnavailable
from recall_server.server import bound, listening
from recall_server.services.tasks import Tasks
from recall_server.storage.tables.tasks import TaskTable
from tests.support.a2a_bindings import (
    BY_HAND,
    INTERNAL,
    Json,
    Stream,
    Wire,
    call,
    fault,
    message,
)
from tests.support.a2a_clients import PORTO, at_work
from tests.support.application import Open
from tests.support.engines import on_sqlite
from tests.support.extractors import Scripted
from tests.support.logs import real_logs
from tests.support.server import WITHIN_S, Running

pytestmark = on_sqlite
both = pytest.mark.parametrize("binding", list(BY_HAND))

SECRET = "SELECT canary FROM runs; /etc/canary; token=canary"
FAILED, DONE = "TASK_STATE_FAILED", "TASK_STATE_COMPLETED"


@asynccontextmanager
async def opened(open_app: Open, **given: Any) -> AsyncIterator[Running]:
    async with (
        open_app(port=0, **given) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        yield Running(built, address)


def raises(error: Exception) -> Callable[..., Awaitable[Any]]:
    async def broken(*_: Any, **__: Any) -> Any:
        raise error

    return broken


def logged(capfd: pytest.CaptureFixture[str]) -> list[Json]:
    """Return what was logged: one JSON object on each line."""
    return [json.loads(line) for line in capfd.readouterr().err.splitlines()]


@both
@pytest.mark.parametrize("streaming", [False, True])
async def test_a_defect_of_the_work_fails_the_task_with_a_reference_and_no_cause(
    open_app: Open, capfd: pytest.CaptureFixture[str], binding: str, streaming: bool
) -> None:
    extractor = Scripted()
    extractor.fails = [ValueError(SECRET)]
    with real_logs():
        async with opened(open_app, extractor=extractor) as running, at_work(running):
            async with running.http(await running.token()) as http:
                wire = Wire(http, binding)
                if streaming:
                    async with wire.stream("SendStreamingMessage", message=message()) as stream:
                        events = await stream.rest()
                    status = events[-1]["statusUpdate"]["status"]
                    task = await wire.result("GetTask", id=events[0]["task"]["id"])
                else:
                    task = await wire.task(now=False)
                    status = task["status"]
                plain = (await http.get(f"/a2a/{task['id']}")).json()
                control = await wire.task(now=False)
            lines = await running.application.services.audit.newest(None, 100)

    assert status == task["status"]
    assert (status["state"], control["status"]["state"]) == (FAILED, DONE)
    (part,) = status["message"]["parts"]
    match = re.fullmatch(r"internal error \(ref (req_\w+)\)", part["text"])
    assert match is not None, part
    assert plain == {"id": task["id"], "status": "failed", "message": part["text"]}
    assert "artifacts" not in task
    assert [line.code for line in lines if line.request_id == match[1]] == ["INTERNAL_ERROR"]
    told = logged(capfd)
    assert [one["request_id"] for one in told if one["event"] == "consolidation_failed"] == [
        match[1]
    ]
    assert "canary" not in json.dumps([task, plain, told])


# Where the failure is, and which operation meets it.
BROKEN: list[tuple[type, str, str, Json]] = [
    (TaskTable, "get", "GetTask", {"id": "task_x"}),
    (TaskTable, "page", "ListTasks", {}),
    (TaskTable, "get", "CancelTask", {"id": "task_x"}),
    (TaskTable, "get", "SubscribeToTask", {"id": "task_x"}),
    (TaskTable, "add", "SendMessage", {"message": message()}),
    (TaskTable, "add", "SendStreamingMessage", {"message": message()}),
    (Tasks, "wait_until_idle", "SendMessage", {"message": message()}),
    (TaskTable, "version", "ListTaskPushNotificationConfigs", {"taskId": "task_x"}),
]


@both
@pytest.mark.parametrize("broken", BROKEN, ids=lambda one: f"{one[2]} {one[1]}")
async def test_a_defect_of_the_protocol_gives_a_reference_and_no_cause(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    binding: str,
    broken: tuple[type, str, str, Json],
) -> None:
    where, name, operation, params = broken
    async with running.http(await running.token()) as http:
        wire = Wire(http, binding)

        async def met(error: Exception) -> tuple[str, str]:
            """Return the answer, and what was logged."""
            with real_logs(), monkeypatch.context() as breaking:
                breaking.setattr(where, name, raises(error))
                answer = await wire.answer(operation, **params)
            assert fault(answer) == INTERNAL
            return answer.text, json.dumps(logged(capfd))

        defect, told = await met(ValueError(SECRET))
        away, _ = await met(DatabaseUnavailable())
        control = await wire.result("ListTasks")

    (reference,) = re.findall(r"req_\w+|[0-9a-f]{32}", defect)
    assert reference in told
    assert "ValueError" in told
    assert "canary" not in defect + told
    assert "DATABASE_UNAVAILABLE" in away
    assert control["nextPageToken"] == ""


@pytest.mark.parametrize(
    ("binding", "version"), [("JSONRPC", "1.0"), ("HTTP+JSON", "1.0"), ("JSONRPC", "0.3")]
)
async def test_a_stream_that_breaks_ends_with_an_error_and_no_cause(
    running: Running,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    binding: str,
    version: str,
) -> None:
    def broken(*_: Any) -> Any:
        raise ValueError(SECRET)

    async with running.http(await running.token()) as http:
        task = await Wire(http).task()
        made = BY_HAND[binding]("SubscribeToTask", id=task["id"])
        if version == "0.3":
            made = call("tasks/resubscribe", {"id": task["id"]})
        with real_logs():
            async with http.stream(
                made.method, made.path, json=made.body, headers={"A2A-Version": version}
            ) as answer:
                stream = Stream(answer)
                assert await stream.next()
                monkeypatch.setattr(wire, "update", broken)
                await running.extract()
                rest = await stream.rest()
        monkeypatch.undo()
        control = await Wire(http).result("GetTask", id=task["id"])

    (last,) = rest
    assert re.fullmatch(r"internal error \(ref \w+\)", last["error"]["message"]), last
    assert control["status"]["state"] == DONE
    assert "canary" not in json.dumps([rest, logged(capfd)])


HOSTILE: list[tuple[str, Json, Json]] = [
    ("ListTasks", {"status": "canary"}, {}),
    ("ListTasks", {"pageSize": "canary"}, {}),
    ("GetTask", {"id": "canary"}, {}),
    ("GetTask", {"id": "canary\x00"}, {}),
    ("SendMessage", {"message": "canary"}, {}),
    ("SendMessage", {"message": {"canary": 1}}, {}),
    ("SendMessage", {"message": message({"data": {"canary": 1}})}, {}),
    ("SendMessage", {"message": message(), "configuration": {"historyLength": "canary"}}, {}),
    ("SendStreamingMessage", {"message": message(taskId="canary")}, {}),
    ("ListTasks", {}, {"A2A-Version": "canary"}),
    ("ListTasks", {}, {"A2A-Extensions": "canary"}),
    ("ListTasks", {"tenant": "canary"}, {}),
]


async def test_nothing_that_was_sent_gets_into_the_log(
    running: Running, capfd: pytest.CaptureFixture[str]
) -> None:
    async with running.http(await running.token()) as http:
        with real_logs():
            for operation, params, headers in HOSTILE:
                for binding in BY_HAND:
                    made = BY_HAND[binding](operation, **params)
                    if made.body and "jsonrpc" in made.body:
                        made.body["id"] = "canary\nforged"
                    await Wire(http, binding).send(made, **headers)
            for method, params in (
                ("canary", {}),
                ("rpc.canary", {}),
                ("message/send", {"message": "canary"}),
                ("tasks/get", {"id": "canary"}),
            ):
                made = call(method, params)
                assert made.body is not None
                await Wire(http, version="").send(
                    type(made)("POST", made.path, {**made.body, "id": "canary"})
                )
            await http.post("/a2a", content=b"canary")
            await http.post("/a2a", json={"skill": "canary", "input": "canary"})
            await Wire(http).task({"text": "User: I live in Canary."})
            await running.extract()
            await http.get("/a2a/canary")
    lines = logged(capfd)

    assert [one for one in lines if one["event"] == "operation"]
    assert "canary" not in json.dumps(lines).lower()


async def test_a_client_that_hangs_up_stops_nothing_that_was_accepted(running: Running) -> None:
    async with running.http(await running.token()) as http:
        wire = Wire(http)
        waiting = asyncio.create_task(wire.task(now=False))
        async with asyncio.timeout(WITHIN_S):
            while not (listed := (await wire.result("ListTasks"))["tasks"]):
                pass
        waiting.cancel()
        await asyncio.wait({waiting})
        async with wire.stream("SendStreamingMessage", message=message({"text": PORTO})) as stream:
            second = await stream.next()
            assert second is not None
        assert waiting.cancelled()

        await running.extract()
        for task_id in (listed[0]["id"], second["task"]["id"]):
            state = (await wire.result("GetTask", id=task_id))["status"]["state"]
            assert state in (DONE, "TASK_STATE_INPUT_REQUIRED")
        # The server no longer waits for the client that disconnected.
        events = running.application.services.tasks.transitions.events
        async with asyncio.timeout(WITHIN_S):
            while events._subscriptions:
                await http.get("/health")


@pytest.mark.parametrize("operation", ["SubscribeToTask", "SendMessage", "SendStreamingMessage"])
async def test_who_waits_is_let_go_when_the_server_stops(
    open_app: Open, capfd: pytest.CaptureFixture[str], operation: str
) -> None:
    loop = asyncio.get_running_loop()
    with real_logs():
        async with (
            opened(open_app, drain_s=5) as running,
            running.http(await running.token()) as http,
        ):
            wire = Wire(http)
            task = await wire.task()
            params = (
                {"id": task["id"]} if operation == "SubscribeToTask" else {"message": message()}
            )
            events = running.application.services.tasks.transitions.events
            if operation == "SendMessage":
                unary = asyncio.create_task(wire.result(operation, **params))
                async with asyncio.timeout(WITHIN_S):
                    while not events._subscriptions:
                        await http.get("/health")
                running.application.stop()
                answered = (await unary)["task"]
            else:
                async with wire.stream(operation, **params) as stream:
                    first = await stream.next()
                    assert first is not None
                    answered = first["task"]
                    running.application.stop()
                    assert await stream.rest() == []
            started = loop.time()
        seconds = loop.time() - started

    assert answered["status"]["state"] == "TASK_STATE_SUBMITTED"
    assert seconds < WITHIN_S
    assert [one for one in logged(capfd) if one["level"] in ("error", "critical")] == []
