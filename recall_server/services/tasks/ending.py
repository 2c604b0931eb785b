"""Ends what a revoked token began: its push configurations, webhooks, jobs and unfinished tasks.
Its streams, exports and calls end by themselves, and are only counted.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Runtime
from recall_server.domain.task import Job, Task
from recall_server.services.auth.open_answers import KINDS, OpenAnswers
from recall_server.services.tasks.transitions import TaskTransitions, revoked
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.jobs import TOKEN_REVOKED

END = "end_tasks"
# The kinds of work of a token that are in the database, and all kinds that a revocation counts.
STORED = ("tasks", "push_configs", "webhooks", "jobs")
COUNTED = (*STORED, *KINDS)
# How many tasks one transaction cancels; a job cancels the rest.
TASKS_AT_ONCE = 100


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
        """Implements `End`."""
        tokens = [name for name in await tx.access.at_work() if ended(name)]
        entry.counts |= dict.fromkeys(COUNTED, 0) | self.answers.count(entry.namespace, ended)
        if not tokens:
            return lambda: self.answers.forget(entry.namespace, ended)
        now = self.runtime.now()
        entry.counts["push_configs"] = await tx.pushes.remove_of(tokens)
        entry.counts["webhooks"] = await tx.webhooks.remove_of(tokens)
        tasks, entry.counts["tasks"] = await self._cancel(tx, tokens)
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
        tokens, left = job.payload["tokens"], True
        while left:
            record = entry(END)
            async with self.store.transaction(job.namespace, entry=record) as tx:
                await tx.lock()
                tasks, number = await self._cancel(tx, tokens)
                record.ids += [job.id, *(task.id for task in tasks)]
                record.counts["tasks"] = len(tasks)
                left = number > len(tasks)
                if left:
                    lease_until = self.runtime.now() + self.runtime.lease
                    await tx.jobs.advance(job, job.payload, lease_until)
                else:
                    await tx.jobs.finish(job, self.runtime.now())
            self._notify(record, tasks)

    async def _cancel(self, tx: Transaction, tokens: Sequence[str]) -> tuple[list[Task], int]:
        """Cancel some unfinished tasks of these tokens. Return them, and how many there were."""
        found, number = await tx.tasks.unfinished_of(tokens, TASKS_AT_ONCE)
        now = self.runtime.now()
        cancelled = [await self.transitions.change(tx, task, revoked(task, now)) for task in found]
        return cancelled, number

    def _notify(self, entry: AuditEntry, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self.transitions.notify(entry.namespace, task)
        self.runtime.wake()
