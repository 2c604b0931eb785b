"""SQLite: one connection that writes, several that only read, WAL, and commits that reach the disk
before they are acknowledged (`synchronous=FULL`). Nothing runs on the event loop. A file is copied
as of one moment, while others read and write it, and a copy is put in place.
"""

import asyncio
import glob
import os
import secrets
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from time import monotonic
from typing import Any

from filelock import FileLock, Timeout

from recall_server.domain.errors import (
    DatabaseUnavailable,
    DatabaseUnusable,
    QueryTimeout,
    RecallError,
)
from recall_server.domain.fairness import FairSemaphore
from recall_server.storage.driver import (
    Connection,
    Engine,
    Holder,
    Row,
    Statement,
    TimeLimits,
    run_uncancelled,
)
from recall_server.storage.sqlite.connection import (
    BUSY_TIMEOUT_MS,
    SqliteConnection,
    Step,
    Transaction,
    connected,
    step_of,
    translated,
)

PAGES_AT_ONCE = 2_048
# So many changed rows leave a journal of some 1,000 pages.
LARGE_ROWS = 500

Progress = Callable[[int], None]
"""Takes how many per cent are done."""


def copy_to(source: Path, target: Path, on_progress: Progress = lambda _: None) -> None:
    """Write a checked copy to `target`, a file readable by its owner alone. It gets its name when
    it is complete and on the disk. Raises `DatabaseUnusable` and `DatabaseUnavailable`.
    """
    part = target.with_name(f"{target.name}.part")
    with translated(target):
        # Remove what a killed copy has left, with the journals beside it.
        for left in (part, *_beside(part), *_beside(target)):
            left.unlink(missing_ok=True)
        os.close(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    try:
        with translated(source), closing(sqlite3.connect(source)) as raw:
            # This fixes the moment of the copy, however long it takes.
            raw.execute("BEGIN")
            raw.execute("SELECT 1 FROM sqlite_master").fetchall()
            with closing(sqlite3.connect(part)) as copy:
                raw.backup(
                    copy,
                    pages=PAGES_AT_ONCE,
                    progress=lambda _, left, pages: on_progress(100 * (pages - left) // pages),
                )
                # Make the copy a single file without a journal.
                copy.execute("PRAGMA journal_mode=DELETE")
        check_copy(part)
        with translated(target):
            sync_path(part)
            part.replace(target)
            sync_path(target.parent)
    finally:
        part.unlink(missing_ok=True)


def check_copy(path: Path) -> None:
    """Raise `DatabaseUnusable` unless the file is an intact SQLite database."""
    with (
        translated(path),
        closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as raw,
    ):
        [(found,)] = raw.execute("PRAGMA quick_check(1)").fetchall()
    if found != "ok":
        raise DatabaseUnusable(
            f"{path} is not an intact SQLite database. Take another backup, and check the disk."
        )


def put_in_place(new: Path, path: Path, old: Path) -> None:
    """Replace the database `path` with the file `new` atomically, and keep the old one as `old`."""
    with translated(path):
        if path.exists():
            _emptied(path)
            old.unlink(missing_ok=True)
            os.link(path, old)
        for journal, kept in zip(_beside(path), _beside(old), strict=True):
            # A journal that could not be emptied belongs to the old file.
            if journal.exists():
                journal.replace(kept)
        new.replace(path)
        sync_path(path.parent)


def remove(path: Path) -> None:
    """Remove a database that nobody has open, with the journals beside it."""
    for left in (path, *_beside(path)):
        left.unlink(missing_ok=True)


def _beside(path: Path) -> list[Path]:
    return [path.with_name(path.name + ending) for ending in ("-wal", "-shm")]


def _emptied(path: Path) -> None:
    """Copy the journal into the database; skip that if the database is damaged."""
    try:
        with closing(sqlite3.connect(path)) as raw:
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    except sqlite3.DatabaseError:
        return


def sync_path(path: Path) -> None:
    """Sync a file, or the names in a folder, to disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


Sync = Callable[[int], None]
"""Takes the descriptor of an open file; raises `OSError`."""

# fsync also writes the timestamps of a file whose length has not changed.
sync_file: Sync = os.fdatasync if hasattr(os, "fdatasync") else os.fsync


class GroupSync:
    """Syncs the journal (WAL) of a database file. All callers that wait meanwhile share the next
    sync.
    """

    def __init__(self, database: Path, sync: Sync = sync_file) -> None:
        self._journal = database.with_name(database.name + "-wal")
        self._sync = sync
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="sqlite-sync")
        self._file: int | None = None
        self._asked = 0
        self._synced = 0
        self._syncing: asyncio.Task[None] | None = None
        self._failure: OSError | None = None

    async def wait(self) -> None:
        """Return when everything committed before is on the disk. Once a sync has failed, always
        raises its `OSError`: it is unknown what the disk has.
        """
        self._asked += 1
        mine = self._asked
        while self._synced < mine:
            if self._failure is not None:
                raise self._failure
            if self._syncing is None:
                self._syncing = asyncio.create_task(self._run())
            await asyncio.shield(self._syncing)

    async def close(self) -> None:
        if self._syncing is not None:
            await asyncio.wait({self._syncing})
        self._thread.shutdown()
        if self._file is not None:
            os.close(self._file)

    async def _run(self) -> None:
        asked = self._asked
        try:
            await asyncio.get_running_loop().run_in_executor(self._thread, self._sync_journal)
            self._synced = asked
        except OSError as error:
            self._failure = error
        finally:
            self._syncing = None

    def _sync_journal(self) -> None:
        if self._file is None:
            self._file = os.open(self._journal, os.O_RDONLY)
        self._sync(self._file)


READERS = 4
# The most that the journal grows while snapshots are held.
JOURNAL_BYTES_MAX = 2**30
JOURNAL_TOO_LONG = (
    "It was broken off, as others wrote much while it read an old state of the database. Take it "
    "faster, or when less is written."
)
# All others wait for a purge, so it does not wait long itself but is tried again later.
PURGE_BUSY_TIMEOUT_MS = 500
MIGRATION_BUSY_TIMEOUT_MS = 60_000
JOURNAL_RETRY_S = 0.01

_BEGIN_READ = step_of("BEGIN", {})
_SYNCED = step_of("PRAGMA synchronous=FULL", {})
_UNSYNCED = step_of("PRAGMA synchronous=NORMAL", {})
# A commit copies a journal of more pages into the database, while all other writers wait.
_COPYING = step_of("PRAGMA wal_autocheckpoint=1000", {})
_NOT_COPYING = step_of("PRAGMA wal_autocheckpoint=0", {})
# IMMEDIATE: a deferred transaction that begins to write fails at once, whatever the timeout.
_BEGIN_WRITE = step_of("BEGIN IMMEDIATE", {})
_COMMIT = step_of("COMMIT", {})
# Copies the journal into the database and empties it; returns 1 if another connection prevents it.
_EMPTY_JOURNAL = "PRAGMA wal_checkpoint(TRUNCATE)"
# Copies the journal into the database, as far as no other connection prevents it.
_COPY_JOURNAL = "PRAGMA wal_checkpoint(PASSIVE)"


class SqliteDriver:
    """One database file. Several processes may share it; the writers of one process queue here."""

    engine: Engine = "sqlite"

    def __init__(
        self,
        path: Path,
        limits: TimeLimits = TimeLimits(),
        sync: Sync = sync_file,
        journal_bytes_max: int = JOURNAL_BYTES_MAX,
    ) -> None:
        self._path = path
        self._limits = limits
        self._journal_bytes_max = journal_bytes_max
        self._file = (0, 0)
        self._unsure = False
        self._stack = AsyncExitStack()
        self._sync = GroupSync(path, sync)
        self._writer: SqliteConnection | None = None
        # SQLite allows one writer, and queueing here is cheaper than SQLITE_BUSY and a retry.
        self._writing = FairSemaphore(1)
        self._reading = FairSemaphore(READERS)
        self._readers: list[SqliteConnection] = []
        # The connections of open snapshots, the oldest first.
        self._snapshots: list[SqliteConnection] = []

    async def open(self) -> None:
        """Open the file. Create it, readable by its owner alone, if there is none."""
        with translated(self._path):
            self._file = _create_private(self._path)
            self._stack.push_async_callback(self._sync.close)
            self._writer = await self._stack.enter_async_context(connected(self._path))
            await _keep_journal(self._writer)
            self._readers.append(await self._another_reader())

    async def close(self) -> None:
        await self._stack.aclose()

    def transaction(
        self, *, namespace: str | None, write: bool, erasing: bool = False
    ) -> AbstractAsyncContextManager[Connection]:
        # SQLite has neither row-level security nor roles: the store binds the namespace, and a
        # trigger guards texts. Here the namespace only decides whose turn it is.
        return self._write(namespace, late=erasing) if write else self._read(namespace)

    @asynccontextmanager
    async def _write(self, namespace: str | None, *, late: bool) -> AsyncIterator[Transaction]:
        """Take the writer, or, if `late`, only when the transaction needs rows: others write while
        its statements are made, and while what it has written is brought to the disk. Such a
        transaction reads the clock before its turn.
        """
        assert self._writer is not None
        shared = taken = False
        rows = 0

        def count(raw: sqlite3.Connection) -> Sequence[Any]:
            # At the end `rows` is how many have changed since the beginning.
            nonlocal rows
            rows = raw.total_changes - rows
            return ()

        def leave_journal(raw: sqlite3.Connection) -> Sequence[Any]:
            return _NOT_COPYING(raw) if rows > LARGE_ROWS else ()

        async def begin() -> Sequence[Step]:
            nonlocal shared, taken
            if not taken:
                await self._writing.acquire(namespace)
                taken = True
            # If others wait to write, wait for the disk after the commit, together with them.
            shared = late or (namespace is not None and self._writing.contended)
            synced, copying = _UNSYNCED if shared else _SYNCED, _NOT_COPYING if late else _COPYING
            return self._check_file, synced, copying, count, _BEGIN_WRITE

        transaction = Transaction(self._writer, begin)
        try:
            if not late:
                await self._writing.acquire(namespace)
                taken = True
            yield transaction
            written = await transaction.end(self._check_file, count, leave_journal, _COMMIT)
        except BaseException as error:  # a cancelled caller must leave nothing behind
            self._doubt(error)
            if transaction.begun:
                # If it was cancelled after its COMMIT, there is nothing to roll back.
                await run_uncancelled(self._writer.rollback())
            raise
        finally:
            if taken:
                self._writing.release(namespace)
        if written:
            await self._committed(namespace, large=rows > LARGE_ROWS, shared=shared)

    async def _committed(self, namespace: str | None, *, large: bool, shared: bool) -> None:
        """Do what others need not wait for after a commit."""
        if self._snapshots:
            self._limit_journal()
        if large:
            # At once, or the next commit does it.
            await self._copy_journal(namespace)
        if shared:
            await self._synced()

    def _limit_journal(self) -> None:
        """End the oldest snapshot if the journal is too long: while it is held, the journal keeps
        each page that anybody writes.
        """
        journal = self._path.with_name(f"{self._path.name}-wal")
        if journal.stat().st_size > self._journal_bytes_max:
            self._snapshots.pop(0).end_with(QueryTimeout(JOURNAL_TOO_LONG))

    async def _synced(self) -> None:
        try:
            await self._sync.wait()
        except OSError as error:
            self._unsure = True
            raise self._disk_failed() from error

    async def _copy_journal(self, namespace: str | None) -> None:
        """Copy the journal into the database as far as that makes nobody wait."""
        async with self._reader(namespace) as reader:
            try:
                await reader.run(step_of(_COPY_JOURNAL, {}))
            except RecallError as error:
                self._doubt(error)
                if self._unsure:
                    raise self._disk_failed() from error

    @asynccontextmanager
    async def _read(self, namespace: str | None) -> AsyncIterator[Transaction]:
        async with self._reader(namespace) as reader, self._read_with(reader) as transaction:
            yield transaction

    @asynccontextmanager
    async def _reader(self, namespace: str | None) -> AsyncIterator[SqliteConnection]:
        """Lend one of the reading connections for as long as the block lasts."""
        async with self._reading.slot(namespace):
            reader = self._readers.pop() if self._readers else await self._another_reader()
            try:
                yield reader
            finally:
                self._readers.append(reader)

    async def _another_reader(self) -> SqliteConnection:
        with translated(self._path):
            return await self._stack.enter_async_context(connected(self._path, reads=True))

    @asynccontextmanager
    async def _read_with(self, reader: SqliteConnection) -> AsyncIterator[Transaction]:
        async def begin() -> Sequence[Step]:
            return self._check_file, _BEGIN_READ

        transaction = Transaction(reader, begin, self._limits.query_s)
        try:
            yield transaction
            await transaction.end(_COMMIT)
        except BaseException as error:
            self._doubt(error)
            await run_uncancelled(reader.rollback())
            raise

    async def autocommit(
        self, statements: Sequence[Statement], *, namespace: str | None
    ) -> list[Sequence[Row]]:
        steps = [self._check_file, *(step_of(*one) for one in statements)]
        try:
            async with self._reader(namespace) as reader:
                rows = await reader.run_each(*steps, within_s=self._limits.query_s)
                return rows[1:]
        except RecallError as error:
            self._doubt(error)
            raise

    @asynccontextmanager
    async def snapshot(self, namespace: str) -> AsyncIterator[Connection]:
        del namespace  # as above
        # A connection of its own: a long read must not take a reader from calls. While it reads,
        # the WAL grows, as no checkpoint gets past the state that it sees.
        async with AsyncExitStack() as stack:
            with translated(self._path):
                reader = await stack.enter_async_context(connected(self._path, reads=True))
            over = asyncio.get_running_loop().call_later(
                self._limits.snapshot_s, reader.end_with, self._limits.snapshot_over
            )
            self._snapshots.append(reader)
            try:
                async with self._read_with(reader) as transaction:
                    yield transaction
            finally:
                over.cancel()
                if reader in self._snapshots:
                    self._snapshots.remove(reader)

    @asynccontextmanager
    async def migration(self) -> AsyncIterator[Connection]:
        assert self._writer is not None
        # Another replica may be migrating a large database.
        await self._writer.run(step_of(f"PRAGMA busy_timeout={MIGRATION_BUSY_TIMEOUT_MS}", {}))
        try:
            async with self.transaction(namespace=None, write=True) as connection:
                yield connection
        finally:
            await self._writer.run(step_of(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}", {}))

    async def purge(self, tables: Sequence[str]) -> str:
        del tables  # a file is rewritten as a whole
        # VACUUM writes to the journal first, while others read. Emptying the journal needs a moment
        # without readers; by then most of it has been copied into the file.
        await self._empty_journal()
        async with self._writing.slot(None):
            await run_uncancelled(self._run_alone("VACUUM", _COPY_JOURNAL))
        await self._empty_journal()
        return ""

    async def _empty_journal(self) -> None:
        """Empty the journal while nobody in this process reads or writes."""
        async with AsyncExitStack() as stack:
            for _ in range(READERS):
                await stack.enter_async_context(self._reading.slot(None))
            await stack.enter_async_context(self._writing.slot(None))
            await run_uncancelled(self._run_alone(_EMPTY_JOURNAL))

    async def _run_alone(self, *statements: str) -> None:
        assert self._writer is not None
        with translated(self._path):
            await self._writer.run(step_of(f"PRAGMA busy_timeout={PURGE_BUSY_TIMEOUT_MS}", {}))
            try:
                for statement in statements:
                    rows = await self._writer.run(step_of(statement, {}))
                    if rows and rows[0]["busy"]:
                        raise DatabaseUnavailable(
                            "Another program still reads an older state of the database file, so "
                            "erased words stay in its journal. Try again when it has ended."
                        )
            finally:
                await self._writer.run(step_of(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}", {}))

    def _doubt(self, error: BaseException) -> None:
        self._unsure |= "FSYNC" in getattr(error.__cause__, "sqlite_errorname", "")

    def _check_file(self, _: sqlite3.Connection) -> Sequence[Any]:
        """A step that raises `DatabaseUnusable` if the file was removed or replaced, or a sync has
        failed. SQLite itself would go on without an error, and what it writes may be lost.
        """
        if self._unsure:
            raise self._disk_failed()
        try:
            status = self._path.stat()
            found = status.st_dev, status.st_ino
        except FileNotFoundError:
            found = None
        if found != self._file:
            raise DatabaseUnusable(
                f"{self._path} was removed or replaced while it was in use. Stop the server, put "
                "the right file back, and start it again."
            )
        return ()

    def _disk_failed(self) -> DatabaseUnusable:
        return DatabaseUnusable(
            f"The disk failed to keep what was written to {self._path}, and nobody knows what it "
            "has. Check the disk, then start the server again."
        )

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[Holder]:
        holder = Holder(secrets.randbits(63))
        await asyncio.to_thread(self._sweep)
        lock = self._lock_of(holder.id)
        try:
            # Wait a moment: another process may take the new file for an abandoned one.
            await asyncio.to_thread(lock.acquire, timeout=1)
        except (OSError, Timeout, NotImplementedError):
            holder.id = None  # a file system without locks
        try:
            yield holder
        finally:
            await asyncio.to_thread(_removed, lock)

    async def gone(self, holders: Sequence[int]) -> Sequence[int]:
        return await asyncio.to_thread(lambda: [one for one in holders if self._is_gone(one)])

    def _is_gone(self, holder: int) -> bool:
        """Return whether a process has ended. All processes are on one host, as WAL demands, and a
        process that ends removes its file.
        """
        lock = self._lock_of(holder)
        path = Path(lock.lock_file)
        if not path.exists():
            return True
        try:
            with lock:
                path.unlink(missing_ok=True)
        except (OSError, Timeout, NotImplementedError):
            return False
        return True

    def _lock_of(self, holder: int | None) -> FileLock:
        path = self._path.resolve()
        return FileLock(
            path.with_name(f"{path.name}.holder-{holder}"),
            timeout=0,
            mode=0o600,
            thread_local=False,
            fallback_to_soft=False,
        )

    def _sweep(self) -> None:
        """Remove the files of processes that were killed."""
        path = self._path.resolve()
        for left in path.parent.glob(f"{glob.escape(path.name)}.holder-[0-9]*"):
            self._is_gone(int(left.name.rpartition("-")[2]))

    async def files(self) -> Sequence[Path]:
        beside = ("", "-wal", "-shm", "-journal")
        paths = [self._path.with_name(self._path.name + ending) for ending in beside]
        return [path for path in paths if path.exists()]

    async def texts(self, namespace: str, tables: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
        del namespace, tables
        nothing: tuple[tuple[str, str], ...] = ()
        for one in nothing:
            yield one


async def _keep_journal(writer: SqliteConnection) -> None:
    """Switch the file to a write-ahead journal, so that readers and a writer do not wait for each
    other.

    SQLite answers "busy" at once, whatever `busy_timeout` is, if another connection switches the
    same new file: ask again for as long.
    """
    ends = monotonic() + BUSY_TIMEOUT_MS / 1000
    switched = False
    while not switched:
        try:
            await writer.run(step_of("PRAGMA journal_mode=WAL", {}))
            switched = True
        except DatabaseUnavailable:
            if monotonic() > ends:
                raise
            await asyncio.sleep(JOURNAL_RETRY_S)


def _create_private(path: Path) -> tuple[int, int]:
    """Create the file for its owner alone, if there is none. Return its identity."""
    path.parent.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        found = os.fstat(file)
        return found.st_dev, found.st_ino
    finally:
        os.close(file)


def _removed(lock: FileLock) -> None:
    """Remove the file while it is locked, so that no other process locks it under this name."""
    if lock.is_locked:
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()
