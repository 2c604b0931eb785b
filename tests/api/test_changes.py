"""Changes over HTTP are listed and undone. A refusal has a code and a next step."""

import httpx2

from recall_server.domain.permissions import Rights, Scope
from recall_server.services.auth.access import TokenRequest
from tests.support.limited_tokens import Json, limited
from tests.support.server import Running


async def _store(running: Running, http: httpx2.AsyncClient, text: str) -> str:
    stored = await http.post("/v1/memories", json={"text": text})
    await running.extract()
    job: str = stored.json()["job_id"]
    return job


async def _texts(http: httpx2.AsyncClient) -> list[str]:
    return [one["text"] for one in (await http.get("/v1/memories")).json()["memories"]]


async def test_a_change_is_listed_and_taken_back_and_so_is_its_undo(running: Running) -> None:
    async with running.http(await running.token()) as http:
        await _store(running, http, "User: I live in Porto.")
        job = await _store(running, http, "User: I live in Lisbon now.")
        listed = (await http.get("/v1/changes")).json()
        assert listed["changes"][0]["id"] == job
        assert listed["changes"][0]["counts"] == {"added": 2, "superseded": 1}

        tried: Json = (await http.post(f"/v1/changes/{job}/undo", json={"dry_run": True})).json()
        assert (tried["undone"], tried["change_id"], tried["dry_run"]) == ([job], None, True)
        assert await _texts(http) == ["The user lives in Lisbon now."]

        done = (await http.post(f"/v1/changes/{job}/undo", json={})).json()
        assert await _texts(http) == ["The user lives in Porto."]
        assert (await http.get("/v1/changes")).json()["changes"][1]["undone"] is True

        await http.post(f"/v1/changes/{done['change_id']}/undo", json={})
        assert await _texts(http) == ["The user lives in Lisbon now."]


async def test_an_undo_that_cannot_be_says_why_and_what_to_do(running: Running) -> None:
    async with running.http(await running.token()) as http:
        first = await _store(running, http, "User: I live in Porto.")
        second = await _store(running, http, "User: I live in Lisbon now.")

        refused = await http.post(f"/v1/changes/{first}/undo", json={})
        assert (refused.status_code, refused.json()["code"]) == (409, "NOT_UNDOABLE")
        assert second in refused.json()["detail"]
        unknown = await http.post("/v1/changes/job_none/undo", json={})
        assert (unknown.status_code, unknown.json()["code"]) == (404, "CHANGE_NOT_FOUND")

        taken = await http.post(f"/v1/changes/{first}/undo", json={"with_dependents": True})
        assert taken.json()["undone"] == [second, first]
        assert await _texts(http) == []


async def test_a_limited_token_neither_sees_nor_undoes_changes(running: Running) -> None:
    async with (
        running.http(await running.token()) as whole,
        running.http(await running.token("alice", limited(topics=frozenset({"general"})))) as http,
    ):
        job = await _store(running, whole, "User: I live in Porto.")
        for answer in (
            await http.get("/v1/changes"),
            await http.post(f"/v1/changes/{job}/undo", json={}),
        ):
            assert (answer.status_code, answer.json()["code"]) == (403, "OUT_OF_REACH")
        reader = TokenRequest(Rights(frozenset({Scope.READ})))
        async with running.http(await running.token("alice", reader)) as reads:
            assert (await reads.get("/v1/changes")).status_code == 200
            refused = await reads.post(f"/v1/changes/{job}/undo", json={})
            assert (refused.status_code, refused.json()["code"]) == (403, "INSUFFICIENT_SCOPE")
        assert await _texts(whole) == ["The user lives in Porto."]
