"""The doors that a house is served through, put together: MCP, A2A and HTTP behind one guard.

Apart from `bootstrap.py`, so that a command that serves nobody does not load their SDKs.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from recall_server.api.a2a import routes
from recall_server.api.a2a.card import SKILL, Card
from recall_server.api.a2a.errors import refusal
from recall_server.api.a2a.handler import A2AHandler
from recall_server.api.a2a.plain import PlainTasks
from recall_server.api.a2a.schema import EXTENSIONS
from recall_server.api.http import performing
from recall_server.api.http.audit import AuditBook
from recall_server.api.http.children import Children
from recall_server.api.http.conflicts import Conflicts
from recall_server.api.http.erasure import Erasure
from recall_server.api.http.export import ExportRoutes
from recall_server.api.http.memories import Memories
from recall_server.api.http.quarantine import Quarantine
from recall_server.api.http.tokens import Tokens
from recall_server.api.mcp.server import McpServer
from recall_server.api.mcp.tools import TOOLS, Tool
from recall_server.api.middleware.auth import BearerAuth
from recall_server.api.middleware.challenges import Challenges
from recall_server.api.middleware.escape_control_characters import EscapeControlCharacters
from recall_server.api.middleware.limits import FailedAuthThrottle, Limits
from recall_server.api.middleware.request_validation import RequestValidation
from recall_server.api.middleware.streams import Streams
from recall_server.api.perform import Calls
from recall_server.application import Application
from recall_server.config import LOOPBACK
from recall_server.services.limits.rates import Rates


def create_app(
    application: Application, tools: tuple[Tool, ...] = TOOLS, rates: Rates | None = None
) -> ASGIApp:
    """The doors of a house, behind the guard, behind the outer wall; `rates` are as the settings
    say, unless given.
    """
    settings, services = application.settings, application.services
    calls = Calls(services.audit, settings.deadline_s)
    card = Card.load(
        public_url=settings.public_url,
        key_file=settings.card_key_file,
        skills=[SKILL],
        extensions=EXTENSIONS,
        also=[application.key.public],
    )
    challenges = Challenges(application.issuers, card.base)
    mcp = McpServer(services, calls, tools, settings.body_bytes_max)
    rates = rates or Rates(
        application.store,
        services.audit.now,
        token_calls=settings.token_calls_per_minute,
        namespace_calls=settings.namespace_calls_per_minute,
        bad_tokens=settings.bad_tokens_per_minute,
    )

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with mcp.manager.run(), _beside(rates.run()):
            yield

    app = Starlette(
        routes=_routes(application, calls, card, challenges, mcp),
        lifespan=lifespan,
        exception_handlers={404: performing.not_found, 405: performing.method_not_allowed},
    )
    app.router.redirect_slashes = False
    return _guarded(app, application, challenges, rates)


def _routes(
    application: Application, calls: Calls, card: Card, challenges: Challenges, mcp: McpServer
) -> list[BaseRoute]:
    services = application.services
    a2a = A2AHandler(services, calls, card_at=card.at, wait_s=application.settings.task_wait_s)
    return [
        *performing.routes(
            application.check, lambda: application.stopping, application.space_warnings
        ),
        *card.routes(),
        *Memories(services, calls).routes(),
        *Conflicts(services, calls).routes(),
        *Tokens(services, calls).routes(),
        *AuditBook(services, calls).routes(),
        *Erasure(services, calls).routes(),
        *ExportRoutes(services, calls).routes(),
        *Quarantine(services, calls).routes(),
        *Children(services, calls).routes(),
        *challenges.routes(),
        *routes.routes(a2a, PlainTasks(services, calls), card.base),
        Route("/mcp", mcp),
    ]


def _guarded(
    app: ASGIApp, application: Application, challenges: Challenges, rates: Rates
) -> ASGIApp:
    """What a request has to pass, from the inside out."""
    settings, access = application.settings, application.services.access
    streams = Streams(
        EscapeControlCharacters(app),
        access.still_valid,
        each=settings.streams_per_namespace,
        refusal=refusal,
    )
    limited = Limits(
        streams,
        rates,
        turns=application.store.turns,
        wait_s=settings.turn_wait_s,
        refusal=refusal,
    )
    guarded = BearerAuth(
        limited, access.verify, performing.OPEN_PATHS, challenges, performing.OPEN_UNDER
    )
    return RequestValidation(
        FailedAuthThrottle(guarded, rates, refusal),
        hosts=[*LOOPBACK, settings.host, *settings.allowed_hosts],
        origins=settings.allowed_origins,
        body_bytes_max=settings.body_bytes_max,
        json_depth_max=settings.json_depth_max,
        refusal=refusal,
    )


@asynccontextmanager
async def _beside(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Work that goes on for as long as the block lasts."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
