"""The application in this process, with the bearer token added to every request.

The conformance suite cannot send its own header. The application gets everything else unchanged,
above all Host and Origin.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.server.lowlevel import Server
from starlette.types import ASGIApp, Receive, Scope, Send

from recall_server.api.app import create_app
from recall_server.api.mcp import McpServer
from recall_server.application import Application
from recall_server.bootstrap import open_application, working
from recall_server.config import Settings
from recall_server.domain.context import Context
from recall_server.domain.ids import namespace
from recall_server.server import bound, listening


class WithToken:
    """An app that adds the token to each request."""

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
    """Yield the address of the endpoint. `instead` replaces our MCP server. With `streaming` it may
    send messages while it works, which ours does not.
    """
    settings = Settings(db_path=database, port=0, extractor="rules", log_level="error")
    async with open_application(settings) as built, working(built):
        app = create_app(built)
        if instead is not None:
            route = _route(app)
            manager = route.endpoint.manager
            manager.app = instead
            manager.json_response = not streaming
            route.app = ByTransport(route.app)
        token = await _token(built)
        async with listening(WithToken(app, token), settings, bound(settings)) as address:
            yield f"{address}/mcp"


async def _token(built: Application) -> str:
    ours = namespace("interop")
    entry = built.services.audit.begin(ours, "create_token", "cli", None)
    token, _ = await built.services.access.issue(Context(entry), label="")
    return token


def _route(app: Any) -> Any:
    """Return the route of the MCP endpoint behind the middleware, as the composition root makes
    it.
    """
    while not hasattr(app, "routes"):
        app = app.app
    [route] = [one for one in app.routes if one.path == "/mcp"]
    assert isinstance(route.endpoint, McpServer)
    return route


class ByTransport:
    """Has the transport of the SDK answer all messages: our endpoint leaves one with an unknown
    member to it.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if isinstance(message := scope.get("recall.json"), dict):
            message["member"] = 1
        await self._app(scope, receive, send)
