"""Changes: list what jobs, tasks, imports and calls did to memories, and undo it."""

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.operations.operation import (
    INT64_MAX,
    Arguments,
    Call,
    Http,
    Json,
    Operation,
)
from recall_server.domain.permissions import Scope
from recall_server.services.memory.undo import Page as ChangePage
from recall_server.services.memory.undo import Undone


class ListChanges(Arguments):
    before: int = Field(0, ge=0, le=INT64_MAX, description="next_before of the page before")


class UndoChange(Arguments):
    change_id: str
    dry_run: bool = False
    with_dependents: bool = Field(
        default=False, description="also take back what rests on it, the newest first"
    )


async def undo(call: Call, given: UndoChange) -> Undone:
    return await call.services.changes.undo(
        call.context,
        given.change_id,
        rights=call.caller.rights,
        dry_run=given.dry_run,
        with_dependents=given.with_dependents,
    )


def _changes(found: ChangePage, _: ListChanges) -> Json:
    return {
        "changes": [
            {
                "id": one.id,
                "at": presenters.moment(one.at),
                "operation": one.operation,
                "accessor": one.accessor,
                "counts": {str(kind): count for kind, count in one.counts.items()},
                "undone": one.undone,
                "decisions": [
                    presenters.decision(answer) for answer in found.answers.get(one.id, ())
                ],
            }
            for one in found.changes
        ],
        "next_before": found.next_before,
    }


def _undone(found: Undone, given: UndoChange) -> Json:
    return {
        "undone": list(found.changes),
        "memory_ids": list(found.memories),
        "forgotten_ids": list(found.forgotten),
        "episode_ids": list(found.texts),
        "change_id": found.change_id,
        "dry_run": given.dry_run,
    }


LIST_CHANGES = Operation(
    "list_changes",
    Scope.READ,
    "List what jobs, tasks, imports and calls changed, newest first.",
    ListChanges,
    lambda call, given: call.services.changes.page(call.context, given.before or None),
    _changes,
    ("changes", "next_before"),
    whole_namespace=True,
    http=(Http("GET", "/v1/changes"),),
    cli="recall changes",
    read_only=True,
)
UNDO_CHANGE = Operation(
    "undo_change",
    Scope.FORGET,
    "Take a change back exactly, unless something later rests on it; an undo can be undone.",
    UndoChange,
    undo,
    _undone,
    ("undone", "memory_ids", "forgotten_ids", "episode_ids", "change_id", "dry_run"),
    whole_namespace=True,
    http=(Http("POST", "/v1/changes/{change_id}/undo"),),
    cli="recall undo",
)

REBUILD_NAMESPACE = Operation(
    "rebuild_namespace",
    Scope.ADMIN,
    "Derive memories and the index again from the texts and the events.",
    whole_namespace=True,
    cli="recall rebuild",
)

OPERATIONS = (LIST_CHANGES, UNDO_CHANGE, REBUILD_NAMESPACE)
