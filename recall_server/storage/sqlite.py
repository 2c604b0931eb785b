"""SQLite: one writer behind a lock, several readers that cannot write, WAL, and commits that
reach the disk before they are acknowledged (`synchronous=FULL`), but for what need not last.
"""

import asyncio
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from recall_server.domain.errors import (
    DatabaseUnavailable,
    DatabaseUnusable,
    QueryTimeout,
    RecallError,
    StorageFull,
)
from recall_server.domain.turns import Turns
from recall_server.storage.driver import Connection, Document, Engine, Params, Row, TimeLimits
from recall_server.storage.sqlite_thread import SqliteThread, Step

READERS = 4
BUSY_TIMEOUT_MS = 5_000
# Everybody waits behind a purge, so it does not wait long itself: it is tried again later.
PURGE_BUSY_TIMEOUT_MS = 500
READ = "BEGIN"
# What the journal keeps of the disk after somebody read an old state for long, and it grew.
JOURNAL_BYTES = 33_554_432
# A deferred transaction that turns to writing fails at once, whatever the time-out.
WRITE = "BEGIN IMMEDIATE"

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
        self._writing = Turns(1)
        self._writer: SqliteThread | None = None
        self._reading = Turns(READERS)
        self._readers: asyncio.LifoQueue[SqliteThread] = asyncio.LifoQueue()

    async def open(self) -> None:
        """Open the file, making it (readable by its owner alone) where there is none."""
        with _translated(self._path):
            self._file = _create_private(self._path)
            self._writer = await self._connect(self._stack)
            await self._writer.execute_fetchall("PRAGMA journal_mode=WAL")
            for _ in range(READERS):
                reader = await self._connect(self._stack)
                await reader.execute_fetchall("PRAGMA query_only=ON")
                self._readers.put_nowait(reader)

    async def _connect(self, stack: AsyncExitStack) -> SqliteThread:
        # Statements are named and few; the cache holds them all.
        connect = partial(sqlite3.connect, self._path, isolation_level=None, cached_statements=256)
        raw = SqliteThread(connect, iter_chunk_size=64)
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
        self, *, namespace: str | None, write: bool, erasing: bool = False
    ) -> AsyncIterator[Connection]:
        # SQLite has neither row-level security nor roles: the store binds the namespace, and a
        # trigger guards what was said. Here the namespace is whose turn it is.
        del erasing
        async with (
            self._turn(namespace, write=write) as raw,
            self._transaction(raw, WRITE if write else READ) as connection,
        ):
            yield connection

    def _within_s(self, *, write: bool) -> float | None:
        # A purge and a migration take as long as they do, and a change of all that a tenant has.
        return None if write else self._limits.query_s

    @asynccontextmanager
    async def _turn(self, namespace: str | None, *, write: bool) -> AsyncIterator[SqliteThread]:
        """The writer, or one of the readers, for as long as the block lasts."""
        if write:
            assert self._writer is not None
            # SQLite allows one writer; queueing here is cheaper than SQLITE_BUSY and a retry.
            async with self._writing.of(namespace):
                yield self._writer
            return
        async with self._reading.of(namespace):
            reader = self._readers.get_nowait()
            try:
                yield reader
            finally:
                self._readers.put_nowait(reader)

    async def alone(
        self, sql: str, params: Params, *, namespace: str | None, write: bool, lasting: bool
    ) -> Sequence[Row]:
        step = _step(sql, params)
        steps = [self._sound, step if lasting else _unsynced(step)]
        async with self._turn(namespace, write=write) as raw:
            try:
                with _translated(self._path):
                    return await raw.run(steps, within_s=self._within_s(write=write))
            except RecallError as error:
                self._doubt(error)
                raise

    @asynccontextmanager
    async def snapshot(self, namespace: str) -> AsyncIterator[Connection]:
        del namespace  # as above
        # A connection of its own: one that reads for long must not be missed by those who serve.
        # While it reads, the WAL grows, as no checkpoint gets beyond what it sees.
        async with AsyncExitStack() as stack:
            with _translated(self._path):
                reader = await self._connect(stack)
                await reader.execute_fetchall("PRAGMA query_only=ON")
            over = asyncio.get_running_loop().call_later(
                self._limits.snapshot_s, reader.end_with, self._limits.snapshot_over
            )
            try:
                async with self._transaction(reader, READ) as connection:
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
                await stack.enter_async_context(self._reading.of(None))
            readers = [self._readers.get_nowait() for _ in range(READERS)]
            try:
                for reader in readers:
                    await reader.run([_step("PRAGMA query_only", {})])  # behind its last COMMIT
                with _translated(self._path):
                    async with self._writing.of(None):
                        await asyncio.shield(self._rewrite(self._writer))
            finally:
                for reader in readers:
                    self._readers.put_nowait(reader)
        return ""

    async def _rewrite(self, writer: SqliteThread) -> None:
        """Empty the journal, write the file anew without its free pages, empty it again: what
        VACUUM writes is in the journal first.
        """
        await writer.run([_step(f"PRAGMA busy_timeout={PURGE_BUSY_TIMEOUT_MS}", {})])
        try:
            for step in (_EMPTY_JOURNAL, "VACUUM", _EMPTY_JOURNAL):
                rows = await writer.run([_step(step, {})])
                if rows and rows[0][0]:
                    raise DatabaseUnavailable(
                        "Another program still reads an older state of the database file, so "
                        "erased words stay in its journal. Try again when it has ended."
                    )
        finally:
            await writer.run([_step(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}", {})])

    @asynccontextmanager
    async def _transaction(self, raw: SqliteThread, begin: str) -> AsyncIterator[Connection]:
        with _translated(self._path):
            within_s = self._within_s(write=begin == WRITE)
            connection = _SqliteConnection(raw, self._path, begin, within_s, self._sound)
            try:
                yield connection
                await connection.commit()
            except BaseException as error:  # a caller that hung up must leave nothing behind
                self._doubt(error)
                await asyncio.shield(raw.rollback())
                raise

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


class _SqliteConnection:
    """Begins with its first statement."""

    def __init__(
        self, raw: SqliteThread, path: Path, begin: str, within_s: float | None, sound: Step
    ) -> None:
        self._raw = raw
        self._path = path
        self._reading = begin == READ
        self._within_s = within_s
        self._begun = False
        self._sound = sound
        self._waiting: list[Step] = [sound, _step(begin, {})]

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        return await self._run(_step(sql, params))

    async def send(self, sql: str, params: Params) -> None:
        self._waiting.append(_step(sql, params))

    async def expect(self, sql: str, params: Params, otherwise: Exception) -> None:
        step = _step(sql, params)

        def touched(raw: sqlite3.Connection) -> Sequence[Any]:
            rows = step(raw)
            if not rows:
                raise otherwise
            return rows

        self._waiting.append(touched)

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        plain = [_plain(row) for row in rows]
        self._waiting.append(lambda raw: raw.executemany(sql, plain).fetchall())

    async def script(self, sql: str) -> None:
        # executescript() would commit the transaction that it is called in.
        for statement in _statements(sql):
            await self._run(_step(statement, {}))

    async def commit(self) -> None:
        if self._begun and self._reading:
            self._raw.end_reading()
        elif self._begun or len(self._waiting) > 2:
            self._waiting.append(self._sound)
            await asyncio.shield(self._run(_step("COMMIT", {})))

    async def _run(self, step: Step) -> Sequence[Row]:
        steps, self._waiting, self._begun = [*self._waiting, step], [], True
        with _translated(self._path):
            return await self._raw.run(steps, within_s=self._within_s)


def _step(sql: str, params: Params) -> Step:
    plain = _plain(params)
    return lambda raw: raw.execute(sql, plain).fetchall()


def _unsynced(step: Step) -> Step:
    """The step, in a transaction of its own that does not wait for the disk."""

    def taken(raw: sqlite3.Connection) -> Sequence[Any]:
        raw.execute("PRAGMA synchronous=NORMAL")
        try:
            return step(raw)
        finally:
            raw.execute("PRAGMA synchronous=FULL")

    return taken


def _plain(params: Params) -> dict[str, Any]:
    return {name: _value(value) for name, value in params.items()}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, Document):
        return to_json(value.value).decode()
    if isinstance(value, list):
        return to_json(value).decode()
    return value


def _statements(sql: str) -> Iterator[str]:
    pending = ""
    for part in sql.split(";"):
        pending += part + ";"
        # A semicolon in a string, a comment or a trigger's body does not end a statement.
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


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


@contextmanager
def _translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "") or ""
        if code.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise DatabaseUnavailable(
                "The database file is locked by another program. Send the call again shortly."
            ) from error
        if code.startswith(("SQLITE_NOTADB", "SQLITE_CORRUPT")):
            raise DatabaseUnusable(
                f"{path} is not an intact SQLite database. Restore it from a backup."
            ) from error
        if code.startswith(("SQLITE_READONLY", "SQLITE_CANTOPEN", "SQLITE_PERM")):
            raise DatabaseUnusable(
                f"{path} cannot be opened for writing. Check its owner, mode and folder."
            ) from error
        if code == "SQLITE_INTERRUPT":
            raise QueryTimeout from error
        if code == "SQLITE_FULL":
            raise StorageFull from error
        if code.startswith("SQLITE_IOERR"):
            raise DatabaseUnavailable(
                "The database cannot write: the disk is full or failing. Free space, try again."
            ) from error
        raise
    except OSError as error:
        raise DatabaseUnusable(
            f"{path} cannot be opened ({error.strerror}). Check the path, owner and mode."
        ) from error
