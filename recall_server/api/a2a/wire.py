"""Runs as A2A spells them: tasks, status and artifact events, messages."""

import json
from collections.abc import Sequence

from a2a.helpers import new_data_part, new_text_part
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.types import (
    Task as A2ATask,
)
from a2a.types import (
    TaskState as A2ATaskState,
)
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.timestamp_pb2 import Timestamp

from recall_server.api import task_presenters
from recall_server.api.a2a.card import CONTRADICTIONS
from recall_server.api.a2a.schema import RESPONSE_SCHEMA
from recall_server.domain.ids import derived_id
from recall_server.domain.task import Event, Outcome, Status, Task, TaskState
from recall_server.domain.task import Message as Said
from recall_server.domain.text.cleaning import plain_json, visible

STATES = {
    TaskState.SUBMITTED: A2ATaskState.TASK_STATE_SUBMITTED,
    TaskState.WORKING: A2ATaskState.TASK_STATE_WORKING,
    TaskState.INPUT_REQUIRED: A2ATaskState.TASK_STATE_INPUT_REQUIRED,
    TaskState.COMPLETED: A2ATaskState.TASK_STATE_COMPLETED,
    TaskState.FAILED: A2ATaskState.TASK_STATE_FAILED,
    TaskState.CANCELED: A2ATaskState.TASK_STATE_CANCELED,
}
JSON_MODE, TEXT_MODE = "application/json", "text/plain"


def task(task: Task, *, artifacts: bool = True, modes: Sequence[str] = ()) -> A2ATask:
    """The task as a task; its parts limited to the output `modes` that were accepted, if any."""
    return A2ATask(
        id=task.id,
        context_id=task.context_id,
        status=_status(task.id, task.context_id, task.status, task.outcome),
        artifacts=[artifact(task.id, task.outcome, modes)] if task.outcome and artifacts else [],
        history=[ParseDict(dict(message.document), Message()) for message in task.messages],
    )


def update(
    event: Event, modes: Sequence[str] = ()
) -> TaskStatusUpdateEvent | TaskArtifactUpdateEvent:
    """An event of a task, for clients that watch it."""
    if event.outcome is not None:
        return TaskArtifactUpdateEvent(
            task_id=event.task_id,
            context_id=event.context_id,
            artifact=artifact(event.task_id, event.outcome, modes),
            last_chunk=True,
        )
    assert event.status is not None
    return TaskStatusUpdateEvent(
        task_id=event.task_id,
        context_id=event.context_id,
        status=_status(event.task_id, event.context_id, event.status, None),
    )


def pushed(event: Event) -> bytes:
    """An event of a task, as a receiver of pushes gets it."""
    response = to_stream_response(update(event))
    return plain_json(json.dumps(MessageToDict(response), ensure_ascii=False)).encode()


def _status(task_id: str, context_id: str, status: Status, outcome: Outcome | None) -> TaskStatus:
    stamp = Timestamp()
    stamp.FromDatetime(status.at.replace(microsecond=status.at.microsecond // 1000 * 1000))
    shown = TaskStatus(state=STATES[status.state], timestamp=stamp)
    parts = _parts(status, outcome)
    if parts:
        message_id = derived_id("msg", task_id, status.state, status.at.isoformat(), status.note)
        shown.message.CopyFrom(
            Message(
                message_id=message_id,
                task_id=task_id,
                context_id=context_id,
                role=Role.ROLE_AGENT,
                parts=parts,
                extensions=[CONTRADICTIONS] if status.questions else [],
            )
        )
    return shown


def _parts(status: Status, outcome: Outcome | None) -> list[Part]:
    if status.questions:
        data = {
            "extension": CONTRADICTIONS,
            "contradictions": [task_presenters.question(one) for one in status.questions],
            "response_schema": RESPONSE_SCHEMA,
        } | ({"problem": status.note} if status.note else {})
        return [
            new_text_part(visible(task_presenters.asked(status)), TEXT_MODE),
            new_data_part(data, JSON_MODE),
        ]
    if status.note:
        return [new_text_part(visible(status.note), TEXT_MODE)]
    if outcome is not None:
        return [new_text_part(visible(task_presenters.summary(outcome)), TEXT_MODE)]
    return []


def asked_message(task: Task) -> Said:
    """The questions of a paused task, for its history: as its status has them, with the same id."""
    message = _status(task.id, task.context_id, task.status, None).message
    return Said(message.message_id, MessageToDict(message))


def artifact(task_id: str, outcome: Outcome, modes: Sequence[str] = ()) -> Artifact:
    parts = [
        new_data_part(task_presenters.result(outcome), JSON_MODE),
        new_text_part(visible(task_presenters.summary(outcome)), TEXT_MODE),
    ]
    return Artifact(
        artifact_id=f"{task_id}.result",
        name="plan" if outcome.dry_run else "memories",
        parts=[part for part in parts if not modes or _accepted(part.media_type, modes)],
    )


def _accepted(mode: str, modes: Sequence[str]) -> bool:
    family = mode.partition("/")[0]
    return any(wanted in (mode, f"{family}/*", "*/*", "*") for wanted in modes)


def producible(modes: Sequence[str]) -> bool:
    """Whether an answer can be given in one of the accepted output `modes`."""
    return not modes or _accepted(JSON_MODE, modes) or _accepted(TEXT_MODE, modes)
