"""The guard: no bearer token, no entry. Pure ASGI, so every door has the same one."""

from collections.abc import Awaitable, Callable
from http import HTTPStatus

import structlog
from mcp.server.auth.middleware.auth_context import auth_context_var
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from starlette.authentication import AuthCredentials
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recall_server.api.caller import Caller, admit
from recall_server.api.middleware.challenges import Challenges
from recall_server.api.problems import problem
from recall_server.domain.errors import Invalid, RecallError, Unauthenticated
from recall_server.domain.permissions import Scope as Needed
from recall_server.domain.permissions import TokenInfo

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
        challenges: Challenges,
        open_under: tuple[str, ...] = (),
    ) -> None:
        self._app = app
        self._verify = verify
        self._open_paths = open_paths
        self._challenges = challenges
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
            shown = bool(token)
            if token is None:
                raise Unauthenticated(
                    "Send the header 'Authorization: Bearer TOKEN'. A token is made with "
                    "'recall create-token NAMESPACE'."
                )
            info = await self._verify(token)
        except RecallError as error:
            log.info("refused", code=error.code)
            headers = self._challenges.headers(scope, error, shown=shown)
            await problem(error, headers)(scope, receive, send)
            return
        caller = Caller(info.namespace, info.accessor, info.rights, info.expires_at, token=info)
        admit(scope, caller)
        scopes = sorted(info.rights.scopes)
        user = AuthenticatedUser(
            AccessToken(
                token=info.accessor,  # whoever logs it logs no secret
                client_id=info.accessor,
                scopes=list(scopes),
                subject=info.namespace,
                claims={"iss": "recall"},
            )
        )
        scope["user"] = user
        scope["auth"] = AuthCredentials(list(scopes))
        reset = auth_context_var.set(user)
        try:
            await self._app(scope, receive, _uncached(self._challenging(scope, caller, send)))
        finally:
            auth_context_var.reset(reset)

    def _challenging(self, scope: Scope, caller: Caller, send: Send) -> Send:
        """`send`, for answers that are 403 where the token lacked a scope: each door says so in its
        protocol's words, and this in HTTP's, with the scope that is needed (RFC 6750, 3.1).
        """

        async def challenged(message: Message) -> None:
            if message["type"] == "http.response.start" and caller.refused:
                message["status"] = HTTPStatus.FORBIDDEN.value
                needed = Needed(caller.refused[-1].scope)
                MutableHeaders(scope=message)["WWW-Authenticate"] = self._challenges.lacking(
                    scope, needed
                )
            await send(message)

        return challenged


def _bearer(scope: Scope) -> str | None:
    """The token; None where none is shown, and none that there can be where something else is.
    Raises on more than one header.
    """
    shown = [value for name, value in scope["headers"] if name == b"authorization"]
    if not shown:
        return None
    if len(shown) > 1:
        raise Invalid("The request has two Authorization headers. Send one.")
    header: str = shown[0].decode("latin-1")
    if not header.lower().startswith(_SCHEME) or len(header) > TOKEN_CHARS_MAX:
        return ""
    return header[len(_SCHEME) :].lstrip(" ")


def _uncached(send: Send) -> Send:
    """`send`, for answers that are the caller's alone: no cache on the way may give them to another
    (RFC 9111, 5.2.2.5).
    """

    async def marked(message: Message) -> None:
        if message["type"] == "http.response.start":
            MutableHeaders(scope=message)["Cache-Control"] = "no-store"
        await send(message)

    return marked
