"""Hostile input over A2A breaks nothing, is refused, and is not repeated in an answer."""

from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote

import pytest

from recall_server.api.a2a.card import JSONRPC_PATH, REST_PATH
from tests.support.a2a_bindings import (
    BY_HAND,
    INVALID,
    MEDIA,
    NOT_FOUND,
    Json,
    Wire,
    call,
    fault,
    message,
)
from tests.support.a2a_clients import at_work
from tests.support.engines import on_sqlite
from tests.support.hostile_a2a import (
    CONFIGURATIONS,
    IDS,
    LISTS,
    MESSAGES,
    TAKEN_LISTS,
    UNKNOWN_IDS,
    nested,
)
from tests.support.server import Running

# No path leads to the first id, and the second could forge a line.
NO_PATH = ("..", "canary\nforged")
# This is the default of the setting.
ANSWER_BYTES_MAX = 65_536
PARSE_ERROR, NO_METHOD = -32700, -32601


@pytest.fixture(params=list(BY_HAND))
async def wire(running: Running, request: pytest.FixtureRequest) -> AsyncIterator[Wire]:
    async with running.http(await running.token()) as http:
        yield Wire(http, request.param)


async def tasks(wire: Wire) -> int:
    count: int = (await wire.result("ListTasks"))["totalSize"]
    return count


@pytest.mark.parametrize("operation", ["SendMessage", "SendStreamingMessage"])
async def test_a_message_that_is_none_is_refused_and_makes_no_task(
    running: Running, wire: Wire, operation: str
) -> None:
    for name, said in MESSAGES.items():
        at_once = {"returnImmediately": True}
        answer = await wire.answer(operation, message=said, configuration=at_once)
        assert fault(answer) == INVALID, (name, answer.text)
        assert "canary" not in answer.text, name
    for name, configuration in CONFIGURATIONS.items():
        answer = await wire.answer(operation, message=message(), configuration=configuration)
        assert fault(answer) in (INVALID, MEDIA), (name, answer.text)
        assert "canary" not in answer.text, name
    assert await tasks(wire) == 0
    odd = message(
        {"data": {"text": "User: I ski.", "topic": "Ski \U0001f3bf"}}, metadata=nested(18)
    )
    await wire.task(**{**odd, "messageId": "\U0001f980 of mine"}, now=True)

    assert await tasks(wire) == 1
    await running.extract()


async def test_an_unpaired_surrogate_is_refused_before_anybody_reads_it(wire: Wire) -> None:
    body = b'{"jsonrpc":"2.0","id":1,"method":"ListTasks","params":{"contextId":"canary\\ud800"}}'
    path = JSONRPC_PATH if wire.binding == "JSONRPC" else f"{REST_PATH}/message:send"
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    answer = await wire.http.post(path, content=body, headers=headers)
    paired = body.replace(b"\\ud800", b"\\ud83d\\ude00").replace(b"canary", b"a")
    control = await wire.http.post(JSONRPC_PATH, content=paired, headers=headers)

    assert answer.json()["error"]["code"] in (PARSE_ERROR, 400)
    assert "canary" not in answer.text
    assert control.json()["result"]["totalSize"] == 0


async def test_an_id_that_cannot_be_one_is_refused_everywhere(wire: Wire) -> None:
    real = (await wire.task())["id"]
    operations: list[tuple[str, str, Json]] = [
        ("GetTask", "id", {}),
        ("CancelTask", "id", {}),
        ("SubscribeToTask", "id", {}),
        ("ListTaskPushNotificationConfigs", "taskId", {}),
        ("GetTaskPushNotificationConfig", "taskId", {"id": "x"}),
        ("DeleteTaskPushNotificationConfig", "taskId", {"id": "x"}),
    ]
    for operation, name, more in operations:
        for given, expected in ((IDS, INVALID), (UNKNOWN_IDS, NOT_FOUND)):
            for one in given:
                if wire.binding != "JSONRPC" and one in NO_PATH:
                    continue
                answer = await wire.answer(operation, **{name: one}, **more)
                assert fault(answer) == expected, (operation, one, answer.text)
                assert "canary" not in answer.text, operation
    for one in ("canary\x00", "canary" * 22, "canary", "\x00"):
        odd = {"taskId": real, "id": one}
        answer = await wire.answer("GetTaskPushNotificationConfig", **odd)
        assert fault(answer) == NOT_FOUND, one

    assert (await wire.result("GetTask", id=real))["id"] == real


async def test_the_plain_routes_refuse_the_same_ids(wire: Wire) -> None:
    for given, status in ((IDS, 400), (UNKNOWN_IDS, 404)):
        for one in given:
            path = f"{JSONRPC_PATH}/{quote(one, safe='')}"
            answers = [await wire.http.get(path)] if one not in NO_PATH else []
            answers.append(await wire.http.post(f"{path}/resume", json={"resolution": "keep_new"}))
            for answer in answers:
                assert answer.status_code == status, (one, answer.text)
                assert "canary" not in answer.text


async def test_a_list_is_only_given_to_what_can_be_asked(wire: Wire) -> None:
    task = await wire.task(contextId="a context of mine")
    for name, asked in LISTS.items():
        answer = await wire.answer("ListTasks", **asked)
        assert fault(answer) == INVALID, (name, answer.text)
        assert "canary" not in answer.text, name
    for asked in TAKEN_LISTS:
        assert "nextPageToken" in await wire.result("ListTasks", **asked), asked

    assert [one["id"] for one in (await wire.result("ListTasks"))["tasks"]] == [task["id"]]


@on_sqlite
@pytest.mark.parametrize(
    "part",
    [
        {"text": "canary " * ANSWER_BYTES_MAX},
        {"data": {"resolutions": ["canary"] * ANSWER_BYTES_MAX}},
        {"text": "keep_new", "metadata": {"a": "canary" * ANSWER_BYTES_MAX}},
        {"text": "keep_new \x00"},
    ],
    ids=["text", "data", "metadata", "nul"],
)
async def test_an_answer_too_large_or_odd_to_keep_is_refused(
    running: Running, wire: Wire, part: Json
) -> None:
    async with at_work(running):
        paused = await wire.paused()
        answer = await wire.answer("SendMessage", message=message(part, taskId=paused["id"]))
        after = await wire.result("GetTask", id=paused["id"])
        control = await wire.task({"text": "keep_new"}, now=False, taskId=paused["id"])

    assert fault(answer) == INVALID
    assert "canary" not in answer.text
    assert after == paused
    assert control["status"]["state"] == "TASK_STATE_COMPLETED"


@on_sqlite
@pytest.mark.parametrize(
    "part",
    [
        {"text": "canary"},
        {"data": {"resolutions": []}},
        {"data": {"resolutions": "canary"}},
        {"data": {"resolutions": [{"id": "q_canary", "choice": "keep_new"}]}},
        {"data": {"resolutions": [{"id": "canary' OR '1'='1", "choice": "keep_new"}]}},
        {"data": {"resolutions": [[["canary"]]]}},
        {"data": {"resolutions": [{"canary": 1}]}},
        {"data": {"resolutions": [None, 5, True]}},
        {"data": ["canary"]},
        {"data": 5},
        {"data": None},
        {"data": nested(17)},
        {"text": "1: keep_new, 1: keep_existing"},
        {"text": "9999: canary"},
        {"text": "keep_new keep_existing"},
    ],
    ids=str,
)
async def test_an_answer_that_is_none_is_asked_for_again(
    running: Running, wire: Wire, part: Json
) -> None:
    async with at_work(running):
        paused = await wire.paused()
        again = await wire.task(part, now=False, taskId=paused["id"])

    assert again["status"]["state"] == "TASK_STATE_INPUT_REQUIRED"
    (data,) = [one["data"] for one in again["status"]["message"]["parts"] if "data" in one]
    (before,) = [one["data"] for one in paused["status"]["message"]["parts"] if "data" in one]
    assert data["contradictions"] == before["contradictions"]
    assert data["problem"].endswith(".")
    assert "canary" not in str(again["status"])


@on_sqlite
async def test_a_method_that_is_not_there_does_nothing(running: Running, wire: Wire) -> None:
    methods = [
        "canary",
        "sendmessage",
        "SendMessage ",
        "__init__",
        "handle_requests",
        "rpc.discover",
        "tools/call",
        "message:send",
        "SendMessage\x00canary",
    ]
    for method in methods:
        answer = await wire.send(call(method, {"message": message()}))
        assert answer.json()["error"]["code"] in (NO_METHOD, -32600), method
        assert "canary" not in answer.text
    for method, path in (
        ("GET", "message:send"),
        ("DELETE", "tasks/x"),
        ("PUT", "tasks"),
        ("POST", "tasks/x:canary"),
        ("POST", "canary"),
        ("PATCH", "tasks/x/pushNotificationConfigs/y"),
    ):
        answer = await wire.http.request(method, f"{REST_PATH}/{path}", json={"a": "canary"})
        assert answer.status_code in (404, 405), path
        assert "canary" not in answer.text

    assert await tasks(wire) == 0


@on_sqlite
async def test_neither_notifications_nor_batches_are_carried_out(wire: Wire) -> None:
    sent: Any = call("SendMessage", {"message": message()}).body
    silent = {key: value for key, value in sent.items() if key != "id"}
    for body in (silent, [sent], [silent], [sent, sent], []):
        headers = {"A2A-Version": "1.0"}
        answer = await wire.http.post(JSONRPC_PATH, json=body, headers=headers)
        assert answer.json()["error"]["code"] == -32600
    assert await tasks(wire) == 0
    sent["params"]["configuration"] = {"returnImmediately": True}
    await wire.http.post(JSONRPC_PATH, json=sent, headers={"A2A-Version": "1.0"})

    assert await tasks(wire) == 1
