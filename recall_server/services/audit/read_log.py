"""The records of reads, written behind the replies: in order, in batches, and soon.

A read is answered before its record is on the disk, so that it need not wait for those who write.
Its record and the accesses it counts wait in memory, each namespace's by itself, for `DELAY_S`, and
are then written in one transaction. A server that is killed has lost those of the last 250 ms at
most; a server that is stopped writes them first.

It fails closed: while a batch of a namespace cannot be written, or too many records wait, reads are
refused with `AUDIT_UNAVAILABLE`. The token of a read was checked when the read began; its record is
written even where the token has been revoked since. The records of a namespace that is gone are
dropped: there is no audit log left that they belong to.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from itertools import islice

import structlog

from recall_server.domain.audit import AccessCount, AuditEntry
from recall_server.domain.errors import AuditUnavailable, NamespaceNotFound, RecallError
from recall_server.domain.namespace import Namespace
from recall_server.storage.run_uncancelled import run_uncancelled
from recall_server.storage.store import Store

log = structlog.get_logger()

# From the first record that waits to the transaction that writes it: what is left of 250 ms is for
# the transaction itself.
DELAY_S = 0.1
# From a batch that could not be written to the next attempt.
RETRY_S = 0.5
# Of all namespaces together; a record takes about 2 kB.
WAITING_RECORDS_MAX = 10_000
# Of one transaction, so that others need not wait long for it.
BATCH_RECORDS_MAX = 200


class ReadLog:
    """The records of reads that wait to be written."""

    def __init__(
        self,
        store: Store,
        *,
        delay_s: float = DELAY_S,
        retry_s: float = RETRY_S,
        waiting_records_max: int = WAITING_RECORDS_MAX,
    ) -> None:
        self._store = store
        self._delay_s = delay_s
        self._retry_s = retry_s
        self._waiting_records_max = waiting_records_max
        self._waiting_records = 0
        self._batches: dict[Namespace, _Waiting] = {}

    def check(self) -> None:
        """Raise `AuditUnavailable` where reads of any namespace are refused."""
        self._check_space()
        for waiting in self._batches.values():
            waiting.check()

    def check_for(self, namespace: Namespace) -> None:
        """Raise `AuditUnavailable` where reads of this namespace are refused."""
        self._check_space()
        if (waiting := self._batches.get(namespace)) is not None:
            waiting.check()

    def add(self, entry: AuditEntry) -> None:
        """Take in the record of a read that has ended. Raises `AuditUnavailable`."""
        self.check_for(entry.namespace)
        milliseconds = entry.elapsed_ms()
        waiting = self._batches.setdefault(entry.namespace, _Waiting())
        waiting.records.append(replace(entry, elapsed_ms=lambda: milliseconds))
        self._waiting_records += 1
        if waiting.writer is None or waiting.writer.done():
            waiting.writer = asyncio.create_task(self._write_later(entry.namespace, waiting))

    async def flush(self, namespace: Namespace | None = None) -> None:
        """Write what waits now, of one namespace or of all. Raises `AuditUnavailable`."""
        batches = [
            self._write(one, waiting)
            for one, waiting in self._batches.items()
            if namespace in (None, one)
        ]
        for ended in await asyncio.gather(*batches, return_exceptions=True):
            if ended is not None:
                raise ended

    async def close(self) -> None:
        """Write what waits. Raises `AuditUnavailable`."""
        writers = [one.writer for one in self._batches.values() if one.writer is not None]
        try:
            await self.flush()
        finally:
            for writer in writers:
                writer.cancel()
            await asyncio.gather(*writers, return_exceptions=True)

    def _check_space(self) -> None:
        if self._waiting_records >= self._waiting_records_max:
            raise AuditUnavailable

    async def _write_later(self, namespace: Namespace, waiting: "_Waiting") -> None:
        while waiting.records:
            await asyncio.sleep(self._delay_s if waiting.failure is None else self._retry_s)
            with suppress(AuditUnavailable):
                await self._write(namespace, waiting)

    async def _write(self, namespace: Namespace, waiting: "_Waiting") -> None:
        """Write what waits now, in order, even if the caller is cancelled meanwhile."""
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
            await write_reads(self._store, namespace, batch, again=waiting.failure is not None)
        except NamespaceNotFound:
            log.info("read_records_dropped", records=len(batch))
        except Exception as error:
            if waiting.failure is None:
                log.exception("read_records_not_written", records=len(batch))
            waiting.failure = _unavailable(error)
            raise waiting.failure from error
        waiting.failure = None


class _Waiting:
    """What waits of one namespace, the task that writes it, and why that failed last."""

    def __init__(self) -> None:
        self.records: deque[AuditEntry] = deque()
        self.writing = asyncio.Lock()
        self.writer: asyncio.Task[None] | None = None
        self.failure: AuditUnavailable | None = None

    def check(self) -> None:
        if self.failure is not None:
            raise AuditUnavailable(self.failure.message)


async def write_reads(
    store: Store, namespace: Namespace, batch: Sequence[AuditEntry], *, again: bool = False
) -> None:
    """Write the records of reads and the accesses they count, in one transaction; `again`: an
    earlier attempt failed, and nobody knows whether it was committed. Raises `NamespaceNotFound`.
    """
    async with store.transaction(namespace) as tx:
        if again:
            written = await tx.audit.written(entry.id for entry in batch)
            batch = [entry for entry in batch if entry.id not in written]
        await tx.memories.count_accesses(
            _counted((entry.memories_shown, entry.started_at) for entry in batch)
        )
        await tx.episodes.count_accesses(
            _counted((entry.turns_shown, entry.started_at) for entry in batch)
        )
        await tx.audit.record_all(batch)
    for entry in batch:
        entry.written = True


def _counted(shown: Iterable[tuple[Sequence[str], datetime]]) -> list[AccessCount]:
    """How often each was shown, and when last."""
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
