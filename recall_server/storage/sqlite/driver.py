"""SQLite: one writer behind a lock, several readers that cannot write, WAL, and commits that
reach the disk before they are acknowledged (`synchronous=FULL`), but for what need not last.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

from recall_server.domain.errors import DatabaseUnavailable, DatabaseUnusable, RecallError
from recall_server.domain.fair_semaphore import FairSemaphore
from recall_server.storage.driver import Connection, Engine, Params, Row, TimeLimits
from recall_server.storage.sqlite.thread import (
    BUSY_TIMEOUT_MS,
    Read,
    Thread,
    Transaction,
    step_of,
    translated,
)
from recall_server.storage.sqlite.writer import Writer

READERS = 4
# Everybody waits behind a purge, so it does not wait long itself: it is tried again later.
PURGE_BUSY_TIMEOUT_MS = 500
READ = "BEGIN"
# What the journal keeps of the disk after somebody read an old state for long, and it grew.
JOURNAL_BYTES = 33_554_432

# secure_delete is off in some builds of SQLite, and says nothing: set on every connection.
_PRAGMAS = f"""
PRAGMA busy_timeout={BUSY_TIMEOUT_MS};
PRAGMA synchronous=FULL;
PRAGMA secure_delete=ON;
PRAGMA foreign_keys=ON;
PRAGMA trusted_schema=OFF;
PRAGMA cell_size_check=ON;
PRAGMA cache_size=-16384;
PRAGMA temp_store=MEMORY;
PRAGMA journal_size_limit={JOURNAL_BYTES};
"""

# Into the database, and the journal to length zero; says 1 where somebody is in the way.
_EMPTY_JOURNAL = "PRAGMA wal_checkpoint(TRUNCATE)"


class SqliteDriver:
    """One database file. Several processes may share it; within one, writers queue here."""

    engine: Engine = "sqlite"

    def __init__(self, path: Path, limits: TimeLimits = TimeLimits()) -> None:
        self._path = path
        self._limits = limits
        self._file = (0, 0)
        self._unsure = False
        self._stack = AsyncExitStack()
        self._writer: Writer | None = None
        self._reading = FairSemaphore(READERS)
        self._readers: asyncio.LifoQueue[Thread] = asyncio.LifoQueue()

    async def open(self) -> None:
        """Open the file, making it (readable by its owner alone) where there is none."""
        with translated(self._path):
            self._file = _create_private(self._path)
            writer = await self._connect(self._stack)
            await writer.execute_fetchall("PRAGMA journal_mode=WAL")
            self._writer = Writer(writer, self._path, self._sound, self._doubt)
            self._stack.push_async_callback(self._writer.close)
            for _ in range(READERS):
                reader = await self._connect(self._stack)
                await reader.execute_fetchall("PRAGMA query_only=ON")
                self._readers.put_nowait(reader)

    async def _connect(self, stack: AsyncExitStack) -> Thread:
        # Statements are named and few; the cache holds them all.
        connect = partial(
            sqlite3.connect,
            self._path,
            isolation_level=None,
            cached_statements=256,
            check_same_thread=False,  # one at a time: see Thread.idle
        )
        raw = Thread(connect, iter_chunk_size=64)
        await stack.enter_async_context(raw)
        raw.row_factory = sqlite3.Row
        await raw.executescript(_PRAGMAS)
        await raw.limited()
        (secure,) = await raw.execute_fetchall("PRAGMA secure_delete")
        if secure[0] != 1:
            raise DatabaseUnusable(
                "This SQLite cannot overwrite what is deleted. Use a build that has secure_delete."
            )
        return raw

    async def close(self) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def transaction(
        self,
        *,
        namespace: str | None,
        write: bool,
        erasing: bool = False,
        brief: bool = False,
        noting: bool = False,
    ) -> AsyncIterator[Connection]:
        assert not noting  # one that reads has no line in the book
        # SQLite has neither row-level security nor roles: the store binds the namespace, and a
        # trigger guards what was said. Here the namespace is whose turn it is.
        if not write:
            async with self._turn(namespace) as raw:
                read = partial(raw.read, within_s=self._limits.query_s)
                async with self._reads(raw, read) as connection:
                    yield connection
            return
        assert self._writer is not None
        lengthy = erasing or namespace is None
        with translated(self._path):
            async with self._writer.transaction(
                namespace, lengthy=lengthy, brief=brief
            ) as connection:
                yield connection

    @asynccontextmanager
    async def _turn(self, namespace: str | None) -> AsyncIterator[Thread]:
        """One of the readers, for as long as the block lasts."""
        async with self._reading.slot(namespace):
            reader = self._readers.get_nowait()
            try:
                yield reader
            finally:
                self._readers.put_nowait(reader)

    @asynccontextmanager
    async def _reads(self, raw: Thread, read: Read) -> AsyncIterator[Connection]:
        with translated(self._path):
            begin = [self._sound, step_of(READ, {})]
            connection = Transaction(raw, self._path, begin, read=read)
            try:
                yield connection
                if connection.begun:
                    raw.end_reading()
            except BaseException as error:  # a caller that hung up must leave nothing behind
                self._doubt(error)
                await asyncio.shield(raw.rollback())
                raise

    async def autocommit(
        self,
        sql: str,
        params: Params,
        *,
        namespace: str | None,
        write: bool,
        lasting: bool,
    ) -> Sequence[Row]:
        if write and lasting:
            async with self.transaction(namespace=namespace, write=True) as connection:
                return await connection.fetch(sql, params)
        step = step_of(sql, params)
        try:
            if write:
                assert self._writer is not None
                return await self._writer.single(namespace, step)
            async with self._turn(namespace) as raw:
                steps = [self._sound, step]
                with translated(self._path):
                    return await raw.read(steps, within_s=self._limits.query_s)
        except RecallError as error:
            self._doubt(error)
            raise

    async def settled(self) -> None:
        assert self._writer is not None
        await self._writer.settled()

    @asynccontextmanager
    async def snapshot(self, namespace: str) -> AsyncIterator[Connection]:
        del namespace  # as above
        # A connection of its own: one that reads for long must not be missed by those who serve.
        # While it reads, the WAL grows, as no checkpoint gets beyond what it sees.
        async with AsyncExitStack() as stack:
            with translated(self._path):
                reader = await self._connect(stack)
                await reader.execute_fetchall("PRAGMA query_only=ON")
            over = asyncio.get_running_loop().call_later(
                self._limits.snapshot_s, reader.end_with, self._limits.snapshot_over
            )
            try:
                read = partial(reader.run, within_s=self._limits.query_s)
                async with self._reads(reader, read) as connection:
                    yield connection
            finally:
                over.cancel()

    @asynccontextmanager
    async def migration(self) -> AsyncIterator[Connection]:
        async with self.transaction(namespace=None, write=True) as connection:
            yield connection

    async def purge(self, tables: Sequence[str]) -> str:
        del tables  # a file is rewritten as a whole
        assert self._writer is not None
        async with AsyncExitStack() as stack:
            for _ in range(READERS):
                await stack.enter_async_context(self._reading.slot(None))
            readers = [self._readers.get_nowait() for _ in range(READERS)]
            try:
                for reader in readers:
                    await reader.run([step_of("PRAGMA query_only", {})])  # behind its last COMMIT
                with translated(self._path):
                    async with self._writer.autocommit(None) as writer:
                        await asyncio.shield(self._rewrite(writer))
            finally:
                for reader in readers:
                    self._readers.put_nowait(reader)
        return ""

    async def _rewrite(self, writer: Thread) -> None:
        """Empty the journal, write the file anew without its free pages, empty it again: what
        VACUUM writes is in the journal first.
        """
        await writer.run([step_of(f"PRAGMA busy_timeout={PURGE_BUSY_TIMEOUT_MS}", {})])
        try:
            for step in (_EMPTY_JOURNAL, "VACUUM", _EMPTY_JOURNAL):
                rows = await writer.run([step_of(step, {})])
                if rows and rows[0][0]:
                    raise DatabaseUnavailable(
                        "Another program still reads an older state of the database file, so "
                        "erased words stay in its journal. Try again when it has ended."
                    )
        finally:
            await writer.run([step_of(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}", {})])

    def _doubt(self, error: BaseException) -> None:
        self._unsure |= "FSYNC" in getattr(error.__cause__, "sqlite_errorname", "")

    def _sound(self, _: sqlite3.Connection) -> Sequence[Any]:
        """A step. SQLite goes on in a file that was removed or replaced, and after a disk that lost
        what it was given, and says that all is well: whatever it keeps there may be lost.
        """
        if self._unsure:
            raise DatabaseUnusable(
                f"The disk failed to keep what was written to {self._path}, and nobody knows what "
                "it has. Check the disk, then start the server again."
            )
        try:
            found = _identity(self._path.stat())
        except FileNotFoundError:
            found = None
        if found != self._file:
            raise DatabaseUnusable(
                f"{self._path} was removed or replaced while it was in use. Stop the server, put "
                "the right file back, and start it again."
            )
        return ()

    async def files(self) -> Sequence[Path]:
        beside = ("", "-wal", "-shm", "-journal")
        paths = [self._path.with_name(self._path.name + ending) for ending in beside]
        return [path for path in paths if path.exists()]

    async def texts(self, namespace: str, tables: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
        del namespace, tables
        nothing: tuple[tuple[str, str], ...] = ()
        for one in nothing:
            yield one


def _create_private(path: Path) -> tuple[int, int]:
    """Which file it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        return _identity(os.fstat(file))
    finally:
        os.close(file)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino
