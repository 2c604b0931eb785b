"""MCP over HTTP with SSE, the transport of 2024-11-05, for clients that speak no newer one.

A message that is POSTed is answered as by `/mcp`, within the limits of any call, and the answer is
sent on the stream. The transport of the SDK would run calls inside the stream, beside these limits.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from secrets import token_hex
from urllib.parse import urlsplit

from starlette.background import BackgroundTask
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route
from starlette.types import Message, Receive, Scope, Send

from recall_server.api.mcp import PATH, SESSION, McpServer
from recall_server.api.middleware.limits import SSE_PATH, Streams, turn_of
from recall_server.api.operations.operation import Json, caller_of
from recall_server.api.problems import MethodNotAllowed, problem
from recall_server.domain.errors import NotFound

MESSAGES_PATH = "/mcp/messages"
# The unread answers that a client may have, and their bytes: one more ends its stream.
UNREAD_MAX = 32
UNREAD_BYTES_MAX = 2 * 2**20
# The seconds after which something is sent, since proxies end silent connections.
PING_S = 15
# The seconds after which a stream ends when the process stops.
LOOK_S = 1.0

_VERSION = "mcp-protocol-version"
_INVALID_REQUEST = -32600


@dataclass(eq=False)
class _Stream:
    """An open stream, and the headers that a client of `/mcp` would send by itself."""

    owner: tuple[str, str]
    unread: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(UNREAD_MAX))
    unread_bytes: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    ended: bool = False

    def put(self, event: bytes) -> None:
        """Queue an event, or end the stream if the client has too much unread. An only one may have
        any length, as an answer of `/mcp` may.
        """
        more = self.unread_bytes + len(event)
        if self.unread.full() or (self.unread_bytes and more > UNREAD_BYTES_MAX):
            self.ended = True
        else:
            self.unread_bytes = more
            self.unread.put_nowait(event)

    async def taken(self) -> bytes:
        event = await self.unread.get()
        self.unread_bytes -= len(event)
        return event


class SseServer:
    """The streams of this process. `base` is the address by which a request reached us; `closed`
    says that the process stops.
    """

    def __init__(
        self,
        mcp: McpServer,
        base: Callable[[Scope], str],
        streams: Streams,
        closed: Callable[[], bool],
    ) -> None:
        self._mcp = mcp
        self._base = base
        self._limits = streams
        self._closed = closed
        self._streams: dict[str, _Stream] = {}

    def routes(self) -> list[Route]:
        limited = [Middleware(self._limits.limiting)]
        return [
            Route(SSE_PATH, self._open, methods=["GET"], middleware=limited),
            Route(MESSAGES_PATH, self._take, methods=["POST"]),
        ]

    async def _open(self, request: Request) -> Response:
        if request.method != "GET":
            return problem(MethodNotAllowed("This path takes GET."), {"Allow": "GET"})
        caller, session = caller_of(request.scope), token_hex(16)
        stream = _Stream((caller.namespace, caller.accessor))
        place = urlsplit(self._base(request.scope)).path.rstrip("/") + MESSAGES_PATH
        stream.put(_event("endpoint", f"{place}?session_id={session}".encode()))
        self._streams[session] = stream

        def over() -> bool:
            return stream.ended or self._closed()

        return _Events(stream, over, lambda: self._streams.pop(session))

    async def _take(self, request: Request) -> Response:
        """Accept a message of the client that has opened the stream, and answer it there."""
        caller = caller_of(request.scope)
        stream = self._streams.get(request.query_params.get("session_id", ""))
        mine = (caller.namespace, caller.accessor)
        if stream is None or stream.ended or stream.owner != mine:
            return problem(NotFound(f"This stream is not open. Open one with GET {SSE_PATH}."))
        body = await request.body()
        # Keep its slot among the calls at once until it is answered.
        turn_of(request.scope).outlasts = True
        return Response(
            status_code=202, background=BackgroundTask(self._answer, request, stream, body)
        )

    async def _answer(self, request: Request, stream: _Stream, body: bytes) -> None:
        message = request.scope.get("recall.json")
        forwarded = _Forwarded(body)
        await self._mcp(_as_mcp(request.scope, stream.headers), forwarded.receive, forwarded.send)
        answer = forwarded.answer
        if answer is None:
            return
        if "jsonrpc" not in answer:  # clients of this transport do not know problems
            about = message.get("id") if isinstance(message, dict) else None
            error = {"code": _INVALID_REQUEST, "message": str(answer.get("detail", ""))}
            forwarded.body = json.dumps({"jsonrpc": "2.0", "id": about, "error": error}).encode()
        result = answer.get("result")
        if isinstance(result, dict) and "protocolVersion" in result:
            stream.headers |= {_VERSION: str(result["protocolVersion"])}
            stream.headers |= {SESSION: forwarded.session} if forwarded.session else {}
        stream.put(_event("message", forwarded.body))


class _Forwarded:
    """One request of `/mcp`, with its answer."""

    def __init__(self, body: bytes) -> None:
        self._request: Message | None = {"type": "http.request", "body": body, "more_body": False}
        self.body = b""
        self.session = ""

    @property
    def answer(self) -> Json | None:
        """The answer, or None if the message was a notification."""
        found = json.loads(self.body) if self.body else None
        return found if isinstance(found, dict) else None

    async def receive(self) -> Message:
        if self._request is None:
            await asyncio.Event().wait()  # the client does not hang up: it waits at its stream
        message, self._request = self._request, None
        assert message is not None
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.body":
            self.body += message.get("body", b"")
            return
        for name, value in message["headers"]:
            if name.decode("latin-1").lower() == SESSION:
                self.session = value.decode("latin-1")


class _Events(StreamingResponse):
    """The answer, which goes on until the client hangs up or the stream ends."""

    def __init__(
        self, stream: _Stream, over: Callable[[], bool], ended: Callable[[], object]
    ) -> None:
        headers = {"Content-Type": "text/event-stream", "X-Accel-Buffering": "no"}
        super().__init__(_events(stream, over), headers=headers)
        self._ended = ended

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._ended()


async def _events(stream: _Stream, over: Callable[[], bool]) -> AsyncIterator[bytes]:
    silent = 0.0
    while not over():
        try:
            async with asyncio.timeout(LOOK_S):
                event = await stream.taken()
        except TimeoutError:
            silent += LOOK_S
            if silent < PING_S:
                continue
            event = b": ping\n\n"
        silent = 0.0
        yield event


def _event(name: str, data: bytes) -> bytes:
    return b"event: %s\r\ndata: %s\r\n\r\n" % (name.encode(), data)


def _as_mcp(scope: Scope, remembered: dict[str, str]) -> Scope:
    """Return the scope of the same message at `/mcp`."""
    headers = {name: value for name, value in scope["headers"] if name != b"accept"}
    for name, value in remembered.items():
        headers.setdefault(name.encode(), value.encode("latin-1"))
    return {
        **scope,
        "path": PATH,
        "raw_path": PATH.encode(),
        "query_string": b"",
        "headers": list(headers.items()),
    }
