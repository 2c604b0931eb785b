"""The routes of mem0's servers are another form of the operations, and are off by default."""

from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from recall_server.domain.permissions import AccessScope, Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.engines import on_sqlite
from tests.support.server import Running, Serve

pytestmark = on_sqlite
Json = dict[str, Any]
SAID = [{"role": "user", "content": "I live in Lisbon."}]


@pytest.fixture
async def mem0(serve: Serve) -> AsyncIterator[Running]:
    async with serve(mem0=True) as running:
        yield running


async def asked(http: httpx2.AsyncClient, method: str, path: str, **given: Any) -> Any:
    answer = await http.request(method, f"/mem0{path}", **given)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_nothing_of_it_is_there_unless_asked_for(running: Running) -> None:
    async with running.http(await running.token()) as http:
        answer = await http.get("/mem0/memories")

    assert answer.status_code == 404


async def test_memories_are_added_listed_found_and_deleted_by_user(mem0: Running) -> None:
    async with mem0.http(await mem0.token()) as http:
        added = await asked(
            http, "POST", "/memories",
            json={"messages": SAID, "user_id": "ana", "run_id": "r1", "metadata": {"k": 1}},
        )  # fmt: skip
        await asked(http, "POST", "/memories", json={"messages": SAID, "user_id": "bo"})
        await mem0.extract()
        listed = await asked(http, "GET", "/memories", params={"user_id": "ana"})
        [memory] = listed["results"]
        found = await asked(
            http, "POST", "/search", json={"query": "Where?", "filters": {"user_id": "ana"}}
        )
        by_run = await asked(http, "GET", "/memories", params={"run_id": "r1"})
        one = await asked(http, "GET", f"/memories/{memory['id']}")
        history = await asked(http, "GET", f"/memories/{memory['id']}/history")
        deleted = await asked(http, "DELETE", f"/memories/{memory['id']}")
        left = await asked(http, "GET", "/memories")
        gone = await asked(http, "DELETE", "/memories", params={"user_id": "bo"})
        nothing = await asked(http, "GET", "/memories")

    assert (added["status"], bool(added["event_id"])) == ("PENDING", True)
    assert (memory["user_id"], memory["run_id"], memory["metadata"]) == ("ana", "r1", {"k": 1})
    assert one == memory
    assert by_run["results"] == [memory]
    assert found["results"][0]["id"] == memory["id"]
    assert [change["event"] for change in history] == ["ADD"]
    assert deleted == {"message": "Memory deleted successfully!"}
    assert [other["user_id"] for other in left["results"]] == ["bo"]
    assert "deleted" in gone["message"]
    assert nothing["results"] == []


async def test_an_update_is_a_new_version_and_shows_in_the_history(mem0: Running) -> None:
    async with mem0.http(await mem0.token()) as http:
        await asked(http, "POST", "/memories", json={"messages": SAID, "user_id": "ana"})
        await mem0.extract()
        [memory] = (await asked(http, "GET", "/memories"))["results"]
        updated = await asked(
            http, "PUT", f"/memories/{memory['id']}", json={"text": "User lives in Rome."}
        )
        [newer] = (await asked(http, "GET", "/memories"))["results"]
        history = await asked(http, "GET", f"/memories/{newer['id']}/history")

    assert updated["changes"]
    assert newer["memory"] == "User lives in Rome."
    assert [change["event"] for change in history] == ["ADD", "UPDATE"]


async def test_a_user_beyond_the_token_is_forbidden(mem0: Running) -> None:
    scope = AccessScope(containers=frozenset({"ana"}))
    wanted = TokenRequest(Rights(frozenset({Scope.READ, Scope.WRITE, Scope.ERASE}), scope))
    async with mem0.http(await mem0.token("alice", wanted)) as http:
        await asked(http, "POST", "/memories", json={"messages": SAID, "user_id": "ana"})
        answers = [
            await http.get("/mem0/memories", params={"user_id": "bo"}),
            await http.post("/mem0/memories", json={"messages": SAID, "user_id": "bo"}),
            await http.post("/mem0/search", json={"query": "x", "filters": {"user_id": "bo"}}),
            await http.delete("/mem0/memories", params={"user_id": "bo"}),
        ]

    assert [(one.status_code, one.json()["code"]) for one in answers] == [(403, "OUT_OF_REACH")] * 4


@pytest.mark.parametrize(
    "body",
    [
        {"query": "x", "filters": {"OR": [{"user_id": "a"}]}},
        {"query": "x", "filters": {"created_at": {"gte": "2026-01-01"}}},
        {"query": "x", "unheard": 1},
    ],
)
async def test_what_it_cannot_do_is_refused_and_not_passed_over(mem0: Running, body: Json) -> None:
    async with mem0.http(await mem0.token()) as http:
        answer = await http.post("/mem0/search", json=body)

    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_ARGUMENT")


async def test_a_delete_without_a_user_deletes_nothing(mem0: Running) -> None:
    async with mem0.http(await mem0.token()) as http:
        await asked(http, "POST", "/memories", json={"messages": SAID})
        answers = [
            await http.delete("/mem0/memories"),
            await http.delete("/mem0/memories", params={"user_id": "ana", "run_id": "r"}),
        ]

    assert [one.status_code for one in answers] == [400, 400]


@pytest.mark.parametrize("header", ["Authorization", "X-API-Key"])
async def test_a_key_is_shown_as_mem0_does(mem0: Running, header: str) -> None:
    token = await mem0.token()
    shown = f"Token {token}" if header == "Authorization" else token
    async with mem0.http() as http:
        ping = await http.get("/mem0/v1/ping/", headers={header: shown})
        elsewhere = await http.get("/v1/whoami", headers={header: shown})
        without = await http.get("/mem0/v1/ping/")

    assert (ping.status_code, ping.json()["status"]) == (200, "ok")
    assert elsewhere.status_code == without.status_code == 401


async def test_a_reset_erases_everything_and_needs_the_scope(mem0: Running) -> None:
    reader = TokenRequest(Rights(frozenset({Scope.READ, Scope.WRITE, Scope.FORGET})))
    async with mem0.http(await mem0.token("alice", reader)) as http:
        refused = await http.post("/mem0/reset")
    async with mem0.http(await mem0.token()) as http:
        await asked(http, "POST", "/memories", json={"messages": SAID})
        await asked(http, "POST", "/reset")
        after = await http.get("/mem0/memories")

    assert refused.json()["code"] == "INSUFFICIENT_SCOPE"
    assert after.status_code == 401


async def test_the_document_describes_it_where_it_is_served(mem0: Running) -> None:
    async with mem0.http() as http:
        document = (await http.get("/openapi.json")).json()

    assert "/mem0/v3/memories/search/" in document["paths"]
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []
