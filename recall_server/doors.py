"""The doors that a house is served through, put together: MCP, A2A and HTTP behind one guard.

Apart from `app.py`, so that a command that serves nobody does not load their SDKs.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any

from starlette.applications import Starlette
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from recall_server.app import House
from recall_server.config import LOOPBACK
from recall_server.services.rates import Rates
from recall_server.surface import a2a_routes, http
from recall_server.surface.a2a import A2ADoor
from recall_server.surface.a2a_errors import refusal
from recall_server.surface.a2a_plain import PlainTasks
from recall_server.surface.a2a_schema import EXTENSIONS
from recall_server.surface.audit import AuditBook
from recall_server.surface.auth import BearerAuth
from recall_server.surface.call import Calls
from recall_server.surface.card import SKILL, Card
from recall_server.surface.challenges import Challenges
from recall_server.surface.children import Children
from recall_server.surface.conflicts import Conflicts
from recall_server.surface.edge import Edge
from recall_server.surface.erasure import Erasure
from recall_server.surface.export import ExportDoor
from recall_server.surface.limits import Limits, Strangers
from recall_server.surface.mcp import McpDoor
from recall_server.surface.memories import Memories
from recall_server.surface.neutral import Neutral
from recall_server.surface.quarantine import Quarantine
from recall_server.surface.streams import Streams
from recall_server.surface.tokens import Tokens
from recall_server.surface.tools import TOOLS, Tool


def asgi(house: House, tools: tuple[Tool, ...] = TOOLS, rates: Rates | None = None) -> ASGIApp:
    """The doors of a house, behind the guard, behind the outer wall; `rates` are as the settings
    say, unless given.
    """
    settings, services = house.settings, house.services
    calls = Calls(services.audit, settings.deadline_s)
    card = Card.load(
        public_url=settings.public_url,
        key_file=settings.card_key_file,
        skills=[SKILL],
        extensions=EXTENSIONS,
        also=[house.key.public],
    )
    challenges = Challenges(house.issuers, card.base)
    mcp = McpDoor(services, calls, tools, settings.body_bytes_max)
    rates = rates or Rates(
        house.store,
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
        routes=_routes(house, calls, card, challenges, mcp),
        lifespan=lifespan,
        exception_handlers={404: http.not_found, 405: http.method_not_allowed},
    )
    app.router.redirect_slashes = False
    return _guarded(app, house, challenges, rates)


def _routes(
    house: House, calls: Calls, card: Card, challenges: Challenges, mcp: McpDoor
) -> list[BaseRoute]:
    services = house.services
    a2a = A2ADoor(services, calls, card_at=card.at, wait_s=house.settings.task_wait_s)
    return [
        *http.routes(house.check, lambda: house.stopping, house.short_of_room),
        *card.routes(),
        *Memories(services, calls).routes(),
        *Conflicts(services, calls).routes(),
        *Tokens(services, calls).routes(),
        *AuditBook(services, calls).routes(),
        *Erasure(services, calls).routes(),
        *ExportDoor(services, calls).routes(),
        *Quarantine(services, calls).routes(),
        *Children(services, calls).routes(),
        *challenges.routes(),
        *a2a_routes.routes(a2a, PlainTasks(services, calls), card.base),
        Route("/mcp", mcp),
    ]


def _guarded(app: ASGIApp, house: House, challenges: Challenges, rates: Rates) -> ASGIApp:
    """What a request has to pass, from the inside out."""
    settings, access = house.settings, house.services.access
    streams = Streams(
        Neutral(app), access.stands, each=settings.streams_per_namespace, refusal=refusal
    )
    limited = Limits(
        streams,
        rates,
        turns=house.store.turns,
        wait_s=settings.turn_wait_s,
        refusal=refusal,
    )
    guarded = BearerAuth(limited, access.verify, http.OPEN_PATHS, challenges, http.OPEN_UNDER)
    return Edge(
        Strangers(guarded, rates, refusal),
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
