"""An operator can turn on MCP over HTTP with SSE. It has the same tools and the same limits."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp import Client, MCPError
from mcp.client.sse import sse_client

from recall_server.api.mcp import UNREAD_BYTES_MAX, UNREAD_MAX
from recall_server.domain.permissions import Rights, Scope
from recall_server.services.auth import TokenRequest
from tests.support.conversation import ALICE
from tests.support.engines import on_sqlite
from tests.support.mcp_clients import data, told
from tests.support.server import WITHIN_S, Json, Running, Serve

SSE = "/mcp/sse"


@asynccontextmanager
async def connected(running: Running, token: str, name: str = "test") -> AsyncIterator[Client]:
    """Connect the client of the SDK over this transport."""
    headers = {"Authorization": f"Bearer {token}"}

    def plain(**given: Any) -> httpx2.AsyncClient:
        given |= {"transport": httpx2.AsyncHTTPTransport(verify=False, trust_env=False)}
        return httpx2.AsyncClient(**given)

    transport = sse_client(
        f"{running.address}{SSE}",
        headers,
        httpx_client_factory=plain,  # type: ignore[arg-type]
    )
    async with Client(transport, mode="legacy") as client:
        yield client


async def data_of(answer: httpx2.Response) -> AsyncIterator[str]:
    """Yield the data of events as they arrive."""
    async for line in answer.aiter_lines():
        if line.startswith("data: "):
            yield line.removeprefix("data: ")


def call(tool: str, **arguments: object) -> Json:
    params = {"name": tool, "arguments": arguments}
    return {"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": params}


async def test_it_is_off_unless_asked_for(running: Running) -> None:
    async with running.http(await running.token()) as http:
        answers = [await http.get(SSE), await http.post("/mcp/messages", json={})]

    assert [one.status_code for one in answers] == [404, 404]


async def test_the_client_of_the_sdk_stores_and_finds_with_the_same_tools(serve: Serve) -> None:
    async with serve(mcp_sse=True) as running:
        token = await running.token()
        async with connected(running, token) as client, running.client(token, "legacy") as other:
            tools = (await client.list_tools()).tools
            theirs = (await other.list_tools()).tools
            await data(client, "store_memory", text="User: I live in Porto.")
            await running.extract()
            found = await data(client, "search_memories", query="Where do I live?")
            unknown = await told(client, "inspect_memories", memory_id="mem_x")
            several = await asyncio.gather(*(data(client, "whoami") for _ in range(5)))

    assert [one.model_dump() for one in tools] == [one.model_dump() for one in theirs]
    assert "Porto" in found["results"][0]["text"]
    assert unknown["code"] == "MEMORY_NOT_FOUND"
    assert {one["namespace"] for one in several} == {"alice"}


async def test_nobody_comes_in_without_a_token_and_nobody_speaks_on_anothers_stream(
    serve: Serve,
) -> None:
    ping = {"jsonrpc": "2.0", "id": 1, "method": "ping"}
    async with serve(mcp_sse=True) as running:
        alice, bob = await running.token(), await running.token("bob")
        async with (
            running.http(alice) as hers,
            running.http(await running.token()) as her_other,
            running.http(bob) as his,
            running.http() as nobodys,
            hers.stream("GET", SSE) as opened,
        ):
            events = data_of(opened)
            place = await anext(events)
            strangers = [
                await nobodys.get(SSE),
                await nobodys.post(place, json=ping),
                await his.post(place, json=ping),
                await her_other.post(place, json=ping),
                await hers.post("/mcp/messages?session_id=x", json=ping),
            ]
            own = await hers.post(place, json=ping)
            answer = await anext(events)

    assert [one.status_code for one in strangers] == [401, 401, 404, 404, 404]
    assert own.status_code == 202
    assert '"result":{}' in answer


async def test_a_token_may_do_no_more_than_elsewhere(serve: Serve) -> None:
    reading = TokenRequest(Rights(frozenset({Scope.READ})))
    async with serve(mcp_sse=True) as running:
        token = await running.token("alice", reading)
        async with connected(running, token) as client:
            tools = {one.name for one in (await client.list_tools()).tools}
            with pytest.raises(MCPError, match="memory:write"):
                await client.call_tool("store_memory", {"text": "x"})
            found = await data(client, "search_memories", query="x")

    assert ("store_memory" in tools, "search_memories" in tools) == (False, True)
    assert found["results"] == []


async def test_a_namespace_has_so_many_streams_and_others_have_theirs(serve: Serve) -> None:
    async with serve(mcp_sse=True, streams_per_namespace=1) as running, AsyncExitStack() as stack:
        alice = await stack.enter_async_context(running.http(await running.token()))
        bob = await stack.enter_async_context(running.http(await running.token("bob")))
        await stack.enter_async_context(alice.stream("GET", SSE))
        refused = await alice.get(SSE)
        other = await stack.enter_async_context(bob.stream("GET", SSE))

    assert (refused.status_code, other.status_code) == (429, 200)


async def test_a_stream_ends_with_its_token_and_no_other_one_does(serve: Serve) -> None:
    async with serve(mcp_sse=True) as running, AsyncExitStack() as stack:
        token, info = await running.issued("alice")
        revoked = await stack.enter_async_context(running.http(token))
        kept = await stack.enter_async_context(running.http(await running.token()))
        ending, going = [
            data_of(await stack.enter_async_context(one.stream("GET", SSE)))
            for one in (revoked, kept)
        ]
        place, other = await anext(ending), await anext(going)
        await running.revoke(info)
        async with asyncio.timeout(WITHIN_S):
            left = [one async for one in ending]
        refused = await revoked.post(place, json=call("whoami"))
        taken = await kept.post(other, json=call("whoami"))
        answer = await anext(going)

    assert (left, refused.status_code, taken.status_code) == ([], 401, 202)
    assert '"namespace":"alice"' in answer


# Otherwise the kernel would keep tens of megabytes for a client that does not read.
SMALL_BUFFER = (socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)


@pytest.mark.slow
@on_sqlite
async def test_a_client_that_does_not_read_loses_its_stream_and_holds_nobody_up(
    serve: Serve,
) -> None:
    async with (
        serve(mcp_sse=True, namespace_calls_per_minute=0, token_calls_per_minute=0) as running,
        running.http(await running.token()) as http,
        httpx2.AsyncClient(
            base_url=http.base_url,
            headers=http.headers,
            transport=httpx2.AsyncHTTPTransport(socket_options=[SMALL_BUFFER]),
        ) as reader,
        reader.stream("GET", SSE) as opened,
    ):
        events = data_of(opened)
        place = await anext(events)
        for number in range(25):
            kept = {"text": f"{number}. " + "I ski. " * 120, "type": "fact", "infer": False}
            answer = await http.post("/v1/memories", json=kept)
            assert answer.status_code == 202, answer.text
        await running.extract()
        asked, statuses = call("inspect_memories", limit=50), [0]
        # Send until the buffers of the connection and of the server are full.
        while statuses[-1] != 404 and len(statuses) < 1_000:
            statuses.append((await http.post(place, json=asked)).status_code)

    assert set(statuses[1:UNREAD_MAX]) == {202}
    assert statuses[-1] == 404


@pytest.mark.slow
@on_sqlite
async def test_few_bytes_wait_for_a_client_that_does_not_read_however_long_its_answers_are(
    serve: Serve,
) -> None:
    """The control: a client that reads gets more of these answers than may wait."""
    times = UNREAD_MAX
    async with (
        serve(mcp_sse=True, namespace_calls_per_minute=0, token_calls_per_minute=0) as running,
        running.http(await running.token()) as http,
        httpx2.AsyncClient(
            base_url=http.base_url,
            headers=http.headers,
            timeout=WITHIN_S,
            transport=httpx2.AsyncHTTPTransport(socket_options=[SMALL_BUFFER]),
        ) as reader,
    ):
        for number in range(50):
            kept = {"text": f"{number}. " + "I ski. " * 280, "type": "fact", "infer": False}
            await http.post("/v1/memories", json=kept)
        await running.extract()
        asked = call("inspect_memories", limit=50)
        async with http.stream("GET", SSE) as opened:
            events = data_of(opened)
            place = await anext(events)
            read = [len(await anext(events)) async for _ in _posted(http, place, asked, times)]
        async with reader.stream("GET", SSE) as opened:
            events = data_of(opened)
            place = await anext(events)
            statuses = [one async for one in _posted(http, place, asked, times)]

    assert (len(read), min(read) == max(read)) == (times, True)
    assert sum(read) > 3 * UNREAD_BYTES_MAX
    assert statuses[-1] == 404


async def _posted(
    http: httpx2.AsyncClient, place: str, asked: Json, times: int
) -> AsyncIterator[int]:
    for _ in range(times):
        yield (await http.post(place, json=asked)).status_code


async def test_a_call_has_its_place_among_the_calls_at_once_until_it_is_answered(
    serve: Serve,
) -> None:
    async with (
        serve(mcp_sse=True, calls_at_once=1, namespace_calls_at_once=1) as running,
        running.http(await running.token()) as http,
        http.stream("GET", SSE) as opened,
    ):
        events = data_of(opened)
        place = await anext(events)
        turns = running.application.store.turns
        async with running.application.store.transaction(ALICE) as tx:
            await tx.lock()
            await tx.audit.require(None)  # Postgres gets the lock with the first read
            accepted = await http.post(place, json=call("store_memory", text="User: I ski."))
            other = asyncio.create_task(http.get("/v1/whoami"))
            async with asyncio.timeout(WITHIN_S):
                while not turns.waiting(ALICE):
                    if other.done():  # it was answered before the server came to the store
                        other = asyncio.create_task(http.get("/v1/whoami"))
                    await asyncio.sleep(0)
        stored, answered = await anext(events), await other

    assert (accepted.status_code, answered.status_code) == (202, 200)
    assert '"queued":true' in stored


@pytest.mark.parametrize("body", [[], {"method": "ping"}, {"jsonrpc": "2.0", "id": 3}])
async def test_what_is_no_message_is_answered_on_the_stream(serve: Serve, body: object) -> None:
    async with (
        serve(mcp_sse=True) as running,
        running.http(await running.token()) as http,
        http.stream("GET", SSE) as opened,
    ):
        events = data_of(opened)
        answer = await http.post(await anext(events), json=body)
        said = await anext(events)

    assert answer.status_code == 202
    assert '"error"' in said


async def test_streams_end_when_the_server_stops(serve: Serve) -> None:
    async with (
        serve(mcp_sse=True) as running,
        running.http(await running.token()) as http,
        http.stream("GET", SSE) as opened,
    ):
        events = data_of(opened)
        await anext(events)
        running.application.stop()
        async with asyncio.timeout(WITHIN_S):
            left = [one async for one in events]

    assert left == []
