"""SQLite: one writer behind a lock, several readers that cannot write, WAL, and commits that
reach the disk before they are acknowledged (`synchronous=FULL`).
"""

import asyncio
import json
import os
import sqlite3
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import aiosqlite

from recall_server.domain.errors import DatabaseUnavailable, DatabaseUnusable
from recall_server.storage.driver import Connection, Document, Engine, Params, Row

READERS = 4
BUSY_TIMEOUT_MS = 5_000

# secure_delete is off in some builds of SQLite, and says nothing: set on every connection.
_PRAGMAS = f"""
PRAGMA busy_timeout={BUSY_TIMEOUT_MS};
PRAGMA synchronous=FULL;
PRAGMA secure_delete=ON;
PRAGMA foreign_keys=ON;
PRAGMA trusted_schema=OFF;
PRAGMA cell_size_check=ON;
PRAGMA cache_size=-65536;
PRAGMA temp_store=MEMORY;
"""


class SqliteDriver:
    """One database file. Several processes may share it; within one, writers queue here."""

    engine: Engine = "sqlite"

    def __init__(self, path: Path) -> None:
        self._path = path
        self._stack = AsyncExitStack()
        self._writing = asyncio.Lock()
        self._writer: aiosqlite.Connection | None = None
        self._readers: asyncio.Queue[aiosqlite.Connection] = asyncio.Queue()

    async def open(self) -> None:
        """Open the file, making it (readable by its owner alone) where there is none."""
        with _translated(self._path):
            _create_private(self._path)
            self._writer = await self._connect()
            await self._writer.execute_fetchall("PRAGMA journal_mode=WAL")
            for _ in range(READERS):
                reader = await self._connect()
                await reader.execute_fetchall("PRAGMA query_only=ON")
                self._readers.put_nowait(reader)

    async def _connect(self) -> aiosqlite.Connection:
        # Statements are named and few; the cache holds them all.
        raw = await self._stack.enter_async_context(
            aiosqlite.connect(self._path, isolation_level=None, cached_statements=256)
        )
        raw.row_factory = sqlite3.Row
        await raw.executescript(_PRAGMAS)
        return raw

    async def close(self) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def transaction(self, *, namespace: str | None, write: bool) -> AsyncIterator[Connection]:
        del namespace  # SQLite has no row-level security; the store binds the namespace
        if not write:
            reader = await self._readers.get()
            try:
                async with _transaction(reader, "BEGIN", self._path) as connection:
                    yield connection
            finally:
                self._readers.put_nowait(reader)
            return
        assert self._writer is not None
        # SQLite allows one writer; queueing here is cheaper than SQLITE_BUSY and a retry.
        async with (
            self._writing,
            # A deferred transaction that turns to writing fails at once, whatever the time-out.
            _transaction(self._writer, "BEGIN IMMEDIATE", self._path) as connection,
        ):
            yield connection

    @asynccontextmanager
    async def migration(self) -> AsyncIterator[Connection]:
        async with self.transaction(namespace=None, write=True) as connection:
            yield connection


@asynccontextmanager
async def _transaction(
    raw: aiosqlite.Connection, begin: str, path: Path
) -> AsyncIterator[Connection]:
    with _translated(path):
        try:
            await raw.execute_fetchall(begin)
            yield _SqliteConnection(raw, path)
            await asyncio.shield(raw.commit())
        except BaseException:  # a caller that hung up must leave nothing behind
            await asyncio.shield(raw.rollback())
            raise


class _SqliteConnection:
    def __init__(self, raw: aiosqlite.Connection, path: Path) -> None:
        self._raw = raw
        self._path = path

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        with _translated(self._path):
            rows = await self._raw.execute_fetchall(sql, _plain(params))
        return list(rows)  # type: ignore[arg-type]  # sqlite3.Row reads like a mapping

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        with _translated(self._path):
            await self._raw.executemany(sql, [_plain(row) for row in rows])

    async def script(self, sql: str) -> None:
        with _translated(self._path):
            # executescript() would commit the transaction that it is called in.
            for statement in _statements(sql):
                await self._raw.execute_fetchall(statement)


def _plain(params: Params) -> dict[str, Any]:
    return {name: _value(value) for name, value in params.items()}


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, Document):
        return json.dumps(value.value, ensure_ascii=False)
    if isinstance(value, list):
        return json.dumps(value, ensure_ascii=False)
    return value


def _statements(sql: str) -> Iterator[str]:
    pending = ""
    for part in sql.split(";"):
        pending += part + ";"
        # A semicolon in a string, a comment or a trigger's body does not end a statement.
        if sqlite3.complete_statement(pending):
            yield pending
            pending = ""


def _create_private(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT, 0o600))


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
        if code.startswith(("SQLITE_FULL", "SQLITE_IOERR")):
            raise DatabaseUnavailable(
                "The database cannot write: the disk is full or failing. Free space, try again."
            ) from error
        raise
    except OSError as error:
        raise DatabaseUnusable(
            f"{path} cannot be opened ({error.strerror}). Check the path, owner and mode."
        ) from error
