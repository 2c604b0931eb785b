"""What a token may do: every operation of every door, asked for with each scope alone."""

import asyncio
import re

import pytest

from recall_server.api.caller import Caller
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import InsufficientScope
from recall_server.domain.namespace import namespace
from recall_server.domain.permissions import NEEDED, Rights, Scope
from recall_server.services.auth.access import TokenRequest
from tests.support.a2a_bindings import Wire
from tests.support.a2a_clients import at_work
from tests.support.engines import on_sqlite
from tests.support.mcp_clients import MODERN, request
from tests.support.operations import Operation, operations
from tests.support.paths import ROOT
from tests.support.server import Running

SURFACE = ROOT / "recall_server" / "surface"

READ, WRITE, FORGET = Scope.READ, Scope.WRITE, Scope.FORGET
TASKS, TOKENS, ERASE = Scope.CONSOLIDATE, Scope.TOKENS, Scope.ERASE

# The file that is expected: whoever adds a door says here what it needs.
EXPECTED: dict[str, Scope | None] = {
    "mcp store_memory": WRITE,
    "mcp search_memories": READ,
    "mcp inspect_memories": READ,
    "mcp get_memory_stats": READ,
    "mcp delete_memory": FORGET,
    "mcp consolidate_memories": TASKS,
    "mcp delete_namespace_data": ERASE,
    "mcp whoami": None,
    "a2a plain": TASKS,
    "a2a SendMessage": TASKS,
    "a2a SendStreamingMessage": TASKS,
    "a2a GetTask": TASKS,
    "a2a ListTasks": TASKS,
    "a2a CancelTask": TASKS,
    "a2a SubscribeToTask": TASKS,
    "a2a CreateTaskPushNotificationConfig": TASKS,
    "a2a GetTaskPushNotificationConfig": TASKS,
    "a2a ListTaskPushNotificationConfigs": TASKS,
    "a2a DeleteTaskPushNotificationConfig": TASKS,
    "a2a GetExtendedAgentCard": None,
    "POST /v1/process": WRITE,
    "POST /v1/search": READ,
    "GET /v1/audit": Scope.AUDIT,
    "GET /v1/export": Scope.ADMIN,
    "GET /v1/quarantine": Scope.ADMIN,
    "POST /v1/quarantine/{id}/release": Scope.ADMIN,
    "POST /v1/quarantine/{id}/reject": Scope.ADMIN,
    "POST /v1/erasure": ERASE,
    "POST /v1/memories/{id}/restore": FORGET,
    "GET /v1/conflicts": TASKS,
    "POST /v1/conflicts": TASKS,
    "GET /v1/tokens": TOKENS,
    "POST /v1/tokens": TOKENS,
    "GET /v1/tokens/{accessor}": TOKENS,
    "DELETE /v1/tokens/{accessor}": TOKENS,
    "POST /v1/tokens/{accessor}/rotate": TOKENS,
    "POST /v1/tokens/children": None,
    "DELETE /v1/tokens/children/{jti}": None,
    "DELETE /v1/tokens/{accessor}/children/{jti}": TOKENS,
    "GET /v1/whoami": None,
    "GET /a2a/{id}": TASKS,
    "POST /a2a/{id}/resume": TASKS,
    "POST /a2a/v1/message:send": TASKS,
    "POST /a2a/v1/message:stream": TASKS,
    "GET /a2a/v1/tasks": TASKS,
    "GET /a2a/v1/tasks/{id}": TASKS,
    "POST /a2a/v1/tasks/{id}:cancel": TASKS,
    "GET /a2a/v1/tasks/{id}:subscribe": TASKS,
    "POST /a2a/v1/tasks/{id}:subscribe": TASKS,
    "POST /a2a/v1/tasks/{id}/pushNotificationConfigs": TASKS,
    "GET /a2a/v1/tasks/{id}/pushNotificationConfigs": TASKS,
    "GET /a2a/v1/tasks/{id}/pushNotificationConfigs/{push_id}": TASKS,
    "DELETE /a2a/v1/tasks/{id}/pushNotificationConfigs/{push_id}": TASKS,
    "GET /a2a/v1/extendedAgentCard": None,
}


@on_sqlite
async def test_each_operation_needs_the_scope_that_it_says_and_no_other_will_do(
    running: Running,
) -> None:
    asked = operations(running)
    assert {one.name for one in asked} == set(EXPECTED)

    async with at_work(running):
        for scope in Scope:
            token = await running.token("alice", TokenRequest(Rights(frozenset({scope}))))
            async with running.http(token) as http:
                for one in asked:
                    await _check(one, http, scope)


async def _check(one: Operation, http: object, scope: Scope) -> None:
    needed = EXPECTED[one.name]
    async with asyncio.timeout(10):
        answer = await one.ask(http)  # type: ignore[arg-type]
    where = (one.name, scope, answer.status_code)
    if needed in (None, scope) or scope is Scope.ADMIN:
        assert answer.status_code != 401, where
        assert "WWW-Authenticate" not in answer.headers, where
        return
    assert answer.status_code == 403, where
    assert answer.headers["WWW-Authenticate"] == (
        f'Bearer realm="recall", error="insufficient_scope", scope="{needed}"'
    )
    assert "INSUFFICIENT_SCOPE" in answer.text, where


async def test_what_is_refused_changes_nothing_and_stands_in_the_book(running: Running) -> None:
    """No rows but the line in the book."""
    alice = namespace("alice")
    token, info = await running.issued("alice", TokenRequest(Rights(frozenset({Scope.READ}))))
    headers, body = request(
        "tools/call", {"name": "store_memory", "arguments": {"text": "Ann: I ski."}}, modern=False
    )
    async with running.http(token) as http:
        refused = await http.post("/mcp", headers=headers, json=body)
    async with running.http(await running.token("alice")) as http:
        stored = await http.post("/mcp", headers=headers, json=body)  # the positive control

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


async def test_an_operation_that_the_table_does_not_name_is_refused_to_all(
    running: Running,
) -> None:
    """Fail closed: a door that forgets to say what it needs is shut."""
    calls = Calls(running.application.services.audit, 5.0)
    await running.token("alice")
    admin = Caller(namespace("alice"), "acc_x", Rights(frozenset({Scope.ADMIN})))

    async def work(_: AuditEntry) -> str:
        return "done"

    with pytest.raises(InsufficientScope):
        await calls.perform(admin, "mcp", "read_minds", work)
    assert await calls.perform(admin, "mcp", "search_memories", work) == "done"


def test_every_operation_that_a_door_passes_on_is_in_the_table() -> None:
    said = re.compile(
        r"(?:perform|_answered|_run|performed)\(\s*(?:self\._calls,\s*)?(?:context|request|caller)"
        r',\s*(?:DOOR,\s*)?"(\w+)"'
    )
    named = {name for path in SURFACE.glob("*.py") for name in said.findall(path.read_text())}

    assert len(named) > 15
    assert named <= set(NEEDED)


@on_sqlite
async def test_tools_and_skills_shrink_to_what_the_token_may_do(running: Running) -> None:
    """An extended card that shows less carries no signature over more."""
    skills, tools = {}, {}
    for scope in (Scope.READ, Scope.CONSOLIDATE, Scope.ADMIN):
        token = await running.token("alice", TokenRequest(Rights(frozenset({scope}))))
        async with running.http(token) as http, running.client(token, MODERN) as client:
            card = await Wire(http).result("GetExtendedAgentCard")
            skills[scope] = [skill["id"] for skill in card.get("skills", ())]
            tools[scope] = {tool.name for tool in (await client.list_tools()).tools}
            public = (await http.get("/.well-known/agent-card.json")).json()
            assert [skill["id"] for skill in public["skills"]] == ["consolidate_memories"]

    reads = {"search_memories", "inspect_memories", "get_memory_stats", "whoami"}
    assert tools[Scope.READ] == reads
    assert tools[Scope.CONSOLIDATE] == {"consolidate_memories", "whoami"}
    assert tools[Scope.ADMIN] >= reads | {"store_memory", "delete_memory"}
    assert (skills[Scope.READ], skills[Scope.ADMIN]) == ([], ["consolidate_memories"])


@on_sqlite
async def test_a_client_is_told_what_the_token_lacks(running: Running) -> None:
    """As MCP says it: 403 with the scope, and an error of the protocol that says the same."""
    token = await running.token("alice", TokenRequest(Rights(frozenset({Scope.READ}))))
    async with running.client(token, MODERN) as client:
        with pytest.raises(Exception, match="memory:forget") as raised:
            await client.call_tool("delete_memory", {"memory_id": "mem_x"})
        assert not (await client.call_tool("whoami", {})).is_error

    assert raised.value.error.data == {  # type: ignore[attr-defined]
        "code": "INSUFFICIENT_SCOPE",
        "scope": "memory:forget",
    }
