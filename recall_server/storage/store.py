"""The store: transactions that are bound to a namespace, and the shelves in them."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from recall_server.domain.audit import AuditEntry
from recall_server.domain.fair_semaphore import FairSemaphore
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.storage import queries
from recall_server.storage.autocommit import Autocommit
from recall_server.storage.bound_connection import ANY, BoundConnection
from recall_server.storage.driver import Driver, Engine
from recall_server.storage.index.cache import Cache
from recall_server.storage.index.vectors import Vectors
from recall_server.storage.index.words import WordIndex
from recall_server.storage.tables.access import Access
from recall_server.storage.tables.audit import Audit
from recall_server.storage.tables.episodes import Episodes
from recall_server.storage.tables.erasure import DELETED, KEPT, Erasures
from recall_server.storage.tables.erasure_scan import ErasureScan
from recall_server.storage.tables.export import ExportTable
from recall_server.storage.tables.index_entries import Findables
from recall_server.storage.tables.jobs import Jobs
from recall_server.storage.tables.memories import Memories
from recall_server.storage.tables.push import Pushes
from recall_server.storage.tables.quarantine import Quarantine
from recall_server.storage.tables.rates import Rates
from recall_server.storage.tables.server import Server
from recall_server.storage.tables.sources import Sources
from recall_server.storage.tables.tasks import TaskTable
from recall_server.storage.tables.usage import Spend


class Transaction:
    """The shelves of one namespace, as of one transaction."""

    def __init__(
        self,
        handle: BoundConnection,
        cache: Cache,
        mac_key: bytes | None,
        entry: AuditEntry | None = None,
    ) -> None:
        self._entry = entry
        self.handle = handle
        self.cache = cache
        self.access = Access(handle)
        self.audit = Audit(handle, mac_key)
        self.episodes = Episodes(handle)
        self.erasures = Erasures(handle)
        self.findables = Findables(handle)
        self.jobs = Jobs(handle)
        self.looking = ErasureScan(handle)
        self.memories = Memories(handle)
        self.portable = ExportTable(handle)
        self.pushes = Pushes(handle)
        self.quarantine = Quarantine(handle)
        self.rates = Rates(handle)
        self.tasks = TaskTable(handle)
        self.server = Server(handle)
        self.sources = Sources(handle)
        self.spend = Spend(handle)
        self.vectors = Vectors(handle, cache)
        self.words = WordIndex(handle, cache)

    async def lock(self) -> None:
        """Wait until no other change of this namespace's memory is under way."""
        await self.handle.send("lock_namespace")

    async def closing(self) -> None:
        """To be called before the last fetch: where a line of the book is to be written, its place
        is taken with that.
        """
        if self._entry is not None:
            await self.audit.ask(self._entry)


class Store:
    """All storage of the house, over one driver. Without the key of the book nothing that belongs
    into it can be written.
    """

    def __init__(
        self,
        driver: Driver,
        *,
        cache_bytes_max: int,
        mac_key: bytes | None = None,
        quota_bytes_max: int = 0,
        turns: FairSemaphore | None = None,
    ) -> None:
        """`quota_bytes_max`: bytes of texts that each namespace may store; 0: any number. `turns`:
        the semaphore of calls, which yield to each other before a transaction.
        """
        self.driver = driver
        self.turns = turns or FairSemaphore(1)
        self._quota_bytes_max = quota_bytes_max or ANY
        self._mac_key = mac_key
        self._queries = queries.load(driver.engine)
        self._cache = Cache(cache_bytes_max)
        # What else holds something of a namespace in memory, and drops it.
        self.holders: list[Callable[[Namespace], None]] = []

    @property
    def engine(self) -> Engine:
        return self.driver.engine

    @asynccontextmanager
    async def transaction(
        self,
        namespace: Namespace | None,
        *,
        write: bool = True,
        reach: AccessScope = FULL_ACCESS,
        entry: AuditEntry | None = None,
        erasing: bool = False,
        brief: bool = False,
    ) -> AsyncIterator[Transaction]:
        """One transaction, in which nothing beyond `reach` is found; `entry`, if given, is written
        to the book just before it commits; of one that does not `write`, when all is read. Only one
        that is `erasing` may destroy what was said. One that is `brief` touches a few rows by their
        keys.
        """
        noting = entry is not None and not write
        if noting and self.engine == "sqlite":
            # Its readers wait for nobody who writes, so the line is written when they have read.
            async with self.transaction(namespace, write=False, reach=reach) as tx:
                yield tx
            async with self.transaction(namespace, entry=entry, brief=True):
                pass
            return
        # What serves all is not one's crowd.
        if namespace is not None:
            await self.turns.yield_to_others(namespace)
        async with self.driver.transaction(
            namespace=namespace, write=write, erasing=erasing, brief=brief, noting=noting
        ) as connection:
            handle = BoundConnection(
                connection, self._queries, namespace, reach, self._quota_bytes_max
            )
            transaction = Transaction(handle, self._cache, self._mac_key, entry)
            yield transaction
            if entry is not None:
                await transaction.audit.record(entry)
        if entry is not None:
            entry.written = True

    def autocommit(
        self,
        namespace: Namespace | None,
        *,
        write: bool = False,
        lasting: bool = True,
        reach: AccessScope = FULL_ACCESS,
    ) -> Transaction:
        """Shelves of which every single query is a transaction of its own; see
        `Driver.autocommit`.
        """
        connection = Autocommit(self.driver, namespace, write=write, lasting=lasting)
        handle = BoundConnection(connection, self._queries, namespace, reach)
        return Transaction(handle, self._cache, self._mac_key)

    async def settled(self) -> None:
        """Wait until what a query `autocommit` has seen, and need not last, is committed."""
        await self.driver.settled()

    @asynccontextmanager
    async def snapshot(self, namespace: Namespace) -> AsyncIterator[Transaction]:
        """A transaction that reads one moment of a namespace, and may last."""
        async with self.driver.snapshot(namespace) as connection:
            handle = BoundConnection(connection, self._queries, namespace)
            yield Transaction(handle, self._cache, self._mac_key)

    async def purge(self) -> str:
        """Destroy what erased rows have left behind; see `Driver.purge`."""
        return await self.driver.purge((*DELETED, *KEPT))

    async def texts(self) -> AsyncIterator[tuple[str, str]]:
        """Every row of every namespace as text, where the driver's files cannot be read."""
        async with self.transaction(None, write=False) as tx:
            namespaces = await tx.erasures.namespaces()
        for namespace in namespaces:
            async for found in self.driver.texts(namespace, (*DELETED, *KEPT)):
                yield found

    def forget(self, namespace: Namespace) -> None:
        """Drop what is held in memory of a namespace; other processes notice by its epoch."""
        self._cache.drop(namespace)
        for drop in self.holders:
            drop(namespace)

    async def close(self) -> None:
        await self.driver.close()
