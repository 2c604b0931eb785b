"""Postgres: a pool, one connection a transaction, and a role per transaction that row-level
security binds to one namespace (HOUSE: the second wall).
"""

import asyncio
import os
import selectors
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg.rows import DictRow, dict_row
from psycopg.types.json import Jsonb
from psycopg_pool import AsyncConnectionPool, PoolClosed, PoolTimeout

from recall_server.domain.errors import (
    DatabaseUnavailable,
    DatabaseUnusable,
    QueryTimeout,
    StorageFull,
)
from recall_server.domain.turns import Turns
from recall_server.storage import postgres_purge
from recall_server.storage.driver import (
    Asked,
    Connection,
    Document,
    Engine,
    Params,
    Row,
    TimeLimits,
)
from recall_server.storage.to_the_end import cancelled_as_such, to_the_end

OLDEST_VERSION = 150000
POOL_SIZE = 10
POOL_WAIT_S = 5.0
# Of one namespace; the rest is for the others, and for what serves all.
EACH_MAX = 6
STATEMENT_TIMEOUT_MS = 10_000
# After this the server would have answered, if only that it took too long: it cannot be reached.
ANSWER_S = 12.0
# Any constant will do, as long as every replica takes the same.
_MIGRATION_LOCK = 7_265_636_131

# What a transaction may see is decided by its role, not by what the connection may do:
# recall_app sees the rows of one namespace, recall_eraser may delete them, and recall_system sees
# those that serve all tenants.
_ENTER = (
    "SELECT set_config('role', %(role)s, true), set_config('recall.namespace', %(namespace)s, true)"
)

_ENTER_READING = f"{_ENTER}, set_config('statement_timeout', %(query_ms)s, true)"
# Of several hosts the one that takes writes is found, whichever it is today; a standby would give
# old answers, tokens that have been revoked among them.
_WRITABLE: dict[str, Any] = {"target_session_attrs": "read-write", "connect_timeout": 5}

_Raw = psycopg.AsyncConnection[DictRow]


class PostgresDriver:
    """One database, reached by `url`."""

    engine: Engine = "postgres"

    def __init__(self, url: str, limits: TimeLimits = TimeLimits()) -> None:
        self._limits = limits
        self._pool: AsyncConnectionPool[_Raw] = AsyncConnectionPool(
            url,
            min_size=1,
            max_size=POOL_SIZE,
            timeout=POOL_WAIT_S,
            open=False,
            check=_check,
            connection_class=psycopg.AsyncConnection[DictRow],
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                **_WRITABLE,
                "application_name": "recall-server",
                "options": (
                    f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout=5000"
                    " -c idle_in_transaction_session_timeout=60000 -c timezone=UTC"
                    # Solid disks: an index is worth its steps, and no tenant is read with another.
                    " -c random_page_cost=1.1"
                ),
            },
        )
        self._url = url
        self._turns = Turns(POOL_SIZE, each=EACH_MAX)

    async def open(self) -> None:
        with _translated():
            # Asked once without the pool, which would go on trying in the background.
            async with await psycopg.AsyncConnection.connect(self._url, **_WRITABLE) as raw:
                if raw.info.server_version < OLDEST_VERSION:
                    raise DatabaseUnusable(
                        "This Postgres is older than 15. Upgrade it, then start again."
                    )
                if raw.info.parameter_status("server_encoding") != "UTF8":
                    raise DatabaseUnusable(
                        "This Postgres database is not encoded in UTF8. Make one that is."
                    )
            await self._pool.open(wait=True, timeout=10)

    async def close(self) -> None:
        await self._pool.close()

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
        del brief  # nobody waits here for anybody else's statements
        role = "recall_eraser" if erasing and namespace is not None else _role(namespace)
        async with self._transaction(
            namespace, write=write, role=role, noting=noting
        ) as connection:
            yield connection

    @asynccontextmanager
    async def _transaction(
        self, namespace: str | None, *, write: bool, role: str, noting: bool = False
    ) -> AsyncIterator["_PostgresConnection"]:
        try:
            async with asyncio.timeout(POOL_WAIT_S):
                await self._turns.take(namespace)
        except TimeoutError:
            raise DatabaseUnavailable(
                "All connections to Postgres that one namespace may use are in use. Try again."
            ) from None
        try:
            begin = "BEGIN READ WRITE" if write or noting else "BEGIN READ ONLY"
            async with self._begun(begin) as connection:
                entered = {"role": role, "namespace": namespace or ""}
                if write:
                    await connection.send(_ENTER, entered)
                else:
                    query_ms = str(max(1, round(1_000 * self._limits.query_s)))
                    await connection.send(_ENTER_READING, {**entered, "query_ms": query_ms})
                yield connection
        finally:
            self._turns.give_back(namespace)

    async def alone(
        self,
        sql: str,
        params: Params,
        *,
        namespace: str | None,
        write: bool,
        lasting: bool,
    ) -> Sequence[Row]:
        del lasting  # those who use it may outlive it, so it has to keep all that it told them
        async with self._transaction(namespace, write=write, role=_role(namespace)) as connection:
            return await connection.last(sql, params)

    async def settled(self) -> None:
        """Nothing is seen before it is committed."""

    @asynccontextmanager
    async def snapshot(self, namespace: str) -> AsyncIterator[Connection]:
        begin = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
        async with self._begun(begin) as connection:
            await connection.send(_ENTER, {"role": "recall_app", "namespace": namespace})
            over = asyncio.get_running_loop().call_later(self._limits.snapshot_s, connection.end)
            try:
                yield connection
            except DatabaseUnavailable:
                if connection.ended:
                    raise self._limits.snapshot_over from None
                raise
            finally:
                over.cancel()

    @asynccontextmanager
    async def migration(self) -> AsyncIterator[Connection]:
        async with self._begun("BEGIN", patient=True) as connection:
            # Another replica may be migrating for longer than a statement may normally take.
            await connection.send("SET LOCAL lock_timeout = 0", {})
            await connection.send("SET LOCAL statement_timeout = 0", {})
            await connection.fetch(
                "SELECT pg_advisory_xact_lock(%(key)s)", {"key": _MIGRATION_LOCK}
            )
            yield connection

    async def purge(self, tables: Sequence[str]) -> str:
        with _translated():
            async with await _Raw.connect(
                self._url, autocommit=True, row_factory=dict_row, **_WRITABLE
            ) as raw:
                return await postgres_purge.purge(raw, tables)

    async def files(self) -> Sequence[Path]:
        with _translated():
            async with await _Raw.connect(
                self._url, autocommit=True, row_factory=dict_row, **_WRITABLE
            ) as raw:
                folder = await postgres_purge.data_folder(raw)
        return [folder] if folder else []

    async def texts(self, namespace: str, tables: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
        with _translated():
            async with await _Raw.connect(self._url, row_factory=dict_row, **_WRITABLE) as raw:
                async for found in postgres_purge.texts(raw, namespace, tables):
                    yield found

    @asynccontextmanager
    async def _begun(
        self, begin: str, *, patient: bool = False
    ) -> AsyncIterator["_PostgresConnection"]:
        with cancelled_as_such(), _translated():
            async with self._pool.connection() as raw:
                connection = _PostgresConnection(raw, None if patient else ANSWER_S)
                try:
                    # It begins with its first statement, as each journey there and back counts.
                    await connection.send(begin, {})
                    yield connection
                    await to_the_end(connection.commit())
                except BaseException:  # a caller that hung up must leave nothing behind
                    await to_the_end(_rollback(raw, connection))
                    raise


def _role(namespace: str | None) -> str:
    return "recall_system" if namespace is None else "recall_app"


async def _check(raw: _Raw) -> None:
    """Nothing is to be read on an idle connection that lives: only where there is, the server is
    asked. Raises where it is gone, and the pool takes another one.
    """
    with selectors.DefaultSelector() as selector:
        selector.register(raw.fileno(), selectors.EVENT_READ)
        heard = selector.select(0)
    if heard or raw.broken:
        await AsyncConnectionPool.check_connection(raw)


async def _rollback(raw: _Raw, connection: "_PostgresConnection") -> None:
    if raw.closed:
        return
    if connection.confused:
        await raw.close()
        return
    try:
        with _patience(raw, ANSWER_S):
            await raw.execute("ROLLBACK")
    except psycopg.OperationalError:
        await raw.close()  # the pool replaces it; the server has rolled back by itself


@contextmanager
def _patience(raw: _Raw, seconds: float | None) -> Iterator[None]:
    """Hang up on a server that has not answered after so long. A network that swallows everything
    gives no error of its own, and the driver would wait for one, even when it is cancelled.
    """
    if seconds is None:
        yield
        return
    hanging_up = asyncio.get_running_loop().call_later(seconds, _hang_up, raw)
    try:
        yield
    finally:
        hanging_up.cancel()


def _hang_up(raw: _Raw) -> None:
    if not raw.closed:
        with socket.socket(fileno=os.dup(raw.fileno())) as line, suppress(OSError):
            line.shutdown(socket.SHUT_RDWR)


class _PostgresConnection:
    def __init__(self, raw: _Raw, answer_s: float | None) -> None:
        """`answer_s`: how long a statement may take; None: as long as it does."""
        self._raw = raw
        self._answer_s = answer_s
        self._waiting: list[tuple[str, Params, Exception | None]] = []
        # What is asked, by its place among those that wait.
        self._asked: dict[int, Asked] = {}
        # Two that read at once take turns: a connection has one conversation.
        self._turn = asyncio.Lock()
        self._over = False
        # After a pipeline that failed, psycopg counts statements as prepared that the server never
        # came to: whoever got this connection next would be told that they do not exist.
        self.confused = False
        self.ended = False

    def end(self) -> None:
        """Let go of what is read, whatever the caller does meanwhile."""
        self.ended = True
        _hang_up(self._raw)

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        async with self._turn:
            if self._waiting:
                await self.send(sql, params)
                return await _rows((await self._flush())[-1])
            with _translated(), _patience(self._raw, self._answer_s):
                return await _rows(await self._raw.execute(sql, _plain(params) or None))

    async def last(self, sql: str, params: Params) -> Sequence[Row]:
        """`fetch`, and commit in the same journey."""
        async with self._turn:
            await self.send(sql, params)
            await self.send("COMMIT", {})
            cursors = await self._flush()
            self._over = True
            return await _rows(cursors[-2])

    async def _flush(self) -> list[psycopg.AsyncCursor[DictRow]]:
        """Run what waits, in one journey; the cursors."""
        waiting, self._waiting = self._waiting, []
        asked, self._asked = self._asked, {}
        with _translated(), _patience(self._raw, self._answer_s):
            self.confused = True
            async with self._raw.pipeline():
                cursors = [await self._raw.execute(sql, _plain(given)) for sql, given, _ in waiting]
            self.confused = False
        for (_, _, otherwise), cursor in zip(waiting, cursors, strict=True):
            if otherwise is not None and cursor.rowcount == 0:
                raise otherwise
        for place, one in asked.items():
            one.rows = await _rows(cursors[place])
        return cursors

    async def send(self, sql: str, params: Params) -> None:
        self._waiting.append((sql, params, None))

    async def ask(self, sql: str, params: Params) -> Asked:
        asked = self._asked[len(self._waiting)] = Asked()
        await self.send(sql, params)
        return asked

    async def expect(self, sql: str, params: Params, otherwise: Exception) -> None:
        self._waiting.append((sql, params, otherwise))

    async def commit(self) -> None:
        """Not in one journey with what may still forbid it."""
        if self._over:
            return
        if any(otherwise for _, _, otherwise in self._waiting):
            await self._flush()
        await self.fetch("COMMIT", {})

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        for row in rows:
            await self.send(sql, row)

    async def script(self, sql: str) -> None:
        with _translated():
            await self._raw.execute(sql)


async def _rows(cursor: psycopg.AsyncCursor[DictRow]) -> Sequence[Row]:
    return await cursor.fetchall() if cursor.description else []


def _plain(params: Params) -> dict[str, Any]:
    return {
        name: Jsonb(value, _text) if isinstance(value, Document) else value
        for name, value in params.items()
    }


def _text(document: Document) -> str:
    return document.text


@contextmanager
def _translated() -> Iterator[None]:
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
        raise DatabaseUnavailable(
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
            raise DatabaseUnavailable(
                "No Postgres that RECALL_DB_URL names takes writes: each is a standby, or set to "
                "read only. Name the primary too; of several hosts the one that takes writes is "
                "found."
            ) from error
        raise DatabaseUnavailable(
            "The Postgres server cannot be reached. Check that it runs and that RECALL_DB_URL is "
            "right, then try again."
        ) from error
