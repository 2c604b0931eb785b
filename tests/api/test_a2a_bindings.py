"""What the A2A standard requires of the bindings: versions, errors, media types, push, and 0.3."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from recall_server import shipped
from recall_server.api.a2a.card import CARD_PATH, JSONRPC_PATH, REST_PATH
from tests.support.a2a_bindings import (
    BY_HAND,
    HOOK,
    INVALID,
    STATUSES,
    VERSION,
    Json,
    Request,
    Stream,
    Wire,
    call,
    fault,
    message,
    told,
    violations,
)
from tests.support.engines import on_sqlite
from tests.support.server import Running

pytestmark = on_sqlite
both = pytest.mark.parametrize("binding", list(BY_HAND))

PARSE_ERROR, NO_REQUEST, NO_METHOD, NO_PARAMS = -32700, -32600, -32601, -32602


@pytest.fixture
async def wire(running: Running) -> AsyncIterator[Wire]:
    async with running.http(await running.token()) as http:
        yield Wire(http)


@both
@pytest.mark.parametrize("version", ["1.0", "1.0.1"])
async def test_major_and_minor_of_the_version_count(wire: Wire, binding: str, version: str) -> None:
    assert await Wire(wire.http, binding, version).result("ListTasks")


@both
@pytest.mark.parametrize("version", ["", "0.3", "0.2", "1", "1.1", "1.5", "2.0", "v1.0", "canary"])
async def test_a_version_that_is_not_spoken_is_refused_and_none_is_0_3(
    wire: Wire, binding: str, version: str
) -> None:
    answer = await Wire(wire.http, binding, version).answer("ListTasks")

    assert fault(answer) == VERSION
    assert "canary" not in answer.text
    # A client that sends no version is told how to send one.
    assert ("A2A-Version: 1.0" in answer.text) == (version in {"", "0.3"})


@both
async def test_the_version_may_stand_in_the_query(wire: Wire, binding: str) -> None:
    asked = BY_HAND[binding]("ListTasks")
    asked.query["A2A-Version"] = "1.0"
    unversioned = Wire(wire.http, binding, "")

    assert told(await unversioned.send(asked))["totalSize"] == 0
    asked.query["A2A-Version"] = "9.9"
    assert fault(await unversioned.send(asked)) == VERSION


@both
async def test_unknown_extensions_are_ignored_and_none_is_required(
    wire: Wire, binding: str
) -> None:
    asked = BY_HAND[binding]("GetExtendedAgentCard")
    card = told(await wire.send(asked, **{"A2A-Extensions": "https://a.example/x, urn:y"}))

    assert card["capabilities"]["extensions"]
    assert not any(one.get("required") for one in card["capabilities"]["extensions"])
    assert "required" not in shipped("agent-card.json").read_text()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"", PARSE_ERROR),
        (b"canary", PARSE_ERROR),
        (b'{"jsonrpc":', PARSE_ERROR),
        (b'{"jsonrpc": "2.0", "id": 1, "id": 2}', PARSE_ERROR),
        (b'"\\ud800"', PARSE_ERROR),
        (b"[" * 100 + b"]" * 100, PARSE_ERROR),
        (b"null", NO_REQUEST),
        (b'"canary"', NO_REQUEST),
        (b"{}", NO_REQUEST),
        (b'{"jsonrpc": "1.0", "id": 1, "method": "ListTasks"}', NO_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": 5}', NO_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1}', NO_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "canary": 1}', NO_REQUEST),
        (b'{"jsonrpc": "2.0", "id": ["canary"], "method": "ListTasks"}', NO_REQUEST),
        (b'{"jsonrpc": "2.0", "id": true, "method": "ListTasks"}', NO_REQUEST),
        (b'{"jsonrpc": "2.0", "method": "ListTasks"}', NO_REQUEST),
        (b'[{"jsonrpc": "2.0", "id": 1, "method": "ListTasks"}]', NO_REQUEST),
        (b"[]", NO_REQUEST),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "canary"}', NO_METHOD),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "tasks/get", "params": {"id": "x"}}', NO_METHOD),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": []}', NO_PARAMS),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "ListTasks", "params": null}', NO_PARAMS),
        (b'{"jsonrpc": "2.0", "id": 1, "method": "GetTask", "params": {}}', NO_PARAMS),
    ],
)
async def test_json_rpc_says_in_its_own_codes_what_is_no_request(
    wire: Wire, body: bytes, code: int
) -> None:
    headers = {"A2A-Version": "1.0", "Content-Type": "application/json"}
    for path in (JSONRPC_PATH, f"{JSONRPC_PATH}/"):
        answer = await wire.http.post(path, content=body, headers=headers)
        shown = answer.json()
        assert answer.status_code == 200
        assert (shown["jsonrpc"], shown["error"]["code"]) == ("2.0", code)
        assert shown["error"]["message"]
        assert shown.get("id") == (1 if code in (NO_METHOD, NO_PARAMS) else shown.get("id"))
        assert "canary" not in answer.text


@pytest.mark.parametrize("request_id", [1, 0, -5, 2**60, "a", "", None])
async def test_the_answer_has_the_id_of_its_request(wire: Wire, request_id: Any) -> None:
    for method in ("ListTasks", "canary"):
        asked = Request("POST", JSONRPC_PATH, {**(call(method, {}).body or {}), "id": request_id})
        assert (await wire.send(asked)).json()["id"] == request_id


@pytest.mark.parametrize(
    ("body", "kind", "status"),
    [
        (b"canary", "application/json", 400),
        (b"", "application/json", 400),
        (b"[]", "application/json", 400),
        (b"{}", "text/plain", 415),
        (b"{}", "application/x-www-form-urlencoded", 415),
        (b'{"a": "' + b"canary" * 400_000 + b'"}', "application/a2a+json", 413),
    ],
)
async def test_rest_refuses_in_the_words_of_google_rpc(
    wire: Wire, body: bytes, kind: str, status: int
) -> None:
    headers = {"A2A-Version": "1.0", "Content-Type": kind}
    answer = await wire.http.post(f"{REST_PATH}/message:send", content=body, headers=headers)

    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (status, status)
    assert error["details"][0]["domain"] == "a2a-protocol.org"
    assert error["details"][0]["reason"] in STATUSES
    assert "canary" not in answer.text


async def test_rest_speaks_its_media_type_and_takes_both_ways_to_subscribe(wire: Wire) -> None:
    version = {"A2A-Version": "1.0"}
    sent = {"message": message(), "configuration": {"returnImmediately": True}}
    for kind in ("application/json", "application/a2a+json", "application/json; charset=utf-8"):
        headers = {**version, "Content-Type": kind}
        answer = await wire.http.post(f"{REST_PATH}/message:send", json=sent, headers=headers)
        assert answer.headers["Content-Type"].startswith("application/a2a+json"), kind
    task = told(answer)["task"]
    for method in ("GET", "POST"):
        path = f"{REST_PATH}/tasks/{task['id']}:subscribe"
        async with wire.http.stream(method, path, headers=version) as events:
            assert events.headers["Content-Type"].startswith("text/event-stream")
            assert await Stream(events).next() == {"task": task}, method


@both
async def test_errors_name_the_fields_and_how_to_do_better(wire: Wire, binding: str) -> None:
    spoken = Wire(wire.http, binding)
    wrong: list[tuple[str, Json, str]] = [
        ("ListTasks", {"status": "canary"}, "status"),
        ("ListTasks", {"pageSize": "canary"}, "pageSize"),
        ("GetTask", {"id": "x", "historyLength": "canary"}, "historyLength"),
        ("SendMessage", {"message": message(parts="canary")}, "message.parts"),
        ("SendMessage", {"message": message({"text": ["canary"]})}, "message.parts.text"),
        ("SendMessage", {"message": {"role": "ROLE_USER"}}, "message.parts"),
    ]
    for operation, params, field in wrong:
        answer = await spoken.answer(operation, **params)
        assert fault(answer) == INVALID
        assert field in violations(answer), (operation, params)
        assert "canary" not in answer.text


@both
async def test_nothing_is_answered_without_a_token(
    running: Running, wire: Wire, binding: str
) -> None:
    task = await wire.task()
    taken: list[tuple[str, Json]] = [
        ("SendMessage", {"message": message()}),
        ("SendStreamingMessage", {"message": message()}),
        ("GetTask", {"id": task["id"]}),
        ("ListTasks", {}),
        ("CancelTask", {"id": task["id"]}),
        ("SubscribeToTask", {"id": task["id"]}),
        ("CreateTaskPushNotificationConfig", {"taskId": task["id"], "url": HOOK}),
        ("GetTaskPushNotificationConfig", {"taskId": task["id"], "id": "x"}),
        ("ListTaskPushNotificationConfigs", {"taskId": task["id"]}),
        ("DeleteTaskPushNotificationConfig", {"taskId": task["id"], "id": "x"}),
        ("GetExtendedAgentCard", {}),
    ]
    async with running.http() as nobody:
        for operation, params in taken:
            answer = await Wire(nobody, binding).answer(operation, **params)
            assert answer.status_code == 401, operation
            assert answer.headers["WWW-Authenticate"].startswith("Bearer "), operation
    assert await wire.result("GetTask", id=task["id"]) == task


@both
async def test_who_has_a_token_gets_the_extended_card(
    running: Running, wire: Wire, binding: str
) -> None:
    extended = await Wire(wire.http, binding).result("GetExtendedAgentCard")
    async with running.http() as nobody:
        public = (await nobody.get(CARD_PATH)).json()

    assert extended["capabilities"]["extendedAgentCard"]
    for name in ("name", "version", "supportedInterfaces", "skills"):
        assert extended[name] == public[name]


async def test_answers_about_tasks_are_for_no_cache(running: Running, wire: Wire) -> None:
    task = await wire.task()
    rest = Wire(wire.http, "HTTP+JSON")
    answers = [
        await wire.answer("GetTask", id=task["id"]),
        await rest.answer("GetTask", id=task["id"]),
        await rest.answer("GetTask", id="unheard of"),
        await wire.http.get(f"{JSONRPC_PATH}/{task['id']}"),
    ]

    assert [answer.headers["Cache-Control"] for answer in answers] == ["no-store"] * 4
