"""`/v1/tokens`: a token with the scope tokens:manage looks after those of its namespace; and
`/v1/whoami`.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recall_server.domain.model import AuditEntry, MemoryType
from recall_server.domain.rights import DEFAULT_SCOPES, Rights, Scope, TokenInfo
from recall_server.domain.text import storable
from recall_server.services import Services
from recall_server.services.access import Wanted
from recall_server.surface import wire
from recall_server.surface.arguments import Arguments
from recall_server.surface.call import Calls
from recall_server.surface.caller import Caller, caller_of
from recall_server.surface.http import created, performed

Json = dict[str, Any]
Work = Callable[[AuditEntry], Awaitable[Json]]

YEAR_S = 366 * 86_400
OVERLAP_S = 3_600.0


class Asked(Arguments):
    """What is left out is as with the token that issues: its topics, its types, its agent,
    its containers.
    """

    scopes: list[Annotated[Scope, Field(strict=False)]] = Field(default_factory=list)
    topics: list[str] = Field(default_factory=list)
    types: list[Annotated[MemoryType, Field(strict=False)]] = Field(default_factory=list)
    agent_id: str = ""
    containers: list[str] = Field(default_factory=list)
    expires_in_s: float = Field(0, ge=0, le=YEAR_S, description="0: as long as by default")

    def wanted(self, issuer: Rights) -> Wanted:
        by_default = [one for one in DEFAULT_SCOPES if issuer.allows(one)]
        reach = issuer.reach
        reach = replace(
            reach,
            topics=frozenset(self.topics) or reach.topics,
            types=frozenset(self.types) or reach.types,
            agent_id=self.agent_id or reach.agent_id,
            containers=frozenset(self.containers) or reach.containers,
        )
        return Wanted(
            Rights(frozenset(self.scopes or by_default), reach),
            timedelta(seconds=self.expires_in_s) if self.expires_in_s else None,
        )


class Issue(Asked):
    label: str = ""
    uses: int = Field(0, ge=0, description="0: any number")

    def wanted(self, issuer: Rights) -> Wanted:
        return replace(super().wanted(issuer), uses=self.uses or None)


class Rotate(Arguments):
    overlap_s: float = Field(OVERLAP_S, ge=0, le=30 * 86_400)


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
            return wire.whoami(caller_of(request.scope))

        return await performed(self._calls, request, "whoami", work)

    async def _list(self, request: Request) -> Response:
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> Json:
            found = await self._access.tokens(caller.namespace)
            entry.counts["tokens"] = len(found)
            return {"tokens": [wire.token(one) for one in found]}

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
            return {"token": token, **wire.token(info)}

        return await performed(self._calls, request, "issue_token", work, created)

    async def _show(self, request: Request) -> Response:
        async def work(entry: AuditEntry) -> Json:
            info = await self._named(request, caller_of(request.scope))
            entry.ids.append(info.accessor)
            return wire.token(info)

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
            return {"token": token, **wire.token(info)}

        return await performed(self._calls, request, "rotate_token", work, created)

    async def _revoke(self, request: Request) -> Response:
        """With `?children_only=true` only what it issued."""
        children = request.query_params.get("children_only") == "true"

        async def work(entry: AuditEntry) -> Json:
            info = await self._named(request, caller_of(request.scope))
            revoked = await self._access.revoke(info, children_only=children, entry=entry)
            return {"revoked": revoked}

        return await performed(self._calls, request, "revoke_token", work)

    async def _named(self, request: Request, caller: Caller) -> TokenInfo:
        accessor: str = request.path_params["accessor"]
        storable(accessor)
        return await self._access.find(accessor, caller.namespace)
