"""A task exists only for its own namespace. To all others, over every binding and route, it looks
as if it had never existed.
"""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx2
import pytest

from recall_server.api.a2a.card import JSONRPC_PATH, REST_PATH, SKILL
from tests.support.a2a_bindings import (
    NOT_FOUND,
    Json,
    Request,
    Stream,
    Wire,
    fault,
    message,
    of_rest,
    of_rpc,
    told,
)
from tests.support.a2a_clients import PORTO, at_work
from tests.support.a2a_requests import REQUESTS
from tests.support.engines import on_sqlite
from tests.support.server import Running


@dataclass(frozen=True)
class Two:
    """Alice has a paused task and has stored a secret. Bob has nothing."""

    alice: Wire
    bob: Wire
    task: Json

    @property
    def unknown(self) -> str:
        """An unknown id that differs from the id of Alice's task in one character."""
        known: str = self.task["id"]
        return known[:-1] + ("0" if known[-1] != "0" else "1")


@pytest.fixture
async def two(running: Running) -> AsyncIterator[Two]:
    async with (
        running.http(await running.token("alice")) as alice,
        running.http(await running.token("bob")) as bob,
    ):
        async with at_work(running):
            task = await Wire(alice).paused()
        yield Two(Wire(alice), Wire(bob), task)


async def _asked(wire: Wire, name: str, request: Request) -> tuple[int, bytes, Json]:
    """Return status, body and headers. Of an open stream, return its first event."""
    version = "" if name.startswith("0.3") else "1.0"
    async with wire.http.stream(
        request.method,
        request.path,
        params=request.query,
        json=request.body,
        headers={"A2A-Version": version},
    ) as answer:
        if answer.headers["Content-Type"].startswith("text/event-stream"):
            body = str(await Stream(answer).next()).encode()
        else:
            # Each problem names its own request.
            body = re.sub(rb'"instance":"req_[0-9a-z]+"', b"", await answer.aread())
        headers = {k: v for k, v in answer.headers.items() if k not in {"date", "x-request-id"}}
        return answer.status_code, body, headers


@pytest.mark.parametrize("binding", ["JSON-RPC", "REST", "0.3", "plain"])
async def test_anothers_task_is_answered_like_one_that_never_was(two: Two, binding: str) -> None:
    task_id = two.task["id"]
    await two.alice.send(REQUESTS["JSON-RPC set push"](task_id))
    for name, make in REQUESTS.items():
        if not name.startswith(binding):
            continue
        before = await two.alice.result("GetTask", id=task_id)
        foreign = await _asked(two.bob, name, make(task_id))
        never = await _asked(two.bob, name, make(two.unknown))
        after = await two.alice.result("GetTask", id=task_id)
        control = await _asked(two.alice, name, make(task_id))

        assert foreign == never, name
        assert b"TASK_NOT_FOUND" in foreign[1], name
        assert task_id.encode() not in foreign[1], name
        assert b"Lisbon" not in foreign[1], name
        assert after == before, name
        assert control[0] == 200, (name, control)
        assert b"error" not in control[1], (name, control)


async def test_a_list_holds_ones_own_tasks_only(two: Two) -> None:
    own = await two.bob.task({"text": "User: I have a heron."}, contextId=two.task["contextId"])
    token = (await two.alice.result("ListTasks", pageSize=1))["nextPageToken"]
    for binding in ("JSONRPC", "HTTP+JSON"):
        bob, alice = Wire(two.bob.http, binding), Wire(two.alice.http, binding)
        for wanted in ({}, {"contextId": two.task["contextId"]}, {"pageToken": ""}):
            found = await bob.result("ListTasks", **wanted)
            assert [task["id"] for task in found["tasks"]] == [own["id"]]
            assert found["totalSize"] == 1
            assert "Lisbon" not in str(found)
        stolen = await bob.answer("ListTasks", pageToken=token)
        assert stolen.content == (await bob.answer("ListTasks", pageToken="garbage")).content
        assert "INVALID_CURSOR" in stolen.text
        assert (await alice.result("ListTasks", pageToken=token))["totalSize"] == 2
        assert (await alice.result("ListTasks"))["totalSize"] == 2


@on_sqlite
async def test_anothers_plan_cannot_be_applied(running: Running, two: Two) -> None:
    planned = await two.alice.task({"data": {"text": "User: I ski.", "dry_run": True}})
    await running.extract()
    answers = [
        await two.bob.answer("SendMessage", message=message({"data": {"plan_id": plan}}))
        for plan in (planned["id"], two.unknown)
    ]
    applied = await two.alice.task({"data": {"plan_id": planned["id"]}})
    await running.extract()
    done = await two.alice.result("GetTask", id=applied["id"])

    assert answers[0].content == answers[1].content
    assert fault(answers[0])
    assert done["status"]["state"] == "TASK_STATE_COMPLETED"


@on_sqlite
async def test_a_tenant_in_a_request_is_never_authority(two: Two) -> None:
    task_id = two.task["id"]

    def requests(tenant: str) -> list[Request]:
        path, query = f"{REST_PATH}/{tenant}", {"tenant": tenant}
        given = {"message": message(), "tenant": tenant}
        return [
            of_rpc("GetTask", id=task_id, tenant=tenant),
            of_rpc("ListTasks", tenant=tenant),
            of_rpc("CancelTask", id=task_id, tenant=tenant),
            of_rpc("SendMessage", **given),
            of_rpc("GetExtendedAgentCard", tenant=tenant),
            Request("POST", JSONRPC_PATH, of_rpc("ListTasks").body, query),
            of_rest("SendMessage", **given),
            Request("GET", f"{path}/tasks"),
            Request("GET", f"{path}/tasks/{task_id}"),
            Request("POST", f"{path}/tasks/{task_id}:cancel"),
            Request("POST", f"{path}/message:send", {"message": message()}),
            Request("GET", f"{REST_PATH}/tasks", None, query),
            Request("POST", f"{REST_PATH}/tasks/{task_id}:cancel", None, query),
            Request("GET", f"{path}/extendedAgentCard"),
        ]

    for mine, another in zip(requests("alice"), requests("nobody_here"), strict=True):
        answers = [await two.bob.send(one) for one in (mine, another)]
        assert answers[0].content == answers[1].content, mine
        assert fault(answers[0]) == NOT_FOUND, mine
    assert (await two.bob.result("ListTasks"))["totalSize"] == 0
    assert await two.alice.result("GetTask", id=task_id) == two.task
    for own in (requests("alice")[0], requests("alice")[7], requests("alice")[8]):
        assert told(await two.alice.send(own)), own
    for own in (requests("bob")[1], requests("bob")[11]):
        assert told(await two.bob.send(own))["totalSize"] == 0, own


@on_sqlite
async def test_a_tenant_of_ones_own_in_one_place_opens_none_in_another(two: Two) -> None:
    mixed = Request(
        "POST", f"{REST_PATH}/alice/message:send", {"message": message(), "tenant": "bob"}
    )

    assert fault(await two.bob.send(mixed)) == NOT_FOUND


@on_sqlite
async def test_the_plain_routes_know_no_tenant(running: Running, two: Two) -> None:
    body = {"skill": SKILL, "input": {"text": PORTO, "topic": "life"}}
    refused = await two.bob.http.post(f"{JSONRPC_PATH}?tenant=alice", json=body)
    unknown = await two.bob.http.post(JSONRPC_PATH, json={**body, "tenant": "alice"})
    made = await two.bob.http.post(JSONRPC_PATH, json=body)
    task_id = made.json()["id"]

    async def status(wire: Wire, query: str = "") -> httpx2.Response:
        return await wire.http.get(f"{JSONRPC_PATH}/{task_id}{query}")

    assert [one.status_code for one in (refused, unknown, made)] == [400, 400, 202]
    assert (await status(two.bob, "?tenant=alice")).status_code == 400
    assert (await status(two.alice)).status_code == 404
    assert (await status(two.bob)).status_code == 200
    await running.extract()
    # Alice's memory does not contradict Bob's.
    assert (await status(two.bob)).json()["status"] == "completed"
