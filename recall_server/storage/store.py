"""The store: transactions that are bound to a namespace, and the shelves in them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recall_server.domain.model import AuditEntry, Namespace
from recall_server.storage import queries
from recall_server.storage.access import Access
from recall_server.storage.audit import Audit
from recall_server.storage.driver import Driver, Engine
from recall_server.storage.episodes import Episodes
from recall_server.storage.handle import Handle
from recall_server.storage.index import WordIndex
from recall_server.storage.jobs import Jobs
from recall_server.storage.memories import Memories
from recall_server.storage.push import Pushes
from recall_server.storage.rates import Rates
from recall_server.storage.runs import Runs
from recall_server.storage.server import Server
from recall_server.storage.vectors import VectorIndex, Vectors


class Transaction:
    """The shelves of one namespace, as of one transaction."""

    def __init__(self, handle: Handle, cache: VectorIndex) -> None:
        self.handle = handle
        self.access = Access(handle)
        self.audit = Audit(handle)
        self.episodes = Episodes(handle)
        self.jobs = Jobs(handle)
        self.memories = Memories(handle)
        self.pushes = Pushes(handle)
        self.rates = Rates(handle)
        self.runs = Runs(handle)
        self.server = Server(handle)
        self.vectors = Vectors(handle, cache)
        self.words = WordIndex(handle)

    async def lock(self) -> None:
        """Wait until no other change of this namespace's memory is under way."""
        await self.handle.send("lock_namespace")


class Store:
    """All storage of the house, over one driver."""

    def __init__(self, driver: Driver, *, cache_bytes_max: int) -> None:
        self.driver = driver
        self._queries = queries.load(driver.engine)
        self._cache = VectorIndex(cache_bytes_max)

    @property
    def engine(self) -> Engine:
        return self.driver.engine

    @asynccontextmanager
    async def transaction(
        self,
        namespace: Namespace | None,
        *,
        write: bool = True,
        entry: AuditEntry | None = None,
    ) -> AsyncIterator[Transaction]:
        """One transaction; `entry`, if given, is written to the book just before it commits."""
        async with self.driver.transaction(namespace=namespace, write=write) as connection:
            transaction = Transaction(Handle(connection, self._queries, namespace), self._cache)
            yield transaction
            if entry is not None:
                await transaction.audit.record(entry)
        if entry is not None:
            entry.written = True

    async def close(self) -> None:
        await self.driver.close()
