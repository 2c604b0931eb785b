"""The questions and the result of a task, as JSON and in prose."""

from typing import Any

from recall_server.api import presenters
from recall_server.domain.memory import Memory
from recall_server.domain.plan import Choice, Question, Resolution
from recall_server.domain.task import Outcome, Status, Task, TaskState
from recall_server.services.tasks.tasks import OpenQuestion

Json = dict[str, Any]


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


def open_question(one: OpenQuestion) -> Json:
    """A question that waits, with the task that asks it."""
    return {
        **question(one.question),
        "task_id": one.task.id,
        "asked_at": presenters.moment(one.task.status.at),
        "expires_at": presenters.moment(one.task.expires_at),
    }


def _side(memory: Memory) -> Json:
    return {
        "memory_id": memory.id,
        "text": memory.text,
        "value": memory.fact.value if memory.fact else None,
        "negated": memory.fact.negated if memory.fact else False,
        "source": presenters.citation(memory.citation),
        "said_at": presenters.moment(memory.said_at),
        "valid_from": presenters.moment(memory.valid_from),
        "confidence": round(memory.confidence, 4),
        "strength": round(strength(memory), 4),
    }


def strength(memory: Memory) -> float:
    """The support of a statement, in [0, 1]: as if each time it was stated had been an
    independent witness of its confidence.
    """
    return 1.0 - (1.0 - memory.confidence) ** (1 + memory.reinforcements)


def result(outcome: Outcome) -> Json:
    """The result of a task, in full."""
    return {
        "dry_run": outcome.dry_run,
        "memories": [presenters.memory(memory) for memory in outcome.created],
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
        "decided_at": presenters.moment(one.decided_at),
    }


def summary(outcome: Outcome) -> str:
    """The result of a task, in a few lines."""
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


def plain(task: Task) -> Json:
    """A task as the plain routes of A2A show it."""
    shown: Json = {"id": task.id, "status": str(task.status.state)}
    if task.outcome is not None:
        shown["output"] = result(task.outcome)
    elif task.status.state is TaskState.INPUT_REQUIRED:
        shown["output"] = {"contradictions": [question(one) for one in task.status.questions]}
    if task.status.note:
        shown["message"] = task.status.note
    return shown


def consolidation(task: Task) -> Json:
    """A task as /v1/consolidations shows it: its state, and the fields of its result beside it."""
    shown = plain(task)
    return {"task_id": shown.pop("id"), **shown.pop("output", {}), **shown}
