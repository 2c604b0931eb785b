"""What `recall stdio` does when the connection to its server is lost."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest

from recall_server.local.proxy import RemoteServer, Upstream

TOOLS = [
    {"name": "search_memories", "annotations": {"readOnlyHint": True}},
    {"name": "store_memory", "annotations": {"readOnlyHint": False}},
    {"name": "without"},
]


class Dropping:
    """A server that closes the next `drops` connections when it has read a request."""

    def __init__(self) -> None:
        self.drops = 0
        self.received = 0
        self.address = ""

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        async with server:
            self.address = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
            yield

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        sent = json.loads(await reader.readexactly(length))
        self.received += 1
        if self.drops:
            self.drops -= 1
        else:
            result = {"tools": TOOLS} if sent["method"] == "tools/list" else {"content": []}
            body = json.dumps({"jsonrpc": "2.0", "id": sent["id"], "result": result}).encode()
            kind = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
            writer.write(kind + b"content-length: %d\r\n\r\n" % len(body) + body)
            await writer.drain()
        writer.close()


@asynccontextmanager
async def relayed() -> AsyncIterator[tuple[Dropping, httpx2.AsyncClient]]:
    server = Dropping()
    async with (
        server.listening(),
        httpx2.AsyncClient(
            transport=Upstream(RemoteServer.checked(server.address, None, "rcl_x"))
        ) as http,
    ):
        await ask(http, "tools/list")
        server.received = 0
        yield server, http


async def ask(http: httpx2.AsyncClient, method: str, **params: Any) -> dict[str, Any]:
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
    found: dict[str, Any] = (await http.post("http://recall.invalid/mcp", json=body)).json()
    return found


SAFE = [
    ("tools/list", {}),
    ("tools/call", {"name": "search_memories", "arguments": {"query": "x"}}),
    ("tools/call", {"name": "store_memory", "arguments": {"text": "x", "idempotency_key": "k"}}),
]
UNSAFE = [
    ("tools/call", {"name": "store_memory", "arguments": {"text": "x"}}),
    ("tools/call", {"name": "without"}),
]


@pytest.mark.parametrize(("method", "params"), SAFE)
async def test_what_changes_nothing_twice_is_sent_once_more(
    method: str, params: dict[str, Any]
) -> None:
    async with relayed() as (server, http):
        server.drops = 1
        answered = await ask(http, method, **params)
        once = server.received
        server.drops = 2
        lost = await ask(http, method, **params)

    assert "result" in answered
    assert "[SERVER_UNREACHABLE]" in lost["error"]["message"]
    assert (once, server.received) == (2, 4)


@pytest.mark.parametrize(("method", "params"), UNSAFE)
async def test_a_change_is_never_sent_again_by_itself(method: str, params: dict[str, Any]) -> None:
    async with relayed() as (server, http):
        server.drops = 1
        lost = await ask(http, method, **params)

    assert "look whether it was made" in lost["error"]["message"]
    assert server.received == 1
