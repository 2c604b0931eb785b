"""The history of a namespace: what jobs, tasks, imports and calls changed, which can be undone; and
the audit log.
"""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.operations.operation import (
    INT64_MAX,
    Arguments,
    Call,
    Http,
    Json,
    Operation,
    operation,
)
from recall_server.domain.audit import RESTORE, Outcome
from recall_server.domain.errors import Invalid
from recall_server.domain.permissions import Scope
from recall_server.domain.text.cleaning import storable
from recall_server.services.audit import AuditPage
from recall_server.services.memory.undo import Page as ChangePage
from recall_server.services.memory.undo import Undone
from recall_server.storage.tables.audit import AuditRecord, Filter


class ListChanges(Arguments):
    before: int = Field(0, ge=0, le=INT64_MAX, description="next_before of the page before")


class UndoChange(Arguments):
    change_id: str
    dry_run: bool = False
    with_dependents: bool = Field(
        default=False, description="also take back what rests on it, the newest first"
    )


BEGINNING_CHARS = 60


def _beginning(words: str | None) -> str | None:
    """Return how a text begins, as one line."""
    line = " ".join((words or "").split())
    if len(line) <= BEGINNING_CHARS:
        return line or None
    return f"{line[: BEGINNING_CHARS - 2].rstrip()} …"


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
                "words": _beginning(found.words.get(one.id)),
                "decisions": [
                    presenters.decision(answer) for answer in found.answers.get(one.id, ())
                ],
            }
            for one in found.changes
        ],
        "next_before": found.next_before,
    }


def _undone(found: Undone, given: UndoChange) -> Json:
    words = {one: _beginning(text) for one, text in found.words.items()}
    return {
        "undone": list(found.changes),
        "memory_ids": list(found.memories),
        "forgotten_ids": list(found.forgotten),
        "episode_ids": list(found.texts),
        "change_id": found.change_id,
        "dry_run": given.dry_run,
        **({"words": words} if given.dry_run else {}),
    }


@operation(
    Scope.READ,
    present=_changes,
    returns=("changes", "next_before"),
    whole_namespace=True,
    http=(Http("GET", "/v1/changes"),),
    cli="recall changes",
    read_only=True,
)
async def list_changes(call: Call, given: ListChanges) -> ChangePage:
    """List what jobs, tasks, imports and calls changed, newest first, with how a memory begins."""
    return await call.services.changes.page(call.context, given.before or None)


@operation(
    Scope.FORGET,
    present=_undone,
    returns=("undone", "memory_ids", "forgotten_ids", "episode_ids", "change_id", "dry_run"),
    whole_namespace=True,
    http=(Http("POST", "/v1/changes/{change_id}/undo"),),
    cli="recall undo",
)
async def undo_change(call: Call, given: UndoChange) -> Undone:
    """Take a change back exactly, unless something later rests on it; an undo can be undone."""
    return await call.services.changes.undo(
        call.context,
        given.change_id,
        rights=call.caller.rights,
        dry_run=given.dry_run,
        with_dependents=given.with_dependents,
    )


REBUILD_NAMESPACE = Operation(
    "rebuild_namespace",
    Scope.ADMIN,
    "Derive memories and the index again from the texts and the events.",
    whole_namespace=True,
    cli="recall rebuild",
)

CHANGES = (list_changes, undo_change, REBUILD_NAMESPACE)


# A day inside of either end, since engines shift times between zones.
EARLIEST = datetime.min.replace(tzinfo=UTC) + timedelta(days=1)
LATEST = datetime.max.replace(tzinfo=UTC) - timedelta(days=1)


class ReadAudit(Arguments):
    """`id`: that of a memory, task or token that an operation touched."""

    operation: str = ""
    accessor: str = ""
    outcome: Annotated[Outcome, Field(strict=False)] | None = None
    since: str = ""
    until: str = ""
    id: str = ""
    limit: int = Field(50, ge=1, le=200)
    cursor: str = ""

    def filter(self) -> Filter:
        """Raises `Invalid`."""
        for text in (self.operation, self.accessor, self.id):
            storable(text)
        return Filter(
            since=_time(self.since, "since") if self.since else EARLIEST,
            until=_time(self.until, "until") if self.until else LATEST,
            operation=self.operation,
            accessor=self.accessor,
            outcome=self.outcome or "",
            touching=self.id,
        )


def _records(page: AuditPage, _: ReadAudit) -> Json:
    return {"records": [_record(one) for one in page.records], "next_cursor": page.next}


def _record(record: AuditRecord) -> Json:
    line = record.exported()
    del line["namespace"], line["mac"]
    line["protocol"] = line["door"]  # stored records and release 0.1.0 say `door`, so give both
    # Only the verification of an export needs the salt.
    return {**line, "details": dict(record.details.values) if record.details else None}


def _time(text: str, name: str) -> datetime:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is None or found.tzinfo is None:
        raise Invalid(f"{name} must be a time with its zone, such as 2026-03-01T12:00:00Z.")
    return min(max(found, EARLIEST), LATEST).astimezone(UTC)


@operation(
    Scope.AUDIT,
    present=_records,
    returns=("records", "next_cursor"),
    whole_namespace=True,
    http=(Http("GET", "/v1/audit"),),
    cli="recall audit tail",
    read_only=True,
)
async def read_audit(call: Call, given: ReadAudit) -> AuditPage:
    """Read the audit log of the namespace, newest first."""
    return await call.services.audit.page(
        call.context, given.filter(), cursor=given.cursor, limit=given.limit
    )


EXPORT_AUDIT = Operation(
    "export_audit", Scope.ADMIN, "Write the audit log of a namespace.", cli="recall audit export"
)
CHECKPOINT_AUDIT = Operation(
    "checkpoint_audit",
    Scope.ADMIN,
    "Sign a checkpoint of the audit logs.",
    cli="recall audit checkpoint",
)
VERIFY_AUDIT = Operation(
    "verify_audit", Scope.ADMIN, "Verify the audit log of a namespace.", cli="recall audit verify"
)
RESTORE_BACKUP = Operation(
    RESTORE,
    Scope.ADMIN,
    "Put a backup back, and record that the audit log lost records by it.",
    cli="recall restore-backup",
)

AUDIT = (read_audit, EXPORT_AUDIT, CHECKPOINT_AUDIT, VERIFY_AUDIT, RESTORE_BACKUP)
