"""The caller of a request: its bearer token, without which it goes no further, and the limits of
one caller: calls a minute, calls at once, and open streams. Pure ASGI, for all protocols.
"""

import asyncio
import math
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recall_server.api.a2a.card import JSONRPC_PATH, REST_PATH
from recall_server.api.a2a.errors import refusal
from recall_server.api.operations.operation import CALLER, REQUEST_ID, Caller
from recall_server.api.problems import problem
from recall_server.domain.errors import (
    AuthUnavailable,
    Busy,
    InsufficientScope,
    Invalid,
    RateLimited,
    RecallError,
    TooManyStreams,
    Unauthenticated,
)
from recall_server.domain.fairness import FairSemaphore
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import DEFAULT_SCOPES, TokenInfo
from recall_server.domain.permissions import Scope as Needed
from recall_server.integrations.issuers import Issuer
from recall_server.services.auth import STREAMS, OpenAnswers
from recall_server.services.limits import Rates
from recall_server.services.supervision import Supervisor

log = structlog.get_logger()

BUSY_AGAIN_S = 1
WAITING_MAX = 512
_TURN = "recall.turn"


@dataclass
class Turn:
    """A call's slot among the calls in progress. It is released when the answer begins, earlier if
    the call only waits for something to happen, or later if the work `outlasts` the answer.
    """

    turns: FairSemaphore
    namespace: Namespace
    over: bool = False
    outlasts: bool = False

    def end(self) -> None:
        if not self.over:
            self.over = True
            self.turns.release(self.namespace)


def turn_of(scope: Scope) -> Turn:
    turn: Turn = scope[_TURN]
    return turn


ReadBody = Callable[[Scope, Receive, Send], Awaitable[Receive | None]]
"""Reads the body of a request. Returns what replays it; None if the request is over."""


@dataclass(frozen=True)
class CallLimits:
    """Limits the calls of tokens: refuses with 429 those over the limit of a minute, before their
    body is read, queues those over the limit at once, and refuses with 503 those that waited too
    long. Pure ASGI, behind the middleware that finds the caller: without a token nothing is read.
    """

    app: ASGIApp
    rates: Rates
    turns: FairSemaphore
    read_body: ReadBody
    wait_s: float

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        caller: Caller | None = scope.get(CALLER)
        if caller is None:
            await self.app(scope, receive, send)
            return
        try:
            # A token does not get more calls by delegating itself.
            await self.rates.call(caller.namespace, caller.accessor.partition("/")[0])
            body = await self.read_body(scope, receive, send)
            if body is None:
                return
            full = self.turns.waiting(caller.namespace) >= WAITING_MAX
            async with asyncio.timeout(0 if full else self.wait_s):
                await self.turns.acquire(caller.namespace)
        except (RateLimited, Busy, TimeoutError) as raised:
            error = Busy() if isinstance(raised, TimeoutError) else raised
            log.info("refused", code=error.code, accessor=caller.accessor)
            await answer_of(error, scope)(scope, receive, send)
            return
        turn = scope[_TURN] = Turn(self.turns, caller.namespace)

        async def ending(message: Message) -> None:
            if not turn.outlasts:
                turn.end()
            await send(message)

        try:
            await self.turns.yield_to_others(caller.namespace)
            await self.app(scope, body, ending)
        finally:
            turn.end()


def answer_of(error: RecallError, scope: Scope) -> Response:
    """Return the answer to a refused request, which says when to try again."""
    response = refusal(scope, error)
    response.headers["Retry-After"] = str(BUSY_AGAIN_S)
    if isinstance(error, RateLimited):
        seconds = str(math.ceil(error.retry_after_s or 0))
        limit = {"Limit": str(error.limit), "Remaining": "0", "Reset": seconds}
        response.headers["Retry-After"] = seconds
        response.headers.update({f"RateLimit-{name}": value for name, value in limit.items()})
    return response


LOOK_S = 1.0
# MCP is served without streams, except for clients of its first transport.
SSE_PATH = "/mcp/sse"
# The methods of A2A 1.0 and 0.3.
_METHODS = frozenset(
    {"SendStreamingMessage", "SubscribeToTask", "message/stream", "tasks/resubscribe"}
)
_ENDINGS = ("/message:stream", ":subscribe")


@dataclass
class _Watched:
    """A token with open streams."""

    over: asyncio.Event = field(default_factory=asyncio.Event)
    streams: int = 0
    look: asyncio.Task[None] | None = None


@dataclass(frozen=True)
class Streams:
    """The open streams of this process. Refuses one too many with 429, and ends streams whose token
    is no longer valid: it checks each token with streams every `LOOK_S`, and before each event.
    """

    stands: Callable[[TokenInfo], Awaitable[bool]]
    answers: OpenAnswers
    supervisor: Supervisor
    each: int
    _open: Counter[Namespace] = field(default_factory=Counter)
    _watched: dict[TokenInfo, _Watched] = field(default_factory=dict)

    def limiting(self, app: ASGIApp) -> ASGIApp:
        return partial(self.serve, app)

    async def serve(self, app: ASGIApp, scope: Scope, receive: Receive, send: Send) -> None:
        """Run `app`; if the request opens a stream, count the stream while it is open."""
        caller: Caller | None = scope.get(CALLER)
        if caller is None or not opens_stream(scope):
            await app(scope, receive, send)
            return
        if self._open[caller.namespace] >= self.each:
            error = TooManyStreams(
                f"A namespace may have {self.each} open streams. Close one, or poll the task."
            )
            await answer_of(error, scope)(scope, receive, send)
            return
        async with self._watching(caller) as over:
            look = partial(self._look, caller.token, over)
            await _until(over, look, partial(app, scope), receive, send)

    @asynccontextmanager
    async def _watching(self, caller: Caller) -> AsyncIterator[asyncio.Event]:
        """Count one more stream; the event is set when its token is no longer valid."""
        token = caller.token
        assert token is not None
        self._open[caller.namespace] += 1
        watched = self._watched.setdefault(token, _Watched())
        watched.streams += 1
        if watched.look is None:
            watch = partial(self._watch, token, watched.over)
            watched.look = asyncio.create_task(self.supervisor.keep("streams", watch))
        try:
            with self.answers.counted(STREAMS, caller.namespace, token.bearer):
                yield watched.over
        finally:
            watched.streams -= 1
            if not watched.streams:
                watched.look.cancel()
                del self._watched[token]
            self._open[caller.namespace] -= 1
            if not self._open[caller.namespace]:
                del self._open[caller.namespace]

    async def _watch(self, token: TokenInfo, over: asyncio.Event) -> None:
        while not over.is_set():
            await asyncio.sleep(LOOK_S)
            await self._look(token, over)

    async def _look(self, token: TokenInfo | None, over: asyncio.Event) -> None:
        assert token is not None
        try:
            if not over.is_set() and not await self.stands(token):
                log.info("streams_ended", accessor=token.accessor)
                over.set()
        except RecallError as error:
            # A stream reads the same database: no event is sent without the database.
            log.warning("token_not_looked_up", accessor=token.accessor, code=error.code)


def opens_stream(scope: Scope) -> bool:
    """Return True if the request asks for an answer without an end."""
    path: str = scope["path"].rstrip("/")
    if path == SSE_PATH:
        return True
    if path == JSONRPC_PATH:
        body = scope.get("recall.json")
        method = body.get("method") if isinstance(body, dict) else None
        return isinstance(method, str) and method in _METHODS
    return path.startswith(REST_PATH) and path.endswith(_ENDINGS)


async def _until(
    over: asyncio.Event,
    look: Callable[[], Awaitable[None]],
    app: Callable[[Receive, Send], Awaitable[None]],
    receive: Receive,
    send: Send,
) -> None:
    """Run the app. Once `over` is set, the app is told that the client has gone, and the client
    gets a proper end.
    """
    started = complete = False

    async def receive_until_over() -> Message:
        message = asyncio.ensure_future(receive())
        end = asyncio.ensure_future(over.wait())
        try:
            await asyncio.wait({message, end}, return_when=asyncio.FIRST_COMPLETED)
            return message.result() if message.done() else {"type": "http.disconnect"}
        finally:
            message.cancel()
            end.cancel()

    async def send_until_over(message: Message) -> None:
        nonlocal started, complete
        if started:
            # The token may have ended since the last check; it must then get nothing more.
            await look()
            if over.is_set():
                return
        started = True
        complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await send(message)

    await app(receive_until_over, send_until_over)
    if started and not complete:
        await send({"type": "http.response.body", "body": b"", "more_body": False})


METADATA_PATH = "/.well-known/oauth-protected-resource"
MCP_PATH = "/mcp"
METADATA_PATHS = (METADATA_PATH + MCP_PATH, METADATA_PATH)
_MAX_AGE_S = 300


@dataclass(frozen=True)
class Challenges:
    """The challenges of answers to refused requests. `base` is the address by which a request
    reached us. Without issuers there is no metadata.
    """

    issuers: Sequence[Issuer]
    base: Callable[[Scope], str]

    def routes(self) -> list[Route]:
        return [Route(path, self._metadata) for path in METADATA_PATHS] if self.issuers else []

    def headers(self, scope: Scope, error: RecallError, *, shown: bool) -> dict[str, str]:
        """Return the headers of the answer to a refused request; `shown`: it had a token."""
        if isinstance(error, AuthUnavailable):
            return {"Retry-After": str(error.retry_after_s)}
        if isinstance(error, InsufficientScope):
            return {"WWW-Authenticate": self.lacking(scope, Needed(error.scope))}
        if not isinstance(error, Unauthenticated):
            return {}
        parts = ['realm="recall"']
        if shown:  # RFC 6750: no error code where no credentials were shown
            why = error.message.replace("'", "").replace('"', "")
            parts += ['error="invalid_token"', f'error_description="{why}"']
        if self.issuers:
            wanted = {name for one in DEFAULT_SCOPES for name in self._names_for(one)}
            parts.append(f'scope="{" ".join(sorted(wanted))}"')
        return {"WWW-Authenticate": self._spelled(scope, parts)}

    def lacking(self, scope: Scope, needed: Needed) -> str:
        names = " ".join(self._names_for(needed)) or needed
        return self._spelled(
            scope, ['realm="recall"', 'error="insufficient_scope"', f'scope="{names}"']
        )

    def _spelled(self, scope: Scope, parts: list[str]) -> str:
        if self.issuers:
            where = self.base(scope) + METADATA_PATHS[0]
            parts = [*parts, f'resource_metadata="{where}"']
        return "Bearer " + ", ".join(parts)

    def _names_for(self, scope: Needed) -> list[str]:
        """Return the name of the narrowest scope of each issuer that grants this one."""
        return sorted({name for one in self.issuers if (name := one.name_for(scope)) is not None})

    async def _metadata(self, request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "resource": self.base(request.scope) + MCP_PATH,
                "authorization_servers": [one.issuer for one in self.issuers],
                "scopes_supported": sorted({name for one in self.issuers for name in one.scopes}),
                "bearer_methods_supported": ["header"],
            },
            headers={"Cache-Control": f"public, max-age={_MAX_AGE_S}"},
        )


_SCHEME = "bearer "
TOKEN_CHARS_MAX = 8_192


@dataclass(frozen=True)
class BearerAuth:
    """Puts a `Caller` into the scope of each request, or answers 401 and says what to do.
    `open_paths` need no token, nor does a path under one of `open_under`; calls of `probes` do not
    count towards a limit. `refused` counts refused requests.

    An address from which too many calls came without a valid token is answered 429. A call with a
    valid token from there is still accepted: no client can lock out another.
    """

    app: ASGIApp
    verify: Callable[[str], Awaitable[TokenInfo]]
    rates: Rates
    challenges: Challenges
    open_paths: frozenset[str]
    open_under: tuple[str, ...]
    probes: frozenset[str]
    refused: Callable[[str], None]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"this server does not speak {scope['type']}")
        path = scope["path"]
        if path in self.open_paths or path.startswith(self.open_under):
            count = self.rates.anonymous
            answer = None if path in self.probes else await self._too_many(count, scope)
            await (answer or self.app)(scope, receive, send)
            return
        token = None
        try:
            token = _bearer(scope)
            if token is None:
                raise Unauthenticated(
                    "Send the header 'Authorization: Bearer TOKEN'. A token is made with "
                    "'recall create-token NAMESPACE'."
                )
            info = await self.verify(token)
        except RecallError as error:
            log.info("refused", code=error.code)
            self.refused(error.code)
            answer = await self._refusal(scope, error, shown=bool(token))
            await answer(scope, receive, send)
            return
        caller = Caller(
            info.namespace,
            info.accessor,
            info.rights,
            info.expires_at,
            token=info,
            request_id=scope.get(REQUEST_ID),
        )
        scope[CALLER] = caller

        async def marked(message: Message) -> None:
            """Mark an answer so that no cache gives it to another client (RFC 9111, 5.2.2.5). If
            the token lacked a scope, each protocol says so in its own form, and this adds the
            challenge of HTTP with the scope that is needed (RFC 6750, 3.1).
            """
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["Cache-Control"] = "no-store"
                if caller.refused:
                    message["status"] = HTTPStatus.FORBIDDEN.value
                    needed = Needed(caller.refused[-1].scope)
                    headers["WWW-Authenticate"] = self.challenges.lacking(scope, needed)
            await send(message)

        await self.app(scope, receive, marked)

    async def _refusal(self, scope: Scope, error: RecallError, *, shown: bool) -> Response:
        """Return the answer to a refused request; `shown` says that it had a token."""
        answer = problem(error, self.challenges.headers(scope, error, shown=shown))
        if answer.status_code == HTTPStatus.UNAUTHORIZED:
            return await self._too_many(self.rates.bad_token, scope) or answer
        return answer

    async def _too_many(
        self, count: Callable[[str], Awaitable[None]], scope: Scope
    ) -> Response | None:
        """Count a call without a valid token. Return the answer to one too many."""
        client = scope.get("client")
        try:
            # The address of the connection: a header could claim any other.
            await count(client[0] if client else "")
        except RateLimited as error:
            return answer_of(error, scope)
        return None


def _bearer(scope: Scope) -> str | None:
    """Return the token; None without an Authorization header, "" if the header cannot hold a token.
    Raises on more than one header.
    """
    shown = None
    for name, value in scope["headers"]:
        if name == b"authorization":
            if shown is not None:
                raise Invalid("The request has two Authorization headers. Send one.")
            shown = value
    if shown is None:
        return None
    header: str = shown.decode("latin-1")
    if not header.lower().startswith(_SCHEME) or len(header) > TOKEN_CHARS_MAX:
        return ""
    return header[len(_SCHEME) :].lstrip(" ")
