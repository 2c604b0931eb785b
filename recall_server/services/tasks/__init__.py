"""Tasks that agents delegate: answers their questions, cancels, lists and watches them. Its modules
consolidate, merge, recheck, review and push.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.errors import (
    LimitReached,
    NamespaceNotFound,
    NotWaiting,
    OnHold,
    ReviewNotFound,
    Stale,
    TaskEnded,
)
from recall_server.domain.ids import Namespace
from recall_server.domain.plan import EXPIRY, Choice, Policy, Question, Resolution
from recall_server.domain.task import (
    NOT_CLEAR,
    AnswerUnclear,
    Event,
    Expiry,
    Job,
    Message,
    Status,
    Task,
    TaskState,
    resolutions,
    says_nothing,
)
from recall_server.domain.text.cleaning import storable
from recall_server.integrations.keys import Cursors, Listing
from recall_server.services.auth import CALLS, OpenAnswers, require_standing
from recall_server.services.memory.episodes import Redaction
from recall_server.services.tasks.transitions import (
    EXPIRE,
    Prepared,
    TaskTransitions,
    change_ahead,
    ended_with_token,
    existing,
    prepared,
    revoked,
)
from recall_server.storage.driver import Document, fitting
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.access import bytes_of
from recall_server.storage.tables.tasks import Cursor, Filter

# How long the removal of a task is postponed while its namespace is on hold.
HOLD_DELAY = timedelta(days=1)


@dataclass(frozen=True)
class TaskPage:
    """One page of tasks, the last changed first; `next` is the cursor of the next page."""

    tasks: tuple[Task, ...]
    total: int
    next: str | None


@dataclass(frozen=True)
class OpenQuestion:
    task: Task
    question: Question


@dataclass(frozen=True)
class Tasks:
    store: Store
    runtime: Runtime
    transitions: TaskTransitions
    redaction: Redaction
    cursors: Cursors
    messages_max: int
    history_bytes_max: int
    answer_bytes_max: int
    answers: OpenAnswers

    async def get(self, context: Context, task_id: str) -> Task:
        """Return a task. Raises `TaskNotFound`, also if it is outside of the access scope."""
        tables = self.store.autocommit(context.namespace, access_scope=context.scope)
        return await existing(tables, task_id)

    async def page(self, context: Context, wanted: Filter, *, cursor: str, limit: int) -> TaskPage:
        """Return the matching tasks on the page at `cursor`. Raises `InvalidCursor`."""
        listing = Listing("tasks", context, asdict(wanted))
        place = self.cursors.place(listing, cursor)
        after = Cursor(datetime.fromisoformat(place[0]), place[1]) if place else None
        async with self.store.view(context) as tx:
            shown, others = await tx.tasks.page(wanted, after=after, limit=limit)
            total = await tx.tasks.count(wanted)
        last = shown[-1] if others and shown else None
        more = [last.status.at.astimezone(UTC).isoformat(), last.id] if last else None
        return TaskPage(tuple(shown), total, self.cursors.sealed(listing, more))

    async def questions(self, context: Context, *, limit: int) -> list[OpenQuestion]:
        """Return the open questions of up to `limit` tasks, the task that waits longest first."""
        async with self.store.view(context) as tx:
            waiting, _ = await tx.tasks.page(
                Filter(state=TaskState.INPUT_REQUIRED), after=None, limit=limit
            )
        return [
            OpenQuestion(task, question)
            for task in reversed(waiting)
            for question in task.status.questions
        ]

    async def answer(
        self,
        context: Context,
        task_id: str,
        given: str | Sequence[Any],
        *,
        said: Message | None = None,
        asked: Callable[[Task], Message] | None = None,
    ) -> Task:
        """Answer a paused task; `domain.task.resolutions` describes the forms. `said` is the
        client's message to store, `asked` makes the message that it answers, given the paused task.

        The answer to the last open question starts the task again; an earlier one is stored.
        Concurrent answers are accepted one at a time. An unclear answer leaves the task paused; the
        returned task has a note that says why. Raises `TaskNotFound`, and `NotWaiting` if it asks
        nothing.
        """
        refuse_large_answer(len(json.dumps(given).encode()), self.answer_bytes_max)
        given = await self.redaction.value(given, context.entry)
        if said is None and says_nothing(given):
            return await self._not_understood(context, task_id)
        said = said and await self.redaction.message(said, context.entry)

        async def answered(task: Task) -> Task:
            if task.status.state is not TaskState.INPUT_REQUIRED:
                raise _not_waiting(task)
            now = self.runtime.now()
            context.entry.code = None
            try:
                found = resolutions(given, task.status.questions, by=context.entry.by, at=now)
            except AnswerUnclear as error:
                status = replace(task.status, at=now, note=error.message)
                after = replace(task, status=status)
                context.entry.code = error.code
            else:
                after = _answered(task, found, now)
                context.entry.counts["answered"] = len(found)
            if said and asked:
                # In a thread: a task may ask many questions.
                messages = await asyncio.to_thread(self._history, task, asked, said)
                after = replace(after, messages=messages)
            return after

        saved = await self._changed(context, task_id, answered)
        self.transitions.notify(context.namespace, saved)
        return saved

    async def _changed(
        self, context: Context, task_id: str, change: Callable[[Task], Awaitable[Task]]
    ) -> Task:
        """Change a task, and return it as saved: see `change_ahead`."""

        async def plan(tx: Transaction) -> Prepared:
            task = await existing(tx, task_id)
            return await prepared(task, await change(task))

        async def write(tx: Transaction, made: Prepared) -> Task:
            if task_id not in context.entry.ids:
                context.entry.ids.append(task_id)
            return await self.transitions.write(tx, made)

        tables = self.store.autocommit(context.namespace, access_scope=context.scope)
        return await change_ahead(tables, partial(self.store.change, context), plan, write)

    def _history(
        self, task: Task, asked: Callable[[Task], Message], said: Message
    ) -> tuple[Message, ...]:
        """Return the newest messages of a task that is answered, as many as its limits allow."""
        newest = (said, asked(task), *reversed(task.messages))[: self.messages_max]
        sizes = ((one, bytes_of([Document(one.document)])) for one in newest)
        return tuple(reversed(fitting(sizes, self.history_bytes_max)))

    async def _not_understood(self, context: Context, task_id: str) -> Task:
        """Return the paused task with a note that says why, and change nothing: a task has many
        questions, and the same answer may come again and again.
        """
        task = await self.get(context, task_id)
        if task.status.state is not TaskState.INPUT_REQUIRED:
            raise _not_waiting(task)
        context.entry.ids.append(task.id)
        context.entry.code = AnswerUnclear.code
        return replace(task, status=replace(task.status, note=NOT_CLEAR))

    async def resolve(
        self, context: Context, question_id: str, choice: Choice, text: str | None
    ) -> Task:
        """Answer one question by its id, in any task. Raises `ReviewNotFound` if no task asks it,
        and `AnswerUnclear` if the answer is not acceptable.
        """
        storable(question_id)
        tables = self.store.autocommit(context.namespace, access_scope=context.scope)
        task_id = await tables.tasks.asking(question_id)
        if task_id is None:
            raise ReviewNotFound
        given = {"id": question_id, "choice": choice} | ({"text": text} if text else {})
        task = await self.answer(context, task_id, [given])
        if context.entry.code and task.status.note:
            raise AnswerUnclear(task.status.note)
        return task

    async def policy(self, namespace: Namespace) -> Policy | None:
        """Return the namespace's policy for contradictions; None if it is not set."""
        return await self.store.autocommit(namespace).access.policy()

    async def set_policy(self, context: Context, policy: Policy | None) -> None:
        """Set the policy for requests without one and for background extraction, which cannot ask
        and with *ask* opens disputes. Raises `NamespaceNotFound`.
        """
        async with self.store.transaction(context.namespace, entry=context.entry) as tx:
            if not await tx.access.set_policy(policy):
                raise NamespaceNotFound

    async def cancel(self, context: Context, task_id: str) -> Task:
        """Cancel a task; memory stays as it was. Raises `TaskNotFound`, `TaskEnded`."""

        async def cancelled(task: Task) -> Task:
            if task.status.state.final:
                raise TaskEnded
            status = Status(TaskState.CANCELED, self.runtime.now(), "Canceled on request.")
            return replace(task, status=status)

        saved = await self._changed(context, task_id, cancelled)
        self.transitions.notify(context.namespace, saved)
        return saved

    async def watch(self, context: Context, task_id: str, after: int) -> AsyncGenerator[Event]:
        """Yield the events of a task after the event `after`, in order, until the task ends, is
        removed or leaves the access scope, or this process stops.

        Every watcher sees the same events, whichever process changes the task.
        """
        async with self.transitions.events.subscribe(context.namespace, task_id) as subscription:
            while not self.transitions.events.closed:
                async with self.store.view(context) as tx:
                    # One at a time: it may be erased before a slow reader takes it.
                    events = await tx.tasks.events(task_id, after, limit=1)
                    gone = not events and await tx.tasks.version(task_id) is None
                for event in events:
                    after = event.seq
                    yield event
                    if event.final:
                        return
                if gone:
                    return
                if not events:
                    await subscription.wait()

    async def wait_until_idle(self, context: Context, task: Task) -> Task:
        """Wait until the task has ended or asks something; return it unchanged if this process
        stops. `task` must be as just committed, so that no change is missed. Raises
        `Unauthenticated` if the caller's token has ended meanwhile.
        """
        namespace, bearer = context.namespace, context.entry.bearer
        with self.answers.counted(CALLS, namespace, bearer):
            async with self.transitions.events.subscribe(namespace, task.id) as subscription:
                while not task.status.state.idle and not self.transitions.events.closed:
                    changed = await subscription.wait()
                    await require_standing(self.store, self.runtime.now(), context.entry)
                    task = changed or await self.get(context, task.id)
        return task

    async def expire(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Handle a job: end the waiting of one round in the way that the request asked for."""
        record = entry(EXPIRE)

        async def plan(tx: Transaction) -> Prepared | None:
            task = await tx.tasks.get(job.payload["run_id"])
            if (
                task is None
                or task.status.state is not TaskState.INPUT_REQUIRED
                or task.round != job.payload["round"]
            ):
                return None
            now = self.runtime.now()
            gone = await ended_with_token(tx, task)
            return await prepared(task, revoked(task, now) if gone else _expired(task, now))

        async def write(tx: Transaction, made: Prepared | None) -> Task | None:
            await tx.jobs.finish(job, self.runtime.now())
            if made is None:
                return None
            if await ended_with_token(tx, made.before) and not made.cancels:
                raise Stale
            record.ids[:] = [made.before.id]
            return await self.transitions.write(tx, made)

        tables = self.store.autocommit(job.namespace)
        change = partial(self.store.transaction, job.namespace, entry=record, locked=True)
        task = await change_ahead(tables, change, plan, write)
        if task is not None:
            self.transitions.notify(job.namespace, task)

    async def discard(self, job: Job, _: Callable[[str], AuditEntry]) -> None:
        """Handle a job: remove a task some time after its end."""
        async with self.store.transaction(job.namespace, locked=True) as tx:
            if await tx.erasures.hold() is not None:
                await tx.jobs.release(
                    job, self.runtime.now() + HOLD_DELAY, OnHold.code, failed=False
                )
                return
            await tx.pushes.clear(job.payload["run_id"])
            await tx.tasks.remove(job.payload["run_id"])
            await tx.jobs.finish(job, self.runtime.now())


def refuse_large_answer(size: int, bytes_max: int) -> None:
    """Raise `LimitReached` if an answer is too large: all answers are kept, and may be many."""
    if size > bytes_max:
        raise LimitReached(f"An answer may have {bytes_max} bytes. Answer in parts.")


def _not_waiting(task: Task) -> NotWaiting:
    if task.work.resolutions:
        last = task.work.resolutions[-1]
        return NotWaiting(
            f"The task is not waiting for an answer: {last.decided_by} answered it at "
            f"{last.decided_at:%Y-%m-%dT%H:%M:%SZ}. Get the task to see its state."
        )
    return NotWaiting()


def _answered(task: Task, found: Sequence[Resolution], now: datetime) -> Task:
    """Return the task with the answers: working again, or with the remaining questions."""
    answered = {one.question_id for one in found}
    left = tuple(q for q in task.status.questions if q.id not in answered)
    work = replace(task.work, resolutions=(*task.work.resolutions, *found))
    if left:
        note = f"{len(found)} answered, {len(left)} still open."
        return replace(
            task, work=work, status=replace(task.status, at=now, note=note, questions=left)
        )
    return replace(
        task,
        work=work,
        round=task.round + 1,
        status=Status(TaskState.WORKING, now),
        expires_at=None,
    )


def _expired(task: Task, now: datetime) -> Task:
    if task.request.on_expiry is Expiry.CANCEL:
        status = Status(TaskState.CANCELED, now, "Nobody answered in time.")
        return replace(task, status=status, expires_at=None)
    choice = Choice(task.request.on_expiry)
    return _answered(
        task, [Resolution(q.id, choice, EXPIRY, now) for q in task.status.questions], now
    )
