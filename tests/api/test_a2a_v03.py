"""Clients of A2A 0.3 send `message/send` and no version: requests by hand, and the SDK's own
client.
"""

from collections.abc import AsyncIterator
from uuid import uuid4

import httpx
import pytest
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.types import AgentCard

from tests.support.a2a_bindings import HOOK, Json, Stream, Wire, call, told
from tests.support.a2a_clients import (
    COMPLETED,
    INPUT_REQUIRED,
    LISBON,
    PORTO,
    asked,
    at_work,
    result,
    streamed,
)
from tests.support.a2a_clients import sent as sent_by
from tests.support.engines import on_sqlite
from tests.support.server import WITHIN_S, Running

pytestmark = on_sqlite

TASK_NOT_FOUND, NOT_CANCELABLE, UNSUPPORTED, NO_PARAMS = -32001, -32002, -32004, -32602
NO_CONFIG = TASK_NOT_FOUND
KEEP_NEW: Json = {"kind": "text", "text": "keep_new"}


@pytest.fixture
async def old(running: Running) -> AsyncIterator[Wire]:
    """Yield a client of Alice's namespace for 0.3."""
    async with running.http(await running.token()) as http:
        yield Wire(http, version="")


def said(part: Json, **given: str) -> Json:
    words = {"kind": "message", "messageId": uuid4().hex, "role": "user", "parts": [part]}
    return {"message": {**words, **given}}


async def task_of(old: Wire, part: Json, **given: str) -> Json:
    found = told(await old.send(call("message/send", said(part, **given))))
    assert found["kind"] == "task"
    return found


async def events_of(old: Wire, method: str, params: Json) -> list[Json]:
    body = call(method, params)
    async with old.http.stream("POST", body.path, json=body.body) as answer:
        return await Stream(answer).rest()


async def code_of(old: Wire, method: str, params: Json) -> int:
    error = (await old.send(call(method, params))).json()["error"]
    code: int = error["code"]
    assert error["message"]
    return code


async def test_a_question_is_asked_and_answered_in_the_words_of_0_3(
    running: Running, old: Wire
) -> None:
    async with at_work(running):
        await task_of(old, {"kind": "text", "text": LISBON})
        paused = await task_of(old, {"kind": "text", "text": PORTO})
        (question,) = [
            part["data"]["contradictions"][0]
            for part in paused["status"]["message"]["parts"]
            if part["kind"] == "data"
        ]
        answer = {"resolutions": [{"id": question["id"], "choice": "keep_new"}]}
        done = await task_of(old, {"kind": "data", "data": answer}, taskId=paused["id"])

    assert paused["status"]["state"] == "input-required"
    assert (done["id"], done["contextId"]) == (paused["id"], paused["contextId"])
    assert done["status"]["state"] == "completed"
    assert [one["role"] for one in done["history"]] == ["user", "agent", "user"]
    assert told(await old.send(call("tasks/get", {"id": done["id"]}))) == done


async def test_streams_of_0_3_begin_with_the_task_and_end_with_the_final_event(
    running: Running, old: Wire
) -> None:
    async with at_work(running):
        await task_of(old, {"kind": "text", "text": LISBON})
        begun = await events_of(old, "message/stream", said({"kind": "text", "text": PORTO}))
        task = begun[0]
        again = said(KEEP_NEW, taskId=task["id"])
        ended = await events_of(old, "message/stream", again)

    assert [one["kind"] for one in begun] == ["task", "status-update", "status-update"]
    assert [one["kind"] for one in ended] == ["task", "artifact-update", "status-update"]
    assert ended[-1]["final"]
    assert ended[-1]["status"]["state"] == "completed"


async def test_a_client_of_0_3_subscribes_again_and_hears_the_end(
    running: Running, old: Wire
) -> None:
    config = {"configuration": {"blocking": False}}
    first = said({"kind": "text", "text": LISBON})
    task = told(await old.send(call("message/send", {**first, **config})))
    body = call("tasks/resubscribe", {"id": task["id"]})
    async with old.http.stream("POST", body.path, json=body.body) as answer:
        stream = Stream(answer)
        assert await stream.next() == task
        async with at_work(running):
            heard = await stream.rest()

    assert [one["kind"] for one in heard] == ["status-update", "artifact-update", "status-update"]
    ended = await old.http.post(body.path, json=body.body)
    assert str(UNSUPPORTED) in ended.text


async def test_errors_have_the_codes_of_0_3(running: Running, old: Wire) -> None:
    async with at_work(running):
        done = await task_of(old, {"kind": "text", "text": LISBON})

    assert await code_of(old, "tasks/get", {"id": "task_unheard_of"}) == TASK_NOT_FOUND
    assert await code_of(old, "tasks/cancel", {"id": done["id"]}) == NOT_CANCELABLE
    ended = said(KEEP_NEW, taskId=done["id"])
    assert await code_of(old, "message/send", ended) == UNSUPPORTED


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("message/send", {}),
        ("message/send", {"message": "canary"}),
        ("message/send", said({"kind": "canary"})),
        ("message/send", said(KEEP_NEW, role="canary")),
        ("message/send", said(KEEP_NEW, role="agent")),
        ("message/send", {"message": {**said(KEEP_NEW)["message"], "parts": []}}),
        ("message/send", said({"kind": "data", "data": {"canary": 10**400}})),
        ("message/send", said({"kind": "data", "data": {}, "metadata": {"data_part_compat": 1}})),
        ("message/send", said({"kind": "file", "file": {"bytes": "can&ary"}})),
        ("message/send", {**said(KEEP_NEW), "configuration": {"historyLength": 2**40}}),
        ("message/stream", said({"kind": "data", "data": {"canary": 10**400}})),
        ("tasks/get", {"id": "x", "historyLength": 2**40}),
        ("tasks/get", {"id": "x", "historyLength": -1}),
        ("tasks/get", {"id": 5}),
        ("tasks/get", {"id": "x\x00canary"}),
        ("tasks/cancel", {"id": "canary" * 100}),
        ("tasks/pushNotificationConfig/set", {"taskId": "x"}),
    ],
)
async def test_what_cannot_be_read_is_refused_and_never_repeated(
    old: Wire, method: str, params: Json
) -> None:
    answer = await old.send(call(method, params))
    if answer.headers["Content-Type"].startswith("text/event-stream"):
        assert str(NO_PARAMS) in answer.text
    else:
        assert answer.json()["error"]["code"] == NO_PARAMS, answer.text
    assert "canary" not in answer.text


async def test_push_and_the_extended_card_are_there_for_clients_of_0_3(old: Wire) -> None:
    task = told(
        await old.send(
            call(
                "message/send",
                {
                    **said({"kind": "text", "text": LISBON}),
                    "configuration": {"blocking": False},
                },
            )
        )
    )
    config = {"url": HOOK, "id": "mine"}
    asked: list[tuple[str, Json]] = [
        ("set", {"taskId": task["id"], "pushNotificationConfig": config}),
        ("get", {"id": task["id"], "pushNotificationConfigId": "mine"}),
        ("list", {"id": task["id"]}),
        ("delete", {"id": task["id"], "pushNotificationConfigId": "mine"}),
    ]
    for name, params in asked:
        answer = await old.send(call(f"tasks/pushNotificationConfig/{name}", params))
        assert "error" not in answer.json(), name
    card = told(await old.send(call("agent/getAuthenticatedExtendedCard", {})))

    assert card["protocolVersion"] == "0.3"


@pytest.mark.parametrize("streaming", [False, True])
async def test_the_sdks_client_for_0_3_is_asked_and_answers(
    running: Running, streaming: bool
) -> None:
    token = await running.token()
    async with (
        at_work(running),
        httpx.AsyncClient(
            headers={"Authorization": f"Bearer {token}"},
            timeout=WITHIN_S,
            verify=False,
            trust_env=False,
        ) as http,
    ):
        card = AgentCard()
        card.CopyFrom(await A2ACardResolver(http, running.address).get_agent_card())
        old = [one for one in card.supported_interfaces if one.protocol_version == "0.3"]
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(old)
        client = ClientFactory(ClientConfig(httpx_client=http, streaming=streaming)).create(card)
        if streaming:
            first = await streamed(client, LISBON)
            assert first[0].HasField("task")
            assert first[-1].status_update.status.state == COMPLETED
            return
        await sent_by(client, LISBON)
        paused = await sent_by(client, PORTO)
        assert paused.status.state == INPUT_REQUIRED
        (question,) = asked(paused)
        answer = {"resolutions": [{"id": question["id"], "choice": "keep_new"}]}
        done = await sent_by(client, answer, task_id=paused.id)
        assert result(done)["superseded"]


async def test_a_push_config_is_asked_for_by_its_task_and_deleted_with_a_result(
    running: Running, old: Wire
) -> None:
    async with at_work(running):
        task = await task_of(old, {"kind": "text", "text": LISBON})
    asked = {"taskId": task["id"], "pushNotificationConfig": {"url": HOOK}}
    made = told(await old.send(call("tasks/pushNotificationConfig/set", asked)))
    config = made["pushNotificationConfig"]["id"]

    found = told(await old.send(call("tasks/pushNotificationConfig/get", {"id": task["id"]})))
    named = {"id": task["id"], "pushNotificationConfigId": config}
    deleted = await old.send(call("tasks/pushNotificationConfig/delete", named))

    assert found == made
    assert deleted.json()["result"] is None
    assert await code_of(old, "tasks/pushNotificationConfig/get", {"id": task["id"]}) == NO_CONFIG


async def test_whole_numbers_are_written_as_such_and_the_text_stands_first(
    running: Running, old: Wire
) -> None:
    async with at_work(running):
        done = await task_of(old, {"kind": "text", "text": f"{LISBON} At 6.0, that is."})

    text, data = done["artifacts"][0]["parts"]
    (memory,) = (one for one in data["data"]["memories"] if one["value"] == "Lisbon")
    assert (text["kind"], data["kind"]) == ("text", "data")
    assert isinstance(memory["source"]["start"], int)
    assert isinstance(data["data"]["rejected"], int)
    assert memory["confidence"] == pytest.approx(0.95)
    assert done["history"][0]["parts"][0]["text"].endswith("At 6.0, that is.")
