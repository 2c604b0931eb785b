"""`/v1/tokens`: a token with the scope tokens:manage looks after those of its namespace; and
`/v1/whoami`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any, TypeVar

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recall_server.api import presenters
from recall_server.api.arguments import Arguments
from recall_server.api.caller import Caller, caller_of
from recall_server.api.http.performing import created, performed, queried
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.domain.memory import MemoryType
from recall_server.domain.permissions import DEFAULT_SCOPES, AccessScope, Rights, Scope, TokenInfo
from recall_server.services import Services
from recall_server.services.auth.access import TokenRequest

Json = dict[str, Any]
Work = Callable[[AuditEntry], Awaitable[Json]]
T = TypeVar("T")

YEAR_S = 366 * 86_400
OVERLAP_S = 3_600.0


class IssueArguments(Arguments):
    """What is left out, or null, is as with the token that issues: its topics, its types, its
    agent, its containers. What is given and empty is refused where it is checked: whoever works
    out what a token may do, and comes to nothing, must not get all.
    """

    scopes: list[Annotated[Scope, Field(strict=False)]] | None = None
    topics: list[str] | None = None
    types: list[Annotated[MemoryType, Field(strict=False)]] | None = None
    agent_id: str | None = None
    containers: list[str] | None = None
    expires_in_s: float | None = Field(None, ge=0, le=YEAR_S)

    def wanted(self, issuer: Rights) -> TokenRequest:
        scopes = self.scopes
        if scopes is None:
            scopes = [one for one in DEFAULT_SCOPES if issuer.allows(one)]
        reach = issuer.reach
        reach = AccessScope(
            _limit(self.topics, reach.topics),
            _limit(self.types, reach.types),
            reach.agent_id if self.agent_id is None else self.agent_id,
            _limit(self.containers, reach.containers),
        )
        life = None if self.expires_in_s is None else timedelta(seconds=self.expires_in_s)
        return TokenRequest(Rights(frozenset(scopes), reach), life)


class Issue(IssueArguments):
    label: str = ""
    uses: int | None = None

    def wanted(self, issuer: Rights) -> TokenRequest:
        return replace(super().wanted(issuer), uses=self.uses)


class Rotate(Arguments):
    overlap_s: float = Field(OVERLAP_S, ge=0, le=30 * 86_400)


class Revoke(Arguments):
    """The query of a request."""

    children_only: bool = Field(default=False, strict=False)


class Tokens:
    """List, issue, show, rotate and revoke. Another tenant's token is not found."""

    def __init__(self, services: Services, calls: Calls) -> None:
        self._access = services.access
        self._calls = calls

    def routes(self) -> list[Route]:
        one = "/v1/tokens/{accessor}"
        return [
            Route("/v1/tokens", self._list, methods=["GET"]),
            Route("/v1/tokens", self._issue, methods=["POST"]),
            Route(one, self._show, methods=["GET"]),
            Route(one, self._revoke, methods=["DELETE"]),
            Route(f"{one}/rotate", self._rotate, methods=["POST"]),
            Route("/v1/whoami", self._whoami, methods=["GET"]),
        ]

    async def _whoami(self, request: Request) -> Response:
        async def work(_: AuditEntry) -> Json:
            return presenters.whoami(caller_of(request.scope))

        return await performed(self._calls, request, "whoami", work)

    async def _list(self, request: Request) -> Response:
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> Json:
            found = await self._access.tokens(caller.namespace)
            entry.counts["tokens"] = len(found)
            return {"tokens": [presenters.token(one) for one in found]}

        return await performed(self._calls, request, "list_tokens", work)

    async def _issue(self, request: Request) -> Response:
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> Json:
            given = Issue.parse(request.scope.get("recall.json", {}), "the body")
            token, info = await self._access.issue(
                caller.namespace,
                label=given.label,
                wanted=given.wanted(caller.rights),
                by=caller.accessor,
                entry=entry,
            )
            return {"token": token, **presenters.token(info)}

        return await performed(self._calls, request, "issue_token", work, created)

    async def _show(self, request: Request) -> Response:
        async def work(entry: AuditEntry) -> Json:
            info = await self._named(request, caller_of(request.scope))
            entry.ids.append(info.accessor)
            return presenters.token(info)

        return await performed(self._calls, request, "show_token", work)

    async def _rotate(self, request: Request) -> Response:
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> Json:
            given = Rotate.parse(request.scope.get("recall.json", {}), "the body")
            token, info = await self._access.rotate(
                await self._named(request, caller),
                timedelta(seconds=given.overlap_s),
                by=caller.accessor,
                entry=entry,
            )
            return {"token": token, **presenters.token(info)}

        return await performed(self._calls, request, "rotate_token", work, created)

    async def _revoke(self, request: Request) -> Response:
        """With `?children_only=true` only what it issued."""

        async def work(entry: AuditEntry) -> Json:
            # What is not understood must not end the token itself.
            children_only = queried(request, Revoke).children_only
            info = await self._named(request, caller_of(request.scope))
            revoked = await self._access.revoke(info, children_only=children_only, entry=entry)
            return {"revoked": revoked}

        return await performed(self._calls, request, "revoke_token", work, reads_query=True)

    async def _named(self, request: Request, caller: Caller) -> TokenInfo:
        return await self._access.find(request.path_params["accessor"], caller.namespace)


def _limit(given: list[T] | None, issuers: frozenset[T] | None) -> frozenset[T] | None:
    return issuers if given is None else frozenset(given)
