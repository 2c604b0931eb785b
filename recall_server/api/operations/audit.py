"""The audit log of a namespace."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

from pydantic import Field

from recall_server.api.operations.operation import (
    Arguments,
    Http,
    Json,
    Operation,
)
from recall_server.domain.audit import RESTORE, Outcome
from recall_server.domain.errors import Invalid
from recall_server.domain.permissions import Scope
from recall_server.domain.text.cleaning import storable
from recall_server.services.audit import AuditPage
from recall_server.storage.tables.audit import AuditRecord, Filter

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


READ_AUDIT = Operation(
    "read_audit",
    Scope.AUDIT,
    "Read the audit log of the namespace, newest first.",
    ReadAudit,
    lambda call, given: call.services.audit.page(
        call.context, given.filter(), cursor=given.cursor, limit=given.limit
    ),
    _records,
    ("records", "next_cursor"),
    whole_namespace=True,
    http=(Http("GET", "/v1/audit"),),
    cli="recall audit tail",
    read_only=True,
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

OPERATIONS = (READ_AUDIT, EXPORT_AUDIT, CHECKPOINT_AUDIT, VERIFY_AUDIT, RESTORE_BACKUP)
