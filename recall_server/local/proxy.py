"""MCP on standard input and output, relayed unchanged to a server over HTTP."""

import asyncio
import json
import math
import os
import signal
import sys
import time
import traceback
from collections.abc import AsyncIterable
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Protocol, Self

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.server.stdio import stdio_server
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    NAME_BEARING_METHODS,
    encode_header_value,
)
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp.types import (
    PARSE_ERROR,
    PROTOCOL_VERSION_META_KEY,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from recall_server.config import LOOPBACK, is_address
from recall_server.domain.errors import Invalid, RecallError, ServerUnreachable
from recall_server.local import Local, read_token

TIMEOUT = httpx2.Timeout(30.0, read=300.0)
POLL_S = 0.05
# How long to wait for answers at the end of input; the first request may start a server.
DRAIN_S = 60.0
# The code of JSON-RPC for a server's own errors.
SERVER_ERROR = -32_000
# A placeholder: requests get the real address when they are sent.
_ANYWHERE = "http://recall.invalid/mcp"


@dataclass(frozen=True)
class LocalServer:
    """The server of an SQLite file, which is started if none runs."""

    local: Local
    # How long to wait for a server that was ended.
    restart_s: ClassVar[float] = 5.0

    def address(self) -> str:
        return f"{self.local.address()}/mcp"

    def token(self) -> str:
        return self.local.token()

    def client(self) -> httpx2.AsyncClient:
        # Loopback needs neither certificates nor proxies, and loading them takes long. No
        # connection is kept: after a server was killed, a request on a kept connection may or may
        # not have been accepted.
        limits = httpx2.Limits(max_keepalive_connections=0)
        return httpx2.AsyncClient(verify=False, trust_env=False, limits=limits)


@dataclass(frozen=True)
class RemoteServer:
    """A server at an address; its token is in a file, or was given."""

    url: httpx2.URL
    token_file: Path | None
    given: str
    restart_s: ClassVar[float] = 0.0

    @classmethod
    def checked(cls, url: str, token_file: Path | None, given: str) -> Self:
        """Return the server at this address. Raises `Invalid` if the address is invalid or there is
        no token.
        """
        if not is_address(url):
            raise Invalid("--url must be an address such as https://memory.example.com/mcp.")
        if token_file is None and not given:
            raise Invalid(
                "A server elsewhere asks for a token. Name a file with --token-file, or set "
                "RECALL_TOKEN."
            )
        found = httpx2.URL(url)
        return cls(found.copy_with(path="/mcp") if found.path == "/" else found, token_file, given)

    def address(self) -> str:
        return str(self.url)

    def token(self) -> str:
        return read_token(self.token_file) if self.token_file else self.given

    def client(self) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(verify=self.url.host not in LOOPBACK)


class Upstream(httpx2.AsyncBaseTransport):
    """Sends requests to the current address of the server, and answers any failure with an error of
    JSON-RPC that a person can read.

    The target is asked for its address before the first request, and again if no connection can be
    made: a local server is then started again.
    """

    def __init__(self, target: LocalServer | RemoteServer) -> None:
        self._target = target
        self._client = target.client()
        self._place: tuple[str, str] | None = None
        self._reads: frozenset[str] = frozenset()
        self._finding = asyncio.Lock()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await self._answer(request)
        except RecallError as error:
            return _error_response(error.message, error.code)
        except httpx2.ConnectError:
            where = self._place[0] if self._place else "its address"
            return _error_response(
                f"No server takes a connection at {where}. Start it, or correct the address.",
                ServerUnreachable.code,
            )
        except (httpx2.TransportError, httpx2.InvalidURL) as error:
            return _error_response(
                f"The server gave no whole answer ({type(error).__name__}). Before you send a "
                "change again, look whether it was made.",
                ServerUnreachable.code,
            )
        except Exception as error:  # noqa: BLE001  # the client waits for an answer
            traceback.print_exc()
            return _error_response(
                f"recall stdio failed ({type(error).__name__}).", RecallError.code
            )

    async def _answer(self, request: httpx2.Request) -> httpx2.Response:
        """Return the server's answer. If no connection could be made, nothing was sent: the request
        is sent again, and again for a while if the server is a local one that was just ended. If a
        connection was lost, it is sent again once, unless that could change something twice.
        """
        place = await self._locate(gone=None)
        tries, lost, until = 0, False, math.inf
        while True:
            tries += 1
            try:
                return await self._answer_from(request, *place)
            except httpx2.ConnectError:
                until = min(until, time.monotonic() + self._target.restart_s)
                if tries > 1 and time.monotonic() >= until:
                    raise
            except (httpx2.NetworkError, httpx2.RemoteProtocolError):
                if lost or not self._repeatable(request):
                    raise
                lost = True
            if tries > 1:
                await asyncio.sleep(POLL_S)
            place = await self._locate(gone=place)

    def _repeatable(self, request: httpx2.Request) -> bool:
        """Return whether a request that may have been carried out can be sent again: all but calls
        of tools that change something, without a key by which the server knows them again.
        """
        sent = json.loads(request.content)
        params = sent.get("params") or {}
        return (
            sent.get("method") != "tools/call"
            or params.get("name") in self._reads
            or bool((params.get("arguments") or {}).get("idempotency_key"))
        )

    async def _answer_from(
        self, request: httpx2.Request, address: str, token: str
    ) -> httpx2.Response:
        response = await self._send(request, address, token)
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            return response
        try:
            body = await response.aread()
        finally:
            await response.aclose()
        self._reads |= _reads_of(body)
        if response.is_error and (said := _problem(body)):
            return _error_response(*said)
        kind = response.headers.get("content-type", "")
        kept = {name: response.headers[name] for name in _KEPT if name in response.headers}
        return httpx2.Response(
            response.status_code, headers={"content-type": kind, **kept}, content=body
        )

    async def _locate(self, *, gone: tuple[str, str] | None) -> tuple[str, str]:
        """Return address and token of the server; ask the target again if it is `gone` from the
        known address.
        """
        async with self._finding:
            if self._place is None or self._place == gone:
                address = await asyncio.to_thread(self._target.address)
                self._place = (address, self._target.token())
            return self._place

    async def _send(self, request: httpx2.Request, address: str, token: str) -> httpx2.Response:
        headers = {name: value for name, value in request.headers.items() if name not in _OWN}
        sent = self._client.build_request(
            request.method,
            address,
            headers={**headers, "authorization": f"Bearer {token}"},
            content=await request.aread(),
            timeout=TIMEOUT,
        )
        return await self._client.send(sent, stream=True)

    async def aclose(self) -> None:
        await self._client.aclose()


# Request headers that belong to one connection, and are not relayed.
_OWN = frozenset({"host", "connection", "content-length", "transfer-encoding"})
# Response headers that are relayed, besides the content type.
_KEPT = ("mcp-session-id", "location")


def _reads_of(body: bytes) -> frozenset[str]:
    """Return the names of the tools that change nothing, if the body is a list of tools."""
    if b'"readOnlyHint"' not in body:
        return frozenset()
    try:
        tools = json.loads(body)["result"]["tools"]
        hints = {one["name"]: one.get("annotations") or {} for one in tools}
        return frozenset(name for name, one in hints.items() if one.get("readOnlyHint"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return frozenset()


def _problem(body: bytes) -> tuple[str, str] | None:
    """Return sentence and code of an error from the body of a recall server; None for others."""
    try:
        said = json.loads(body)
        return str(said["detail"]), str(said["code"])
    except (ValueError, TypeError, KeyError):
        return None


def _error_response(message: str, code: str) -> httpx2.Response:
    """Return an error of JSON-RPC; the client of the SDK fills in the id of the request."""
    error = {"code": SERVER_ERROR, "message": f"{message} [{code}]", "data": {"code": code}}
    return httpx2.Response(503, json={"jsonrpc": "2.0", "id": None, "error": error})


_CANCELLED = "notifications/cancelled"


# An exception stands for input that is no message.
Incoming = AsyncIterable[SessionMessage | Exception]


class Outgoing(Protocol):
    async def send(self, item: SessionMessage, /) -> None: ...


class Relay:
    """Passes messages between a client and a server, and tracks requests without an answer."""

    def __init__(self) -> None:
        self._open: dict[RequestId, str] = {}
        self._idle = asyncio.Event()
        self._idle.set()
        self._version: str | None = None

    async def drain(self) -> None:
        """Wait until all requests are answered, at most `DRAIN_S`."""
        with anyio.move_on_after(DRAIN_S):
            await self._idle.wait()

    async def pass_requests(self, source: Incoming, server: Outgoing, client: Outgoing) -> None:
        """Pass on what the client sends, until it ends."""
        async for item in source:
            if isinstance(item, Exception):
                error = ErrorData(code=PARSE_ERROR, message="Send one JSON-RPC 2.0 message a line.")
                await client.send(SessionMessage(JSONRPCError(jsonrpc="2.0", id=None, error=error)))
                continue
            message = item.message
            if isinstance(message, JSONRPCRequest):
                self._open[message.id] = message.method
                self._idle.clear()
            elif isinstance(message, JSONRPCNotification) and message.method == _CANCELLED:
                self._close((message.params or {}).get("requestId"))
            metadata = ClientMessageMetadata(headers=self._headers(message))
            await server.send(SessionMessage(message, metadata))

    async def pass_answers(self, source: Incoming, client: Outgoing) -> None:
        """Pass on what the server sends."""
        async for item in source:
            if isinstance(item, Exception):
                sys.stderr.write(f"recall: {item}\n")
                continue
            message = item.message
            if isinstance(message, JSONRPCResponse) and self._open.get(message.id) == "initialize":
                self._version = message.result.get("protocolVersion")
            await client.send(SessionMessage(message))
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                self._close(message.id)

    def _close(self, request: RequestId | None) -> None:
        if request is not None:
            self._open.pop(request, None)
        if not self._open:
            self._idle.set()

    def _headers(self, message: JSONRPCMessage) -> dict[str, str] | None:
        """Return the HTTP headers for a message. In newer protocol versions each request names its
        version; in older ones `initialize` has agreed on it.
        """
        if not isinstance(message, JSONRPCRequest | JSONRPCNotification):
            return None
        params = message.params or {}
        version = (params.get("_meta") or {}).get(PROTOCOL_VERSION_META_KEY)
        if version is None:
            return {MCP_PROTOCOL_VERSION_HEADER: self._version} if self._version else None
        headers = {MCP_PROTOCOL_VERSION_HEADER: str(version), MCP_METHOD_HEADER: message.method}
        name = params.get(NAME_BEARING_METHODS.get(message.method, ""))
        if isinstance(name, str):
            headers[MCP_NAME_HEADER] = encode_header_value(name)
        return headers


async def serve_stdio(target: LocalServer | RemoteServer) -> None:
    """Relay until standard input ends and its last requests are answered, or until SIGTERM or
    SIGINT.
    """
    relay = Relay()
    for number in (signal.SIGTERM, signal.SIGINT):
        # Exit immediately: the thread that reads standard input cannot be interrupted.
        asyncio.get_running_loop().add_signal_handler(number, os._exit, 0)
    async with (
        stdio_server() as (requests, to_client),
        httpx2.AsyncClient(transport=Upstream(target)) as http,
        streamable_http_client(_ANYWHERE, http_client=http, terminate_on_close=False) as (
            answers,
            to_server,
        ),
        anyio.create_task_group() as group,
        to_client,
    ):
        group.start_soon(relay.pass_answers, answers, to_client)
        await relay.pass_requests(requests, to_server, to_client)
        await relay.drain()
        group.cancel_scope.cancel()
