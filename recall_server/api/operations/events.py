"""What has happened in a namespace: its changes, which can be undone; its audit log; and webhooks,
which are told of its events.
"""

from collections.abc import Sequence
from dataclasses import asdict
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
    NoArguments,
    Operation,
)
from recall_server.domain.audit import RESTORE, Outcome
from recall_server.domain.errors import Invalid
from recall_server.domain.permissions import Scope
from recall_server.domain.text.cleaning import storable
from recall_server.domain.webhook import WebhookKind
from recall_server.services.audit import AuditPage
from recall_server.services.memory.undo import Page as ChangePage
from recall_server.services.memory.undo import Undone
from recall_server.services.webhooks import Listed
from recall_server.storage.tables.audit import AuditRecord, Filter
from recall_server.storage.tables.webhooks import Registration


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


CREATED = 201


class AddWebhook(Arguments):
    url: str
    kinds: list[Annotated[WebhookKind, Field(strict=False)]] = Field([])
    include_text: bool = False


class OneWebhook(Arguments):
    webhook_id: str


async def add_webhook(call: Call, given: AddWebhook) -> tuple[Registration, str]:
    if given.include_text:
        call.caller.rights.require(Scope.READ, whole_namespace=True)
    return await call.services.webhooks.add(
        call.context, given.url, given.kinds, include_text=given.include_text
    )


async def list_webhooks(call: Call, _: NoArguments) -> Sequence[Listed]:
    found = await call.services.webhooks.all(call.caller.namespace)
    call.context.entry.counts["webhooks"] = len(found)
    return found


async def remove_webhook(call: Call, given: OneWebhook) -> Json:
    await call.services.webhooks.remove(call.context, given.webhook_id)
    return {"removed": given.webhook_id}


def _added(made: tuple[Registration, str], _: Arguments) -> Json:
    registration, secret = made
    return {"secret": secret, **presenters.webhook(registration)}


_WEBHOOK = ("id", "url", "kinds", "include_text", "state")

ADD_WEBHOOK = Operation(
    "add_webhook",
    Scope.WEBHOOKS,
    "Have a URL told of events of the namespace, signed with a secret that is shown once.",
    AddWebhook,
    add_webhook,
    _added,
    ("secret", *_WEBHOOK),
    whole_namespace=True,
    http=(Http("POST", "/v1/webhooks", CREATED),),
    cli="recall webhooks add",
)
LIST_WEBHOOKS = Operation(
    "list_webhooks",
    Scope.WEBHOOKS,
    "List the webhooks of the namespace: what each is told, whether it takes it, what waits.",
    NoArguments,
    list_webhooks,
    lambda found, _: {
        "webhooks": [
            {**presenters.webhook(one.registration), "pending": one.pending} for one in found
        ]
    },
    ("webhooks",),
    whole_namespace=True,
    http=(Http("GET", "/v1/webhooks"),),
    cli="recall webhooks list",
    read_only=True,
)
REMOVE_WEBHOOK = Operation(
    "remove_webhook",
    Scope.WEBHOOKS,
    "Remove a webhook: it gets no more events.",
    OneWebhook,
    remove_webhook,
    returns=("removed",),
    whole_namespace=True,
    http=(Http("DELETE", "/v1/webhooks/{webhook_id}"),),
    cli="recall webhooks remove",
)
TEST_WEBHOOK = Operation(
    "test_webhook",
    Scope.WEBHOOKS,
    "Send a webhook an event without data; a dead one that accepts it gets events again.",
    OneWebhook,
    lambda call, given: call.services.webhooks.test(call.context, given.webhook_id),
    lambda tested, _: asdict(tested),
    ("delivered", "status", "code"),
    whole_namespace=True,
    http=(Http("POST", "/v1/webhooks/{webhook_id}/test"),),
    cli="recall webhooks test",
)

CHANGES = (LIST_CHANGES, UNDO_CHANGE, REBUILD_NAMESPACE)
AUDIT = (READ_AUDIT, EXPORT_AUDIT, CHECKPOINT_AUDIT, VERIFY_AUDIT, RESTORE_BACKUP)
WEBHOOKS = (ADD_WEBHOOK, LIST_WEBHOOKS, REMOVE_WEBHOOK, TEST_WEBHOOK)
