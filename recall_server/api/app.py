"""Put the protocols of an application together, behind one chain of middleware.

It is apart from `bootstrap.py`, so that a command that does not serve does not load their SDKs.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager

from opentelemetry.trace import SpanKind
from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from recall_server.api import mem0, probes
from recall_server.api.a2a import handler as a2a
from recall_server.api.a2a.card import CARD_PATH, JSONRPC_PATH, JWKS_PATH, REVIEW_SKILL, SKILL, Card
from recall_server.api.a2a.wire import EXTENSIONS
from recall_server.api.callers import (
    METADATA_PATHS,
    BearerAuth,
    CallLimits,
    Challenges,
    Streams,
)
from recall_server.api.http import (
    OPENAPI_PATH,
    Endpoint,
    about_routes,
    method_not_allowed,
    not_found,
)
from recall_server.api.http import routes as routes_of
from recall_server.api.mcp import McpServer, SseServer
from recall_server.api.operations import OPERATIONS
from recall_server.api.operations.operation import REQUEST_ID, Calls, Operation
from recall_server.api.operations.tasks import create_task
from recall_server.api.probes import PROBES
from recall_server.api.problems import DOCS_PATH
from recall_server.api.request_validation import (
    CrossOrigin,
    RequestBody,
    RequestValidation,
    RewrittenJson,
    escaped,
)
from recall_server.application import Application
from recall_server.config import LOOPBACK
from recall_server.services.limits import Rates
from recall_server.services.supervision import beside
from recall_server.telemetry import tracer

OPEN_PATHS = frozenset({*PROBES, CARD_PATH, JWKS_PATH, OPENAPI_PATH, DOCS_PATH, *METADATA_PATHS})
"""The paths that need no token, besides the routes of the registry that find their caller."""


def create_app(application: Application, operations: Sequence[Operation] = OPERATIONS) -> ASGIApp:
    settings, services = application.settings, application.services
    calls = Calls(services, settings.deadline_s)
    card = Card(
        public_url=settings.public_url,
        key_file=settings.card_key_file,
        skills=[SKILL, REVIEW_SKILL],
        extensions=EXTENSIONS,
        also=[application.key.public],
    )
    challenges = Challenges(application.issuers, card.base)
    mcp = McpServer(calls, operations, settings.body_bytes_max, settings.mcp_toolsets)
    rates = Rates(
        application.store,
        application.runtime.now,
        token_calls=settings.token_calls_per_minute,
        namespace_calls=settings.namespace_calls_per_minute,
        bad_tokens=settings.bad_tokens_per_minute,
        anonymous=settings.anonymous_calls_per_minute,
    )

    keep = application.supervisor.keep

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with mcp.manager.run(), beside(keep("rates", rates.run)):
            yield

    streams = Streams(
        services.access.still_valid,
        services.open_answers,
        application.supervisor,
        each=settings.streams_per_namespace,
    )
    endpoints = [Endpoint(calls, one, route) for one in operations for route in one.http]
    if settings.mem0:
        endpoints += [Endpoint(calls, one, route) for one, route in mem0.routes()]
    # Some clients add a slash, and a redirect would lose their header.
    protocols = [
        Route("/mcp", mcp),
        Route("/mcp/", mcp),
        *_routes(application, calls, card, endpoints, streams),
    ]
    if settings.mcp_sse:
        events = services.tasks.transitions.events
        protocols += SseServer(mcp, card.base, streams, lambda: events.closed).routes()
    about = about_routes(endpoints, operations, settings.public_url)
    app = Starlette(
        routes=[*protocols, *card.routes(), *challenges.routes(), *about],
        lifespan=lifespan,
        exception_handlers={404: not_found, 405: method_not_allowed},
    )
    app.router.redirect_slashes = False
    open_under = tuple(
        one.route.path.partition("{")[0] for one in endpoints if one.route.holder is not None
    )
    behind = _behind_middleware(app, application, challenges, rates, open_under)
    paths = [one.path for one in app.routes if isinstance(one, Route)]
    return Observation(behind, lambda: application.runtime.new_id("req"), paths)


def _routes(
    application: Application,
    calls: Calls,
    card: Card,
    endpoints: Sequence[Endpoint],
    streams: Streams,
) -> list[BaseRoute]:
    """The routes of the registry, of A2A and of the health checks; they are tried in this order."""
    settings = application.settings
    handler = a2a.A2AHandler(calls, card_for=card.for_address, wait_s=settings.task_wait_s)
    [creating] = [one for one in endpoints if one.operation is create_task]
    plain = [one for one in endpoints if one.route.path.startswith(JSONRPC_PATH)]
    return [
        *routes_of(one for one in endpoints if one not in plain),
        *a2a.routes(handler, creating, card.base, streams),
        *routes_of(one for one in plain if one is not creating),
        *(Route(path, answer) for path, answer in probes.answers(application).items()),
    ]


def _behind_middleware(
    app: ASGIApp,
    application: Application,
    challenges: Challenges,
    rates: Rates,
    open_under: tuple[str, ...],
) -> ASGIApp:
    """Return `app` inside its middleware, which is listed from the innermost to the outermost."""
    settings, access = application.settings, application.services.access
    app = RewrittenJson(app, escaped)
    body = RequestBody(
        body_bytes_max=settings.body_bytes_max,
        json_depth_max=settings.json_depth_max,
    )
    turns, wait_s = application.store.turns, settings.turn_wait_s
    app = CallLimits(app, rates, turns, body.read, wait_s=wait_s)
    app = BearerAuth(
        app,
        access.verify,
        rates,
        challenges,
        open_paths=OPEN_PATHS,
        open_under=open_under,
        probes=PROBES,
        refused=application.services.metrics.refused,
    )
    if settings.mem0:
        app = mem0.KeysAsTokens(app)
    app = RequestValidation(
        app,
        hosts=frozenset(map(str.lower, (*LOOPBACK, settings.host, *settings.allowed_hosts))),
        any_host=PROBES,
        origins=frozenset(settings.allowed_origins),
        body_bytes_max=settings.body_bytes_max,
        refused=application.services.metrics.refused,
    )
    return CrossOrigin(app, settings.allowed_origins) if settings.allowed_origins else app


REQUEST_ID_HEADER = "X-Request-Id"
UNKNOWN_PATH = "unknown"


class Observation:
    """The traces of a request for an operator: its id in the answer and in every line of the log,
    its client address, and a span that continues the caller's trace. Pure ASGI, before all other
    middleware.

    `new_id` makes the id of a request; an id that a caller sends is ignored. The log has the
    path as far as `paths` names it, up to the first parameter: the rest may be anything.
    """

    def __init__(self, app: ASGIApp, new_id: Callable[[], str], paths: Iterable[str]) -> None:
        self.app = app
        self._new_id = new_id
        self._paths = {path for path in paths if "{" not in path}
        begun = {path.partition("{")[0] for path in paths if "{" in path}
        self._begun = sorted(begun, key=len, reverse=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = scope[REQUEST_ID] = self._new_id()
        client = scope["client"][0] if scope.get("client") else None
        asked = scope["path"]
        begun = (one for one in self._begun if asked.startswith(one))
        path = asked if asked in self._paths else next(begun, UNKNOWN_PATH)
        with (
            bound_contextvars(request_id=request_id, client=client, path=path),
            tracer.trace(
                f"HTTP {scope['method']}",
                {"http.request.method": scope["method"], "recall.request_id": request_id},
                kind=SpanKind.SERVER,
                headers=Headers(scope=scope),
            ) as span,
        ):

            async def named(message: Message) -> None:
                if message["type"] == "http.response.start":
                    MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
                    span["http.response.status_code"] = message["status"]
                await send(message)

            await self.app(scope, receive, named)
