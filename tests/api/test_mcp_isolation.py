"""Only a token gives access, and it gives no access to another tenant's data."""

import asyncio
import json
from base64 import urlsafe_b64decode
from dataclasses import dataclass

import httpx2
import pytest
from mcp import Client
from mcp.client.client import ConnectMode

from recall_server.services.auth import new_token
from tests.support.engines import on_sqlite
from tests.support.length import at_full_length, has_full_length
from tests.support.mcp_clients import ERAS, data, request, told
from tests.support.server import Json, Running

ROUNDS = at_full_length(8, otherwise=4)
OWNERS = ("alice", "bob")


@dataclass(frozen=True)
class Secrets:
    """A tenant with a memory that no other tenant has."""

    token: str
    word: str
    memory_id: str


async def _tenant(running: Running, name: str) -> Secrets:
    token, word = await running.token(name), f"{name}berry"
    async with running.client(token, ERAS[0]) as client:
        await data(client, "store_memory", text=f"User: I like {word} jam.")
        await running.extract()
        [memory] = (await data(client, "inspect_memories"))["memories"]
    return Secrets(token, word, memory["id"])


@has_full_length
@pytest.mark.slow
async def test_two_tokens_at_once_never_see_each_others_memories(running: Running) -> None:
    tenants = [await _tenant(running, name) for name in OWNERS]

    async def live(tenant: Secrets, other: Secrets, era: ConnectMode, count: int) -> None:
        async with running.client(tenant.token, era) as client:
            for number in range(count):
                await data(client, "store_memory", text=f"{tenant.word} harvest {era} {number}")
                seen = json.dumps(
                    [
                        await data(client, "search_memories", query="jam harvest", limit=50),
                        await data(client, "inspect_memories"),
                        await told(client, "inspect_memories", memory_id=other.memory_id),
                        await told(client, "delete_memory", memory_id=other.memory_id),
                    ]
                )
                assert tenant.word in seen
                assert other.word not in seen

    async with asyncio.TaskGroup() as group:
        for era in ERAS:
            for tenant, other in (tenants, reversed(tenants)):
                group.create_task(live(tenant, other, era, ROUNDS))

    for tenant in tenants:
        async with running.client(tenant.token, ERAS[1]) as client:
            counts = await data(client, "get_memory_stats")
            assert (counts["total"], counts["pending_extractions"]) == (1, 2 * ROUNDS)


async def test_anothers_memory_is_answered_like_one_that_never_was(
    running: Running, client: Client
) -> None:
    bobs = await _tenant(running, "bob")
    never = bobs.memory_id[:-1] + ("0" if bobs.memory_id[-1] != "0" else "1")

    for tool in ("inspect_memories", "delete_memory"):
        foreign, unknown = [
            await told(client, tool, memory_id=one) for one in (bobs.memory_id, never)
        ]
        assert foreign["code"] == "MEMORY_NOT_FOUND"
        assert unknown == foreign


@on_sqlite
@pytest.mark.parametrize("modern", [False, True])
async def test_a_session_id_opens_nothing(running: Running, modern: bool) -> None:
    alice, bob = [await _tenant(running, name) for name in OWNERS]
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}}
    hello |= {"clientInfo": {"name": "alice", "version": "1"}}
    async with running.http(alice.token) as http:
        headers, body = request("initialize", hello, modern=False)
        greeted = await http.post("/mcp", headers=headers, json=body)
    session = {"Mcp-Session-Id": greeted.headers["Mcp-Session-Id"]}

    async with running.http(bob.token) as http:
        seen = await _call(http, "inspect_memories", {}, session, modern=modern)
        refused = [
            (await http.request(method, "/mcp", headers=session)).status_code
            for method in ("GET", "DELETE")
        ]

    # The session id holds only the name that the client sent.
    assert urlsafe_b64decode(session["Mcp-Session-Id"].partition(".")[0] + "=") == b"alice"
    assert bob.word in seen.text
    assert alice.word not in seen.text
    assert refused == [405, 405]


@on_sqlite
@pytest.mark.parametrize("modern", [False, True])
async def test_the_same_request_id_at_the_same_time_gets_each_its_own_answer(
    running: Running, modern: bool
) -> None:
    tenants = [await _tenant(running, name) for name in OWNERS]
    async with running.http(tenants[0].token) as first, running.http(tenants[1].token) as second:
        answers = await asyncio.gather(
            *(
                _call(http, "search_memories", {"query": "jam"}, {}, modern=modern)
                for _ in range(ROUNDS)
                for http in (first, second)
            )
        )

    for number, answer in enumerate(answers):
        tenant, other = tenants[number % 2], tenants[1 - number % 2]
        assert answer.json()["id"] == 1
        assert tenant.word in answer.text
        assert other.word not in answer.text


@pytest.mark.parametrize("modern", [False, True])
async def test_a_revoked_token_is_refused_from_its_next_call_on(
    running: Running, modern: bool
) -> None:
    token, info = await running.issued("alice")
    async with running.http(token) as http:
        before = await _call(http, "get_memory_stats", {}, {}, modern=modern)
        await running.revoke(info)
        after = await _call(http, "get_memory_stats", {}, {}, modern=modern)

    assert before.status_code == 200
    _assert_refused(after, "Ask the operator for a new one", shown=True)


@on_sqlite
@pytest.mark.parametrize("modern", [False, True])
@pytest.mark.parametrize(
    ("shown", "advice"),
    [
        (None, "recall create-token NAMESPACE"),
        ("Basic YWxpY2U6eA==", "Bearer TOKEN"),
        ("Bearer", "Bearer TOKEN"),
        ("Bearer rcl_wrong", "copied whole"),
        (f"Bearer {new_token(max)}", "uses the database in which it was made"),
    ],
)
async def test_without_a_good_token_the_answer_says_what_to_do(
    running: Running, shown: str | None, advice: str, modern: bool
) -> None:
    headers = {} if shown is None else {"Authorization": shown}
    async with running.http() as http:
        answer = await _call(http, "get_memory_stats", {}, headers, modern=modern)

    _assert_refused(answer, advice, shown=(shown or "").startswith("Bearer "))


@on_sqlite
async def test_of_two_tokens_neither_is_taken(running: Running) -> None:
    tokens = [await running.token(name) for name in OWNERS]
    headers, body = request("tools/list", {}, modern=False)
    both = [*headers.items(), *(("Authorization", f"Bearer {token}") for token in tokens)]
    async with running.http() as http:
        answer = await http.post("/mcp", headers=both, json=body)

    assert (answer.status_code, answer.json()["code"]) == (400, "INVALID_ARGUMENT")


@on_sqlite
async def test_a_token_in_the_address_is_none(running: Running) -> None:
    token = await running.token()
    headers, body = request("tools/list", {}, modern=True)
    async with running.http() as http:
        answer = await http.post(f"/mcp?token={token}&access_token={token}", headers=headers,
                                 json=body)  # fmt: skip

    _assert_refused(answer, "recall create-token", shown=False)


async def _call(
    http: httpx2.AsyncClient, tool: str, arguments: Json, given: dict[str, str], *, modern: bool
) -> httpx2.Response:
    headers, body = request("tools/call", {"name": tool, "arguments": arguments}, modern=modern)
    return await http.post("/mcp", headers={**headers, **given}, json=body)


def _assert_refused(answer: httpx2.Response, advice: str, *, shown: bool) -> None:
    challenge = answer.headers["WWW-Authenticate"]
    body = answer.json()
    assert (answer.status_code, body["status"], body["code"]) == (401, 401, "UNAUTHENTICATED")
    assert advice in body["detail"]
    assert challenge.startswith("Bearer ")
    # RFC 6750, 3.1: the challenge has no error if no token was sent.
    assert shown == ('error="invalid_token"' in challenge)
