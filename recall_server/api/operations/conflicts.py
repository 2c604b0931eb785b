"""Conflicts: contradictions that wait for an answer."""

from typing import Annotated

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.arguments import Arguments, NoArguments
from recall_server.api.operations.operation import Call, Http, Json, Operation
from recall_server.domain.permissions import Scope
from recall_server.domain.plan import Choice
from recall_server.domain.task import Task
from recall_server.services.tasks.tasks import OpenQuestion

LISTED_MAX = 100


class ResolveConflict(Arguments):
    """The body of an answer; `text` goes with merge."""

    id: str
    choice: Annotated[Choice, Field(strict=False)]
    text: str | None = None


async def list_open(call: Call, _: NoArguments) -> list[OpenQuestion]:
    found = await call.services.tasks.questions(call.context, limit=LISTED_MAX)
    call.entry.counts["questions"] = len(found)
    return found


async def resolve(call: Call, given: ResolveConflict) -> Task:
    return await call.services.tasks.resolve(call.context, given.id, given.choice, given.text)


def _resolved(task: Task, _: ResolveConflict) -> Json:
    return {
        "task_id": task.id,
        "status": str(task.status.state),
        "open": len(task.status.questions),
    }


LIST_CONFLICTS = Operation(
    "list_conflicts",
    Scope.CONSOLIDATE,
    "List the questions that wait for an answer, the oldest first.",
    NoArguments,
    list_open,
    lambda found, _: {"conflicts": [presenters.open_question(one) for one in found]},
    ("conflicts",),
    http=(Http("GET", "/v1/conflicts"),),
    cli="recall conflicts list",
    read_only=True,
)
RESOLVE_CONFLICT = Operation(
    "resolve_conflict",
    Scope.CONSOLIDATE,
    "Answer one question; the task goes on once nothing is left to ask.",
    ResolveConflict,
    resolve,
    _resolved,
    ("task_id", "status", "open"),
    http=(Http("POST", "/v1/conflicts"),),
    cli="recall conflicts resolve",
)
GET_POLICY = Operation(
    "get_policy",
    Scope.ADMIN,
    "Show how contradictions are settled where a request does not say.",
    cli="recall conflicts policy",
)
SET_POLICY = Operation(
    "set_policy",
    Scope.ADMIN,
    "Set how contradictions are settled where a request does not say.",
    cli="recall conflicts policy",
)

OPERATIONS = (LIST_CONFLICTS, RESOLVE_CONFLICT, GET_POLICY, SET_POLICY)
