"""Tell a client without a token, or with too small a one, where to get one: the metadata of a
protected resource (RFC 9728), and the `WWW-Authenticate` of a refusal (RFC 6750 3).
"""

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import Scope as AsgiScope

from recall_server.domain.errors import InsufficientScope, RecallError, Unauthenticated
from recall_server.domain.external_errors import AuthUnavailable
from recall_server.domain.permissions import DEFAULT_SCOPES, Scope
from recall_server.integrations.crypto.issuers import Issuer

METADATA_PATH = "/.well-known/oauth-protected-resource"
MCP_PATH = "/mcp"
METADATA_PATHS = (METADATA_PATH + MCP_PATH, METADATA_PATH)
_MAX_AGE_S = 300


class Challenges:
    """`base` is the address by which a request reached us. Without issuers there is no
    metadata.
    """

    def __init__(self, issuers: Sequence[Issuer], base: Callable[[AsgiScope], str]) -> None:
        self._issuers = issuers
        self._base = base

    def routes(self) -> list[Route]:
        return [Route(path, self._metadata) for path in METADATA_PATHS] if self._issuers else []

    def headers(self, scope: AsgiScope, error: RecallError, *, shown: bool) -> dict[str, str]:
        """The headers of the answer to a request that is not let in; `shown`: with a token."""
        if isinstance(error, AuthUnavailable):
            return {"Retry-After": str(error.retry_after_s)}
        if isinstance(error, InsufficientScope):
            return {"WWW-Authenticate": self.lacking(scope, Scope(error.scope))}
        if not isinstance(error, Unauthenticated):
            return {}
        parts = ['realm="recall"']
        if shown:  # RFC 6750: no error code where no credentials were shown
            why = error.message.replace("'", "").replace('"', "")
            parts += ['error="invalid_token"', f'error_description="{why}"']
        if self._issuers:
            wanted = {name for one in DEFAULT_SCOPES for name in self._names_for(one)}
            parts.append(f'scope="{" ".join(sorted(wanted))}"')
        return {"WWW-Authenticate": self._spelled(scope, parts)}

    def lacking(self, scope: AsgiScope, needed: Scope) -> str:
        """The challenge where the token may not do something for want of a scope."""
        names = " ".join(self._names_for(needed)) or needed
        return self._spelled(
            scope, ['realm="recall"', 'error="insufficient_scope"', f'scope="{names}"']
        )

    def _spelled(self, scope: AsgiScope, parts: list[str]) -> str:
        if self._issuers:
            where = self._base(scope) + METADATA_PATHS[0]
            parts = [*parts, f'resource_metadata="{where}"']
        return "Bearer " + ", ".join(parts)

    def _names_for(self, scope: Scope) -> list[str]:
        """The scope of each issuer that gives this one, and least besides."""
        return sorted({name for one in self._issuers if (name := one.name_for(scope)) is not None})

    async def _metadata(self, request: Request) -> JSONResponse:
        return JSONResponse(
            {
                "resource": self._base(request.scope) + MCP_PATH,
                "authorization_servers": [one.issuer for one in self._issuers],
                "scopes_supported": sorted({name for one in self._issuers for name in one.scopes}),
                "bearer_methods_supported": ["header"],
            },
            headers={"Cache-Control": f"public, max-age={_MAX_AGE_S}"},
        )
