"""Bearer tokens: a request without a valid one goes no further. Pure ASGI, for all protocols."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from recall_server.api.middleware.limits import Refusal, answer_of
from recall_server.api.operations.operation import CALLER, REQUEST_ID, Caller
from recall_server.api.problems import problem
from recall_server.domain.errors import (
    AuthUnavailable,
    InsufficientScope,
    Invalid,
    RateLimited,
    RecallError,
    Unauthenticated,
)
from recall_server.domain.permissions import DEFAULT_SCOPES, TokenInfo
from recall_server.domain.permissions import Scope as Needed
from recall_server.integrations.issuers import Issuer
from recall_server.services.limits import Rates

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


log = structlog.get_logger()

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
    refusal: Refusal
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
            refusal = None if path in self.probes else await self._too_many(count, scope)
            await (refusal or self.app)(scope, receive, send)
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
            return answer_of(self.refusal, error, scope)
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
