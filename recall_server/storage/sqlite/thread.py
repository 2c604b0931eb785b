"""A connection to SQLite in a thread of its own, the steps that are taken there and stopped when
their time is over, and an open transaction as the port wants it.
"""

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
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
from recall_server.storage.driver import Document, Params, PendingRows, Row

# So long a write waits for another program's.
BUSY_TIMEOUT_MS = 5_000
# Between two looks at the clock; of SQLite's virtual machine: a millisecond's worth or less.
INSTRUCTIONS = 10_000
# The same where everybody waits; a row takes some ten, and may have to be fetched from the disk.
INSTRUCTIONS_HERE = 500
# So long everybody waits for one who reads: going to a thread and back under load takes as long.
HERE_S = 0.005

Step = Callable[[sqlite3.Connection], Sequence[Any]]
Read = Callable[[Sequence[Step]], Awaitable[Sequence[Any]]]


class _Visit:
    """Steps that are taken in the thread; each may last `within_s` seconds. Without a limit they
    are let be: SQLite takes back all of a transaction that it stops, and others may share it.
    """

    def __init__(self, within_s: float | None) -> None:
        self._within_s = within_s
        self._ends = 0.0
        self.unwanted = False

    def begin(self) -> None:
        if self._within_s is not None:
            self._ends = time.monotonic() + self._within_s

    def over(self) -> bool:
        return self._within_s is not None and (self.unwanted or time.monotonic() > self._ends)


class Thread(aiosqlite.Connection):
    """A connection in a thread of its own. Going there and back costs more than most statements,
    so several can go at once; and those that wait for nothing need not go.
    """

    # Counted by whoever asks, and by the thread: each writes one of them.
    _asked = 0
    _done = 0
    _spent_s = 0.0
    _visit: _Visit | None = None
    _ended: RecallError | None = None

    async def limited(self) -> None:
        """Look at the clock from now on. What has no visit, as the end of a reading, is let be."""
        await self.set_progress_handler(self._over, INSTRUCTIONS)

    async def run(self, steps: Sequence[Step], *, within_s: float | None = None) -> Sequence[Any]:
        """Take the steps, up to the first that fails or takes longer than `within_s`; the rows of
        the last. Nobody's thread goes on reading what its caller has given up.
        """
        visit = _Visit(within_s)
        try:
            rows: Sequence[Any] = await self._execute(self._visited, steps, visit)
        except BaseException:
            visit.unwanted = True
            raise
        return rows

    async def read(self, steps: Sequence[Step], *, within_s: float) -> Sequence[Any]:
        """`run` of steps that only read, here and now as far as that takes no longer than `HERE_S`:
        the one that would is begun anew in the thread.
        """
        rows: Sequence[Any] = ()
        if self.idle:
            began = time.monotonic()
            steps, rows = self._at_once(steps)
            self._spent_s += time.monotonic() - began
            # Many that take no time take some together: who reads on and on lets others go on.
            if self._spent_s > HERE_S:
                self._spent_s = 0.0
                await asyncio.sleep(0)
        return await self.run(steps, within_s=within_s) if steps else rows

    def _at_once(self, steps: Sequence[Step]) -> tuple[Sequence[Step], Sequence[Any]]:
        """The steps that are left, and the rows of the last one, if none is."""
        rows: Sequence[Any] = ()
        self._visit = visit = _Visit(HERE_S)
        visit.begin()
        self._conn.set_progress_handler(self._over, INSTRUCTIONS_HERE)
        try:
            for place, step in enumerate(steps):
                if self._ended is not None:
                    raise self._ended
                try:
                    rows = step(self._conn)
                except sqlite3.OperationalError as error:
                    if error.sqlite_errorname != "SQLITE_INTERRUPT":
                        raise
                    return steps[place:], ()
        finally:
            self._visit = None
            self._conn.set_progress_handler(self._over, INSTRUCTIONS)
        return (), rows

    async def _execute(self, fn: Any, *args: Any, **kwargs: Any) -> Any:
        return await super()._execute(self._counted(partial(fn, *args, **kwargs)))  # type: ignore[no-untyped-call]

    def _counted(self, work: Callable[[], Any]) -> Callable[[], Any]:
        def counted() -> Any:
            try:
                return work()
            finally:
                self._done += 1

        self._asked += 1
        return counted

    @property
    def idle(self) -> bool:
        """Nothing is under way in the thread, or waits for it."""
        return self._asked == self._done

    def end_reading(self) -> None:
        """Nobody has to wait for it: whoever comes next stands behind it in the queue."""
        if self.idle:
            self._conn.execute("COMMIT")
        else:
            self._tx.put_nowait((None, self._counted(lambda: self._conn.execute("COMMIT"))))

    def end_with(self, error: RecallError) -> None:
        """Let go of what is read, and raise `error` for whatever is asked from now on."""
        self._ended = error
        self._tx.put_nowait((None, self._counted(self._conn.rollback)))

    def taken(self, steps: Sequence[Step]) -> Sequence[Any]:
        """`run` here and now, where everybody waits; to be called while the thread is `idle`. It
        waits for no other program: where one writes, the first step that would write is `busy`.
        """
        if self._conn.in_transaction:
            return self._visited(steps, _Visit(None))
        self._conn.execute("PRAGMA busy_timeout=0")
        try:
            return self._visited(steps, _Visit(None))
        finally:
            self._conn.execute(f"PRAGMA busy_timeout={BUSY_TIMEOUT_MS}")

    def _visited(self, steps: Sequence[Step], visit: _Visit) -> Sequence[Any]:
        rows: Sequence[Any] = ()
        self._visit = visit
        try:
            for step in steps:
                if self._ended is not None:
                    raise self._ended
                visit.begin()
                rows = step(self._conn)
        finally:
            self._visit = None
        return rows

    def _over(self) -> bool:
        visit = self._visit
        return self._ended is not None or (visit is not None and visit.over())


class Transaction:
    """Begins with its first statement. `here` says when its steps may be taken where they are
    called for: in a transaction that is brief. One that only reads takes them by `read`.
    """

    def __init__(
        self,
        raw: Thread,
        path: Path,
        begin: Sequence[Step],
        here: Callable[[], bool] = lambda: False,
        read: Read | None = None,
    ) -> None:
        self._raw = raw
        self._path = path
        self._waiting = [*begin]
        self._here = here
        self._read = read
        # Whether anything was asked of it, and taken, and whether its fate is no longer its own.
        self.asked = False
        self.begun = False
        self.ended = False

    def rest(self) -> list[Step]:
        """What waits to be taken: whoever asks takes it."""
        steps, self._waiting, self.begun = self._waiting, [], True
        return steps

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        return await self.take(step_of(sql, params))

    async def send(self, sql: str, params: Params) -> None:
        self._wait(step_of(sql, params))

    async def ask(self, sql: str, params: Params) -> PendingRows:
        step, asked = step_of(sql, params), PendingRows()

        def answered(raw: sqlite3.Connection) -> Sequence[Any]:
            asked.rows = step(raw)
            return asked.rows

        self._wait(answered)
        return asked

    async def expect(self, sql: str, params: Params, otherwise: Exception) -> None:
        step = step_of(sql, params)

        def touched(raw: sqlite3.Connection) -> Sequence[Any]:
            rows = step(raw)
            if not rows:
                raise otherwise
            return rows

        self._wait(touched)

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        plain = [_plain(row) for row in rows]
        self._wait(lambda raw: raw.executemany(sql, plain).fetchall())

    async def script(self, sql: str) -> None:
        # executescript() would commit the transaction that it is called in.
        for statement in _statements(sql):
            await self.take(step_of(statement, {}))

    async def take(self, step: Step) -> Sequence[Row]:
        """Take what waits, and this step; its rows."""
        self._wait(step)
        here, begins, steps = self._here(), not self.begun, self.rest()
        with translated(self._path):
            if self._read is not None:
                return await self._read(steps)
            if here:
                try:
                    return self._raw.taken(steps)
                except sqlite3.OperationalError as error:
                    if not (begins and _busy(error)):
                        raise
            return await self._raw.run(steps)

    def _wait(self, step: Step) -> None:
        self.asked = True
        self._waiting.append(step)


def step_of(sql: str, params: Params) -> Step:
    plain = _plain(params)
    return lambda raw: raw.execute(sql, plain).fetchall()


def unsynced(step: Step) -> Step:
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


def _busy(error: sqlite3.Error) -> bool:
    """Another program is in the way."""
    name = getattr(error, "sqlite_errorname", "") or ""
    return name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED"))


@contextmanager
def translated(path: Path) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorname", "") or ""
        if _busy(error):
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
