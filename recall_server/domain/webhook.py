"""Webhooks: the kinds of event that receivers are told of, and the signature of a delivery."""

import base64
import hmac
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from recall_server.domain.memory import BELIEVED, Status
from recall_server.domain.memory_event import EventKind
from recall_server.domain.task import TaskState


class WebhookKind(StrEnum):
    MEMORY_ADDED = "memory.added"
    MEMORY_SUPERSEDED = "memory.superseded"
    MEMORY_FORGOTTEN = "memory.forgotten"
    MEMORY_RESTORED = "memory.restored"
    CONFLICT_OPENED = "conflict.opened"
    CONFLICT_SETTLED = "conflict.settled"
    TASK_COMPLETED = "task.completed"
    TASK_FAILED = "task.failed"
    TASK_INPUT_REQUIRED = "task.input_required"
    TASK_CANCELED = "task.canceled"
    ERASURE_COMPLETED = "erasure.completed"
    EXTRACTION_COMPLETED = "extraction.completed"


_OF_STATUS: Mapping[Status, WebhookKind] = {
    **dict.fromkeys(BELIEVED, WebhookKind.MEMORY_RESTORED),
    **dict.fromkeys((Status.SUPERSEDED, Status.CONSOLIDATED), WebhookKind.MEMORY_SUPERSEDED),
}
"""The event for each state of a memory; other states send `memory.forgotten`."""

_OF_EVENT: Mapping[EventKind, WebhookKind] = {
    EventKind.SUPERSEDED: WebhookKind.MEMORY_SUPERSEDED,
    EventKind.CONSOLIDATED: WebhookKind.MEMORY_SUPERSEDED,
    EventKind.FORGOTTEN: WebhookKind.MEMORY_FORGOTTEN,
    EventKind.EXPIRED: WebhookKind.MEMORY_FORGOTTEN,
    EventKind.RESTORED: WebhookKind.MEMORY_RESTORED,
}
_OF_MEMORY: Mapping[EventKind, WebhookKind] = {
    **_OF_EVENT,
    EventKind.ADDED: WebhookKind.MEMORY_ADDED,
    EventKind.DEPRECATED: WebhookKind.MEMORY_FORGOTTEN,
    EventKind.QUARANTINED: WebhookKind.MEMORY_FORGOTTEN,
}
MEMORY_EVENTS = frozenset({*_OF_MEMORY, EventKind.IMPORTED, EventKind.UNDONE})
TEXT_EVENTS = frozenset({*_OF_EVENT, EventKind.UNDONE})
"""The memory events that webhooks can receive."""


def kind_for_memory(kind: EventKind, before: Status | None, after: Status) -> WebhookKind | None:
    """Return the webhook event for a memory event, from the states before and after it."""
    if kind is EventKind.IMPORTED:
        return WebhookKind.MEMORY_ADDED if after in BELIEVED else None
    if kind is not EventKind.UNDONE:
        return _OF_MEMORY.get(kind)
    now = _became(after)
    return now if before is None or _became(before) is not now else None


def kind_for_words(kind: EventKind, *, hides: bool | None) -> WebhookKind | None:
    """Return the webhook event for an event of a passage, which has no state: an undo `hides` it,
    shows it (False), or does neither (None). An added text sends none; its memories do.
    """
    if kind is not EventKind.UNDONE:
        return _OF_EVENT.get(kind)
    if hides is None:
        return None
    return WebhookKind.MEMORY_FORGOTTEN if hides else WebhookKind.MEMORY_RESTORED


def _became(status: Status) -> WebhookKind:
    return _OF_STATUS.get(status, WebhookKind.MEMORY_FORGOTTEN)


OF_TASK: Mapping[TaskState, WebhookKind] = {
    TaskState.COMPLETED: WebhookKind.TASK_COMPLETED,
    TaskState.FAILED: WebhookKind.TASK_FAILED,
    TaskState.INPUT_REQUIRED: WebhookKind.TASK_INPUT_REQUIRED,
    TaskState.CANCELED: WebhookKind.TASK_CANCELED,
}

TEST = "webhook.test"
SECRET_PREFIX = "whsec_"  # noqa: S105  # what every secret begins with
SECRET_BYTES = 32


def secret_of(random_bytes: bytes) -> str:
    """Return the secret as its receiver keeps it."""
    return SECRET_PREFIX + base64.b64encode(random_bytes).decode()


def signed(secret: str, message_id: str, at: datetime, body: bytes) -> Mapping[str, str]:
    """Return the headers by which a receiver verifies `body`, as in Standard Webhooks."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    timestamp = str(int(at.timestamp()))
    digest = hmac.digest(key, f"{message_id}.{timestamp}.".encode() + body, "sha256")
    return {
        "webhook-id": message_id,
        "webhook-timestamp": timestamp,
        "webhook-signature": f"v1,{base64.b64encode(digest).decode()}",
    }
