"""The book: who did what, when, how it ended and what it cost. Never what was said."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from time import perf_counter

from recall_server.domain.model import AuditEntry, Namespace
from recall_server.storage.audit import AuditRecord
from recall_server.storage.store import Store


@dataclass(frozen=True)
class Audit:
    """Begins lines, reads the book, and writes the lines that have no transaction of their own."""

    store: Store
    now: Callable[[], datetime]
    new_id: Callable[[str], str]

    def begin(
        self, namespace: Namespace, operation: str, door: str, accessor: str | None
    ) -> AuditEntry:
        """A line for an operation that starts now."""
        started = perf_counter()
        return AuditEntry(
            id=self.new_id("rec"),
            namespace=namespace,
            operation=operation,
            door=door,
            accessor=accessor,
            request_id=self.new_id("req"),
            started_at=self.now(),
            elapsed_ms=lambda: (perf_counter() - started) * 1000,
        )

    async def write(self, entry: AuditEntry) -> None:
        """Write a line whose operation changed nothing, or failed."""
        async with self.store.transaction(entry.namespace, entry=entry):
            pass

    async def newest(self, namespace: Namespace | None, limit: int) -> list[AuditRecord]:
        """The newest lines, newest first; of all namespaces where none is given."""
        async with self.store.transaction(namespace, write=False) as tx:
            if namespace is None:
                return await tx.audit.newest_of_all(limit)
            return await tx.audit.newest(limit)
