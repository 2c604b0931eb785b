"""The effects of each change of a task: events, subscribers, push notifications, and removal; and
of the revocation of a token: what it began is ended.
"""

import asyncio
import hashlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Compute, Runtime
from recall_server.domain.episode import Episode
from recall_server.domain.errors import LimitReached, Stale, TaskNotFound
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import Bearer
from recall_server.domain.task import Job, Outcome, Status, Task, TaskState
from recall_server.domain.webhook import OF_TASK
from recall_server.services.auth import KINDS, OpenAnswers
from recall_server.services.memory import episodes
from recall_server.services.memory.commit import PLANS_MAX, P, Planning, R, Writing
from recall_server.services.memory.indexing import INLINE_CHARS_MAX, Texts
from recall_server.storage.driver import fitting
from recall_server.storage.index.vector_cache import Floats
from recall_server.storage.index.words import Postings
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.jobs import TOKEN_REVOKED
from recall_server.storage.tables.tasks import PAGE_BYTES, NewTask, TaskRows, Version, task_rows

HELD_MAX = 128


@dataclass(frozen=True)
class Text:
    """A submitted text as an episode with its postings, and vectors by the texts they embed."""

    episode: Episode
    words: Postings
    vectors: Mapping[Texts, Floats] = field(default_factory=dict)


async def task_text(task: Task, compute: Compute, owner: Namespace) -> Text | None:
    """Return the prepared text; None if the task has none."""
    request, work = task.request, task.work
    if not request.text:
        return None
    episode = Episode(
        id=work.episode_id,
        text=request.text,
        topic=request.topic,
        occurred_at=request.occurred_at or work.started_at,
        recorded_at=work.started_at,
        content_hash=hashlib.sha256(request.text.encode()).hexdigest(),
        job_id=task.id,
        source=request.source,
        turns=request.turns,
        container=request.container,
        expires_at=request.text_expires_at,
    )
    return Text(*await episodes.prepared(episode, compute, owner))


class TaskCache:
    """The newest tasks with short texts; each is taken once. If another process changed a task
    since, saving it fails on its version.
    """

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[Namespace, str], tuple[Task, Text]] = OrderedDict()

    def put(self, namespace: Namespace, task: Task, text: Text) -> None:
        if len(text.episode.text) > INLINE_CHARS_MAX:
            return
        self._held[namespace, task.id] = task, text
        if len(self._held) > HELD_MAX:
            self._held.popitem(last=False)

    def take(self, namespace: Namespace, task_id: str) -> tuple[Task, Text] | None:
        return self._held.pop((namespace, task_id), None)


Key = tuple[Namespace, str]


class TaskEvents:
    """Publishes changes of tasks to subscribers; keeps nothing about tasks without subscribers.
    `closed`: the process stops, and nobody may wait any longer.
    """

    def __init__(self, *, poll_s: float) -> None:
        self._poll_s = poll_s
        self._subscriptions: dict[Key, set[Subscription]] = {}
        self.closed = False

    def publish(self, namespace: Namespace, task: Task) -> None:
        """Wake the task's subscribers. Call it after the commit, with the task as committed."""
        for subscription in self._subscriptions.get((namespace, task.id), ()):
            subscription.deliver(task)

    def close(self) -> None:
        """Wake all subscribers for the last time."""
        self.closed = True
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.deliver(None)

    @asynccontextmanager
    async def subscribe(self, namespace: Namespace, task_id: str) -> AsyncIterator["Subscription"]:
        """Receive every publication from here on."""
        key, subscription = (namespace, task_id), Subscription(self._poll_s)
        self._subscriptions.setdefault(key, set()).add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions[key].discard(subscription)
            if not self._subscriptions[key]:
                del self._subscriptions[key]


class Subscription:
    """One waiter. Read first, then wait: changes in between are not missed."""

    def __init__(self, poll_s: float) -> None:
        self._delivered = asyncio.Event()
        self._latest: Task | None = None
        self._poll_s = poll_s

    def deliver(self, task: Task | None) -> None:
        if task is None or self._latest is None or task.version > self._latest.version:
            self._latest = task
        self._delivered.set()

    async def wait(self) -> Task | None:
        """Wait for the next publication and return the task; None when it is time to poll."""
        try:
            async with asyncio.timeout(self._poll_s):
                await self._delivered.wait()
        except TimeoutError:
            return None
        self._delivered.clear()
        return self._latest


CONSOLIDATE = "consolidate"
EXPIRE = "expire"
DISCARD = "discard"

LIVE = (TaskState.SUBMITTED, TaskState.WORKING)


@dataclass(frozen=True)
class TaskTransitions:
    """Stores changes of tasks; `announce` enqueues their push notifications with them."""

    runtime: Runtime
    retention: timedelta
    events: TaskEvents
    announce: Callable[[Transaction, Task], Awaitable[None]]
    bytes_max: int
    cache: TaskCache = field(default_factory=TaskCache)

    async def add(self, tx: Transaction, new: NewTask) -> Task:
        """Store a new task and enqueue its work."""
        task = self._bounded(await tx.tasks.add(new))
        await self.promise(tx, CONSOLIDATE, task, task.created_at)
        return task

    async def change(self, tx: Transaction, before: Task, after: Task) -> Task:
        """Replace `before` with `after`, write its events, and enqueue its work if it was answered,
        or its removal if it has ended. Raises `Stale` if it was changed meanwhile, and
        `LimitReached` if it has grown too large.
        """
        return await self.write(tx, await prepared(before, after))

    async def write(self, tx: Transaction, change: "Prepared") -> Task:
        """Do what `change` does, with rows that may have been made before this transaction."""
        before, after, happened, rows = change
        self.cache.take(tx.bound.owner, before.id)
        if after.status in happened and (kind := OF_TASK.get(after.status.state)):
            tx.webhooks.tell(kind, after.id, after.status.at)
        saved = self._bounded(await tx.tasks.save(after, ahead=rows))
        if happened:
            await self.announce(tx, after)
        asked = before.status.state is TaskState.INPUT_REQUIRED
        if asked and after.status.state is TaskState.WORKING:
            await self.promise(tx, CONSOLIDATE, after, after.status.at)
        if after.status.state.final:
            await self.promise(tx, DISCARD, after, after.status.at + self.retention)
        return saved

    def _bounded(self, task: Task) -> Task:
        """Return the task. Raises `LimitReached` if it has grown too large; it can still end."""
        ends = task.status.state.final and task.outcome is None
        if task.stored_bytes > self.bytes_max and not ends:
            raise LimitReached(
                f"The task would have {task.stored_bytes} bytes with all that was said of it; at "
                f"most {self.bytes_max} are kept. Start another one with a part of it."
            )
        return task

    async def promise(self, tx: Transaction, kind: str, task: Task, due_at: datetime) -> None:
        """Enqueue a job about this round of the task, not before `due_at`."""
        payload = {"run_id": task.id, "round": task.round}
        await tx.jobs.add(self.runtime.new_id("job"), kind, payload, due_at)

    def notify(self, namespace: Namespace, task: Task) -> None:
        """Wake the task's subscribers and the worker. Call it after the commit."""
        self.publish(namespace, task)
        self.runtime.wake()

    def publish(self, namespace: Namespace, task: Task) -> None:
        """Wake the task's subscribers and the worker's pushes only. Call it after the commit."""
        self.events.publish(namespace, task)
        self.runtime.wake_pushes()


class Prepared(NamedTuple):
    """A change of a task, with its new events, and the rows that it is written with."""

    before: Task
    after: Task
    happened: Sequence[Status | Outcome]
    rows: TaskRows

    @property
    def cancels(self) -> bool:
        return self.after.status.state is TaskState.CANCELED


async def prepared(before: Task, after: Task) -> Prepared:
    """Return what `TaskTransitions.write` writes: of a large task that takes time."""
    happened: list[Status | Outcome] = []
    worked_on = after.outcome is not None or after.status.state is TaskState.INPUT_REQUIRED
    if before.status.state is TaskState.SUBMITTED and worked_on:
        happened.append(Status(TaskState.WORKING, after.status.at))
    if after.outcome is not None and before.outcome is None:
        happened.append(after.outcome)
    # A changed note alone is no event: the event would repeat all questions.
    if replace(after.status, at=before.status.at, note=before.status.note) != before.status:
        happened.append(after.status)
    return Prepared(before, after, happened, await task_rows(after, *happened))


Leaving = Callable[[Transaction], Awaitable[Callable[[], None]]]
"""Writes what the end of a job changes beside it, and returns what to do after the commit."""


async def change_ahead(
    tables: Transaction,
    change: Callable[[], AbstractAsyncContextManager[Transaction]],
    plan: Planning[P],
    write: Writing[P, R],
) -> R:
    """Change tasks: they are read, and their rows are made, with `tables`, before the transaction,
    as others would wait for large ones; and anew if one has changed since.
    """
    for _ in range(PLANS_MAX):
        made = await plan(tables)
        with suppress(Stale):
            async with change() as tx:
                return await write(tx, made)
    async with change() as tx:
        return await write(tx, await plan(tx))


async def existing(tx: Transaction, task_id: str) -> Task:
    """Return a task. Raises `TaskNotFound`, also if it is outside of the access scope."""
    task = await tx.tasks.get(task_id)
    if task is None:
        raise TaskNotFound
    return task


async def existing_version(tx: Transaction, task_id: str) -> Version:
    """Return the version of a task, which is read without it. Raises `TaskNotFound`."""
    version = await tx.tasks.version(task_id)
    if version is None:
        raise TaskNotFound
    return version


def working(task: Task, at: datetime) -> Task:
    """Return the task as working, since `at` unless it is working already."""
    if task.status.state is TaskState.WORKING:
        return task
    return replace(task, status=Status(TaskState.WORKING, at))


async def ended_with_token(tx: Transaction, task: Task) -> bool:
    """True if the token that began the task was revoked."""
    return task.accessor is not None and await tx.access.revoked(
        Bearer(task.accessor, task.created_at)
    )


def revoked(task: Task, at: datetime) -> Task:
    """Return the task as cancelled because the token that began it was revoked."""
    status = Status(TaskState.CANCELED, at, "The token that began it was revoked.")
    return replace(task, status=status, expires_at=None)


END = "end_tasks"
# The kinds of work of a token that are in the database, and all kinds that a revocation counts.
STORED = ("tasks", "push_configs", "webhooks", "jobs")
COUNTED = (*STORED, *KINDS)
# How many tasks one transaction cancels; a job cancels the rest.
TASKS_AT_ONCE = 100
# The tasks that a revocation reads in its own transaction have no more bytes together.
INSIDE_BYTES = 262_144


@dataclass(frozen=True)
class Ending:
    """Ends what revoked tokens began. An index update, an accepted erasure and a stored text are no
    longer theirs and go on.
    """

    store: Store
    runtime: Runtime
    transitions: TaskTransitions
    answers: OpenAnswers

    async def end(
        self, tx: Transaction, entry: AuditEntry, ended: Callable[[str], bool]
    ) -> Callable[[], None]:
        tokens = [name for name in await tx.access.at_work() if ended(name)]
        entry.counts |= dict.fromkeys(COUNTED, 0) | self.answers.count(entry.namespace, ended)
        if not tokens:
            return lambda: self.answers.forget(entry.namespace, ended)
        now = self.runtime.now()
        entry.counts["push_configs"] = await tx.pushes.remove_of(tokens)
        entry.counts["webhooks"] = await tx.webhooks.remove_of(tokens)
        entry.counts["tasks"] = await tx.tasks.number_unfinished(tokens)
        small = await self._unfinished(tx, tokens, INSIDE_BYTES)
        tasks = [await self.transitions.write(tx, one) for one in small]
        entry.ids += [task.id for task in tasks]
        entry.counts["jobs"] = await tx.jobs.end_of(tokens, TOKEN_REVOKED, now)
        if entry.counts["tasks"] > len(tasks):
            await tx.jobs.add(self.runtime.new_id("job"), END, {"tokens": tokens}, now)

        def then() -> None:
            self.answers.forget(entry.namespace, ended)
            self._notify(entry, tasks)

        return then

    async def work(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Handle a job: cancel the tasks that a revocation left over."""
        tokens, tables = job.payload["tokens"], self.store.autocommit(job.namespace)
        left = True
        while left:
            record = entry(END)
            change = partial(self.store.transaction, job.namespace, entry=record, locked=True)
            plan, write = partial(self._some, tokens), partial(self._end_some, job, record)
            tasks, left = await change_ahead(tables, change, plan, write)
            self._notify(record, tasks)

    async def _some(self, tokens: Sequence[str], tx: Transaction) -> list[Prepared]:
        """Return what cancels some unfinished tasks of these tokens, at least one."""
        return await self._unfinished(tx, tokens, PAGE_BYTES, at_least_one=True)

    async def _end_some(
        self, job: Job, record: AuditEntry, tx: Transaction, some: Sequence[Prepared]
    ) -> tuple[list[Task], bool]:
        """Cancel these tasks. Return them, and whether there are more, which keeps the job."""
        tasks = [await self.transitions.write(tx, one) for one in some]
        record.ids[:] = [job.id, *(task.id for task in tasks)]
        record.counts["tasks"] = len(tasks)
        now, left = self.runtime.now(), await tx.tasks.number_unfinished(job.payload["tokens"])
        if left:
            await tx.jobs.advance(job, job.payload, now + self.runtime.lease)
        else:
            await tx.jobs.finish(job, now)
        return tasks, left > 0

    async def _unfinished(
        self, tx: Transaction, tokens: Sequence[str], bytes_max: int, *, at_least_one: bool = False
    ) -> list[Prepared]:
        """Return what cancels unfinished tasks of these tokens, as many as `bytes_max` allow."""
        sizes = await tx.tasks.unfinished_of(tokens, TASKS_AT_ONCE)
        if not at_least_one:
            sizes = [one for one in sizes if one[1] <= bytes_max]
        tasks = await tx.tasks.unfinished(fitting(sizes, bytes_max))
        now = self.runtime.now()
        return [await prepared(task, revoked(task, now)) for task in tasks]

    def _notify(self, entry: AuditEntry, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.transitions.notify(entry.namespace, task)
        self.runtime.wake()
