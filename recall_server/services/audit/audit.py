"""The audit log: the caller, operation, time, outcome and cost of each call, and never a text."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import datetime
from time import perf_counter

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.errors import NamespaceNotFound
from recall_server.domain.namespace import Namespace
from recall_server.services.audit.read_log import ReadLog
from recall_server.services.cursors import Cursors, Listing
from recall_server.storage.store import Store
from recall_server.storage.tables.audit import AuditRecord, Filter

SEQ_MAX = 2**63 - 1


@dataclass(frozen=True)
class AuditPage:
    """Records, newest first; `next` is the cursor of the page after."""

    records: tuple[AuditRecord, ...]
    next: str | None


@dataclass(frozen=True)
class Audit:
    """Begins records, reads the audit log, and writes records that have no other transaction."""

    store: Store
    now: Callable[[], datetime]
    new_id: Callable[[str], str]
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
    ) -> AuditEntry:
        """A record for an operation that starts now."""
        started = perf_counter()
        return AuditEntry(
            id=self.new_id("rec"),
            namespace=namespace,
            operation=operation,
            protocol=protocol,
            accessor=accessor,
            request_id=self.new_id("req"),
            started_at=self.now(),
            elapsed_ms=lambda: (perf_counter() - started) * 1000,
            read_only=read_only,
        )

    def check(self, entry: AuditEntry) -> None:
        """Raise `AuditUnavailable` where `entry` is of a read, and reads cannot be recorded."""
        if entry.read_only:
            self.reads.check_for(entry.namespace)

    async def note(self, entry: AuditEntry) -> None:
        """Take in the record of an operation that changed nothing, or failed: that of a read is
        written behind the reply. Raises `AuditUnavailable`.
        """
        if entry.read_only:
            self.reads.add(entry)
        else:
            await self.write(entry)

    async def write(self, entry: AuditEntry) -> None:
        """Write the record of an operation that changed nothing, or failed."""
        async with self.store.transaction(entry.namespace, entry=entry):
            pass

    async def observed(
        self, namespace: Namespace, operation: str, protocol: str, **counts: int
    ) -> None:
        """Write the record of an operator's read before its result is shown. Raises
        `NamespaceNotFound`.
        """
        entry = self.begin(namespace, operation, protocol, None)
        entry.counts |= counts
        async with self.store.transaction(namespace, write=False) as tx:
            if await tx.audit.head() is None:
                raise NamespaceNotFound
        await self.write(entry)

    async def page(
        self,
        context: Context,
        wanted: Filter,
        *,
        cursor: str,
        limit: int,
    ) -> AuditPage:
        """The newest chained records that are wanted, or of those on the pages behind `cursor`,
        with those of all reads that this process has answered. Raises `InvalidCursor`.
        """
        listing = Listing("audit", context.namespace, context.entry.accessor or "", asdict(wanted))
        [before] = self.cursors.place(listing, cursor) or [str(SEQ_MAX)]
        await self.reads.flush(context.namespace)
        async with self.store.transaction(context.namespace, write=False) as tx:
            found = await tx.audit.page(wanted, int(before), limit + 1)
        shown = found[:limit]
        context.entry.counts["records"] = len(shown)
        last = shown[-1].link if len(found) > limit else None
        more = [str(last.seq)] if last else None
        return AuditPage(tuple(shown), self.cursors.sealed(listing, more))

    async def newest(self, namespace: Namespace | None, limit: int) -> list[AuditRecord]:
        """The newest lines, newest first; of all namespaces where none is given."""
        await self.reads.flush(namespace)
        async with self.store.transaction(namespace, write=False) as tx:
            if namespace is None:
                return await tx.audit.newest_of_all(limit)
            return await tx.audit.newest(limit)
