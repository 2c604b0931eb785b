"""Removes retracted memories from unfinished tasks, and starts those again that asked about one."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from recall_server.domain.plan import Question
from recall_server.domain.task import Status, Task, TaskState, Work
from recall_server.services.tasks.transitions import CONSOLIDATE, TaskTransitions
from recall_server.storage.store import Transaction


def mentions(value: Any, ids: Collection[str]) -> bool:
    """Whether a JSON document contains one of these ids anywhere."""
    if isinstance(value, str):
        return value in ids
    if isinstance(value, Mapping):
        return any(mentions(one, ids) for one in value.values())
    return isinstance(value, list) and any(mentions(one, ids) for one in value)


async def requeue(
    tx: Transaction,
    transitions: TaskTransitions,
    task_ids: Sequence[str],
    memory_ids: Collection[str],
    now: datetime,
) -> list[Task]:
    """Remove these memories from the questions, answers and proposals of these tasks. Return the
    changed tasks; call `TaskTransitions.notify` for them after the commit.
    """
    return [
        await _without(tx, transitions, task, memory_ids, now)
        for task_id in task_ids
        if (task := await tx.tasks.locked(task_id)) is not None and not task.status.state.final
    ]


async def _without(
    tx: Transaction,
    transitions: TaskTransitions,
    task: Task,
    memory_ids: Collection[str],
    now: datetime,
) -> Task:
    events = await tx.tasks.events(task.id, 0)
    asked = [question for one in events if one.status for question in one.status.questions]
    gone = {*memory_ids, *(one.id for one in asked if _about(one, memory_ids))}
    await tx.sources.forget_events(
        task.id, [one.seq for one in events if _asks(one.status, memory_ids)]
    )
    after = replace(
        task,
        work=_work(task.work, gone),
        messages=tuple(one for one in task.messages if not mentions(one.document, gone)),
    )
    again = task.status.state is TaskState.INPUT_REQUIRED and _asks(task.status, memory_ids)
    if again:
        status = Status(TaskState.WORKING, now)
        after = replace(after, round=task.round + 1, status=status, expires_at=None)
    saved = await transitions.change(tx, task, after)
    if again:
        await transitions.promise(tx, CONSOLIDATE, after, now)
    return saved


def _work(work: Work, gone: Collection[str]) -> Work:
    """Return the work without answers about the removed memories; a merge starts again."""
    answered = tuple(one for one in work.resolutions if one.question_id not in gone)
    work = replace(work, resolutions=answered)
    if any(one in gone for group in work.groups or () for one in group):
        return replace(work, groups=None, next=0, proposals=())
    return work


def _asks(status: Status | None, memory_ids: Collection[str]) -> bool:
    return status is not None and any(_about(one, memory_ids) for one in status.questions)


def _about(question: Question, memory_ids: Collection[str]) -> bool:
    return any(one.id in memory_ids for one in (question.new, *question.existing))
