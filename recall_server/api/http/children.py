"""`/v1/tokens/children`: any token hands on less than it has, and takes it back."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recall_server.api import presenters
from recall_server.api.caller import caller_of
from recall_server.api.http.performing import created, performed
from recall_server.api.http.tokens import IssueArguments
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.services import Services

Json = dict[str, Any]
Work = Callable[[AuditEntry], Awaitable[Json]]

CHILDREN = "/v1/tokens/children"


class Children:
    """Mint and revoke. Whoever looks after the tokens of a namespace revokes those of others."""

    def __init__(self, services: Services, calls: Calls) -> None:
        self._delegation = services.delegation
        self._calls = calls

    def routes(self) -> list[Route]:
        return [
            Route(CHILDREN, self._mint, methods=["POST"]),
            Route(CHILDREN + "/{jti}", self._revoke_own, methods=["DELETE"]),
            Route("/v1/tokens/{accessor}/children/{jti}", self._revoke, methods=["DELETE"]),
        ]

    async def _mint(self, request: Request) -> Response:
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> Json:
            given = IssueArguments.parse(request.scope.get("recall.json", {}), "the body")
            token, info = await self._delegation.mint(
                caller.namespace, caller.accessor, given.wanted(caller.rights), entry=entry
            )
            return {"token": token, **presenters.token(info)}

        return await performed(self._calls, request, "delegate_token", work, created)

    async def _revoke_own(self, request: Request) -> Response:
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> Json:
            return await self._ended(request, caller.accessor, entry)

        return await performed(self._calls, request, "revoke_own_child", work)

    async def _revoke(self, request: Request) -> Response:
        async def work(entry: AuditEntry) -> Json:
            return await self._ended(request, request.path_params["accessor"], entry)

        return await performed(self._calls, request, "revoke_child", work)

    async def _ended(self, request: Request, parent: str, entry: AuditEntry) -> Json:
        jti: str = request.path_params["jti"]
        namespace = caller_of(request.scope).namespace
        ended = await self._delegation.revoke(namespace, parent, jti, entry=entry)
        return {"revoked": [f"{parent}/{jti}"] if ended else []}
