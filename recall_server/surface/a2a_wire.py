"""Runs as A2A spells them: tasks, status and artifact events, questions and outcomes."""

import json
from collections.abc import Sequence
from typing import Any

from a2a.helpers import new_data_part, new_text_part
from a2a.types import (
    Artifact,
    Message,
    Part,
    Role,
    Task,
    TaskArtifactUpdateEvent,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from a2a.utils.proto_utils import to_stream_response
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.timestamp_pb2 import Timestamp

from recall_server.domain.ids import derived_id
from recall_server.domain.model import Memory
from recall_server.domain.plan import Choice, Question, Resolution
from recall_server.domain.run import Event, Outcome, Run, RunState, Status
from recall_server.domain.run import Message as Said
from recall_server.domain.text import plain_json, visible
from recall_server.services.tasks import Open
from recall_server.surface import wire
from recall_server.surface.a2a_schema import RESPONSE_SCHEMA
from recall_server.surface.card import CONTRADICTIONS

Json = dict[str, Any]

STATES = {
    RunState.SUBMITTED: TaskState.TASK_STATE_SUBMITTED,
    RunState.WORKING: TaskState.TASK_STATE_WORKING,
    RunState.INPUT_REQUIRED: TaskState.TASK_STATE_INPUT_REQUIRED,
    RunState.COMPLETED: TaskState.TASK_STATE_COMPLETED,
    RunState.FAILED: TaskState.TASK_STATE_FAILED,
    RunState.CANCELED: TaskState.TASK_STATE_CANCELED,
}
JSON_MODE, TEXT_MODE = "application/json", "text/plain"


def task(run: Run, *, artifacts: bool = True, modes: Sequence[str] = ()) -> Task:
    """The run as a task; its parts limited to the output `modes` that were accepted, if any."""
    return Task(
        id=run.id,
        context_id=run.context_id,
        status=_status(run.id, run.context_id, run.status, run.outcome),
        artifacts=[artifact(run.id, run.outcome, modes)] if run.outcome and artifacts else [],
        history=[ParseDict(dict(message.document), Message()) for message in run.messages],
    )


def update(
    event: Event, modes: Sequence[str] = ()
) -> TaskStatusUpdateEvent | TaskArtifactUpdateEvent:
    """What happened to a run, for whoever watches it."""
    if event.outcome is not None:
        return TaskArtifactUpdateEvent(
            task_id=event.run_id,
            context_id=event.context_id,
            artifact=artifact(event.run_id, event.outcome, modes),
            last_chunk=True,
        )
    assert event.status is not None
    return TaskStatusUpdateEvent(
        task_id=event.run_id,
        context_id=event.context_id,
        status=_status(event.run_id, event.context_id, event.status, None),
    )


def pushed(event: Event) -> bytes:
    """What happened to a run, as a receiver of pushes gets it."""
    response = to_stream_response(update(event))
    return plain_json(json.dumps(MessageToDict(response), ensure_ascii=False)).encode()


def _status(run_id: str, context_id: str, status: Status, outcome: Outcome | None) -> TaskStatus:
    stamp = Timestamp()
    stamp.FromDatetime(status.at.replace(microsecond=status.at.microsecond // 1000 * 1000))
    shown = TaskStatus(state=STATES[status.state], timestamp=stamp)
    parts = _parts(status, outcome)
    if parts:
        message_id = derived_id("msg", run_id, status.state, status.at.isoformat(), status.note)
        shown.message.CopyFrom(
            Message(
                message_id=message_id,
                task_id=run_id,
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
            "contradictions": [question(one) for one in status.questions],
            "response_schema": RESPONSE_SCHEMA,
        } | ({"problem": status.note} if status.note else {})
        return [
            new_text_part(visible(asked(status)), TEXT_MODE),
            new_data_part(data, JSON_MODE),
        ]
    if status.note:
        return [new_text_part(visible(status.note), TEXT_MODE)]
    if outcome is not None:
        return [new_text_part(visible(summary(outcome)), TEXT_MODE)]
    return []


def asked_message(run: Run) -> Said:
    """What a paused run asks, for its history: as its status says it, with the same id."""
    message = _status(run.id, run.context_id, run.status, None).message
    return Said(message.message_id, MessageToDict(message))


def asked(status: Status) -> str:
    """The questions in prose."""
    count = len(status.questions)
    lines = [f"{status.note}\n" if status.note else ""]
    lines.append(f"{count} contradiction{'s need' if count > 1 else ' needs'} an answer.")
    for number, one in enumerate(status.questions, 1):
        known = " / ".join(
            f'"{memory.text}" ({memory.said_at:%Y-%m-%d})' for memory in one.existing
        )
        lines.append(
            f'{number}. Known: {known}. New: "{one.new.text}" ({one.new.said_at:%Y-%m-%d}). '
            f"{one.reason} Recommended: {one.recommended}."
        )
    lines.append(
        "Answer keep_existing, keep_new or keep_both for all of them; or by number, as in "
        "'1: keep_new, 2: keep_both'; or with a data part as response_schema describes."
    )
    return "\n".join(line for line in lines if line)


def question(one: Question) -> Json:
    fact = one.new.fact
    assert fact is not None
    return {
        "id": one.id,
        "entity": fact.entity,
        "attribute": fact.attribute,
        "existing": [_side(memory) for memory in one.existing],
        "new": _side(one.new),
        "reason": one.reason,
        "choices": [str(choice) for choice in Choice],
        "recommended": str(one.recommended),
    }


def open_question(one: Open) -> Json:
    """A question that waits, with the task that asks it."""
    return {
        **question(one.question),
        "task_id": one.run.id,
        "asked_at": wire.moment(one.run.status.at),
        "expires_at": wire.moment(one.run.expires_at),
    }


def _side(memory: Memory) -> Json:
    return {
        "memory_id": memory.id,
        "text": memory.text,
        "value": memory.fact.value if memory.fact else None,
        "negated": memory.fact.negated if memory.fact else False,
        "source": wire.citation(memory.citation),
        "said_at": wire.moment(memory.said_at),
        "valid_from": wire.moment(memory.valid_from),
        "confidence": round(memory.confidence, 4),
        "strength": round(strength(memory), 4),
    }


def strength(memory: Memory) -> float:
    """How well a statement is supported, in [0, 1]: as if each time it was stated had been an
    independent witness of its confidence.
    """
    return 1.0 - (1.0 - memory.confidence) ** (1 + memory.reinforcements)


def artifact(run_id: str, outcome: Outcome, modes: Sequence[str] = ()) -> Artifact:
    parts = [
        new_data_part(result(outcome), JSON_MODE),
        new_text_part(visible(summary(outcome)), TEXT_MODE),
    ]
    return Artifact(
        artifact_id=f"{run_id}.result",
        name="plan" if outcome.dry_run else "memories",
        parts=[part for part in parts if not modes or _accepted(part.media_type, modes)],
    )


def _accepted(mode: str, modes: Sequence[str]) -> bool:
    family = mode.partition("/")[0]
    return any(wanted in (mode, f"{family}/*", "*/*", "*") for wanted in modes)


def producible(modes: Sequence[str]) -> bool:
    """Whether an answer can be given in one of the accepted output `modes`."""
    return not modes or _accepted(JSON_MODE, modes) or _accepted(TEXT_MODE, modes)


def result(outcome: Outcome) -> Json:
    """What came of a run, in full."""
    return {
        "dry_run": outcome.dry_run,
        "memories": [wire.memory(memory) for memory in outcome.created],
        "superseded": list(outcome.superseded),
        "reinforced": list(outcome.reinforced),
        "groups_found": outcome.groups_found,
        "rejected": outcome.rejected,
        "contradictions": [question(one) for one in outcome.questions],
        "resolutions": [resolution(one) for one in outcome.resolutions],
    }


def resolution(one: Resolution) -> Json:
    return {
        "id": one.question_id,
        "choice": str(one.choice),
        "decided_by": one.decided_by,
        "decided_at": wire.moment(one.decided_at),
    }


def summary(outcome: Outcome) -> str:
    """What came of a run, in a few lines."""
    counts = (
        f"{len(outcome.created)} memories, {len(outcome.superseded)} superseded, "
        f"{len(outcome.reinforced)} reinforced"
    )
    head = f"Plan only, nothing is changed: {counts}" if outcome.dry_run else counts
    if outcome.questions:
        head += f", {len(outcome.questions)} contradictions to be answered"
    return "\n".join(
        [f"{head}.", *(f"- {memory.type}: {memory.text}" for memory in outcome.created)]
    )
