"""Retention: removes data after its days. Records of the audit log are written to a file with a
signed statement before they are cut; jobs and tokens that have ended are deleted.
"""

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Any, BinaryIO

import structlog

from recall_server.domain.audit import AuditEntry, Cut, Verifier
from recall_server.domain.errors import AuditBroken, NamespaceNotFound, OnHold, Stale
from recall_server.domain.ids import Namespace
from recall_server.integrations.audit_files import ArchiveFolder, name_of, signed
from recall_server.services.audit.verification import FORMAT, State, Verification, as_line
from recall_server.services.erasure import refuse_held
from recall_server.storage.store import Store

log = structlog.get_logger()

CUT_AUDIT = "cut_audit"
REMOVE_TOKENS = "remove_tokens"
# How many records one archive has, so that no namespace keeps the others waiting; a longer log
# takes several.
ARCHIVE_RECORDS_MAX = 50_000
# How many rows one transaction reads or deletes: few, as calls are answered in between.
BATCH_ROWS = 100


@dataclass(frozen=True)
class Days:
    """How long each is kept; None: for ever."""

    audit: timedelta | None = None
    jobs: timedelta | None = None
    tokens: timedelta | None = None

    @property
    def any(self) -> bool:
        return any(one is not None for one in (self.audit, self.jobs, self.tokens))


@dataclass(frozen=True)
class Retention:
    """Goes through all namespaces, a batch at a time. A namespace on hold keeps everything."""

    store: Store
    verification: Verification
    begin: Callable[[Namespace, str, str, str | None], AuditEntry]
    now: Callable[[], datetime]
    days: Days
    archive: ArchiveFolder | None
    every_s: float
    records_max: int = ARCHIVE_RECORDS_MAX
    batch_rows: int = BATCH_ROWS

    async def run(self) -> None:
        """Call `once` every `every_s` seconds until cancelled. Raises what it raises."""
        while self.days.any:
            await self.once()
            await asyncio.sleep(self.every_s)

    async def once(self) -> None:
        """Remove all that is older than its days. Raises `Unavailable` if the folder of archives
        cannot be written; then nothing is cut.
        """
        now = self.now()
        if self.days.audit is not None and self.archive is not None:
            with self.archive.locked() as alone:
                # Otherwise another process does it.
                if alone:
                    await self._cut_all(self.archive, now - self.days.audit)
        if self.days.jobs is not None or self.days.tokens is not None:
            async for namespace in self.verification.namespaces():
                if self.days.jobs is not None:
                    await self._unless_held(self._remove_jobs, namespace, now - self.days.jobs)
                if self.days.tokens is not None:
                    await self._unless_held(self._remove_tokens, namespace, now - self.days.tokens)

    async def _cut_all(self, folder: ArchiveFolder, before: datetime) -> None:
        """Cut one archive from each namespace in turn, until nothing is left to cut."""
        more = True
        while more:
            more = False
            async for namespace in self.store.autocommit(None).audit.to_cut(before):
                cut = partial(self._cut, folder)
                more |= bool(await self._unless_held(cut, namespace, before))

    async def _unless_held(
        self, act: Callable[[Namespace, datetime], Any], namespace: Namespace, at: datetime
    ) -> Any:
        try:
            return await act(namespace, at)
        except (OnHold, NamespaceNotFound, Stale):
            return None
        except AuditBroken as error:
            log.error("audit_broken", namespace=namespace, seq=error.seq)  # noqa: TRY400
            return None

    async def _cut(self, folder: ArchiveFolder, namespace: Namespace, before: datetime) -> bool:
        """Cut the records before a moment, up to `records_max`; True if more may be left. Raises
        `OnHold`, `AuditBroken`, `Stale`.
        """
        # Remove what an earlier cut left, if it was interrupted.
        await self._remove_records(namespace)
        state = await self.verification.state(namespace)
        if state.fault is not None:
            raise state.fault
        with folder.new() as (file, complete):
            writing = _Writing(file, self.verification.verifier(namespace, state.cut))
            await asyncio.to_thread(writing.write, self._manifest(namespace, state))
            async for batch in self._batches(namespace, writing, before):
                await asyncio.to_thread(writing.add, batch)
            # Otherwise each cut would be followed by another one of its own record, for ever.
            if writing.only_cuts:
                return False
            cut = writing.cut
            statement = signed(self.verification.key, cut)
            await asyncio.to_thread(writing.write, {"seal": statement})
            await asyncio.to_thread(complete, name_of(cut))
        entry = self.begin(namespace, CUT_AUDIT, "worker", None)
        entry.counts |= {"records": cut.last - cut.first + 1, "up_to": cut.last}
        async with self.store.transaction(namespace, entry=entry, locked=True) as tx:
            await refuse_held(tx)
            if not await tx.audit.move_cut(cut.first - 1, cut.last, statement):
                # Another process has cut meanwhile: its archive counts, and this one is not needed.
                raise Stale
        await self._remove_records(namespace)
        return cut.last - cut.first + 1 >= self.records_max

    def _manifest(self, namespace: Namespace, state: State) -> dict[str, Any]:
        """Return the manifest, the same each time, so that a rewritten archive is the same file."""
        return {
            "format": FORMAT,
            "archive": True,
            "namespace": namespace,
            "key": dict(self.verification.key.public),
            **({"cut": state.statement} if state.cut else {}),
        }

    async def _batches(
        self, namespace: Namespace, writing: "_Writing", before: datetime
    ) -> AsyncIterator[Sequence[dict[str, Any]]]:
        """Yield the oldest records that are left, without details, up to the first that is not
        older than `before`.
        """
        batch: list[dict[str, Any]] = []
        after = writing.verifier.start.seq
        last = after + self.records_max
        async for record in self.verification.records(
            namespace, after, to=last, batch=self.batch_rows
        ):
            if "at" in record and datetime.fromisoformat(record["at"]) >= before:
                break
            batch.append({name: value for name, value in record.items() if name != "details"})
            if len(batch) == self.batch_rows:
                yield batch
                batch = []
        if batch:
            yield batch

    async def _remove_records(self, namespace: Namespace) -> None:
        removed = self.batch_rows
        while removed == self.batch_rows:
            async with self.store.erasing(namespace) as tx:
                await refuse_held(tx)
                removed = await tx.audit.remove_cut(self.batch_rows)

    async def _remove_jobs(self, namespace: Namespace, before: datetime) -> None:
        after: str | None = ""
        while after is not None:
            jobs = self.store.autocommit(namespace).jobs
            ended, after = await jobs.ended(before, after, self.batch_rows)
            if ended:
                async with self.store.erasing(namespace) as tx:
                    await refuse_held(tx)
                    await tx.jobs.remove(ended)

    async def _remove_tokens(self, namespace: Namespace, before: datetime) -> None:
        if not await self.store.autocommit(namespace).access.ended(before):
            return
        entry = self.begin(namespace, REMOVE_TOKENS, "worker", None)
        async with self.store.erasing(namespace, entry) as tx:
            await refuse_held(tx)
            # Running work of a token, or of its child, still needs the token's row.
            busy = {one.partition("/")[0] for one in await tx.access.at_work()}
            ended = [one for one in await tx.access.ended(before) if one not in busy]
            await tx.access.remove(ended)
            entry.ids += ended
            entry.counts["tokens"] = len(ended)


class _Writing:
    """Writes the archive of one cut, and verifies what it writes."""

    def __init__(self, file: BinaryIO, verifier: Verifier) -> None:
        self.verifier = verifier
        self.only_cuts = True
        self._file = file
        self._digest = hashlib.sha256()

    def add(self, records: Sequence[dict[str, Any]]) -> None:
        """Write records. Raises `AuditBroken`."""
        for record in records:
            self.verifier.take(record)
            self.only_cuts &= record["operation"] == CUT_AUDIT
            self.write(record)

    @property
    def cut(self) -> Cut:
        start, head = self.verifier.start, self.verifier.head
        return Cut(
            self.verifier.namespace,
            start.seq + 1,
            start.digest,
            head.seq,
            head.digest,
            self._digest.hexdigest(),
            tuple(self.verifier.restored),
        )

    def write(self, line: dict[str, Any]) -> None:
        text = f"{as_line(line)}\n".encode()
        self._digest.update(text)
        self._file.write(text)
