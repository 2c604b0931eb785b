"""What a token may do: the test asks every operation of every protocol with each scope alone."""

import asyncio

import pytest

from recall_server.api.operations import BY_NAME, OPERATIONS, by_name
from recall_server.api.operations.operation import Caller, Calls
from recall_server.domain.context import Context
from recall_server.domain.errors import InsufficientScope
from recall_server.domain.ids import namespace
from recall_server.domain.permissions import Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.a2a_bindings import Wire
from tests.support.a2a_clients import at_work
from tests.support.engines import on_sqlite
from tests.support.mcp_clients import MODERN, request
from tests.support.operations import Operation, operations
from tests.support.server import Running

ERASE = Scope.ERASE
# Other tests cover what the secret of a receipt opens, and what no protocol has.
SKILLS = ["consolidate_memories", "review_memories"]
OPEN = {"collect_receipt"}
# Listed here again, apart from the registry: to open an operation to any token is a decision.
FOR_ANY_TOKEN = {
    *("whoami", "get_extended_card", "delegate_token", "revoke_own_child"),
    *("collect_receipt", "unknown_tool"),
}


def test_only_these_operations_need_no_scope() -> None:
    assert {one.name for one in OPERATIONS if one.scope is None} == FOR_ANY_TOKEN


def test_what_changes_or_shows_all_of_a_namespace_needs_a_scope_of_its_own() -> None:
    scopes = {one.name: one.scope for one in OPERATIONS}

    assert {scopes[name] for name in scopes if name.startswith("erase_")} <= {ERASE, Scope.ADMIN}
    assert scopes["delete_namespace_data"] == ERASE
    assert scopes["export_namespace"] == scopes["list_quarantine"] == Scope.ADMIN
    assert scopes["read_audit"] == Scope.AUDIT
    assert scopes["store_memory"] == Scope.WRITE
    assert scopes["search_memories"] == scopes["get_job"] == Scope.READ
    assert scopes["delete_memory"] == Scope.FORGET


@on_sqlite
async def test_each_operation_needs_the_scope_that_it_says_and_no_other_will_do(
    running: Running,
) -> None:
    asked = operations(running)
    offered = {one.name for one in OPERATIONS if one.http or one.mcp or one.a2a}
    assert {one.registered.name for one in asked if one.registered} >= offered - OPEN

    async with at_work(running):
        for scope in Scope:
            token = await running.token("alice", TokenRequest(Rights(frozenset({scope}))))
            async with running.http(token) as http:
                for one in asked:
                    await _check(one, http, scope)


async def _check(one: Operation, http: object, scope: Scope) -> None:
    assert one.registered is not None, one.name
    needed = one.registered.scope
    async with asyncio.timeout(10):
        answer = await one.ask(http)  # type: ignore[arg-type]
    where = (one.name, scope, answer.status_code)
    admin = scope is Scope.ADMIN and needed is not Scope.METRICS
    proposes = scope is Scope.PROPOSE and one.registered.proposes
    writes = scope is Scope.WRITE and needed is Scope.PROPOSE
    if needed in (None, scope) or admin or proposes or writes:
        assert answer.status_code != 401, where
        assert "WWW-Authenticate" not in answer.headers, where
        return
    assert answer.status_code == 403, where
    assert answer.headers["WWW-Authenticate"] == (
        f'Bearer realm="recall", error="insufficient_scope", scope="{needed}"'
    )
    assert "INSUFFICIENT_SCOPE" in answer.text, where


async def test_what_is_refused_changes_nothing_and_stands_in_the_book(running: Running) -> None:
    """Only the audit log has a new row."""
    alice = namespace("alice")
    token, info = await running.issued("alice", TokenRequest(Rights(frozenset({Scope.READ}))))
    headers, body = request(
        "tools/call", {"name": "store_memory", "arguments": {"text": "Ann: I ski."}}, modern=False
    )
    async with running.http(token) as http:
        refused = await http.post("/mcp", headers=headers, json=body)
    async with running.http(await running.token("alice")) as http:
        stored = await http.post("/mcp", headers=headers, json=body)  # The positive control.

    assert (refused.status_code, stored.status_code) == (403, 200)
    store, lines = (
        running.application.store,
        await running.application.services.audit.newest(alice, 10),
    )
    async with store.transaction(alice, write=False) as tx:
        assert (await tx.words.statistics()).documents == 1
    told = [(line.operation, line.accessor == info.accessor, line.code) for line in lines]
    assert ("store_memory", True, "INSUFFICIENT_SCOPE") in told
    assert ("store_memory", False, None) in told


async def test_work_is_never_begun_for_a_token_without_the_scope(running: Running) -> None:
    calls = Calls(running.application.services, 5.0)
    await running.token("alice")
    reader = Caller(namespace("alice"), "acc_x", Rights(frozenset({Scope.READ})))

    async def work(_: Context) -> str:
        return "done"

    for operation in OPERATIONS:
        if operation.scope in (None, Scope.READ):
            assert await calls.perform(reader, "mcp", operation, work) == "done"
        else:
            with pytest.raises(InsufficientScope):
                await calls.perform(reader, "mcp", operation, work)


def test_no_two_operations_share_a_name_or_a_route() -> None:
    with pytest.raises(ValueError, match="search_memories"):
        by_name([*OPERATIONS, BY_NAME["search_memories"]])


@on_sqlite
async def test_tools_and_skills_shrink_to_what_the_token_may_do(running: Running) -> None:
    """An extended card that shows less has no signature over the full card."""
    skills, tools = {}, {}
    for scope in (Scope.READ, Scope.CONSOLIDATE, Scope.ADMIN):
        token = await running.token("alice", TokenRequest(Rights(frozenset({scope}))))
        async with running.http(token) as http, running.client(token, MODERN) as client:
            card = await Wire(http).result("GetExtendedAgentCard")
            skills[scope] = [skill["id"] for skill in card.get("skills", ())]
            tools[scope] = {tool.name for tool in (await client.list_tools()).tools}
            public = (await http.get("/.well-known/agent-card.json")).json()
            assert [skill["id"] for skill in public["skills"]] == SKILLS

    reads = {"search_memories", "inspect_memories", "get_memory_stats", "whoami"}
    assert tools[Scope.READ] == reads
    assert tools[Scope.CONSOLIDATE] == {"consolidate_memories", "whoami"}
    assert tools[Scope.ADMIN] >= reads | {"store_memory", "delete_memory"}
    assert skills == {Scope.READ: [], Scope.CONSOLIDATE: SKILLS, Scope.ADMIN: SKILLS}


@on_sqlite
async def test_a_client_is_told_what_the_token_lacks(running: Running) -> None:
    """MCP answers 403 with the scope, and an error of the protocol with the same scope."""
    token = await running.token("alice", TokenRequest(Rights(frozenset({Scope.READ}))))
    async with running.client(token, MODERN) as client:
        with pytest.raises(Exception, match="memory:forget") as raised:
            await client.call_tool("delete_memory", {"memory_id": "mem_x"})
        assert not (await client.call_tool("whoami", {})).is_error

    assert raised.value.error.data == {  # type: ignore[attr-defined]
        "code": "INSUFFICIENT_SCOPE",
        "scope": "memory:forget",
    }
