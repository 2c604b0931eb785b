"""The audit log: the caller, operation, time, outcome and cost of each call, and never a text."""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from datetime import datetime
from functools import partial
from itertools import islice
from time import perf_counter

import structlog

from recall_server.domain.audit import AccessCount, AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.errors import AuditUnavailable, NamespaceNotFound, RecallError
from recall_server.domain.ids import Namespace
from recall_server.domain.task import PART_OF, Job
from recall_server.integrations.keys import Cursors, Listing
from recall_server.services.supervision import Supervisor
from recall_server.storage.driver import run_uncancelled
from recall_server.storage.store import Store
from recall_server.storage.tables.audit import AuditRecord, Filter

log = structlog.get_logger()

# The time from the first waiting record to the transaction that writes it; the rest of 250 ms is
# for the transaction itself.
DELAY_S = 0.1
# The time from a batch that could not be written to the next attempt.
RETRY_S = 0.5
# How many records of reads may wait, in all namespaces together. Each takes about 2 kB.
WAITING_RECORDS_MAX = 10_000
# How many records one transaction writes, so that others need not wait long for it.
BATCH_RECORDS_MAX = 200


@dataclass(eq=False)
class ReadLog:
    """The records of reads that wait to be written."""

    store: Store
    supervisor: Supervisor
    delay_s: float = DELAY_S
    retry_s: float = RETRY_S
    waiting_records_max: int = WAITING_RECORDS_MAX
    _waiting_records: int = 0
    _batches: "dict[Namespace, _Waiting]" = field(default_factory=dict)

    def check(self, namespace: Namespace | None = None) -> None:
        """Raise `AuditUnavailable` if reads of this namespace are refused, or of any."""
        if self._waiting_records >= self.waiting_records_max:
            raise AuditUnavailable
        for one in self._batches if namespace is None else (namespace,):
            waiting = self._batches.get(one)
            if waiting is not None and waiting.failure is not None:
                raise AuditUnavailable(waiting.failure.message)

    def add(self, entry: AuditEntry) -> None:
        """Queue the record of a read that has ended. Raises `AuditUnavailable`."""
        self.check(entry.namespace)
        milliseconds = entry.elapsed_ms()
        waiting = self._batches.setdefault(entry.namespace, _Waiting())
        entry.elapsed_ms = lambda: milliseconds
        waiting.records.append(entry)
        self._waiting_records += 1
        if waiting.writer is None or waiting.writer.done():
            write = partial(self._write_later, entry.namespace, waiting)
            waiting.writer = asyncio.create_task(self.supervisor.keep("read_log", write))

    async def flush(self, namespace: Namespace | None = None) -> None:
        """Write the waiting records, of one namespace or of all. Raises `AuditUnavailable`."""
        batches = [
            self._write(one, waiting)
            for one, waiting in self._batches.items()
            if namespace in (None, one)
        ]
        for ended in await asyncio.gather(*batches, return_exceptions=True):
            if ended is not None:
                raise ended

    async def close(self) -> None:
        """Write the waiting records and stop the writers. Raises `AuditUnavailable`."""
        writers = [one.writer for one in self._batches.values() if one.writer is not None]
        try:
            await self.flush()
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)

    async def _write_later(self, namespace: Namespace, waiting: "_Waiting") -> None:
        while waiting.records:
            await asyncio.sleep(self.delay_s if waiting.failure is None else self.retry_s)
            with suppress(AuditUnavailable):
                await self._write(namespace, waiting)

    async def _write(self, namespace: Namespace, waiting: "_Waiting") -> None:
        """Write the records that wait now, in order, even if the caller is cancelled meanwhile."""
        await run_uncancelled(self._write_all(namespace, waiting))

    async def _write_all(self, namespace: Namespace, waiting: "_Waiting") -> None:
        async with waiting.writing:
            left = len(waiting.records)
            while left:
                batch = tuple(islice(waiting.records, min(left, BATCH_RECORDS_MAX)))
                await self._write_batch(namespace, waiting, batch)
                for _ in batch:
                    waiting.records.popleft()
                left -= len(batch)
                self._waiting_records -= len(batch)
            if not waiting.records and self._batches.get(namespace) is waiting:
                del self._batches[namespace]

    async def _write_batch(
        self, namespace: Namespace, waiting: "_Waiting", batch: Sequence[AuditEntry]
    ) -> None:
        try:
            await write_reads(self.store, namespace, batch, again=waiting.failure is not None)
        except NamespaceNotFound:
            log.info("read_records_dropped", records=len(batch))
        except Exception as error:
            if waiting.failure is None:
                log.exception("read_records_not_written", records=len(batch))
            waiting.failure = _unavailable(error)
            raise waiting.failure from error
        waiting.failure = None


@dataclass(eq=False)
class _Waiting:
    """The waiting records of one namespace, the task that writes them, and its last failure."""

    records: deque[AuditEntry] = field(default_factory=deque)
    writing: asyncio.Lock = field(default_factory=asyncio.Lock)
    writer: asyncio.Task[None] | None = None
    failure: AuditUnavailable | None = None


async def write_reads(
    store: Store, namespace: Namespace, batch: Sequence[AuditEntry], *, again: bool = False
) -> None:
    """Write the records of reads and their access counts in one transaction. `again`: an earlier
    attempt failed, and it is unknown whether it was committed. Raises `NamespaceNotFound`.
    """
    async with store.transaction(namespace) as tx:
        await tx.audit.lock()
        if again:
            written = await tx.audit.written(entry.id for entry in batch)
            batch = [entry for entry in batch if entry.id not in written]
        memories = _counted((entry.memories_shown, entry.started_at) for entry in batch)
        turns = _counted((entry.turns_shown, entry.started_at) for entry in batch)
        await tx.audit.count_accesses(memories, turns)
        await tx.audit.record_all(batch)
    for entry in batch:
        entry.written = True


def _counted(shown: Iterable[tuple[Sequence[str], datetime]]) -> list[AccessCount]:
    """Return how many times each item was shown, and when last."""
    times: Counter[str] = Counter()
    last: dict[str, datetime] = {}
    for ids, at in shown:
        times.update(ids)
        last.update((one, max(at, last.get(one, at))) for one in ids)
    return [AccessCount(one, times[one], last[one]) for one in sorted(times)]


def _unavailable(error: Exception) -> AuditUnavailable:
    if not isinstance(error, RecallError):
        return AuditUnavailable()
    return AuditUnavailable(
        f"Reads cannot be recorded in the audit log, so they are refused. {error.message}"
    )


SEQ_MAX = 2**63 - 1


@dataclass(frozen=True)
class AuditPage:
    """One page of records, newest first; `next` is the cursor of the next page."""

    records: tuple[AuditRecord, ...]
    next: str | None


@dataclass(frozen=True)
class Audit:
    """Begins records, reads the audit log, and writes records that have no other transaction."""

    store: Store
    runtime: Runtime
    cursors: Cursors
    reads: ReadLog

    def begin(
        self,
        namespace: Namespace,
        operation: str,
        protocol: str,
        accessor: str | None,
        *,
        read_only: bool = False,
        request_id: str | None = None,
    ) -> AuditEntry:
        """Return a record for an operation that starts now. It gets a request id unless one is
        given.
        """
        started = perf_counter()
        return AuditEntry(
            id=self.runtime.new_id("rec"),
            namespace=namespace,
            operation=operation,
            protocol=protocol,
            accessor=accessor,
            request_id=request_id or self.runtime.new_id("req"),
            started_at=self.runtime.now(),
            elapsed_ms=lambda: (perf_counter() - started) * 1000,
            read_only=read_only,
        )

    def begin_job(self, job: Job, operation: str) -> AuditEntry:
        """Return a record for an operation of a job that starts now."""
        entry = self.begin(job.namespace, operation, "worker", None)
        entry.part_of = job.payload.get("run_id") or job.payload.get(PART_OF, job.id)
        entry.caused_by = job.accessor
        return entry

    def check(self, entry: AuditEntry) -> None:
        """Raise `AuditUnavailable` if `entry` is of a read and reads cannot be recorded."""
        if entry.read_only:
            self.reads.check(entry.namespace)

    async def note(self, entry: AuditEntry) -> None:
        """Write the record of an operation that changed nothing, or failed; the record of a read is
        written after the reply. Raises `AuditUnavailable`.
        """
        if entry.read_only:
            self.reads.add(entry)
        else:
            await self.write(entry)

    async def write(self, entry: AuditEntry) -> None:
        """Write the record of an operation that changed nothing, or failed, immediately."""
        async with self.store.transaction(entry.namespace, entry=entry):
            pass

    async def observed(
        self, namespace: Namespace, operation: str, protocol: str, **counts: int
    ) -> None:
        """Write the record of an operator's read before it is shown. Raises `NamespaceNotFound`."""
        entry = self.begin(namespace, operation, protocol, None)
        entry.counts |= counts
        await self.write(entry)

    async def page(self, context: Context, wanted: Filter, *, cursor: str, limit: int) -> AuditPage:
        """Return the page of wanted chained records at `cursor`, newest first, including those of
        all reads that this process has answered. Raises `InvalidCursor`.
        """
        listing = Listing("audit", context, asdict(wanted))
        [before] = self.cursors.place(listing, cursor) or [str(SEQ_MAX)]
        await self.reads.flush(context.namespace)
        found = await self.store.autocommit(context.namespace).audit.page(
            wanted, int(before), limit + 1
        )
        shown = found[:limit]
        context.entry.counts["records"] = len(shown)
        last = shown[-1].link if len(found) > limit else None
        more = [str(last.seq)] if last else None
        return AuditPage(tuple(shown), self.cursors.sealed(listing, more))

    async def newest(self, namespace: Namespace | None, limit: int) -> list[AuditRecord]:
        """Return the newest records of a namespace, or of all namespaces, newest first."""
        await self.reads.flush(namespace)
        return await self.store.autocommit(namespace).audit.newest(limit)
