"""Purge: finishes a large erasure, verifies it, destroys what erased rows leave behind in files,
and signs the receipt that says so.

It is a job, so it continues after a crash. It is tried again until it succeeds; only then an
erasure is done. One purge serves all erasures that wait, as it rewrites all files.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Runtime
from recall_server.domain.erasure import Stage
from recall_server.domain.errors import Unavailable
from recall_server.domain.namespace import Namespace
from recall_server.domain.task import Job
from recall_server.domain.webhook import WebhookKind
from recall_server.integrations.crypto.keys import ServerKey
from recall_server.services.erasure.eraser import Eraser, OnProgress
from recall_server.services.erasure.ledger import Ledger
from recall_server.services.erasure.verify import ErasureCheck
from recall_server.services.supervision import Supervisor
from recall_server.storage.store import Store
from recall_server.storage.tables.erasure import PURGE, Erasure
from recall_server.storage.tables.jobs import Fenced

RECEIPT_TYP = "recall-erasure-receipt+jwt"
# Neither the database nor this server can destroy these.
BEYOND = "backups, archived logs, the disk below the file system, and copies others have made"


@dataclass(frozen=True)
class Receipts:
    """Signs receipts, which have numbers, names of tables and states, but never content."""

    key: ServerKey

    def signed(
        self, claims: Mapping[str, Any], now: datetime, *, left_behind: str | None = None
    ) -> str:
        """Return a signed receipt. `left_behind`: what the purge could not destroy; None before the
        purge, when files may still hold what was erased.
        """
        head = {"iss": "recall-server", "iat": int(now.timestamp()), "not_covered": BEYOND}
        physical = {"state": "pending"}
        if left_behind is not None:
            at = now.isoformat(timespec="seconds")
            physical = {"state": "done", "at": at, "left": left_behind}
        return self.key.sign({**head, **claims, "physical": physical}, RECEIPT_TYP)


def _erased(erasure: Erasure) -> bool:
    """True if any row was deleted or overwritten."""
    claims = erasure.claims
    return any([*claims["counts"].values(), claims["tokens_revoked"], erasure.left_behind])


@dataclass(frozen=True)
class Purge:
    """Handles the purge job, and does the same immediately for an operator."""

    store: Store
    runtime: Runtime
    receipts: Receipts
    ledger: Ledger
    eraser: Eraser
    supervisor: Supervisor
    check: ErasureCheck
    interval: timedelta
    # The most erasures of one namespace that a purge verifies; further ones wait for the next.
    each: int = 1_000

    async def work(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Purge, unless the purge of another erasure has done it since. If the last purge was less
        than `interval` ago, postpone the job. Raises `Unavailable` if a reader of an older state is
        in the way.
        """
        erasure_id = job.payload["erasure_id"]
        async with self.store.transaction(job.namespace, write=False) as tx:
            erasure = await tx.erasures.get(erasure_id)
        if erasure is not None and erasure.stage is not Stage.DONE:
            async with self._held(job):
                if erasure.stage is Stage.ERASING:
                    await self.eraser.run(erasure)
                async with self._turn() as due:
                    if due is None:
                        await self.at_once(job.namespace, erasure_id)
            if due is not None:
                async with self.store.transaction(job.namespace) as tx:
                    await tx.jobs.release(job, due, None, failed=False)
                return
        line = entry(PURGE)
        async with self.store.transaction(job.namespace, entry=line) as tx:
            # The lock comes before any row: an erasure at this moment holds it and wants the job.
            await tx.lock()
            await tx.jobs.finish(job, self.runtime.now())
            line.ids.append(erasure_id)

    async def at_once(
        self, namespace: Namespace, erasure_id: str, on_progress: OnProgress = lambda _: None
    ) -> Erasure:
        """Finish a large erasure, verify the erasures that wait (`each` of a namespace), purge if
        any of them has erased something, and sign their receipts. Return the erasure asked for, as
        it is then. Raises `Unavailable` as `Store.purge` does.
        """
        async with self.store.transaction(namespace) as tx:
            begun = await tx.erasures.get(erasure_id)
            await tx.erasures.begin_purge(erasure_id)
        if begun is not None and begun.stage is Stage.ERASING:
            await self.eraser.run(begun, on_progress)
        async with self.store.transaction(None, write=False) as tx:
            waiting = await tx.erasures.unpurged(self.each, also=erasure_id)
        # This comes first: from here on no backup brings erased data back unnoticed.
        await self.ledger.note([one.sealed for one in waiting if one.sealed])
        verified = await self.check.verify(waiting)
        erased = verified.changed or any(map(_erased, waiting))
        in_files = await self.store.purge() if erased else ""
        for one in waiting:
            now = self.runtime.now()
            left_behind = "; ".join(filter(None, [*verified.left.get(one.id, ()), in_files]))
            receipt = self.receipts.signed(one.claims, now, left_behind=left_behind)
            async with self.store.transaction(one.namespace) as tx:
                await tx.lock()
                if await tx.erasures.end_purge(one.id, left_behind, receipt, now):
                    tx.webhooks.tell(WebhookKind.ERASURE_COMPLETED, one.id, now)
        async with self.store.transaction(namespace, write=False) as tx:
            erasure = await tx.erasures.get(erasure_id)
        assert erasure is not None
        return erasure

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[datetime | None]:
        """Take the turn to purge: yields None if it is now, else when. A purge that fails gives its
        turn back.
        """
        now = self.runtime.now()
        async with self.store.transaction(None) as tx:
            last = await tx.server.purged_at()
            mine = await tx.server.begin_purge(now, now - self.interval)
        try:
            yield None if mine or last is None else last + self.interval
        except BaseException:
            if mine:
                async with self.store.transaction(None) as tx:
                    await tx.server.set_purged_at(last)
            raise

    @asynccontextmanager
    async def _held(self, job: Job) -> AsyncIterator[None]:
        """Renew the lease of the job for as long as a large database takes."""
        over = False

        async def hold() -> None:
            # A cancellation alone does not end it: the database may fail at the same moment, and
            # only that error is raised.
            while not over:
                await asyncio.sleep(self.runtime.lease.total_seconds() / 3)
                try:
                    async with self.store.transaction(job.namespace) as tx:
                        await tx.jobs.advance(
                            job, job.payload, self.runtime.now() + self.runtime.lease
                        )
                except Unavailable:
                    continue  # the purge itself locks out everybody
                except Fenced:
                    return  # another worker has taken the job

        holding = asyncio.create_task(self.supervisor.keep("purge_lease", hold))
        try:
            yield
        finally:
            over = True
            holding.cancel()
            await asyncio.wait({holding})
