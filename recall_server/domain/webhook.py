"""Webhooks: the kinds of event that receivers are told of, and the signature of a delivery."""

import base64
import hmac
from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum

from recall_server.domain.memory_event import EventKind
from recall_server.domain.task import TaskState


class WebhookKind(StrEnum):
    """The kinds of event that a webhook may receive."""

    MEMORY_ADDED = "memory.added"
    MEMORY_SUPERSEDED = "memory.superseded"
    MEMORY_FORGOTTEN = "memory.forgotten"
    CONFLICT_OPENED = "conflict.opened"
    CONFLICT_SETTLED = "conflict.settled"
    TASK_COMPLETED = "task.completed"
    TASK_FAILED = "task.failed"
    TASK_INPUT_REQUIRED = "task.input_required"
    TASK_CANCELED = "task.canceled"
    ERASURE_COMPLETED = "erasure.completed"
    EXTRACTION_COMPLETED = "extraction.completed"


OF_MEMORY: Mapping[EventKind, WebhookKind] = {
    EventKind.ADDED: WebhookKind.MEMORY_ADDED,
    EventKind.SUPERSEDED: WebhookKind.MEMORY_SUPERSEDED,
    EventKind.CONSOLIDATED: WebhookKind.MEMORY_SUPERSEDED,
    EventKind.FORGOTTEN: WebhookKind.MEMORY_FORGOTTEN,
}
"""The kinds of memory events that webhooks receive. Imported memories are left out: the server that
they come from has reported them.
"""

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
