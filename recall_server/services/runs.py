"""What every change of a run brings with it: its events, those who wait, push, and its end."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from recall_server.domain.ids import new_id
from recall_server.domain.model import Namespace
from recall_server.domain.run import Outcome, Run, RunState, Status
from recall_server.services.accepted import Accepted
from recall_server.services.bell import Bell
from recall_server.storage.store import Store, Transaction

CONSOLIDATE = "consolidate"
EXPIRE = "expire"
DISCARD = "discard"

LIVE = (RunState.SUBMITTED, RunState.WORKING)


@dataclass(frozen=True)
class Runs:
    """The keeper of runs. `announce` promises to push what happened, in the same transaction."""

    store: Store
    now: Callable[[], datetime]
    chance: Callable[[int], bytes]
    retention: timedelta
    wake: Callable[[], None]
    bell: Bell
    announce: Callable[[Transaction, Run], Awaitable[None]]
    accepted: Accepted = field(default_factory=Accepted)

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.now(), self.chance(10))

    async def add(self, tx: Transaction, run: Run) -> Run:
        """Keep a new run, with the promise to work on it."""
        run = await tx.runs.add(run)
        await self.promise(tx, CONSOLIDATE, run, run.created_at)
        return run

    async def change(self, tx: Transaction, before: Run, after: Run) -> Run:
        """Put `after` in the place of `before`, tell whoever watches, and see to its removal once
        it has ended. Raises `Stale` where somebody else has changed it meanwhile.
        """
        if tx.handle.namespace is not None:
            self.accepted.take(tx.handle.namespace, before.id)
        happened: list[Status | Outcome] = []
        worked_on = after.outcome is not None or after.status.state is RunState.INPUT_REQUIRED
        if before.status.state is RunState.SUBMITTED and worked_on:
            happened.append(Status(RunState.WORKING, after.status.at))
        if after.outcome is not None and before.outcome is None:
            happened.append(after.outcome)
        if after.status != before.status:
            happened.append(after.status)
        saved = await tx.runs.save(after, *happened)
        if happened:
            await self.announce(tx, after)
        if after.status.state.final:
            await self.promise(tx, DISCARD, after, after.status.at + self.retention)
        return saved

    async def promise(self, tx: Transaction, kind: str, run: Run, due_at: datetime) -> None:
        """A job about this round of the run, not before `due_at`."""
        payload = {"run_id": run.id, "round": run.round}
        await tx.jobs.add(self.new_id("job"), kind, payload, due_at)

    def told(self, namespace: Namespace, run: Run) -> None:
        """After the commit: wake who waits for the run, and who works."""
        self.bell.ring(namespace, run)
        self.wake()


def working(run: Run, at: datetime) -> Run:
    """The run, at work since `at`, or since it was."""
    if run.status.state is RunState.WORKING:
        return run
    return replace(run, status=Status(RunState.WORKING, at))
