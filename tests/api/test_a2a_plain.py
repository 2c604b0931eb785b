"""The plain routes: a task without a protocol, by `POST /a2a`, `GET /a2a/ID` and its resume."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from recall_server.api.a2a.card import JSONRPC_PATH, SKILL
from tests.support.a2a_bindings import Json, Wire
from tests.support.a2a_clients import LISBON, PORTO
from tests.support.engines import on_sqlite
from tests.support.server import Running

pytestmark = on_sqlite

TWO = "User: I live in Porto. My favourite colour is red."


@pytest.fixture
async def http(running: Running) -> AsyncIterator[httpx2.AsyncClient]:
    async with running.http(await running.token()) as opened:
        yield opened


async def made(http: httpx2.AsyncClient, **given: Any) -> Json:
    answer = await http.post(JSONRPC_PATH, json={"skill": SKILL, "input": given})
    assert answer.status_code == 202, answer.text
    found: Json = answer.json()
    assert found == {"id": found["id"], "status": "submitted"}
    return found


async def got(http: httpx2.AsyncClient, task: Json) -> Json:
    answer = await http.get(f"{JSONRPC_PATH}/{task['id']}")
    assert answer.status_code == 200, answer.text
    found: Json = answer.json()
    return found


async def resumed(http: httpx2.AsyncClient, task: Json, **given: Any) -> httpx2.Response:
    return await http.post(f"{JSONRPC_PATH}/{task['id']}/resume", json=given)


async def paused(running: Running, http: httpx2.AsyncClient, text: str = PORTO) -> Json:
    known = "User: I live in Lisbon. My favourite colour is blue." if text == TWO else LISBON
    for one in (known, text):
        task = await made(http, text=one, topic="life")
        await running.extract()
    found = await got(http, task)
    assert found["status"] == "input-required", found
    return found


async def test_a_text_is_taken_at_once_and_its_memories_fetched_later(
    running: Running, http: httpx2.AsyncClient
) -> None:
    task = await made(http, text=LISBON, topic="life")
    before = await got(http, task)
    await running.extract()
    after = await got(http, task)

    assert before == {"id": task["id"], "status": "submitted"}
    assert after["status"] == "completed"
    (memory,) = after["output"]["memories"]
    assert (memory["value"], memory["topic"], memory["type"]) == ("Lisbon", "life", "fact")


async def test_one_resolution_answers_all_that_is_asked(
    running: Running, http: httpx2.AsyncClient
) -> None:
    task = await paused(running, http, TWO)
    answer = await resumed(http, task, resolution="keep_new")
    await running.extract()
    done = await got(http, task)

    assert len(task["output"]["contradictions"]) == 2
    assert (answer.status_code, answer.json()["status"]) == (200, "working")
    assert done["status"] == "completed"
    assert {memory["value"] for memory in done["output"]["memories"]} == {"Porto", "red"}


async def test_resolutions_answer_one_by_one(running: Running, http: httpx2.AsyncClient) -> None:
    task = await paused(running, http, TWO)
    first, second = [one["id"] for one in task["output"]["contradictions"]]
    half = await resumed(http, task, resolutions=[{"id": first, "choice": "keep_new"}])
    whole = await resumed(http, task, resolutions=[{"id": second, "choice": "keep_existing"}])
    await running.extract()
    done = await got(http, task)

    assert half.json()["status"] == "input-required"
    assert [one["id"] for one in half.json()["output"]["contradictions"]] == [second]
    assert half.json()["message"]
    assert whole.json()["status"] == "working"
    assert {one["id"]: one["choice"] for one in done["output"]["resolutions"]} == {
        first: "keep_new",
        second: "keep_existing",
    }


async def test_an_unclear_resolution_says_why_and_the_task_goes_on_waiting(
    running: Running, http: httpx2.AsyncClient
) -> None:
    task = await paused(running, http)
    unclear = await resumed(http, task, resolution="canary")
    wrong = await resumed(http, task, resolutions=[{"id": "q_canary", "choice": "keep_new"}])

    for answer in (unclear, wrong):
        assert answer.json()["status"] == "input-required"
        assert answer.json()["message"].endswith(".")
        assert "canary" not in answer.text
    assert (await resumed(http, task, resolution="keep_both")).json()["status"] == "working"


async def test_what_is_answered_or_ended_is_not_resumed(
    running: Running, http: httpx2.AsyncClient
) -> None:
    task = await paused(running, http)
    await resumed(http, task, resolution="keep_new")
    again = await resumed(http, task, resolution="keep_existing")
    await running.extract()
    ended = await resumed(http, task, resolution="keep_existing")

    assert (again.status_code, again.json()["code"]) == (409, "NOT_WAITING")
    assert (ended.status_code, ended.json()["code"]) == (409, "NOT_WAITING")
    values = [memory["value"] for memory in (await got(http, task))["output"]["memories"]]
    assert values == ["Porto"]


@pytest.mark.parametrize(
    "body",
    [
        {"skill": "canary", "input": {"text": LISBON}},
        {"skill": 5, "input": {"text": LISBON}},
        {"skill": SKILL},
        {"skill": SKILL, "input": "canary"},
        {"skill": SKILL, "input": {"text": 5}},
        {"skill": SKILL, "input": {"text": "canary\x00"}},
        {"skill": SKILL, "input": {"text": " "}},
        {"skill": SKILL, "input": {"text": LISBON, "canary": 1}},
        {"skill": SKILL, "input": {"text": LISBON, "topic": "canary\x00"}},
        {"skill": SKILL, "input": {"text": LISBON, "session_id": "canary\x00"}},
        {"skill": SKILL, "input": {"text": LISBON, "policy": "canary"}},
        {"skill": SKILL, "input": {"text": LISBON, "expires_in": 10**400}},
        {"skill": SKILL, "input": {"plan_id": "canary\x00"}},
    ],
    ids=str,
)
async def test_an_input_that_is_none_is_refused_and_makes_no_task(
    http: httpx2.AsyncClient, body: Json
) -> None:
    answer = await http.post(JSONRPC_PATH, json=body)

    assert answer.status_code == 400, answer.text
    assert "canary" not in answer.text
    assert (await Wire(http).result("ListTasks"))["totalSize"] == 0
    assert await made(http, text=LISBON, topic="life", session_id="s-1", expires_in=60)


async def test_a_text_that_is_empty_is_refused_and_merges_nothing(
    running: Running, http: httpx2.AsyncClient
) -> None:
    """The control: without a text, the similar memories of the topic are merged."""
    empty = await http.post(JSONRPC_PATH, json={"skill": SKILL, "input": {"text": ""}})
    assert (empty.status_code, empty.json()["code"]) == (400, "EMPTY_TEXT")
    assert (await Wire(http).result("ListTasks"))["totalSize"] == 0

    merge = await made(http, topic="life")
    await running.extract()
    assert (await got(http, merge))["status"] == "completed"


@pytest.mark.parametrize(
    "body", [{}, [], "canary", None, {"resolution": 5}, {"resolution": None}, {"canary": 1}]
)
async def test_a_resolution_that_is_none_is_refused(
    running: Running, http: httpx2.AsyncClient, body: Any
) -> None:
    task = await paused(running, http)
    answer = await http.post(f"{JSONRPC_PATH}/{task['id']}/resume", json=body)
    nothing = await http.post(f"{JSONRPC_PATH}/{task['id']}/resume")

    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_ARGUMENT")
    assert nothing.status_code == 400
    assert "canary" not in answer.text
    assert await got(http, task) == task


async def test_the_plain_routes_say_what_is_not_there_and_not_taken(
    running: Running, http: httpx2.AsyncClient
) -> None:
    task = await made(http, text=LISBON)
    unknown = {"id": "task_unheard_of"}
    path = f"{JSONRPC_PATH}/{task['id']}"

    assert (await http.get(f"{JSONRPC_PATH}/task_unheard_of")).status_code == 404
    assert (await resumed(http, unknown, resolution="keep_new")).status_code == 404
    assert (await http.get(f"{path}/resume")).status_code == 405
    assert (await http.delete(path)).status_code == 405
    assert (await http.get(JSONRPC_PATH)).status_code == 405
    async with running.http() as nobody:
        for answer in (
            await nobody.post(JSONRPC_PATH, json={"skill": SKILL, "input": {"text": LISBON}}),
            await nobody.get(path),
            await nobody.post(f"{path}/resume", json={"resolution": "keep_new"}),
        ):
            assert answer.status_code == 401
