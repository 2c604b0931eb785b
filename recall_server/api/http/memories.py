"""`POST /v1/process` and `POST /v1/search`: to store and to search without a protocol, with the
arguments of the tools.
"""

from dataclasses import replace

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recall_server.api import presenters
from recall_server.api.answers import answer
from recall_server.api.caller import caller_of
from recall_server.api.http.performing import PROTOCOL, performed
from recall_server.api.mcp.tools import SearchMemories, StoreMemory
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.domain.query import Query
from recall_server.services import Services
from recall_server.services.auth.access import CONTAINERS_MAX

ACCEPTED = 202


class Search(SearchMemories):
    """With several containers, of which "" is what is in none (FEATURES D40)."""

    containers: list[str] | None = Field(None, min_length=1, max_length=CONTAINERS_MAX)

    def asked(self) -> Query:
        query = super().asked()
        if self.containers is None:
            return query
        return replace(query, containers=(query.containers or frozenset()).union(self.containers))


class Memories:
    """The plain way in, and the plain way out."""

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._calls = calls

    def routes(self) -> list[Route]:
        return [
            Route("/v1/process", self._process, methods=["POST"]),
            Route("/v1/search", self._search, methods=["POST"]),
        ]

    async def _process(self, request: Request) -> Response:
        """What was said, to be remembered (FEATURES B10). No user is ever made: a namespace is by
        its tokens alone.
        """
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> presenters.Json:
            given = StoreMemory.parse(request.scope.get("recall.json"), "the body")
            accepted = await self._services.ingest.remember(
                caller.namespace, given.submission(PROTOCOL), reach=caller.reach, entry=entry
            )
            return {
                "accepted": True,
                "cached": accepted.cached,
                "job_id": accepted.job_id,
                "container": accepted.container or None,
                "created_user": False,
                "created_containers": [accepted.container] if accepted.new_container else [],
                "accepted_at": presenters.moment(entry.started_at),
            }

        return await performed(
            self._calls, request, "store_memory", work, lambda data: answer(data, ACCEPTED)
        )

    async def _search(self, request: Request) -> Response:
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> presenters.Json:
            given = Search.parse(request.scope.get("recall.json"), "the body")
            found = await self._services.recall.search(
                caller.namespace,
                given.asked(),
                cite=given.explain,
                reach=caller.reach,
                entry=entry,
            )
            return presenters.found(found, explain=given.explain)

        return await performed(self._calls, request, "search_memories", work)
