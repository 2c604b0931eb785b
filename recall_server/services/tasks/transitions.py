"""The effects of every change of a task: events, subscribers, push notifications, and removal."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from recall_server.domain.ids import new_id
from recall_server.domain.namespace import Namespace
from recall_server.domain.task import Outcome, Status, Task, TaskState
from recall_server.services.tasks.task_cache import TaskCache
from recall_server.services.tasks.task_events import TaskEvents
from recall_server.storage.store import Store, Transaction

CONSOLIDATE = "consolidate"
EXPIRE = "expire"
DISCARD = "discard"

LIVE = (TaskState.SUBMITTED, TaskState.WORKING)


@dataclass(frozen=True)
class TaskTransitions:
    """Stores changes of tasks. `announce` enqueues the push notifications in the same
    transaction.
    """

    store: Store
    now: Callable[[], datetime]
    random_bytes: Callable[[int], bytes]
    retention: timedelta
    wake: Callable[[], None]
    events: TaskEvents
    announce: Callable[[Transaction, Task], Awaitable[None]]
    cache: TaskCache = field(default_factory=TaskCache)

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.now(), self.random_bytes(10))

    async def add(self, tx: Transaction, task: Task) -> Task:
        """Store a new task and enqueue its work."""
        task = await tx.tasks.add(task)
        await self.promise(tx, CONSOLIDATE, task, task.created_at)
        return task

    async def change(self, tx: Transaction, before: Task, after: Task) -> Task:
        """Replace `before` by `after`, write its events, and enqueue its removal once it has ended.
        Raises `Stale` if it was changed meanwhile.
        """
        if tx.handle.namespace is not None:
            self.cache.take(tx.handle.namespace, before.id)
        happened: list[Status | Outcome] = []
        worked_on = after.outcome is not None or after.status.state is TaskState.INPUT_REQUIRED
        if before.status.state is TaskState.SUBMITTED and worked_on:
            happened.append(Status(TaskState.WORKING, after.status.at))
        if after.outcome is not None and before.outcome is None:
            happened.append(after.outcome)
        if after.status != before.status:
            happened.append(after.status)
        saved = await tx.tasks.save(after, *happened)
        if happened:
            await self.announce(tx, after)
        if after.status.state.final:
            await self.promise(tx, DISCARD, after, after.status.at + self.retention)
        return saved

    async def promise(self, tx: Transaction, kind: str, task: Task, due_at: datetime) -> None:
        """Enqueue a job about this round of the task, not before `due_at`."""
        payload = {"run_id": task.id, "round": task.round}
        await tx.jobs.add(self.new_id("job"), kind, payload, due_at)

    def notify(self, namespace: Namespace, task: Task) -> None:
        """Wake the task's subscribers and the worker. Call it after the commit."""
        self.events.publish(namespace, task)
        self.wake()


def working(task: Task, at: datetime) -> Task:
    """Return the task as working since `at`, or since it was."""
    if task.status.state is TaskState.WORKING:
        return task
    return replace(task, status=Status(TaskState.WORKING, at))
