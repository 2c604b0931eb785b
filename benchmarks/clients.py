"""Clients: that of the SDK, as agents use it, and JSON-RPC on a plain socket, which costs little
itself.

Each keeps its connection. A call that is refused or fails raises `RuntimeError`.
"""

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
Headers = Mapping[bytes, bytes]
Exchange = Callable[[bytes], Awaitable[tuple[int, Headers, bytes]]]
DEADLINE_S = 30.0
MCP_VERSION = "2025-11-25"
HELLO = {
    "protocolVersion": MCP_VERSION,
    "capabilities": {},
    "clientInfo": {"name": "benchmarks", "version": "1"},
}


@asynccontextmanager
async def sdk(address: str, token: str) -> AsyncIterator[CallTool]:
    """Yield calls of the client of the MCP SDK."""
    headers = {"Authorization": f"Bearer {token}"}
    async with (
        httpx2.AsyncClient(headers=headers, timeout=DEADLINE_S) as http,
        Client(streamable_http_client(f"{address}/mcp", http_client=http)) as client,
    ):

        async def call(tool: str, arguments: Arguments) -> None:
            result = await client.call_tool(tool, dict(arguments))
            if result.is_error:
                raise RuntimeError(f"{tool} failed: {result.structured_content}")

        yield call


@asynccontextmanager
async def plain(address: str, token: str) -> AsyncIterator[Ask]:
    """Yield calls of MCP tools on a plain socket, which return the body of the answer.

    The SDK's client takes about as long for a call as the server does, on the same cores. That time
    is in numerator and denominator alike, so with it every ratio looks better.
    """
    async with _rpc(address, "/mcp", token, f"MCP-Protocol-Version: {MCP_VERSION}") as post:
        yield _tools(post)


@asynccontextmanager
async def session(address: str, token: str) -> AsyncIterator[Ask]:
    """Yield the same calls, after the handshake of a server with sessions.

    After a failed call the session begins again, since the connection may be gone.
    """
    async with AsyncExitStack() as stack:
        ask: Ask | None = None

        async def again(tool: str, arguments: Arguments) -> bytes:
            nonlocal ask
            try:
                if ask is None:
                    ask = await stack.enter_async_context(_begun(address, token))
                return await ask(tool, arguments)
            except BaseException:
                ask = None
                raise

        yield again


@asynccontextmanager
async def tasks(address: str, token: str) -> AsyncIterator[CallTool]:
    """Yield calls of A2A methods on a plain socket; each must be answered with a completed task."""
    async with _rpc(address, "/a2a", token, "A2A-Version: 1.0") as post:

        async def call(method: str, params: Arguments) -> None:
            answer = await post(method, params)
            if b"TASK_STATE_COMPLETED" not in answer:
                raise RuntimeError(f"{method} did not complete: {answer[:500].decode()}")

        yield call


@asynccontextmanager
async def statuses(address: str, path: str) -> AsyncIterator[Callable[[str], Awaitable[int]]]:
    """Yield calls that get `path` with one token after the other, and return the HTTP status."""
    host = urlsplit(address).netloc
    async with _connected(address) as exchange:

        async def get(token: str) -> int:
            head = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n\r\n"
            return (await exchange(head.encode()))[0]

        yield get


def _tools(post: Ask) -> Ask:
    async def call(tool: str, arguments: Arguments) -> bytes:
        answer = await post("tools/call", {"name": tool, "arguments": arguments})
        if b'"isError":false' not in answer:
            raise RuntimeError(f"{tool} failed: {answer[:500].decode()}")
        return answer

    return call


@asynccontextmanager
async def _begun(address: str, token: str) -> AsyncIterator[Ask]:
    """Begin a session of MCP, if the server has sessions."""
    header = f"MCP-Protocol-Version: {MCP_VERSION}"
    host = urlsplit(address).netloc
    async with _connected(address) as exchange:
        hello = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": HELLO}
        status, headers, body = await exchange(_post(host, "/mcp", token, header, hello))
        if status != 200:
            raise RuntimeError(f"initialize failed: {status} {body[:500].decode()}")
        if named := headers.get(b"mcp-session-id", b"").decode():
            header = f"{header}\r\nMcp-Session-Id: {named}"
        done = {"jsonrpc": "2.0", "method": "notifications/initialized"}
        await exchange(_post(host, "/mcp", token, header, done))
    async with _rpc(address, "/mcp", token, header) as post:
        yield _tools(post)


@asynccontextmanager
async def _rpc(address: str, path: str, token: str, header: str) -> AsyncIterator[Ask]:
    """Yield JSON-RPC over one connection, which returns the body of the answer."""
    host = urlsplit(address).netloc
    async with _connected(address) as exchange:

        async def post(method: str, params: Arguments) -> bytes:
            message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params}
            status, _, body = await exchange(_post(host, path, token, header, message))
            if status != 200:
                raise RuntimeError(f"{method} failed: {status} {body[:500].decode()}")
            return body

        yield post


def _post(host: str, path: str, token: str, header: str, message: Mapping[str, Any]) -> bytes:
    body = json.dumps(message).encode()
    return (
        f"POST {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\n"
        "Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\n"
        f"{header}\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode() + body


@asynccontextmanager
async def _connected(address: str) -> AsyncIterator[Exchange]:
    """Yield requests over one connection, which return status, headers and body of each answer."""
    where = urlsplit(address)
    reader, writer = await asyncio.open_connection(where.hostname, where.port)

    async def exchange(request: bytes) -> tuple[int, Headers, bytes]:
        writer.write(request)
        async with asyncio.timeout(DEADLINE_S):
            return await _answer(reader)

    try:
        yield exchange
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _answer(reader: asyncio.StreamReader) -> tuple[int, Headers, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.strip().split(b"\r\n")
    headers = {
        name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)
    }
    status = int(first.split(b" ")[1])
    if headers.get(b"transfer-encoding") != b"chunked":
        return status, headers, await reader.readexactly(int(headers.get(b"content-length", 0)))
    body = b""
    while size := int(await reader.readuntil(b"\r\n"), 16):
        body += (await reader.readexactly(size + 2))[:-2]
    await reader.readuntil(b"\r\n")
    return status, headers, body
