"""Tasks in the form of A2A: the schema of the skill, messages in, tasks and events out."""

import asyncio
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from a2a.helpers import get_data_parts, get_text_parts, new_data_part, new_text_part
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    TaskArtifactUpdateEvent,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.types import Task as A2ATask
from a2a.types import TaskState as A2ATaskState
from a2a.utils.proto_utils import to_stream_response
from a2a.utils.task import HistoryLengthConfig
from google.protobuf.json_format import MessageToDict, ParseDict, SerializeToJsonError
from google.protobuf.timestamp_pb2 import Timestamp

from recall_server.api import presenters
from recall_server.api.a2a.card import CONTRADICTIONS
from recall_server.api.operations.operation import Json, checked_id, schema_of
from recall_server.api.operations.reviews import AnswerReview, ListReviews
from recall_server.api.operations.tasks import REVIEW_SKILL, SKILL, Consolidation, consolidation
from recall_server.api.problems import UnsupportedMedia
from recall_server.domain.errors import Invalid
from recall_server.domain.ids import derived_id
from recall_server.domain.plan import Choice
from recall_server.domain.task import Event, Outcome, Request, Status, Task, TaskState
from recall_server.domain.task import Message as Said
from recall_server.domain.text.cleaning import plain_json, storable, visible

_CHOICES = [str(choice) for choice in Choice]


def _object(*, closed: Sequence[str] = (), **types: str | Sequence[str] | Json) -> Json:
    """Return the schema of an object with these fields, by type or schema; if it is `closed`, it
    has no others, and these of its fields always.
    """
    found: Json = {
        "type": "object",
        "properties": {
            name: kind if isinstance(kind, dict) else {"type": kind} for name, kind in types.items()
        },
    }
    return found | ({"required": [*closed], "additionalProperties": False} if closed else {})


_CHOICE: Json = {"enum": _CHOICES}
_RESOLUTION = _object(closed=("id", "choice"), id="string", choice=_CHOICE, text="string")
RESPONSE_SCHEMA = _object(
    closed=("resolutions",), resolutions={"type": "array", "minItems": 1, "items": _RESOLUTION}
)
_SIDE = _object(
    memory_id="string",
    text="string",
    value=["string", "null"],
    negated="boolean",
    source="object",
    said_at="string",
    valid_from="string",
    confidence="number",
    strength="number",
)
QUESTION_SCHEMA = _object(
    id="string",
    entity="string",
    attribute="string",
    existing={"type": "array", "items": _SIDE},
    new=_SIDE,
    reason="string",
    choices={"type": "array", "items": _CHOICE},
    recommended=_CHOICE,
)

EXTENSIONS: dict[str, Json] = {
    CONTRADICTIONS: {
        "skill": SKILL,
        "input_schema": {**schema_of(Consolidation), "additionalProperties": False},
        "question_schema": QUESTION_SCHEMA,
        "response_schema": RESPONSE_SCHEMA,
    }
}
"""The parameters that the card publishes for each extension."""


# Protobuf reads 100 levels, and uses three for each level of JSON.
LEVELS_MAX = 20


def checked(message: Message) -> Message:
    """Return a message if every part can be read and all of it kept. Raises `Invalid` if not."""
    if message.role != Role.ROLE_USER:
        raise Invalid("The role of a message to an agent is ROLE_USER.")
    for name in ("message_id", "task_id", "context_id"):
        checked_id(getattr(message, name), name)
    if not message.parts:
        raise Invalid("The message has no parts. Send a text or a data part.")
    for part in message.parts:
        content = part.WhichOneof("content")
        if content is None:
            raise Invalid("A part has no content. Send text or data.")
        if content not in ("text", "data"):
            raise UnsupportedMedia("Files are not read here. Send the text itself, or a data part.")
        if part.media_type not in ("", "text/plain", "application/json"):
            raise UnsupportedMedia("Send text/plain or application/json; others are not read here.")
    try:
        _storable(MessageToDict(message))
    except SerializeToJsonError:
        raise Invalid("A number in the message is too large. Send it as a text.") from None
    return message


def _storable(value: Any, levels: int = LEVELS_MAX) -> None:
    if isinstance(value, str):
        storable(value)
    elif levels == 0:
        raise Invalid(f"The message is nested deeper than {LEVELS_MAX}. Send it flatter.")
    elif isinstance(value, Mapping):
        for name, one in value.items():
            storable(name)
            _storable(one, levels - 1)
    elif isinstance(value, list):
        for one in value:
            _storable(one, levels - 1)


def request_of(message: Message) -> Request:
    """Return the request in a new message: its data part, with the texts beside it as the text.

    A text alone is a transcript to ingest; `topic`, `policy` and the like may be in the metadata of
    the message. Raises `Invalid`.
    """
    texts, data = get_text_parts(message.parts), get_data_parts(message.parts)
    given = _metadata(message)
    known = _read_of(given)
    if given.get("skill", SKILL) != SKILL:
        raise Invalid(f"There is no such skill. This agent has {SKILL} and {REVIEW_SKILL}.")
    for one in data:
        if not isinstance(one, Mapping):
            raise Invalid("A data part must be a JSON object of the skill's input schema.")
        known |= {key: value for key, value in one.items() if key != "skill"}
    if texts and known.get("text") is None:
        known["text"] = "\n".join(texts)
    return consolidation(known, "a2a")


def review_of(message: Message) -> Json | None:
    """The arguments of a message to the skill that reviews; None where it is for another one."""
    read = {"skill", *AnswerReview.model_fields, *ListReviews.model_fields}
    given = {key: value for key, value in _metadata(message).items() if key in read}
    for one in get_data_parts(message.parts):
        given |= one if isinstance(one, Mapping) else {}
    if given.pop("skill", SKILL) != REVIEW_SKILL:
        return None
    found: Json = json.loads(with_whole_numbers(json.dumps(given).encode()))
    return found


def reviewed(shown: Json, message: Message, message_id: str, modes: Sequence[str]) -> Message:
    """The answer to a message of the skill that reviews: what waits, or what was answered."""
    return Message(
        message_id=message_id,
        context_id=message.context_id,
        role=Role.ROLE_AGENT,
        parts=_said_twice(_review_text(shown), shown, modes),
    )


def _review_text(shown: Json) -> str:
    if "reviews" not in shown:
        return f"{shown['id']} is answered."
    lines = [
        f"{one['id']} ({one['kind']}): {', '.join(one['choices'])}" for one in shown["reviews"]
    ]
    return "\n".join(lines) or "Nothing waits for a decision."


def answer_of(message: Message) -> str | Sequence[Any]:
    """Return the answer in a message: the resolutions of its data part, or else its text."""
    for one in get_data_parts(message.parts):
        if isinstance(one, Mapping) and isinstance(one.get("resolutions"), list):
            found: list[Any] = one["resolutions"]
            return found
        return [one]  # not the form that was asked for: the error says which part is wrong
    return "\n".join(get_text_parts(message.parts))


def said(message: Message, task_id: str, context_id: str) -> Said:
    """Return a client's message as it is kept: the parts that the skill reads, and no more."""
    kept = Message(
        message_id=message.message_id,
        role=message.role,
        task_id=task_id,
        context_id=context_id,
        parts=message.parts,
    )
    for part in kept.parts:
        part.ClearField("metadata")
        part.ClearField("filename")
    if read := _read_of(_metadata(message)):
        kept.metadata.update(read)
    return Said(message.message_id, MessageToDict(kept))


def _metadata(message: Message) -> Json:
    found: Json = MessageToDict(message.metadata) if message.HasField("metadata") else {}
    return found


def _read_of(given: Json) -> Json:
    """Return the metadata of a message that are arguments of the skill."""
    return {key: value for key, value in given.items() if key in Consolidation.model_fields}


STATES = {
    TaskState.SUBMITTED: A2ATaskState.TASK_STATE_SUBMITTED,
    TaskState.WORKING: A2ATaskState.TASK_STATE_WORKING,
    TaskState.INPUT_REQUIRED: A2ATaskState.TASK_STATE_INPUT_REQUIRED,
    TaskState.COMPLETED: A2ATaskState.TASK_STATE_COMPLETED,
    TaskState.FAILED: A2ATaskState.TASK_STATE_FAILED,
    TaskState.CANCELED: A2ATaskState.TASK_STATE_CANCELED,
}
JSON_MODE, TEXT_MODE = "application/json", "text/plain"


# The number of newest messages of a task that are shown to a client that names no number: the
# server chooses then (specification 3.2.4).
HISTORY_DEFAULT = 20


async def task(
    task: Task,
    config: HistoryLengthConfig | None = None,
    *,
    artifacts: bool = True,
    modes: Sequence[str] = (),
) -> A2ATask:
    """Return the task in the form of A2A, with as much of its history as `config` wants; a large
    one is made in a thread. Its parts are limited to the output `modes` that were accepted, if any.
    """
    wanted = config is not None and config.HasField("history_length")
    length = config.history_length if config is not None and wanted else HISTORY_DEFAULT
    if task.large:
        return await asyncio.to_thread(_task, task, length, artifacts, modes)
    return _task(task, length, artifacts, modes)


def _task(task: Task, length: int, artifacts: bool, modes: Sequence[str]) -> A2ATask:
    messages = task.messages[-length:] if length else ()
    return A2ATask(
        id=task.id,
        context_id=task.context_id,
        status=_status(task.id, task.context_id, task.status, task.outcome),
        artifacts=[artifact(task.id, task.outcome, modes)] if task.outcome and artifacts else [],
        history=[ParseDict(dict(message.document), Message()) for message in messages],
    )


def update(
    event: Event, modes: Sequence[str] = ()
) -> TaskStatusUpdateEvent | TaskArtifactUpdateEvent:
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
    """Return an event of a task, as a receiver of pushes gets it."""
    response = to_stream_response(update(event))
    text = plain_json(json.dumps(MessageToDict(response), ensure_ascii=False))
    return with_whole_numbers(text.encode())


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
            "contradictions": [presenters.question(one) for one in status.questions],
            "response_schema": RESPONSE_SCHEMA,
        } | ({"problem": status.note} if status.note else {})
        return _said_twice(presenters.asked(status), data)
    if status.note:
        return [new_text_part(visible(status.note), TEXT_MODE)]
    if outcome is not None:
        return [new_text_part(visible(presenters.summary(outcome)), TEXT_MODE)]
    return []


def asked_message(task: Task) -> Said:
    """Return the message of a paused task for its history, with the id that its status has: the
    questions once, and from then on the note about the last answer.
    """
    status = task.status
    if status.note:
        status = replace(status, questions=())
    message = _status(task.id, task.context_id, status, None).message
    return Said(message.message_id, MessageToDict(message))


def artifact(task_id: str, outcome: Outcome, modes: Sequence[str] = ()) -> Artifact:
    return Artifact(
        artifact_id=f"{task_id}.result",
        name="plan" if outcome.dry_run else "memories",
        parts=_said_twice(presenters.summary(outcome), presenters.result(outcome), modes),
    )


def _said_twice(text: str, data: Json, modes: Sequence[str] = ()) -> list[Part]:
    """Return a text part and a data part, as far as their `modes` are accepted."""
    # The text comes first: frameworks show their model the first part.
    parts = [new_text_part(visible(text), TEXT_MODE), new_data_part(data, JSON_MODE)]
    return [part for part in parts if not modes or _accepted(part.media_type, modes)]


def _accepted(mode: str, modes: Sequence[str]) -> bool:
    family = mode.partition("/")[0]
    return any(wanted in (mode, f"{family}/*", "*/*", "*") for wanted in modes)


def producible(modes: Sequence[str]) -> bool:
    """Return True if an answer can be given in one of the accepted output `modes`."""
    return not modes or _accepted(JSON_MODE, modes) or _accepted(TEXT_MODE, modes)


# Protobuf knows only floats in data and writes 6.0, which typed clients do not take for an integer.
# A text is passed over whole, so that nothing within one is taken for a number.
_TEXT_OR_WHOLE = re.compile(rb'"(?:[^"\\]|\\.)*"|(-?[0-9]{1,15})\.0(?=[,}\]\s])')


def with_whole_numbers(body: bytes) -> bytes:
    """JSON, or an event of a stream of JSON, with 6 for 6.0."""
    if b".0" not in body:
        return body
    return _TEXT_OR_WHOLE.sub(lambda found: found[1] or found[0], body)
