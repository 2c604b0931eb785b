"""Ways to call: as agents do, and with as little cost of our own as possible."""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

Arguments = Mapping[str, Any]
CallTool = Callable[[str, Arguments], Awaitable[object]]
Ask = Callable[[str, Arguments], Awaitable[bytes]]
Post = Callable[[str, Arguments], Awaitable[bytes]]
Headers = Mapping[bytes, bytes]
Send = Callable[[Mapping[str, Any]], Awaitable[tuple[Headers, bytes]]]
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
async def session(address: str, token: str) -> AsyncIterator[Ask]:
    """The same, after the handshake that a server with sessions asks for; gives what it answers.

    After a call that failed it begins anew, as the connection may be gone.
    """
    async with AsyncExitStack() as stack:
        post: Post | None = None

        async def ask(tool: str, arguments: Arguments) -> bytes:
            nonlocal post
            try:
                if post is None:
                    post = await stack.enter_async_context(_begun(address, token))
                answer = await post("tools/call", {"name": tool, "arguments": arguments})
            except BaseException:
                post = None
                raise
            if b'"isError":false' not in answer:
                raise RuntimeError(f"{tool} failed: {answer[:500].decode()}")
            return answer

        yield ask


@asynccontextmanager
async def _begun(address: str, token: str) -> AsyncIterator[Post]:
    """A session of MCP, if the server has such, over one connection that is kept."""
    protocol = "MCP-Protocol-Version: 2025-11-25"
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    async with _connected(address, "/mcp", token, protocol) as send:
        headers, _ = await send(
            {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": hello}
        )
    named = headers.get(b"mcp-session-id", b"").decode()
    header = f"{protocol}\r\nMcp-Session-Id: {named}" if named else protocol
    async with _connected(address, "/mcp", token, header) as send:
        await send({"jsonrpc": "2.0", "method": "notifications/initialized"})
    async with _kept(address, "/mcp", token, header) as post:
        yield post


@asynccontextmanager
async def tasks(address: str, token: str) -> AsyncIterator[CallTool]:
    """A2A methods on a socket that is kept; each must be answered with a completed task."""
    async with _kept(address, "/a2a", token, "A2A-Version: 1.0") as post:

        async def call(method: str, params: Arguments) -> None:
            answer = await post(method, params)
            if b"TASK_STATE_COMPLETED" not in answer:
                raise RuntimeError(f"{method} did not complete: {answer[:500].decode()}")

        yield call


@asynccontextmanager
async def knocking(address: str, path: str) -> AsyncIterator[Callable[[str], Awaitable[int]]]:
    """Asks for `path` with one token after the other, over one connection; gives the status."""
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)

    async def knock(token: str) -> int:
        writer.write(
            f"GET {path} HTTP/1.1\r\nHost: {where.netloc}\r\n"
            f"Authorization: Bearer {token}\r\n\r\n".encode()
        )
        async with asyncio.timeout(DEADLINE_S):
            status, _, _ = await _answer(reader)
        return int(status)

    try:
        yield knock
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def _kept(address: str, path: str, token: str, header: str) -> AsyncIterator[Post]:
    """Sends JSON-RPC over one connection; gives the body of the answer."""
    async with _connected(address, path, token, header) as send:

        async def post(method: str, params: Arguments) -> bytes:
            _, answer = await send({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})
            return answer

        yield post


@asynccontextmanager
async def _connected(address: str, path: str, token: str, header: str) -> AsyncIterator[Send]:
    """Sends bodies over one connection; gives the headers and the body of each answer."""
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: {where.netloc}\r\nAuthorization: Bearer {token}\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        f"{header}\r\nContent-Length: "
    )

    async def send(message: Mapping[str, Any]) -> tuple[Headers, bytes]:
        body = json.dumps(message).encode()
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        async with asyncio.timeout(DEADLINE_S):
            status, headers, answer = await _answer(reader)
        if status not in {b"200", b"202"}:
            raise RuntimeError(
                f"{message['method']} failed: {status.decode()} {answer[:500].decode()}"
            )
        return headers, answer

    try:
        yield send
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> tuple[bytes, Headers, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.strip().split(b"\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)
    }
    if headers.get(b"transfer-encoding") != b"chunked":
        body = await reader.readexactly(int(headers.get(b"content-length", 0)))
        return first.split(b" ")[1], headers, body
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return first.split(b" ")[1], headers, body
