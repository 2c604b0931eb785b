"""Runs from outside: answer their questions, cancel, look at them, watch them."""

from collections.abc import AsyncGenerator, Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from recall_server.domain.answers import AnswerUnclear, resolutions
from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import (
    NamespaceNotFound,
    NotWaiting,
    OnHold,
    TaskEnded,
    TaskNotFound,
)
from recall_server.domain.job import Job
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.plan import Choice, Policy, Question, Resolution
from recall_server.domain.task import Event, Expiry, Message, Status, Task, TaskState
from recall_server.domain.text.cleaning import storable
from recall_server.services.cursors import Cursors, Listing
from recall_server.services.memory.redaction import Masking
from recall_server.services.tasks.transitions import CONSOLIDATE, EXPIRE, TaskTransitions
from recall_server.storage.store import Transaction
from recall_server.storage.tables.tasks import Cursor, Filter

MESSAGES_MAX = 200
# How long the removal of a task rests while its namespace is on hold.
HELD_REST = timedelta(days=1)


@dataclass(frozen=True)
class RunsPage:
    """One page of runs, the last changed first; `next` begins the one behind it."""

    runs: tuple[Task, ...]
    total: int
    next: str | None


@dataclass(frozen=True)
class Open:
    """A question that waits, and the run that asks it."""

    run: Task
    question: Question


@dataclass(frozen=True)
class Tasks:
    """The verbs of those who did not start the run, or come back to it."""

    runs: TaskTransitions
    masking: Masking
    cursors: Cursors

    async def get(
        self, namespace: Namespace, run_id: str, *, reach: AccessScope = FULL_ACCESS
    ) -> Task:
        """Raises `TaskNotFound`, for another tenant's run too, and for one out of reach."""
        run = await self.runs.store.autocommit(namespace, reach=reach).runs.get(run_id)
        if run is None:
            raise TaskNotFound
        return run

    async def page(
        self,
        namespace: Namespace,
        wanted: Filter,
        *,
        accessor: str,
        cursor: str,
        limit: int,
        reach: AccessScope = FULL_ACCESS,
    ) -> RunsPage:
        """Those that are wanted, or those on the pages behind `cursor`. Raises `InvalidCursor`."""
        listing = Listing("tasks", namespace, accessor, asdict(wanted))
        place = self.cursors.place(listing, cursor)
        after = Cursor(datetime.fromisoformat(place[0]), place[1]) if place else None
        async with self.runs.store.transaction(namespace, write=False, reach=reach) as tx:
            found = await tx.runs.page(wanted, after=after, limit=limit + 1)
            total = await tx.runs.count(wanted)
        shown = found[:limit]
        last = shown[-1] if len(found) > limit else None
        more = [last.status.at.astimezone(UTC).isoformat(), last.id] if last else None
        return RunsPage(tuple(shown), total, self.cursors.sealed(listing, more))

    async def questions(
        self, namespace: Namespace, *, limit: int, reach: AccessScope = FULL_ACCESS
    ) -> list[Open]:
        """All that waits for an answer, of the run that has waited longest first."""
        async with self.runs.store.transaction(namespace, write=False, reach=reach) as tx:
            waiting = await tx.runs.page(
                Filter(state=TaskState.INPUT_REQUIRED), after=None, limit=limit
            )
        return [
            Open(run, question) for run in reversed(waiting) for question in run.status.questions
        ]

    async def answer(
        self,
        namespace: Namespace,
        run_id: str,
        given: str | Sequence[Any],
        *,
        messages: Callable[[Task], Sequence[Message]] | None = None,
        reach: AccessScope = FULL_ACCESS,
        entry: AuditEntry,
    ) -> Task:
        """Take an answer to what a paused run asks; see `answers.resolutions` for its forms.
        `messages` makes what is kept of the words, given the run as it asks.

        The answer to the last open question sets the run going again; an earlier one is kept. Of
        several at once one is taken at a time. What cannot be understood leaves the run paused,
        with a note that says why. Raises `TaskNotFound`, and `NotWaiting` where it does not ask.
        """
        given = await self.masking.value(given, entry)
        async with self.runs.store.transaction(namespace, reach=reach, entry=entry) as tx:
            await tx.lock()
            run = await _locked(tx, run_id)
            if run.status.state is not TaskState.INPUT_REQUIRED:
                raise _not_waiting(run)
            now = self.runs.now()
            by = entry.accessor or "operator"
            try:
                found = resolutions(given, run.status.questions, by=by, at=now)
            except AnswerUnclear as error:
                status = replace(run.status, at=now, note=error.message)
                after = replace(run, status=status)
                entry.code = error.code
            else:
                after = _answered(run, found, now)
                entry.counts["answered"] = len(found)
            if messages:
                said = [await self.masking.message(one, entry) for one in messages(run)]
                kept = (*run.messages, *said)[-MESSAGES_MAX:]
                after = replace(after, messages=kept)
            saved = await self._go_on(tx, run, after)
            entry.ids.append(run.id)
        self.runs.told(namespace, saved)
        return saved

    async def _go_on(self, tx: Transaction, before: Task, after: Task) -> Task:
        saved = await self.runs.change(tx, before, after)
        if after.status.state is TaskState.WORKING:
            await self.runs.promise(tx, CONSOLIDATE, after, after.status.at)
        return saved

    async def resolve(
        self,
        namespace: Namespace,
        question_id: str,
        choice: Choice,
        text: str | None,
        *,
        reach: AccessScope = FULL_ACCESS,
        entry: AuditEntry,
    ) -> Task:
        """Answer one question by its id, whichever run asks it. Raises `TaskNotFound` where none
        does, `AnswerUnclear` where the answer is not acceptable.
        """
        storable(question_id)
        run_id = await self.runs.store.autocommit(namespace, reach=reach).runs.asking(question_id)
        if run_id is None:
            raise TaskNotFound("No open question has this id. List those that wait.")
        given = {"id": question_id, "choice": choice} | ({"text": text} if text else {})
        run = await self.answer(namespace, run_id, [given], reach=reach, entry=entry)
        if run.status.note and run.status.state is TaskState.INPUT_REQUIRED and entry.code:
            raise AnswerUnclear(run.status.note)
        return run

    async def policy(self, namespace: Namespace) -> Policy | None:
        """Who settles contradictions in the namespace; None where nobody has said."""
        return await self.runs.store.autocommit(namespace).access.policy()

    async def set_policy(
        self, namespace: Namespace, policy: Policy | None, *, entry: AuditEntry
    ) -> None:
        """Say so for all requests that do not say it themselves, and for background extraction,
        which cannot ask and so takes *ask* for *decide*. Raises `NamespaceNotFound`.
        """
        async with self.runs.store.transaction(namespace, entry=entry) as tx:
            if not await tx.access.set_policy(policy):
                raise NamespaceNotFound

    async def cancel(
        self,
        namespace: Namespace,
        run_id: str,
        *,
        reach: AccessScope = FULL_ACCESS,
        entry: AuditEntry,
    ) -> Task:
        """Stop a run; memory stays as it was. Raises `TaskNotFound`, `TaskEnded`."""
        async with self.runs.store.transaction(namespace, reach=reach, entry=entry) as tx:
            await tx.lock()
            run = await _locked(tx, run_id)
            if run.status.state.final:
                raise TaskEnded
            status = Status(TaskState.CANCELED, self.runs.now(), "Canceled on request.")
            saved = await self.runs.change(tx, run, replace(run, status=status))
            entry.ids.append(run_id)
        self.runs.told(namespace, saved)
        return saved

    async def watch(
        self, namespace: Namespace, run_id: str, after: int, *, reach: AccessScope = FULL_ACCESS
    ) -> AsyncGenerator[Event]:
        """What happens to the run after its event `after`, in order, until it has ended, is gone or
        goes out of reach, or this process stops.

        Every watcher sees the same, whichever process changes the run.
        """
        async with self.runs.bell.listening(namespace, run_id) as ear:
            while not self.runs.bell.closed:
                async with self.runs.store.transaction(namespace, write=False, reach=reach) as tx:
                    events = await tx.runs.events(run_id, after)
                    gone = not events and await tx.runs.get(run_id) is None
                for event in events:
                    after = event.seq
                    yield event
                    if event.final:
                        return
                if gone:
                    return
                await ear.wait()

    async def rested(
        self, namespace: Namespace, run: Task, *, reach: AccessScope = FULL_ACCESS
    ) -> Task:
        """The run once it has ended or asks something; as it is, where this process stops. `run` as
        it was just committed: nothing can have happened to it unheard.
        """
        async with self.runs.bell.listening(namespace, run.id) as ear:
            while not run.status.state.resting and not self.runs.bell.closed:
                run = await ear.wait() or await self.get(namespace, run.id, reach=reach)
        return run

    async def expire(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """The handler that ends the waiting of one round, as the request said."""
        line = entry(EXPIRE)
        async with self.runs.store.transaction(job.namespace, entry=line) as tx:
            await tx.lock()
            run = await tx.runs.locked(job.payload["run_id"])
            now = self.runs.now()
            if (
                run is not None
                and run.status.state is TaskState.INPUT_REQUIRED
                and run.round == job.payload["round"]
            ):
                run = await self._go_on(tx, run, _expired(run, now))
                line.ids.append(run.id)
            await tx.jobs.finish(job, now)
        if run is not None:
            self.runs.told(job.namespace, run)

    async def discard(self, job: Job, _: Callable[[str], AuditEntry]) -> None:
        """The handler that removes a run some time after it has ended."""
        async with self.runs.store.transaction(job.namespace) as tx:
            await tx.lock()
            if await tx.erasures.hold() is not None:
                await tx.jobs.release(job, self.runs.now() + HELD_REST, OnHold.code, failed=False)
                return
            await tx.pushes.clear(job.payload["run_id"])
            await tx.runs.remove(job.payload["run_id"])
            await tx.jobs.finish(job, self.runs.now())


async def _locked(tx: Transaction, run_id: str) -> Task:
    run = await tx.runs.locked(run_id)
    if run is None:
        raise TaskNotFound
    return run


def _not_waiting(run: Task) -> NotWaiting:
    if run.work.resolutions:
        last = run.work.resolutions[-1]
        return NotWaiting(
            f"The task is not waiting for an answer: {last.decided_by} answered it at "
            f"{last.decided_at:%Y-%m-%dT%H:%M:%SZ}. Get the task to see where it stands."
        )
    return NotWaiting()


def _answered(run: Task, found: Sequence[Resolution], now: datetime) -> Task:
    """The run with the answers: at work again, or asking what is left."""
    answered = {one.question_id for one in found}
    left = tuple(q for q in run.status.questions if q.id not in answered)
    work = replace(run.work, resolutions=(*run.work.resolutions, *found))
    if left:
        note = f"{len(found)} answered, {len(left)} still open."
        return replace(
            run, work=work, status=replace(run.status, at=now, note=note, questions=left)
        )
    return replace(
        run, work=work, round=run.round + 1, status=Status(TaskState.WORKING, now), expires_at=None
    )


def _expired(run: Task, now: datetime) -> Task:
    if run.request.on_expiry is Expiry.CANCEL:
        status = Status(TaskState.CANCELED, now, "Nobody answered in time.")
        return replace(run, status=status, expires_at=None)
    choice = Choice(run.request.on_expiry)
    return _answered(
        run, [Resolution(q.id, choice, "expiry", now) for q in run.status.questions], now
    )
