"""On every protocol, another tenant's data looks as if it had never existed."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from a2a.compat.v0_3.jsonrpc_adapter import JSONRPC03Adapter

from recall_server.api.app import create_app
from recall_server.api.operations import tasks
from recall_server.domain.ids import namespace
from recall_server.server import bound, listening
from tests.support.a2a_bindings import message, of_rpc
from tests.support.a2a_requests import REQUESTS
from tests.support.application import Open
from tests.support.engines import on_sqlite
from tests.support.isolation import (
    CASES,
    LABELS,
    SECRET,
    WITHOUT_ID,
    ask,
    call,
    furnished,
    rows,
    texts_of,
    unlike,
)
from tests.support.mcp_clients import request
from tests.support.operations import TOOLS, operations
from tests.support.server import Json, Running

VERSION = {"A2A-Version": "1.0"}


@pytest.fixture
async def replicas(database: Path | str, open_app: Open) -> AsyncIterator[list[Running]]:
    """Yield one server on a file, or two on Postgres. The second is asked before the first."""
    async with AsyncExitStack() as stack:
        found = []
        for _ in range(1 if isinstance(database, Path) else 2):
            # The server must not take a busy test machine for a slow client.
            built = await stack.enter_async_context(open_app(port=0, header_s=60.0))
            address = await stack.enter_async_context(
                listening(create_app(built), built.settings, bound(built.settings))
            )
            found.append(Running(built, address))
        yield found


@on_sqlite
async def test_every_operation_of_every_protocol_has_a_case(running: Running) -> None:
    """A new protocol without a case of its own fails here."""
    asked = {one.name: one for one in operations(running)}

    assert set(asked) == {*CASES, *WITHOUT_ID}
    for name in WITHOUT_ID:
        assert "{" not in name, name
        params = (asked[name].body or {}).get("params", {})
        assert not {"id", "taskId", "message"} & set(params), name
    for tool in TOOLS:
        if f"mcp {tool.name}" in WITHOUT_ID:
            taken = set(tool.shown.input_schema["properties"]) - LABELS
            assert not [one for one in taken if one.endswith(("id", "ids"))], tool.name
    # The requests of the older protocol are tried with the others of A2A.
    tried = {made("task_x").body["method"] for name, made in REQUESTS.items() if "0.3" in name}  # type: ignore[index]
    assert tried == set(JSONRPC03Adapter.METHOD_TO_MODEL) - {"agent/getAuthenticatedExtendedCard"}


async def test_anothers_id_is_answered_like_one_that_never_was(
    replicas: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answers are the same bytes, from either replica. No row of Alice changes, and Bob's audit
    log has a record. Alice is served.
    """
    monkeypatch.setattr(tasks, "WAIT_S", 0.0)  # No worker runs, so nothing is waited for.
    one, other = replicas[0], replicas[-1]
    alice = await furnished(one)
    assert {case.kind for cases in CASES.values() for case in cases} <= set(alice.ids)
    before = await rows(one)

    async with one.http(alice.bob) as here, other.http(alice.bob) as there:
        for name, cases in CASES.items():
            for number, case in enumerate(cases):
                known = alice.ids[case.kind]
                never = unlike(known)
                askers = (here, there) if number % 2 else (there, here)
                foreign = await ask(case.make(known), askers[0])
                unknown = await ask(case.make(never), askers[1])
                where = (name, number, foreign, unknown)
                assert foreign.without(known, never) == unknown.without(known, never), where
                assert foreign.status < 500, where
                assert not [said for said in texts_of(alice) - {known} if said in foreign.body], (
                    where
                )
    assert await rows(one) == before
    async with other.http(alice.child) as http:
        assert (await http.get("/v1/whoami")).status_code == 200
    book = await one.application.services.audit.newest(namespace("bob"), 1_000)
    assert len([line for line in book if line.outcome == "error"]) > len(CASES)
    assert not {id_ for line in book for id_ in line.ids} & set(alice.ids.values())

    async with one.http(alice.token) as here, other.http(alice.token) as there:
        for name, cases in CASES.items():
            for number, case in enumerate(cases):
                served = await ask(case.make(alice.ids[case.kind]), (here, there)[number % 2])
                assert not served.refused, (name, number, served)


async def test_what_takes_no_id_tells_nothing_of_another(
    replicas: list[Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer has words, ids or counts of Alice, on any protocol, though the server has just
    answered the same request to Alice. No cache may keep any answer.
    """
    monkeypatch.setattr(tasks, "WAIT_S", 0.0)  # No worker runs, so nothing is waited for.
    alice = await furnished(replicas[0])
    asked = [one for one in operations(replicas[0]) if one.name in WITHOUT_ID]
    seen = ""
    for running in replicas:
        async with running.http(alice.token) as hers, running.http(alice.bob) as his:
            for one in asked:
                first, second = await ask(one, hers), await ask(one, his)
                seen += first.body
                assert second.status < 500, one.name
                assert not [said for said in texts_of(alice) if said in second.body], one.name
                assert "alice" not in second.body, one.name
                assert dict(second.headers)["cache-control"] == "no-store", one.name
    # The positive control.
    assert [said for said in texts_of(alice) if said in seen]


async def test_a_receipt_needs_its_own_secret(replicas: list[Running]) -> None:
    """A caller without the secret cannot tell whether the receipt exists."""
    alice = await furnished(replicas[0])
    known = alice.ids["receipt"]
    async with replicas[-1].http(alice.bob) as http:
        answers = [
            await http.get(f"/v1/receipts/{id_}", headers=headers)
            for id_, headers in (
                (known, {}),
                (unlike(known), {}),
                (known, {SECRET: "x" * len(alice.secret)}),
                (unlike(known), {SECRET: alice.secret}),
            )
        ]
        control = await http.get(f"/v1/receipts/{known}", headers={SECRET: alice.secret})

    assert {(one.status_code, one.content) for one in answers} == {(404, answers[0].content)}
    assert control.status_code == 200
    assert control.headers["Cache-Control"] == "no-store"


def _search(**given: Any) -> dict[str, Any]:
    return {"query": "quokka jam teal", **given}


async def test_no_way_to_search_or_list_reaches_another(replicas: list[Running]) -> None:
    """Bob searches by words, vectors or both, with filters and from any position. Totals are his
    own, and a position in Alice's list is a position in his.
    """
    alice = await furnished(replicas[0])
    async with replicas[-1].http(alice.bob) as http, replicas[0].http(alice.token) as hers:
        for mode in ("recall", "keyword", "vector", "hybrid"):
            for given in ({}, {"limit": 50}, {"score_threshold": 0.0}, {"explain": True}):
                found = await call(http, "search_memories", **_search(mode=mode, **given))
                assert (found["results"], found["total"]) == ([], 0)
            assert (await call(hers, "search_memories", **_search(mode=mode)))["results"]
        pages: tuple[Json, ...] = ({}, {"offset": 1}, {"offset": 2**63 - 1}, {"topic": "memory"})
        for asked in pages:
            page = await call(http, "inspect_memories", **asked)
            told = (page["memories"], page["total"], page["has_more"], page["next_offset"])
            assert told == ([], 0, False, None)
        assert (await call(hers, "inspect_memories", topic="memory"))["total"] == 1
        stats = await call(http, "get_memory_stats")
        assert stats["total"] == 0


@on_sqlite
async def test_the_list_of_tools_is_for_whoever_asked_and_no_cache(running: Running) -> None:
    """The header of HTTP and the field of MCP say so."""
    headers, body = request("tools/list", {}, modern=True)
    async with running.http(await running.token()) as http:
        answer = await http.post("/mcp", headers=headers, json=body)

    assert answer.json()["result"]["cacheScope"] == "private"
    assert answer.headers["Cache-Control"] == "no-store"


async def test_a_namespace_that_a_request_names_is_never_authority(running: Running) -> None:
    """The body, the query, a header, metadata or `_meta` may name one. The name is refused or
    ignored, and the text is stored in the namespace of the token.
    """
    alice = await furnished(running)
    before = await rows(running)
    text = {"text": "User: My favourite colour is teal."}
    called = {"name": "store_memory", "arguments": {**text}}
    headers, body = request("tools/call", called, modern=False)
    elsewhere = {"X-Namespace": "alice", "X-Tenant-Id": "alice", "X-Forwarded-User": "alice"}
    told = message({"text": "User: I ski."}, metadata={"namespace": "alice"})
    sent = {"message": told, "configuration": {"returnImmediately": True}}
    async with running.http(alice.bob) as http:

        async def tool(**params: Any) -> str:
            given = {**body, "params": {**called, **params}}
            return (await http.post("/mcp", headers=headers, json=given)).text

        taken = [
            (await http.post("/mcp?namespace=alice", headers=headers | elsewhere, json=body)).text,
            await tool(_meta={"namespace": "alice", "tenant": "alice"}),
            await tool(namespace="alice"),
        ]
        refused = await tool(arguments={**text, "namespace": "alice"})
        tasks = [
            await http.post("/a2a", json=of_rpc("SendMessage", **sent).body, headers=VERSION),
            await http.post("/a2a/v1/message:send", json=sent, headers=VERSION | elsewhere),
        ]
        scopes = {"scopes": ["memory:read"]}
        issued = await http.post("/v1/tokens", headers=elsewhere, json=scopes)
        named = [
            await http.post("/v1/tokens?namespace=alice", json=scopes),
            await http.post("/v1/tokens", json={"namespace": "alice"}),
        ]
        stats = await call(http, "get_memory_stats")

    assert all('"queued":true' in one for one in taken), taken
    assert "INVALID_ARGUMENT" in refused
    assert [one.status_code for one in tasks] == [200, 200]
    assert (issued.status_code, issued.json()["namespace"]) == (201, "bob")
    assert [one.status_code for one in named] == [400, 400]
    assert stats["pending_extractions"] == len(taken)
    assert await rows(running) == before


async def test_strangers_and_errors_name_nobody(running: Running) -> None:
    """Without a token nobody can read `/metrics`, the description of the API holds nothing of a
    tenant, and no answer shows internal details.
    """
    alice = await furnished(running)
    open_ = (
        *("/health", "/ready", "/.well-known/agent-card.json", "/.well-known/jwks.json"),
        *("/openapi.json", "/docs"),
    )
    paths = (*open_, "/", "/metrics", "/v1/namespaces/alice", "/nothing")
    async with running.http() as stranger, running.http(alice.bob) as http:
        for asker in (stranger, http):
            for path in paths:
                answer = await asker.get(path)
                assert answer.status_code in {200, 401, 403, 404, 405}, path
                assert not [one for one in texts_of(alice) | {"bob"} if one in answer.text], path
                assert "Server-Timing" not in answer.headers, path
                if answer.status_code == 401:
                    assert answer.headers["WWW-Authenticate"].startswith("Bearer ")
        let_in = [path for path in paths if (await stranger.get(path)).status_code != 401]

    assert let_in == list(open_)
