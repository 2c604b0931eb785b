"""The guard: no bearer token, no entry. Pure ASGI, so every door has the same one."""

from collections.abc import Awaitable, Callable

import structlog
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.authentication import AuthCredentials
from starlette.types import ASGIApp, Receive, Scope, Send

from recall_server.domain.errors import Invalid, RecallError, Unauthenticated
from recall_server.domain.model import TokenInfo
from recall_server.surface import wire
from recall_server.surface.caller import Caller, admit

log = structlog.get_logger()

_SCHEME = "bearer "
TOKEN_CHARS_MAX = 8_192


class BearerAuth:
    """Puts a `Caller` into the scope of each request, or answers 401 and says what to do.

    Also sets the types of the MCP SDK, which binds its sessions to them.
    """

    def __init__(
        self,
        app: ASGIApp,
        verify: Callable[[str], Awaitable[TokenInfo]],
        open_paths: frozenset[str],
        open_under: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._verify = verify
        self._open_paths = open_paths
        self._open_under = open_under

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":
            raise RuntimeError(f"this server does not speak {scope['type']}")
        if scope["path"] in self._open_paths or scope["path"].startswith(self._open_under):
            await self._app(scope, receive, send)
            return
        shown = False
        try:
            token = _bearer(scope)
            shown = token is not None
            if token is None:
                raise Unauthenticated(
                    "Send the header 'Authorization: Bearer TOKEN'. A token is made with "
                    "'recall create-token NAMESPACE'."
                )
            info = await self._verify(token)
        except RecallError as error:
            log.info("refused", code=error.code)
            await wire.http_error(error, _challenge(error, shown=shown))(scope, receive, send)
            return
        admit(scope, Caller(info.namespace, info.accessor))
        user = AuthenticatedUser(
            AccessToken(
                token=info.accessor,  # whoever logs it logs no secret
                client_id=info.accessor,
                scopes=[],
                subject=info.namespace,
                claims={"iss": "recall"},
            )
        )
        scope["user"] = user
        scope["auth"] = AuthCredentials([])
        reset = auth_context_var.set(user)
        try:
            await self._app(scope, receive, send)
        finally:
            auth_context_var.reset(reset)


def _bearer(scope: Scope) -> str | None:
    """The token, None where none is shown. Raises on more than one header, or on another scheme."""
    shown = [value for name, value in scope["headers"] if name == b"authorization"]
    if not shown:
        return None
    if len(shown) > 1:
        raise Invalid("The request has two Authorization headers. Send one.")
    header: str = shown[0].decode("latin-1")
    if not header.lower().startswith(_SCHEME) or len(header) > TOKEN_CHARS_MAX:
        raise Unauthenticated("The Authorization header must read 'Bearer TOKEN'.")
    return header[len(_SCHEME) :].strip(" ")


def _challenge(error: RecallError, *, shown: bool) -> dict[str, str]:
    if not isinstance(error, Unauthenticated):
        return {}
    # RFC 6750: no error code where no credentials were shown.
    reason = f', error="invalid_token", error_description="{error.message}"' if shown else ""
    return {"WWW-Authenticate": f'Bearer realm="recall"{reason.replace(chr(39), "")}'}
