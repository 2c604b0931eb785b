"""The plain task routes (FEATURES K11-K13): the same tasks, without a protocol."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from recall_server.api import task_presenters
from recall_server.api.a2a.card import SKILL
from recall_server.api.a2a.input import checked_id, consolidation
from recall_server.api.caller import caller_of
from recall_server.api.http.performing import performed
from recall_server.api.perform import Calls
from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import Invalid
from recall_server.domain.task import Task, TaskState
from recall_server.services import Services

ACCEPTED = 202


class PlainTasks:
    """`POST /a2a {skill, input}`, `GET /a2a/{id}`, `POST /a2a/{id}/resume`."""

    def __init__(self, services: Services, calls: Calls) -> None:
        self._services = services
        self._calls = calls

    async def create(self, request: Request, body: dict[str, Any]) -> Response:
        """202 with the id; the work goes on."""
        caller = caller_of(request.scope)

        async def work(entry: AuditEntry) -> Task:
            if body.get("skill") != SKILL or not isinstance(body.get("input"), dict):
                raise Invalid(f"Send {{'skill': '{SKILL}', 'input': {{'text': …, 'topic': …}}}}.")
            wanted = consolidation(body["input"])
            return await self._services.consolidate.start(
                caller.namespace, wanted, reach=caller.reach, entry=entry
            )

        return await self._answered(request, "create_task", work, ACCEPTED)

    async def get(self, request: Request) -> Response:
        caller, task_id = caller_of(request.scope), request.path_params["id"]

        async def work(entry: AuditEntry) -> Task:
            task = await self._services.tasks.get(
                caller.namespace, checked_id(task_id, "id"), reach=caller.reach
            )
            entry.ids.append(task.id)
            return task

        return await self._answered(request, "get_task", work)

    async def resume(self, request: Request) -> Response:
        """One `resolution` for all that is asked, or `resolutions` one by one."""
        caller, task_id = caller_of(request.scope), request.path_params["id"]
        body = request.scope.get("recall.json")

        async def work(entry: AuditEntry) -> Task:
            given = body.get("resolutions", body.get("resolution")) if isinstance(body, dict) else 0
            if not isinstance(given, str | list):
                raise Invalid("Send 'resolution' with a choice, or 'resolutions' with a list.")
            return await self._services.tasks.answer(
                caller.namespace,
                checked_id(task_id, "id"),
                given,
                reach=caller.reach,
                entry=entry,
            )

        return await self._answered(request, "resume_task", work)

    async def _answered(
        self,
        request: Request,
        operation: str,
        work: Callable[[AuditEntry], Awaitable[Task]],
        status: int = 200,
    ) -> Response:
        return await performed(
            self._calls, request, operation, work, lambda task: JSONResponse(_shown(task), status)
        )


def _shown(task: Task) -> dict[str, Any]:
    shown: dict[str, Any] = {"id": task.id, "status": str(task.status.state)}
    if task.outcome is not None:
        shown["output"] = task_presenters.result(task.outcome)
    elif task.status.state is TaskState.INPUT_REQUIRED:
        asked = [task_presenters.question(one) for one in task.status.questions]
        shown["output"] = {"contradictions": asked}
    if task.status.note:
        shown["message"] = task.status.note
    return shown
