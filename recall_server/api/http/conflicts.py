"""`/v1/conflicts`: what waits for an answer, and the answer to one (FEATURES F15)."""

from typing import Annotated, Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from recall_server.api import task_presenters
from recall_server.api.arguments import Arguments
from recall_server.api.caller import caller_of
from recall_server.api.http.performing import performed
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.domain.plan import Choice
from recall_server.services import Services

LISTED_MAX = 100


class Resolve(Arguments):
    """The body of an answer; `text` goes with merge."""

    id: str
    choice: Annotated[Choice, Field(strict=False)]
    text: str | None = None


class Conflicts:
    """`GET /v1/conflicts` and `POST /v1/conflicts {id, choice, text?}`."""

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._calls = calls

    def routes(self) -> list[Route]:
        return [
            Route("/v1/conflicts", self._list, methods=["GET"]),
            Route("/v1/conflicts", self._resolve, methods=["POST"]),
        ]

    async def _list(self, request: Request) -> Response:
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> dict[str, Any]:
            found = await self._services.tasks.questions(
                caller.namespace, limit=LISTED_MAX, reach=caller.reach
            )
            entry.counts["questions"] = len(found)
            return {"conflicts": [task_presenters.open_question(one) for one in found]}

        return await performed(self._calls, request, "list_conflicts", work)

    async def _resolve(self, request: Request) -> Response:
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> dict[str, Any]:
            given = Resolve.parse(request.scope.get("recall.json"), "the body")
            task = await self._services.tasks.resolve(
                caller.namespace,
                given.id,
                given.choice,
                given.text,
                reach=caller.reach,
                entry=entry,
            )
            left = len(task.status.questions)
            return {"task_id": task.id, "status": str(task.status.state), "open": left}

        return await performed(self._calls, request, "resolve_conflict", work)
