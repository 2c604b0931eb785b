"""A connection to Postgres: send statements in batches, notice a server that does not answer, and
translate its errors.
"""

import asyncio
import os
import re
import selectors
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple

import psycopg
from psycopg import sql
from psycopg.rows import DictRow
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from recall_server.domain.errors import (
    DatabaseUnavailable,
    DatabaseUnusable,
    Deadlocked,
    QueryTimeout,
    RecallError,
    StorageFull,
)
from recall_server.storage.driver import Document, Failure, Params, Row, Statement

# A reachable server has answered by now, at least with a statement timeout.
ANSWER_S = 12.0

Raw = psycopg.AsyncConnection[DictRow]


async def checked(raw: Raw) -> None:
    """Check an idle connection. It has nothing to read normally; only if it has, ask the server.
    Raises if the connection is lost, and the pool takes another one.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(raw.fileno(), selectors.EVENT_READ)
        readable = selector.select(0)
    if readable or raw.broken:
        await AsyncConnectionPool.check_connection(raw)


async def rolled_back(raw: Raw, connection: "Connected") -> None:
    if raw.closed:
        return
    if connection.confused:
        await raw.close()
        return
    try:
        with _answered_within(raw, ANSWER_S):
            await raw.execute("ROLLBACK")
    except psycopg.OperationalError:
        await raw.close()  # the pool replaces it; the server has rolled back by itself


@contextmanager
def _answered_within(raw: Raw, seconds: float | None) -> Iterator[None]:
    """Close the connection if the server has not answered after `seconds`. A network that drops all
    packets gives no error, and psycopg would wait for one even when it is cancelled.
    """
    if seconds is None:
        yield
        return
    hanging_up = asyncio.get_running_loop().call_later(seconds, _hang_up, raw)
    try:
        yield
    finally:
        hanging_up.cancel()


def _hang_up(raw: Raw) -> None:
    if not raw.closed:
        with socket.socket(fileno=os.dup(raw.fileno())) as line, suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)


def entering(role: str, namespace: str, query_ms: int | None = None) -> Iterator[str]:
    """Yield the statements that bind a transaction to a role and a namespace. Each must be sent
    alone: then Citus forwards them to its nodes, unlike a call of `set_config`.
    """
    bound = sql.SQL("SET LOCAL {} TO {}")
    yield sql.SQL("SET LOCAL ROLE {}").format(sql.Identifier(role)).as_string()
    yield bound.format(sql.Identifier("recall", "namespace"), sql.Literal(namespace)).as_string()
    if query_ms is not None:
        yield bound.format(sql.Identifier("statement_timeout"), sql.Literal(query_ms)).as_string()


# Rows are made on the event loop: of thousands that takes 20 ms and more.
ROWS_AT_ONCE = 1_000


class _Waiting(NamedTuple):
    """A statement that is sent with the next ones. Without `params` its text is complete and
    unlikely to come again, so it is not prepared.
    """

    sql: str
    params: Params | None
    otherwise: Failure | None = None


class Connected:
    """A `Connection` of the port, over one of psycopg."""

    def __init__(self, raw: Raw, *, unlimited: bool) -> None:
        """With `unlimited` a statement may take any time."""
        self._raw = raw
        self._answer_s = None if unlimited else ANSWER_S
        self._waiting: list[_Waiting] = []
        # Concurrent reads take turns: a connection sends one batch at a time.
        self._turn = asyncio.Lock()
        # After a failed pipeline psycopg takes statements for prepared that the server has not run:
        # the next user of this connection would get "does not exist".
        self.confused = False
        self.ended = False

    def end(self) -> None:
        """Break the transaction off, whatever its caller is doing."""
        self.ended = True
        _hang_up(self._raw)

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        if self._waiting:
            return (await self.fetch_each([(sql, params)]))[0]
        async with self._turn:
            with translated(), _answered_within(self._raw, self._answer_s):
                return await _rows(await self._raw.execute(sql, _plain(params) or None))

    async def fetch_each(
        self, statements: Sequence[Statement], *then: Statement
    ) -> list[Sequence[Row]]:
        """`fetch` several statements in one round trip, and run others after them."""
        async with self._turn:
            before = len(self._waiting)
            self._waiting += [_Waiting(*one) for one in (*statements, *then)]
            cursors = await self._flush()
            return [await _rows(one) for one in cursors[before : before + len(statements)]]

    async def _flush(self) -> list[psycopg.AsyncCursor[DictRow]]:
        """Run the waiting statements in one round trip. Return their cursors."""
        waiting, self._waiting = self._waiting, []
        with translated(), _answered_within(self._raw, self._answer_s):
            self.confused = True
            async with self._raw.pipeline():
                cursors = [await self._execute(one) for one in waiting]
            self.confused = False
        for one, cursor in zip(waiting, cursors, strict=True):
            if one.otherwise is not None and cursor.rowcount == 0:
                raise one.otherwise
        return cursors

    async def _execute(self, one: _Waiting) -> psycopg.AsyncCursor[DictRow]:
        if one.params is None:
            return await self._raw.execute(one.sql, prepare=False)
        return await self._raw.execute(one.sql, _plain(one.params))

    def enter(self, role: str, namespace: str, query_ms: int | None = None) -> None:
        """Bind the transaction to a role and a namespace, with its first statement."""
        self._waiting += [_Waiting(one, None) for one in entering(role, namespace, query_ms)]

    async def send(self, sql: str, params: Params) -> None:
        self._waiting.append(_Waiting(sql, params))

    async def expect(self, sql: str, params: Params, otherwise: Failure) -> None:
        self._waiting.append(_Waiting(sql, params, otherwise))

    async def commit(self) -> None:
        """Commit, in a round trip of its own if a waiting statement may still fail (`expect`)."""
        if any(one.otherwise for one in self._waiting):
            await self._flush()
        await self.fetch("COMMIT", {})

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        for row in rows:
            await self.send(sql, row)

    async def script(self, sql: str) -> None:
        with translated():
            await self._raw.execute(sql)


async def _rows(cursor: psycopg.AsyncCursor[DictRow]) -> Sequence[Row]:
    if not cursor.description:
        return []
    found = await cursor.fetchmany(ROWS_AT_ONCE)
    while cursor.rownumber != cursor.rowcount:
        await asyncio.sleep(0)
        found += await cursor.fetchmany(ROWS_AT_ONCE)
    return found


def _plain(params: Params) -> dict[str, Any]:
    return {
        name: Jsonb(value, _text) if isinstance(value, Document) else value
        for name, value in params.items()
    }


def _text(document: Document) -> str:
    return document.text


# Messages of a server, libpq or psycopg about a refused connection, and what to do about it.
_REFUSALS = {
    "password authentication failed|no password supplied": "has refused the password of the user "
    "{user}. Set the right one in RECALL_DB_URL or RECALL_DB_PASSWORD.",
    "no pg_hba.conf entry": "does not let the user {user} in from here (pg_hba.conf). Add a line "
    "for it.",
    'role ".*" does not exist': "has no user {user}. Make it, or name another one in "
    "RECALL_DB_URL.",
    'database ".*" does not exist': "has no database {name}. Make it with CREATE DATABASE, or name "
    "another one in RECALL_DB_URL.",
}
_UNREACHED = {
    "resolve host|translate host name": ": its host name is unknown",
    "Connection refused|No such file": ": the connection is refused",
    "timeout|timed out": ": it has not answered in time",
}


def not_connected(url: str, error: psycopg.OperationalError) -> RecallError:
    """Return why no connection to the server of `url` could be made, without its password."""
    given = psycopg.conninfo.conninfo_to_dict(url)
    hosts = str(given.get("host") or "localhost").split(",")
    ports = str(given.get("port") or "5432").split(",")
    places = [f"{host}:{port}" for host, port in zip(hosts, ports * len(hosts), strict=False)]
    server = f"The Postgres server at {', '.join(places)}"
    said = str(error)
    if "session is read-only" in said:
        return DatabaseUnavailable(_READ_ONLY)
    user = given.get("user") or "of this process"
    name = given.get("dbname") or user
    for pattern, advice in _REFUSALS.items():
        if re.search(pattern, said):
            return DatabaseUnusable(f"{server} {advice.format(user=user, name=name)}")
    why = next((why for pattern, why in _UNREACHED.items() if re.search(pattern, said)), "")
    return DatabaseUnavailable(
        f"{server} cannot be reached{why}. Check that it runs and that RECALL_DB_URL is right, "
        "then try again."
    )


_READ_ONLY = (
    "No Postgres that RECALL_DB_URL names takes writes: each is a standby, or set to read only. "
    "Name the primary too; of several hosts the one that takes writes is found."
)


@contextmanager
def translated() -> Iterator[None]:
    try:
        yield
    except (PoolTimeout, PoolClosed) as error:
        raise DatabaseUnavailable(
            "The Postgres server does not answer, or all connections are in use. Try again."
        ) from error
    except psycopg.errors.InsufficientPrivilege as error:
        raise DatabaseUnusable(
            "The Postgres user may not do that. It must own the schema, and either have CREATEROLE "
            "or be a member of the roles recall_app, recall_eraser and recall_system."
        ) from error
    except (
        psycopg.errors.LockNotAvailable,
        psycopg.errors.DeadlockDetected,
        psycopg.errors.SerializationFailure,
    ) as error:
        deadlock = isinstance(error, psycopg.errors.DeadlockDetected)
        raise (Deadlocked if deadlock else DatabaseUnavailable)(
            "Another change was in the way and this one was taken back. Send the call again."
        ) from error
    except psycopg.errors.QueryCanceled as error:
        raise QueryTimeout from error
    except psycopg.errors.DiskFull as error:
        raise StorageFull from error
    except psycopg.ProgrammingError as error:
        if error.sqlstate is not None:
            raise
        raise DatabaseUnusable(
            "This is not a Postgres URL. Write postgresql://USER:PASSWORD@HOST:PORT/NAME."
        ) from None
    except psycopg.OperationalError as error:
        if "session is read-only" in str(error):
            raise DatabaseUnavailable(_READ_ONLY) from error
        raise DatabaseUnavailable(
            "The Postgres server cannot be reached. Check that it runs and that RECALL_DB_URL is "
            "right, then try again."
        ) from error
