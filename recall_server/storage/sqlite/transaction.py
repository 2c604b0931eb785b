"""An open transaction on SQLite as the port wants it, and what its errors mean."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from recall_server.domain.errors import (
    DatabaseUnavailable,
    DatabaseUnusable,
    QueryTimeout,
    StorageFull,
)
from recall_server.storage.driver import Document, Params, Row
from recall_server.storage.sqlite.connection import SqliteConnection, Step


class Transaction:
    """Begins, by the steps of `begin`, with its first statement; ends as its owner says."""

    def __init__(
        self,
        connection: SqliteConnection,
        path: Path,
        begin: Sequence[Step],
        within_s: float | None = None,
    ) -> None:
        """`within_s`: seconds for each statement; none for one that writes."""
        self._connection = connection
        self._path = path
        self._waiting = [*begin]
        self._within_s = within_s
        self._used = False

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        self._send(step_of(sql, params))
        return await self._run()

    async def send(self, sql: str, params: Params) -> None:
        self._send(step_of(sql, params))

    async def expect(self, sql: str, params: Params, otherwise: Exception) -> None:
        step = step_of(sql, params)

        def touched(raw: sqlite3.Connection) -> Sequence[Any]:
            rows = step(raw)
            if not rows:
                raise otherwise
            return rows

        self._send(touched)

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        plain = [_plain(row) for row in rows]
        self._send(lambda raw: raw.executemany(sql, plain).fetchall())

    async def script(self, sql: str) -> None:
        # executescript() would commit the transaction that it is called in.
        for statement in _statements(sql):
            await self.fetch(statement, {})

    async def end(self, *steps: Step) -> bool:
        """Run what waits, and these, which end it; False where nothing was asked of it."""
        if self._used:
            self._waiting += steps
            await self._run()
        return self._used

    def _send(self, step: Step) -> None:
        self._used = True
        self._waiting.append(step)

    async def _run(self) -> Sequence[Row]:
        steps, self._waiting = self._waiting, []
        with translated(self._path):
            return await self._connection.run(*steps, within_s=self._within_s)


def step_of(sql: str, params: Params) -> Step:
    plain = _plain(params)
    return lambda raw: raw.execute(sql, plain).fetchall()


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
