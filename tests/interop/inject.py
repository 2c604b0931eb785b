"""The house in this process, with the bearer token added to whatever comes in.

The conformance suite cannot send a header of its own. Everything else reaches the house as it
was sent, Host and Origin above all.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from starlette.types import ASGIApp, Receive, Scope, Send

from recall_server.app import House, house, working
from recall_server.config import Settings
from recall_server.domain.model import namespace
from recall_server.doors import asgi
from recall_server.serve import bound, listening
from recall_server.surface.mcp import McpDoor


class WithToken:
    """An app whose every caller has shown the token."""

    def __init__(self, app: ASGIApp, token: str) -> None:
        self._app = app
        self._header = (b"authorization", f"Bearer {token}".encode())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope = {**scope, "headers": [*scope["headers"], self._header]}
        await self._app(scope, receive, send)


@asynccontextmanager
async def open_to_all(
    database: Path, instead: Server[Any] | None = None, *, streaming: bool = False
) -> AsyncIterator[str]:
    """The address of the endpoint. `instead` takes the place of our own MCP server in it, and may
    speak while it works where `streaming` is set, which we do not.
    """
    settings = Settings(db_path=database, port=0, extractor="rules", log_level="error")
    async with house(settings) as built, working(built):
        app = asgi(built)
        if instead is not None:
            manager = _door(app).manager
            manager.app = instead
            manager.json_response = not streaming
        token = await _token(built)
        async with listening(WithToken(app, token), settings, bound(settings)) as address:
            yield f"{address}/mcp"


async def _token(built: House) -> str:
    ours = namespace("interop")
    entry = built.services.audit.begin(ours, "create_token", "cli", None)
    token, _ = await built.services.access.issue(ours, label="", entry=entry)
    return token


def _door(app: Any) -> McpDoor:
    """The MCP door behind the outer wall and the guard, as the composition root built them."""
    while not hasattr(app, "routes"):
        app = app._app
    doors = [route.endpoint for route in app.routes if route.path == "/mcp"]
    assert isinstance(doors[0], McpDoor)
    return doors[0]
