"""The store: transactions that are bound to a namespace, and the tables in them."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.fairness import FairSemaphore, Gates
from recall_server.domain.ids import Namespace
from recall_server.domain.moments import PRESENT, Past, utc_now
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.storage import bound_connection
from recall_server.storage.bound_connection import ANY, Autocommit, BoundConnection
from recall_server.storage.driver import Connection, Driver, Engine
from recall_server.storage.index.documents import Cache
from recall_server.storage.index.vectors import Findables, Vectors
from recall_server.storage.index.words import WordIndex
from recall_server.storage.tables import registry
from recall_server.storage.tables.access import Access, Rates, Server, Spend, SubjectAliasTable
from recall_server.storage.tables.audit import Audit
from recall_server.storage.tables.disputes import (
    Decisions,
    Disputes,
    Proposals,
    Quarantine,
    Relations,
)
from recall_server.storage.tables.episodes import Episodes
from recall_server.storage.tables.erasure import Erasures, ErasureScan, Sources
from recall_server.storage.tables.export import ExportTable
from recall_server.storage.tables.jobs import Jobs
from recall_server.storage.tables.memories import Memories
from recall_server.storage.tables.memory_events import MemoryEvents, Rebuilt
from recall_server.storage.tables.tasks import Pushes, TaskTable, Webhooks
from recall_server.telemetry import tracer


@dataclass(eq=False)
class Transaction:
    """The tables of one namespace in one transaction. Each is created when it is first used."""

    access = cached_property(lambda tx: Access(tx.bound))
    aliases = cached_property(lambda tx: SubjectAliasTable(tx.bound))
    audit = cached_property(lambda tx: Audit(tx.bound))
    disputes = cached_property(lambda tx: Disputes(tx.bound))
    decisions = cached_property(lambda tx: Decisions(tx.bound))
    proposals = cached_property(lambda tx: Proposals(tx.bound))
    episodes = cached_property(lambda tx: Episodes(tx.bound))
    events = cached_property(lambda tx: MemoryEvents(tx.bound))
    erasures = cached_property(lambda tx: Erasures(tx.bound))
    findables = cached_property(lambda tx: Findables(tx.bound))
    jobs = cached_property(lambda tx: Jobs(tx.bound))
    erasure_scan = cached_property(lambda tx: ErasureScan(tx.bound))
    memories = cached_property(lambda tx: Memories(tx.bound))
    exports = cached_property(lambda tx: ExportTable(tx.bound))
    pushes = cached_property(lambda tx: Pushes(tx.bound))
    quarantine = cached_property(lambda tx: Quarantine(tx.bound))
    rates = cached_property(lambda tx: Rates(tx.bound))
    rebuilt = cached_property(lambda tx: Rebuilt(tx.bound))
    tasks = cached_property(lambda tx: TaskTable(tx.bound))
    relations = cached_property(lambda tx: Relations(tx.bound))
    server = cached_property(lambda tx: Server(tx.bound))
    sources = cached_property(lambda tx: Sources(tx.bound))
    spend = cached_property(lambda tx: Spend(tx.bound))
    vectors = cached_property(lambda tx: Vectors(tx.bound))
    webhooks = cached_property(lambda tx: Webhooks(tx.bound))
    words = cached_property(lambda tx: WordIndex(tx.bound))

    bound: BoundConnection
    # The audit record that is written with this transaction.
    entry: AuditEntry | None = None

    async def lock(self, *, waits: bool = True) -> None:
        """Wait until no other transaction changes this namespace's memory. A transaction that locks
        rows of more than one table must call this first. Locks the audit log next, if a record will
        be written. The database may get this with the next statement that reads; with `waits`, what
        the transaction changes is dated after that.
        """
        await self.bound.send("lock_namespace")
        self.bound.waits = waits
        if self.entry is not None:
            await self.audit.lock()

    async def moment(self) -> datetime:
        """Return the date of what this transaction changes: see `BoundConnection.moment`."""
        if self.bound.waits and self.entry is not None:
            # The trip that waits for the lock also brings what the record needs.
            await self.audit.read_head(self.entry)
        return await self.bound.moment()


class Store:
    """All storage, over one driver. Without `mac_key` no record of the audit log can be written."""

    def __init__(
        self,
        driver: Driver,
        *,
        cache_bytes_max: int,
        mac_key: bytes | None = None,
        quota_bytes_max: int = 0,
        turns: FairSemaphore | None = None,
        now: Callable[[], datetime] = utc_now,
    ) -> None:
        """`quota_bytes_max`: bytes of texts that each namespace may store; 0 means no limit.
        `turns`: the semaphore by which calls yield to each other before a transaction.
        """
        self.driver = driver
        self.turns = turns or FairSemaphore(1)
        self._quota_bytes_max = quota_bytes_max or ANY
        self._mac_key = mac_key
        self._now = now
        self._queries = bound_connection.load(driver.engine)
        self._cache = Cache(cache_bytes_max)
        # While that of a namespace is closed, no other task of this process takes its lock.
        self.locking = Gates()
        # These drop further caches of a namespace; `forget` calls them.
        self.holders: list[Callable[[Namespace], None]] = []

    @property
    def engine(self) -> Engine:
        return self.driver.engine

    @property
    def cache_bytes(self) -> int:
        """The bytes of the indexes in memory."""
        return self._cache.bytes

    @asynccontextmanager
    async def transaction(
        self,
        namespace: Namespace | None,
        *,
        write: bool = True,
        access_scope: AccessScope = FULL_ACCESS,
        entry: AuditEntry | None = None,
        erasing: bool = False,
        locked: bool = False,
        past: Past = PRESENT,
    ) -> AsyncIterator[Transaction]:
        """One transaction, limited to an access scope; `locked`: it begins with `lock`. Just before
        the commit it writes the events that the tables noted, and `entry`, if given, to the audit
        log. Only an `erasing` transaction may destroy texts.
        """
        assert write or entry is None, "a read notes its record in the read log"
        # Work for all namespaces does not count against any one of them.
        if namespace is not None:
            await self.turns.yield_to_others(namespace)
            if locked:
                await self.locking.passed(namespace)
        async with (
            AsyncExitStack() as ended,
            self.driver.transaction(
                namespace=namespace, write=write, erasing=erasing
            ) as connection,
        ):
            bound = self._bound(connection, namespace, access_scope, past)
            transaction = Transaction(bound, entry)
            if locked:
                # A change that was planned ahead writes before it waits.
                await transaction.lock(waits=not erasing)
            yield transaction
            await transaction.events.write(entry)
            if write:
                ended.enter_context(tracer.part("commit"))
            if entry is not None:
                await transaction.audit.record(entry)
            await transaction.jobs.write_due()
        if entry is not None:
            entry.written = True

    def view(
        self, context: Context, past: Past = PRESENT
    ) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that reads within the caller's access scope."""
        return self.transaction(
            context.namespace, write=False, access_scope=context.scope, past=past
        )

    def change(self, context: Context) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that changes memory within the caller's access scope, with the lock of the
        namespace, and writes its audit record.
        """
        scope, entry = context.scope, context.entry
        return self.transaction(context.namespace, access_scope=scope, entry=entry, locked=True)

    def erasing(
        self, namespace: Namespace, entry: AuditEntry | None = None
    ) -> AbstractAsyncContextManager[Transaction]:
        """A transaction that may destroy texts, with the lock of the namespace."""
        return self.transaction(namespace, entry=entry, erasing=True, locked=True)

    def autocommit(
        self,
        namespace: Namespace | None,
        *,
        access_scope: AccessScope = FULL_ACCESS,
        past: Past = PRESENT,
    ) -> Transaction:
        """Return tables that run every query in a read transaction of its own."""
        connection = Autocommit(self.driver, namespace)
        return Transaction(self._bound(connection, namespace, access_scope, past))

    @asynccontextmanager
    async def snapshot(self, namespace: Namespace) -> AsyncIterator[Transaction]:
        """A long read-only transaction that sees one moment of a namespace."""
        async with self.driver.snapshot(namespace) as connection:
            yield Transaction(self._bound(connection, namespace))

    def _bound(
        self,
        connection: Connection,
        namespace: Namespace | None,
        access_scope: AccessScope = FULL_ACCESS,
        past: Past = PRESENT,
    ) -> BoundConnection:
        return BoundConnection(
            connection,
            self._queries,
            namespace,
            access_scope,
            self._quota_bytes_max,
            self._now,
            past,
            self._cache,
            self._mac_key,
        )

    async def purge(self) -> str:
        """Destroy what erased rows have left behind; see `Driver.purge`."""
        return await self.driver.purge(registry.TENANT)

    async def texts(self) -> AsyncIterator[tuple[str, str]]:
        """Yield every row of every namespace as text, with its table; nothing if the driver's files
        have all of it.
        """
        async with self.transaction(None, write=False) as tx:
            namespaces = await tx.erasures.namespaces()
        for namespace in namespaces:
            async for found in self.driver.texts(namespace, registry.TENANT):
                yield found

    def forget(self, namespace: Namespace) -> None:
        """Drop what this process caches of a namespace; other processes notice its new epoch."""
        self._cache.drop(namespace)
        for drop in self.holders:
            drop(namespace)

    async def close(self) -> None:
        await self.driver.close()
