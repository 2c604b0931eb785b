"""A connection to SQLite in a thread of its own, an open transaction on it, and the translation of
its errors. Statements go to the thread in batches. Those that read are stopped at their time limit,
or when their caller is cancelled.
"""

import asyncio
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import aiosqlite
from pydantic_core import to_json

from recall_server.domain.errors import (
    DatabaseUnavailable,
    DatabaseUnusable,
    QueryTimeout,
    RecallError,
    StorageFull,
)
from recall_server.storage.driver import Document, Failure, Params, Row, Statement

# How long a write waits for another program that writes.
BUSY_TIMEOUT_MS = 5_000
# Instructions of SQLite's virtual machine between two looks at the clock: a millisecond or less.
INSTRUCTIONS = 10_000
# The journal is truncated to this size after a long read of an old state has made it grow.
JOURNAL_BYTES = 33_554_432
# The part of the file that each connection caches. The system caches the file too: 16 MiB made no
# search of 100,000 memories faster, and the server took 33 MB more.
CACHE_KIB = 8_192

# secure_delete is off in some builds of SQLite, without a warning, so set it on every connection.
_PRAGMAS = f"""
PRAGMA busy_timeout={BUSY_TIMEOUT_MS};
PRAGMA synchronous=FULL;
PRAGMA secure_delete=ON;
PRAGMA foreign_keys=ON;
PRAGMA trusted_schema=OFF;
PRAGMA cell_size_check=ON;
PRAGMA cache_size=-{CACHE_KIB};
PRAGMA temp_store=MEMORY;
PRAGMA journal_size_limit={JOURNAL_BYTES};
"""

Step = Callable[[sqlite3.Connection], Sequence[Any]]


@dataclass
class _Batch:
    """Steps that run in the thread, one after the other, up to the first that fails; `rows` has
    those of each. Each may take `within_s` seconds.

    Without a limit they are never stopped: SQLite rolls back a whole transaction that it stops.
    """

    steps: Sequence[Step]
    within_s: float | None
    ends: float = 0.0
    rows: list[Sequence[Any]] = field(default_factory=list)
    unwanted: bool = False

    def __iter__(self) -> Iterator[Step]:
        return iter(self.steps)

    @property
    def over(self) -> bool:
        """Whether its time is over, or its caller was cancelled."""
        return self.within_s is not None and (self.unwanted or time.monotonic() > self.ends)


class _BatchedConnection(sqlite3.Connection):
    """Accepts a `_Batch` in place of parameters, so that aiosqlite goes to its thread once for all
    steps: a trip to the thread costs more than most statements.
    """

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._batch: _Batch | None = None

    def execute(self, sql: str, parameters: Any = (), /) -> sqlite3.Cursor:
        if not isinstance(parameters, _Batch):
            return super().execute(sql, parameters)
        self._batch = batch = parameters
        # Not for steps without a limit: each look waits for what else runs in Python, and while a
        # transaction writes, all writers would wait with it.
        limited = batch.within_s is not None
        self.set_progress_handler(self._over if limited else None, INSTRUCTIONS)
        try:
            for step in batch.steps:
                if batch.within_s is not None:
                    batch.ends = time.monotonic() + batch.within_s
                batch.rows.append(step(self))
        finally:
            self._batch = None
        return self.cursor()

    def _over(self) -> bool:
        return self._batch is not None and self._batch.over


class SqliteConnection:
    """One connection, and its thread. Batches run in the order in which they are submitted."""

    def __init__(self, raw: aiosqlite.Connection, path: Path) -> None:
        self._raw = raw
        self._path = path
        self._batch: _Batch | None = None
        self._ended: RecallError | None = None
        self._rolling_back: asyncio.Task[None] | None = None

    async def run(self, *steps: Step) -> Sequence[Any]:
        """Run the steps, up to the first that fails. Return the rows of the last."""
        return (await self.run_each(*steps))[-1]

    async def run_each(self, *steps: Step, within_s: float | None = None) -> list[Sequence[Any]]:
        """Run the steps, up to the first that fails or takes longer than `within_s`. Return the
        rows of each. If the caller is cancelled, the thread stops reading.
        """
        if self._ended is not None:
            raise self._ended
        self._batch = batch = _Batch(steps, within_s)
        try:
            await self._raw.execute_fetchall("", batch)
        except BaseException:
            batch.unwanted = True
            if self._ended is not None:
                raise self._ended from None
            with translated(self._path):
                raise
        return batch.rows

    async def rollback(self) -> None:
        """Roll back, after the batch that is running."""
        await self._raw.rollback()

    def end_with(self, error: RecallError) -> None:
        """Stop what is being read, and raise `error` for every call from now on."""
        self._ended = error
        if self._batch is not None:
            self._batch.unwanted = True
        self._rolling_back = asyncio.ensure_future(self.rollback())


@asynccontextmanager
async def connected(path: Path, *, reads: bool = False) -> AsyncIterator[SqliteConnection]:
    """A connection to the file, closed on leaving; one that `reads` cannot write."""
    async with aiosqlite.connect(
        path,
        factory=_BatchedConnection,
        isolation_level=None,
        # Statements are named and few; the cache holds them all.
        cached_statements=256,
    ) as raw:
        connection = SqliteConnection(raw, path)
        await connection.run(partial(_prepared, reads=reads))
        yield connection


def _prepared(raw: sqlite3.Connection, *, reads: bool) -> Sequence[Any]:
    raw.executescript(_PRAGMAS)
    if raw.execute("PRAGMA secure_delete").fetchone() != (1,):
        raise DatabaseUnusable(
            "This SQLite cannot overwrite what is deleted. Use a build that has secure_delete."
        )
    if reads:
        raw.execute("PRAGMA query_only=ON")
    return ()


@dataclass
class Transaction:
    """Begins when it needs rows, or ends, by the steps that `begin` returns; its owner ends it.

    `within_s`: seconds for each statement; None for a transaction that writes.
    `waiting`: steps that run with the next one whose rows are needed.
    """

    connection: SqliteConnection
    begin: Callable[[], Awaitable[Sequence[Step]]]
    within_s: float | None = None
    waiting: list[Step] = field(default_factory=list)
    begun: bool = False

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        return (await self._run(step_of(sql, params)))[-1]

    async def fetch_each(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        rows = await self._run(*(step_of(*one) for one in statements))
        return rows[len(rows) - len(statements) :]

    async def send(self, sql: str, params: Params) -> None:
        self.waiting.append(step_of(sql, params, sqlite3.Cursor.fetchall))

    async def expect(self, sql: str, params: Params, otherwise: Failure) -> None:
        step = step_of(sql, params, sqlite3.Cursor.fetchall)

        def touched(raw: sqlite3.Connection) -> Sequence[Any]:
            rows = step(raw)
            if not rows:
                raise otherwise
            return rows

        self.waiting.append(touched)

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        # Converted in the thread of the connection: of many rows it would delay the event loop.
        self.waiting.append(lambda raw: raw.executemany(sql, map(_plain, rows)).fetchall())

    async def script(self, sql: str) -> None:
        # executescript() would commit the transaction that it is called in.
        for statement in _statements(sql):
            await self.fetch(statement, {})

    async def end(self, *steps: Step) -> bool:
        """Run the waiting steps, and `steps`, which end it. Return False if there was nothing to
        run.
        """
        if not self.begun and not self.waiting:
            return False
        await self._run(*steps)
        return True

    async def _run(self, *steps: Step) -> list[Sequence[Row]]:
        """Run the waiting steps and `steps`. Return the rows of each."""
        begin = () if self.begun else await self.begin()
        waiting, self.waiting, self.begun = self.waiting, [], True
        return await self.connection.run_each(*begin, *waiting, *steps, within_s=self.within_s)


# The types of parameters that SQLite takes unchanged.
_AS_IT_IS = frozenset({str, int, float, bytes, bool, type(None)})


def _rows(cursor: sqlite3.Cursor) -> list[Row]:
    """Return the rows by their columns, as the other engine does: a `sqlite3.Row` takes longer to
    look up each.
    """
    names = [column for column, *_ in cursor.description or ()]
    return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def step_of(
    sql: str, params: Params, read: Callable[[sqlite3.Cursor], Sequence[Any]] = _rows
) -> Step:
    plain = _plain(params)
    return lambda raw: read(raw.execute(sql, plain))


def _plain(params: Params) -> dict[str, Any]:
    return {
        name: value if type(value) in _AS_IT_IS else _value(value) for name, value in params.items()
    }


def _value(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat(timespec="microseconds")
    if isinstance(value, Document):
        return value.text
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


@contextmanager
def translated(path: Path) -> Iterator[None]:
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
