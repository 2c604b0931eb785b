"""`/v1/quarantine`: what is held back, with its words and the reasons, and what becomes of it.

The words are exact, as data: whoever looks at them is to judge them, and must not obey them.
"""

from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recall_server.api import presenters
from recall_server.api.arguments import Arguments
from recall_server.api.caller import caller_of
from recall_server.api.http.performing import performed, queried
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.domain.security.quarantine import Held
from recall_server.services import Services
from recall_server.services.memory.quarantine import LISTED_MAX

Json = dict[str, Any]
INT64_MAX = 2**63 - 1


class Page(Arguments):
    """The query of a list."""

    state: Annotated[Held, Field(strict=False)] = Held.HELD
    limit: int = Field(50, ge=1, le=LISTED_MAX, strict=False)
    offset: int = Field(0, ge=0, le=INT64_MAX, strict=False)


class Quarantine:
    """`GET /v1/quarantine`, `POST /v1/quarantine/{id}/release` and `…/reject`."""

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._calls = calls

    def routes(self) -> list[Route]:
        return [
            Route("/v1/quarantine", self._list, methods=["GET"]),
            Route("/v1/quarantine/{id}/release", self._release, methods=["POST"]),
            Route("/v1/quarantine/{id}/reject", self._reject, methods=["POST"]),
        ]

    async def _list(self, request: Request) -> Response:
        async def work(entry: AuditEntry) -> Json:
            given = queried(request, Page)
            found = await self._services.quarantine.list(
                caller_of(request.scope).namespace,
                state=given.state,
                limit=given.limit,
                offset=given.offset,
                entry=entry,
            )
            return {
                "suspects": [presenters.suspect(one) for one in found.found],
                "total": found.total,
                "next_offset": found.next_offset,
            }

        return await performed(self._calls, request, "list_quarantine", work, reads_query=True)

    async def _release(self, request: Request) -> Response:
        async def work(entry: AuditEntry) -> Json:
            item_id = str(request.path_params["id"])
            namespace = caller_of(request.scope).namespace
            await self._services.quarantine.release(namespace, item_id, entry=entry)
            return {"id": item_id, "state": str(Held.RELEASED)}

        return await performed(self._calls, request, "release_quarantined", work)

    async def _reject(self, request: Request) -> Response:
        async def work(entry: AuditEntry) -> Json:
            item_id = str(request.path_params["id"])
            namespace = caller_of(request.scope).namespace
            await self._services.quarantine.reject(namespace, item_id, entry=entry)
            return {"id": item_id, "state": str(Held.REJECTED)}

        return await performed(self._calls, request, "reject_quarantined", work)
