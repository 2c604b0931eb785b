"""Lets the web pages of allowed origins read answers (CORS); for others nothing is said."""

from collections.abc import Iterable

from starlette.middleware.cors import CORSMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from recall_server.api.operations.erasure import RECEIPT_HEADER

PREFLIGHT_MAX_AGE_S = 600
_SENT = (
    *("Authorization", "Content-Type", "Accept", "A2A-Version", "A2A-Extensions"),
    *("Mcp-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "Last-Event-ID"),
    RECEIPT_HEADER,
)
_READ = (
    *("WWW-Authenticate", "Retry-After", "RateLimit-Limit", "RateLimit-Remaining"),
    *("RateLimit-Reset", "Content-Disposition", "Allow", "Mcp-Session-Id", "A2A-Extensions"),
)


class CrossOrigin:
    """Outermost, so that refusals can be read too. Requests of other origins go on as they are:
    request validation refuses them.
    """

    def __init__(self, app: ASGIApp, origins: Iterable[str]) -> None:
        self._app = app
        self._origins = frozenset(origin.encode("latin-1") for origin in origins)
        self._allowing = CORSMiddleware(
            app,
            allow_origins=[*origins],
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=_SENT,
            expose_headers=_READ,
            max_age=PREFLIGHT_MAX_AGE_S,
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._allowing if self._is_allowed(scope) else self._app
        await app(scope, receive, send)

    def _is_allowed(self, scope: Scope) -> bool:
        return scope["type"] == "http" and any(
            name == b"origin" and value in self._origins for name, value in scope["headers"]
        )
