"""Runs leased jobs of all namespaces in turn, with retries, back-off and a final failure."""

import asyncio
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from time import monotonic, perf_counter

import structlog
from structlog.contextvars import bound_contextvars

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Runtime
from recall_server.domain.errors import (
    ModelAnswerInvalid,
    ModelKeyRejected,
    ModelUnavailable,
    QuotaExceeded,
    RecallError,
    Stale,
    Unavailable,
)
from recall_server.domain.ids import Namespace
from recall_server.domain.task import Job
from recall_server.services.supervision import Supervisor
from recall_server.services.tasks.transitions import Leaving, change_ahead
from recall_server.storage.driver import Holder
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.jobs import Fenced
from recall_server.telemetry import tracer

log = structlog.get_logger()

Handler = Callable[[Job, Callable[[str], AuditEntry]], Awaitable[None]]
GiveUpHandler = Callable[[Transaction, Job, str], Awaitable[Leaving]]

FAILURES_MAX = 5
BACKOFF_MIN = timedelta(seconds=2)
BACKOFF_MAX = timedelta(minutes=15)
REPAIR = timedelta(minutes=5)
WAIT_MAX = timedelta(hours=1)
# A distributed database may show that a job is done before it shows a job that was added.
QUEUES_REPAIRED_EVERY = timedelta(minutes=1)


@dataclass(eq=False)
class Lane:
    """Slots for deliveries of pushes, or for all other jobs. One namespace uses at most
    `per_namespace` of them, and never all unless there is only one.
    """

    pushes: bool
    slots: int
    per_namespace: int
    served: str = ""
    running: Counter[Namespace] = field(default_factory=Counter)
    wakes: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))
    resting: asyncio.Lock = field(default_factory=asyncio.Lock)

    def full(self) -> list[Namespace]:
        """Return the namespaces that use their whole share of slots."""
        share = max(1, min(self.per_namespace, self.slots - 1))
        return [one for one, jobs in self.running.items() if jobs >= share]

    def wake(self) -> None:
        if self.wakes.locked():
            self.wakes.release()


@dataclass(eq=False)
class Worker:
    """Runs several jobs at once, in lanes; namespaces take turns. `on_give_up`: by kind of job, a
    function that reads what the end of a job changes, before the transaction that gives the job up.
    """

    store: Store
    handlers: Mapping[str, Handler]
    runtime: Runtime
    entry: Callable[[Job, str], AuditEntry]
    supervisor: Supervisor
    poll_s: float
    lanes: Sequence[Lane]
    log_name: Callable[[Namespace], str]
    on_give_up: Mapping[str, GiveUpHandler] = field(default_factory=dict)
    _claiming: asyncio.Lock = field(default_factory=asyncio.Lock)
    _stopping: bool = False
    _ending: asyncio.Event = field(default_factory=asyncio.Event)
    _holder: Holder = field(default_factory=Holder)
    _turned_at: float | None = None

    @property
    def idle_s(self) -> float:
        """Seconds since the last turn of the watching loop, which never waits long; infinite before
        its first turn.
        """
        return math.inf if self._turned_at is None else monotonic() - self._turned_at

    def wake(self, *, pushes: bool = False) -> None:
        """Make one idle loop look for a job now instead of at the next poll."""
        for lane in self.lanes:
            if lane.pushes is pushes:
                lane.wake()

    def stop(self) -> None:
        """Finish running jobs and claim no more."""
        self._stopping = True
        self._ending.set()
        for lane in self.lanes:
            lane.wake()

    async def run(self) -> None:
        """Work until `stop`. If cancelled, release all jobs."""
        async with self.store.driver.holding() as self._holder, asyncio.TaskGroup() as group:
            group.create_task(self.supervisor.keep("worker", self._watch))
            for lane in self.lanes:
                for _ in range(lane.slots):
                    group.create_task(self.supervisor.keep("worker", partial(self._loop, lane)))

    async def _watch(self) -> None:
        """Take jobs back from processes that have ended, and repair the queues: at the start and
        regularly after that.
        """
        repaired: datetime | None = None
        while not self._stopping:
            try:
                now = self.runtime.now()
                if repaired is None or now - repaired >= QUEUES_REPAIRED_EVERY:
                    async with self.store.transaction(None) as tx:
                        await tx.jobs.repair_queues()
                    repaired = now
                if await self.take_back():
                    for lane in self.lanes:
                        lane.wake()
            except Unavailable as error:
                log.warning("worker_delayed", code=error.code)
            self._turned_at = monotonic()
            with suppress(TimeoutError):
                async with asyncio.timeout(self.poll_s):
                    await self._ending.wait()

    async def take_back(self) -> int:
        """End the leases of all holders that are known to be gone. Return how many there were."""
        mine = self._holder.id
        others = await self.store.autocommit(None).jobs.holders(but=-1 if mine is None else mine)
        gone = await self.store.driver.gone(others) if others else ()
        for holder in gone:
            log.warning("jobs_taken_back", holder=holder)
            async with self.store.transaction(None) as tx:
                await tx.jobs.end_leases(holder, self.runtime.now())
        return len(gone)

    async def _loop(self, lane: Lane) -> None:
        busy = True
        while not self._stopping:
            try:
                busy = await self._run_one(lane, backlog=busy)
            except Unavailable as error:
                log.warning("worker_delayed", code=error.code)
                busy = False
            if not busy and not self._stopping:
                await self._rest(lane)
        lane.wake()  # wake the next idle loop, so that it stops too

    async def _rest(self, lane: Lane) -> None:
        # Pushes are rare, so one idle loop polls for all; when it finds one, the next loop polls.
        async with lane.resting if lane.pushes else nullcontext():
            with suppress(TimeoutError):
                async with asyncio.timeout(self.poll_s):
                    await lane.wakes.acquire()

    async def drain(self) -> int:
        """Run the jobs that are due, one after the other. Return how many were run."""
        ran = 0
        async with self.store.driver.holding() as self._holder:
            await self.take_back()
            while await self.run_once():
                ran += 1
        return ran

    async def run_once(self) -> bool:
        """Claim and run one job of any lane. Return False if none is due."""
        for lane in self.lanes:
            if await self._run_one(lane):
                return True
        return False

    async def _run_one(self, lane: Lane, *, backlog: bool = False) -> bool:
        """Claim and run one job. Return False if none is due. With `backlog` (the last look found a
        job), wake another idle loop, as there may be more.
        """
        async with self._claiming:
            job = await self._claim(lane)
            if job is None:
                return False
            lane.served = job.namespace
            lane.running[job.namespace] += 1
        if backlog:
            lane.wake()
        try:
            await self._run(job)
        finally:
            lane.running[job.namespace] -= 1
            lane.running += Counter()  # this drops zero counts
        return True

    async def _claim(self, lane: Lane) -> Job | None:
        now, full = self.runtime.now(), lane.full()
        # Half of all looks find nothing, and a write would make the callers of SQLite wait.
        async with self.store.transaction(None, write=False) as tx:
            if not await tx.jobs.any_due(now, pushes=lane.pushes, full=full):
                return None
        async with self.store.transaction(None) as tx:
            return await tx.jobs.claim(
                lane.served,
                now,
                now + self.runtime.lease,
                self._holder.id,
                pushes=lane.pushes,
                full=full,
            )

    async def _run(self, job: Job) -> None:
        """Run a job, and log its success; other outcomes are logged where they are decided."""
        begun = perf_counter()
        with (
            bound_contextvars(
                job=job.id, namespace=self.log_name(job.namespace), attempt=job.attempt
            ),
            tracer.trace(f"job {job.kind}", {"recall.job": job.id}),
        ):
            if await self._is_done(job):
                ms = round((perf_counter() - begun) * 1_000, 2)
                log.info("job", kind=job.kind, outcome="ok", ms=ms)

    async def _is_done(self, job: Job) -> bool:
        if job.failures >= FAILURES_MAX:
            await self._give_up(job, "WORKER_LOST")
            return False
        try:
            await self.handlers[job.kind](job, lambda operation: self.entry(job, operation))
        except asyncio.CancelledError:
            await asyncio.shield(self._hand_back(job))
            raise
        except Fenced:
            log.warning("job_fenced", job=job.id, attempt=job.attempt)
        except ModelKeyRejected as error:
            await self._fail(job, error.code, least=REPAIR)
        except ModelUnavailable as error:
            # An outage never exhausts the retries; a wrong setting needs a person.
            least = REPAIR if error.permanent else timedelta(seconds=error.retry_after_s or 0.0)
            await self._postpone(job, error.code, least=least)
        except (ModelAnswerInvalid, QuotaExceeded) as error:
            await self._fail(job, error.code, finally_=error.permanent)
        except (Stale, Unavailable) as error:
            await self._postpone(job, error.code)
        except Exception as error:
            code = error.code if isinstance(error, RecallError) else "INTERNAL_ERROR"
            log.exception("job_failed", job=job.id, kind=job.kind, code=code)
            await self._fail(job, code)
        else:
            return True
        return False

    async def _fail(
        self, job: Job, code: str, *, least: timedelta = timedelta(), finally_: bool = False
    ) -> None:
        """Count a failure of the job, and give it up after `FAILURES_MAX`, or now if `finally_`."""
        if finally_ or job.failures + 1 >= FAILURES_MAX:
            await self._give_up(job, code)
        else:
            await self._postpone(job, code, least=least, failed=True)

    async def _postpone(
        self, job: Job, code: str, *, least: timedelta = timedelta(), failed: bool = False
    ) -> None:
        backoff = min(BACKOFF_MAX, BACKOFF_MIN * 2 ** min(job.attempt - 1, 16))
        wait = max(backoff, min(least, WAIT_MAX))
        log.warning("job_postponed", job=job.id, kind=job.kind, code=code, attempt=job.attempt)
        async with self.store.transaction(job.namespace) as tx:
            await tx.jobs.release(job, self.runtime.now() + wait, code, failed=failed)

    async def _hand_back(self, job: Job) -> None:
        """Release an unfinished job, so that the next worker continues from its progress."""
        try:
            async with self.store.transaction(job.namespace) as tx:
                await tx.jobs.release(job, self.runtime.now(), None, failed=False)
        except RecallError as error:
            log.warning("job_lease_not_released", job=job.id, code=error.code)

    async def _give_up(self, job: Job, code: str) -> None:
        log.error("job_given_up", job=job.id, kind=job.kind, code=code, attempt=job.attempt)

        async def plan(tx: Transaction) -> Leaving | None:
            planned = self.on_give_up.get(job.kind)
            return await planned(tx, job, code) if planned else None

        async def write(tx: Transaction, leave: Leaving | None) -> Callable[[], None] | None:
            buried = await tx.jobs.bury(job, code, self.runtime.now())
            return await leave(tx) if buried and leave else None

        tables = self.store.autocommit(job.namespace)
        # `leave` changes other rows, and the lock of the namespace comes before any.
        change = partial(self.store.transaction, job.namespace, locked=True)
        then = await change_ahead(tables, change, plan, write)
        if then is not None:
            then()
