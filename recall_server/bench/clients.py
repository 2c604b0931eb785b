"""Ways to call: as agents do, and with as little cost of our own as possible."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

Arguments = Mapping[str, Any]
CallTool = Callable[[str, Arguments], Awaitable[None]]
DEADLINE_S = 30.0


@asynccontextmanager
async def sdk(address: str, token: str) -> AsyncIterator[CallTool]:
    """The `mcp` client, over one connection that is kept."""
    async with (
        httpx2.AsyncClient(
            headers={"Authorization": f"Bearer {token}"}, timeout=DEADLINE_S
        ) as http,
        Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
    ):

        async def call(tool: str, arguments: Arguments) -> None:
            result = await client.call_tool(tool, dict(arguments))
            if result.is_error:
                raise RuntimeError(f"{tool} failed: {result.structured_content}")

        yield call


@asynccontextmanager
async def plain(address: str, token: str) -> AsyncIterator[CallTool]:
    """The same JSON-RPC written to a socket that is kept.

    The SDK's client takes about as long for a call as the server does, on the same cores, and
    that is part of numerator and denominator alike: through it, every ratio looks better.
    """
    async with _kept(address, "/mcp", token, "MCP-Protocol-Version: 2025-11-25") as post:

        async def call(tool: str, arguments: Arguments) -> None:
            answer = await post("tools/call", {"name": tool, "arguments": arguments})
            if b'"isError":false' not in answer:
                raise RuntimeError(f"{tool} failed: {answer[:500].decode()}")

        yield call


@asynccontextmanager
async def tasks(address: str, token: str) -> AsyncIterator[CallTool]:
    """A2A methods on a socket that is kept; each must be answered with a completed task."""
    async with _kept(address, "/a2a", token, "A2A-Version: 1.0") as post:

        async def call(method: str, params: Arguments) -> None:
            answer = await post(method, params)
            if b"TASK_STATE_COMPLETED" not in answer:
                raise RuntimeError(f"{method} did not complete: {answer[:500].decode()}")

        yield call


Post = Callable[[str, Arguments], Awaitable[bytes]]


@asynccontextmanager
async def _kept(address: str, path: str, token: str, header: str) -> AsyncIterator[Post]:
    """Sends JSON-RPC over one connection; gives the body of the answer."""
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {token}\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        f"{header}\r\nContent-Length: "
    )

    async def post(method: str, params: Arguments) -> bytes:
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(DEADLINE_S):
            status, answer = await _answer(reader)
        if status != b"200":
            raise RuntimeError(f"{method} failed: {status.decode()} {answer[:500].decode()}")
        return answer

    try:
        yield post
    finally:
        writer.close()
        await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *headers = head.split(b"\r\n")
    length = next(
        int(line.split(b":")[1]) for line in headers if line.lower().startswith(b"content-length:")
    )
    return first.split(b" ")[1], await reader.readexactly(length)
