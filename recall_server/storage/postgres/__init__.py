"""Postgres: a pool, one connection per transaction, and in each transaction a role that row-level
security binds to one namespace (the second barrier, after the bound namespace).

A purge destroys the traces of deleted rows: dead rows in tables and indexes, column statistics, and
the write-ahead log. See PostgresDriver.purge.
"""

import asyncio
import os
import re
import secrets
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import structlog
from psycopg import sql
from psycopg.adapt import AdaptersMap
from psycopg.rows import DictRow, dict_row
from psycopg.types.string import TextLoader
from psycopg_pool import AsyncConnectionPool

from recall_server.domain.errors import DatabaseUnavailable, DatabaseUnusable
from recall_server.domain.fairness import FairSemaphore
from recall_server.storage.driver import (
    Connection,
    Engine,
    Holder,
    Row,
    Statement,
    TimeLimits,
    cancelled_as_such,
    run_uncancelled,
)
from recall_server.storage.postgres import distribution
from recall_server.storage.postgres.connection import (
    Connected,
    Raw,
    checked,
    entering,
    not_connected,
    rolled_back,
    translated,
)

# Any constant will do, as long as every replica uses the same.
_PURGE_LOCK = 7_265_636_132
LOCK_TIMEOUT_MS = 1_000
PROBES = 20
PROBE_REST_S = 0.25
# Segments of 16 MB. A longer log is left to the server's own recycling.
SEGMENTS_MAX = 64

_Raw = psycopg.AsyncConnection[DictRow]


async def _purge(raw: _Raw, tables: Sequence[str], *, nodes: bool) -> str:
    """Rewrite the tables with their indexes and statistics, then the write-ahead log. Return what
    was left behind: with several `nodes`, always the rows and logs of the others. Needs a
    connection of the schema's owner, outside a transaction.
    """
    # Other statements queue behind a purge that waits for a lock, so give up and try again later.
    await raw.execute(f"SET lock_timeout = {LOCK_TIMEOUT_MS}; SET statement_timeout = 0")
    locked = await raw.execute("SELECT pg_try_advisory_lock(%s) AS mine", [_PURGE_LOCK])
    if not (row := await locked.fetchone()) or not row["mine"]:
        raise DatabaseUnavailable("Another process is purging already. It is tried again.")
    try:
        await _wait_for_readers(raw, nodes=nodes)
        left = [f"statistics ({why})" for why in await _rewrite(raw, tables)]
        left += await _rewrite_log(raw)
        if nodes:
            left.append("old rows and write-ahead logs of the other nodes (recycled by each)")
    finally:
        # Unlock explicitly: the server notices only later that the connection is closed.
        with suppress(psycopg.Error):
            await raw.execute("SELECT pg_advisory_unlock(%s)", [_PURGE_LOCK])
    return "; ".join(left)


async def _wait_for_readers(raw: _Raw, *, nodes: bool) -> None:
    """Wait until no transaction sees an older state: until then a rewrite keeps deleted rows.

    Update a row as a probe: when its old version can be removed, so can all older ones.
    """
    dead: list[str] = []
    raw.add_notice_handler(lambda notice: dead.append(notice.message_detail or ""))
    if nodes:  # `server` is a reference table: here VACUUM would report no row of it
        probe = "schema_version"
        await raw.execute("UPDATE schema_version SET applied_at = applied_at")
    else:
        probe = "server"
        await raw.execute("SET ROLE recall_system")
        await raw.execute("UPDATE server SET created_at = created_at")
        await raw.execute("RESET ROLE")
    for _ in range(PROBES):
        dead.clear()
        await raw.execute(sql.SQL("VACUUM (FULL, VERBOSE) {}").format(sql.Identifier(probe)))
        numbers = [int(match[1]) for text in dead if (match := re.match(r"\D*(\d+)", text))]
        if numbers == [0]:
            return
        await asyncio.sleep(PROBE_REST_S)
    raise DatabaseUnavailable(
        "A long transaction still sees what was erased. It is tried again when that has ended."
    )


async def _rewrite(raw: _Raw, tables: Sequence[str]) -> list[str]:
    """Rewrite the tables and their statistics. Return the warnings about the statistics. Raises
    `DatabaseUnavailable` if a table may not be rewritten.
    """
    notices: list[str] = []

    def note(notice: psycopg.errors.Diagnostic) -> None:
        if notice.severity_nonlocalized == "WARNING":
            notices.append(notice.message_primary or "")

    raw.add_notice_handler(note)
    for table in tables:
        # First without a lock, so that the rewrite under the lock does not also have to read the
        # dead rows of a large erasure.
        for how in ("VACUUM {}", "VACUUM (FULL, ANALYZE) {}"):
            await raw.execute(sql.SQL(how).format(sql.Identifier(table)))
    if notices:
        # VACUUM only warns about a table that it may not touch, and skips it.
        raise DatabaseUnavailable(f"The tables cannot be rewritten: {notices[0]}.")
    # Statistics hold the most common values of each column; ANALYZE left the old ones as dead rows.
    await raw.execute("VACUUM (FULL) pg_statistic")
    return notices


async def _rewrite_log(raw: _Raw) -> list[str]:
    """Have every segment of the log reused, which overwrites it. Return what prevented it."""
    try:
        # This makes all segments so far old, and the checkpoint renames old ones to be used next.
        await _next_segment(raw)
        await raw.execute("CHECKPOINT")
        found = await (await raw.execute("SELECT count(*) AS n FROM pg_ls_waldir()")).fetchone()
        segments = int(found["n"]) if found else 0
        if segments > SEGMENTS_MAX:
            return [f"write-ahead log ({segments} segments, recycled by the server)"]
        for _ in range(segments + 1):
            await _next_segment(raw)
        await raw.execute("CHECKPOINT")
    except psycopg.errors.InsufficientPrivilege:
        return ["write-ahead log (recycled by the server; needs pg_checkpoint and pg_switch_wal)"]
    return []


async def _next_segment(raw: _Raw) -> None:
    """Fill the rest of the segment with zeros and switch to the next one. Write a message first:
    Postgres does not switch from a segment in which nothing was written.
    """
    await raw.execute("SELECT pg_logical_emit_message(false, 'recall', 'purge')")
    await raw.execute("SELECT pg_switch_wal()")


async def _data_folder(raw: _Raw) -> Path | None:
    """Return the folder of the server's files, if it is known and this process can read it."""
    try:
        row = await (await raw.execute("SHOW data_directory")).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return None
    folder = Path(row["data_directory"]) if row else None
    readable = folder is not None and os.access(folder / "postmaster.pid", os.R_OK)
    return folder if readable else None


log = structlog.get_logger()

OLDEST_VERSION = 150000
POOL_SIZE = 10
# The connection of a call that was cancelled is closed, and a busy server may take longer to make
# another than a call waits: so there is one to spare.
POOL_MIN = 2
POOL_WAIT_S = 5.0
# Connections that one namespace may use; the rest is for others, and for work for all.
EACH_MAX = 6
STATEMENT_TIMEOUT_MS = 10_000
# Any constant will do, as long as every replica uses the same.
MIGRATION_LOCK = 7_265_636_131
# After this long a lost connection of a holder is made again.
HOLD_AGAIN_S = 1.0
# With these both ends notice a lost host: after 10 s of silence and three probes.
_KEEPALIVE: dict[str, Any] = {
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
}
_SERVER_KEEPALIVE = " ".join(f"-c tcp_{name}={value}" for name, value in _KEEPALIVE.items())

# The role of a transaction decides which rows it sees, not the rights of the connection:
# recall_app sees the rows of one namespace, recall_eraser may also delete them, and recall_system
# sees those that serve all tenants. On one node one statement takes a third of the time of three.
_ENTER = (
    "SELECT set_config('role', %(role)s, true), set_config('recall.namespace', %(namespace)s, true)"
)
_ENTER_READING = f"{_ENTER}, set_config('statement_timeout', %(query_ms)s::text, true)"
# All that a transaction reads is of one state, as on SQLite.
_BEGIN_READ = "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY"
# Statements that are sent together without BEGIN are one transaction: a read takes half of them.
_READ_ALONE = f"{_ENTER_READING}, set_config('transaction_read_only', 'on', true)"
_GONE = (
    "SELECT holder FROM unnest(CAST(%(holders)s AS bigint[])) holder"
    " WHERE pg_try_advisory_xact_lock_shared(holder)"
)
# Of several hosts libpq finds the one that takes writes. A standby would give old answers, such as
# tokens that have been revoked.
_WRITABLE: dict[str, Any] = {"target_session_attrs": "read-write", "connect_timeout": 5}


def _as_text() -> AdaptersMap:
    """Return psycopg's types, with JSON as text, as on SQLite: a large document is read beside the
    event loop.
    """
    types = AdaptersMap(psycopg.adapters)
    types.register_loader("jsonb", TextLoader)
    return types


class PostgresDriver:
    """One database, reached by `url`."""

    engine: Engine = "postgres"

    def __init__(self, url: str, limits: TimeLimits = TimeLimits()) -> None:
        self._limits = limits
        self._query_ms = max(1, round(1_000 * limits.query_s))
        self._pool: AsyncConnectionPool[Raw] = AsyncConnectionPool(
            url,
            min_size=POOL_MIN,
            max_size=POOL_SIZE,
            timeout=POOL_WAIT_S,
            open=False,
            check=checked,
            connection_class=psycopg.AsyncConnection[DictRow],
            kwargs={
                "autocommit": True,
                "row_factory": dict_row,
                "context": _as_text(),
                **_WRITABLE,
                "application_name": "recall-server",
                "options": (
                    f"-c statement_timeout={STATEMENT_TIMEOUT_MS} -c lock_timeout=5000"
                    " -c idle_in_transaction_session_timeout=60000 -c timezone=UTC"
                    # For solid disks: prefer an index to a scan that reads other tenants' rows.
                    " -c random_page_cost=1.1"
                    f" {distribution.OPTIONS}"
                ),
            },
        )
        self._url = url
        self._turns = FairSemaphore(POOL_SIZE, per_key=EACH_MAX)
        self._is_distributed = False

    async def open(self) -> None:
        with translated():
            # First connect without the pool, which would go on trying in the background.
            async with await self._connected() as raw:
                if raw.info.server_version < OLDEST_VERSION:
                    raise DatabaseUnusable(
                        "This Postgres is older than 15. Upgrade it, then start again."
                    )
                if raw.info.parameter_status("server_encoding") != "UTF8":
                    raise DatabaseUnusable(
                        "This Postgres database is not encoded in UTF8. Make one that is."
                    )
                self._is_distributed = await distribution.is_distributed(raw)
            await self._pool.open(wait=True, timeout=10)

    async def _connected(self) -> psycopg.AsyncConnection[Any]:
        """Connect. Raises `DatabaseUnusable` or `DatabaseUnavailable` with the reason."""
        try:
            return await psycopg.AsyncConnection.connect(self._url, **_WRITABLE)
        except psycopg.OperationalError as error:
            raise not_connected(self._url, error) from error

    async def close(self) -> None:
        await self._pool.close()

    @asynccontextmanager
    async def transaction(
        self,
        *,
        namespace: str | None,
        write: bool,
        erasing: bool = False,
    ) -> AsyncIterator[Connection]:
        role = "recall_eraser" if erasing and namespace is not None else _role(namespace)
        begin = "BEGIN READ WRITE" if write else _BEGIN_READ
        query_ms = None if write else self._query_ms
        async with self._in_turn(namespace, begin) as connection:
            await self._enter(connection, role, namespace or "", query_ms)
            yield connection

    @asynccontextmanager
    async def _in_turn(self, namespace: str | None, begin: str) -> AsyncIterator["Connected"]:
        try:
            async with asyncio.timeout(POOL_WAIT_S):
                await self._turns.acquire(namespace)
        except TimeoutError:
            raise DatabaseUnavailable(
                "All connections to Postgres that one namespace may use are in use. Try again."
            ) from None
        try:
            async with self._begun(begin) as connection:
                yield connection
        finally:
            self._turns.release(namespace)

    async def _enter(
        self, connection: Connected, role: str, namespace: str, query_ms: int | None
    ) -> None:
        """Bind the transaction to a role and a namespace, with its first statement."""
        if self._is_distributed:
            connection.enter(role, namespace, query_ms)
            return
        entered = {"role": role, "namespace": namespace, "query_ms": query_ms}
        await connection.send(_ENTER if query_ms is None else _ENTER_READING, entered)

    async def autocommit(
        self, statements: Sequence[Statement], *, namespace: str | None
    ) -> list[Sequence[Row]]:
        role, owner, query_ms = _role(namespace), namespace or "", self._query_ms
        async with self._in_turn(namespace, "") as connection:
            if self._is_distributed:
                await connection.send(_BEGIN_READ, {})
                connection.enter(role, owner, query_ms)
                return await connection.fetch_each(statements, ("COMMIT", {}))
            entered = {"role": role, "namespace": owner, "query_ms": query_ms}
            await connection.send(_READ_ALONE, entered)
            return await connection.fetch_each(statements)

    @asynccontextmanager
    async def snapshot(self, namespace: str) -> AsyncIterator[Connection]:
        async with self._begun(_BEGIN_READ) as connection:
            await self._enter(connection, "recall_app", namespace, None)
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
        async with self._begun("BEGIN", unlimited=True) as connection:
            # Another replica may migrate for longer than a statement may normally take.
            await connection.send("SET LOCAL lock_timeout = 0", {})
            await connection.send("SET LOCAL statement_timeout = 0", {})
            await connection.fetch("SELECT pg_advisory_xact_lock(%(key)s)", {"key": MIGRATION_LOCK})
            yield connection

    async def purge(self, tables: Sequence[str]) -> str:
        async with self._apart(autocommit=True) as raw:
            left = await _purge(raw, tables, nodes=self._is_distributed)
        # An idle connection holds the segment of the log open that it last wrote to, even if the
        # server has removed it.
        await self._pool.drain()
        return left

    @asynccontextmanager
    async def holding(self) -> AsyncIterator[Holder]:
        holder = Holder()
        number, held = secrets.randbits(63), asyncio.Event()
        task = asyncio.create_task(self._hold(holder, number, held))
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(POOL_WAIT_S):
                    await held.wait()
            yield holder
        finally:
            task.cancel()
            await asyncio.wait({task})

    async def _hold(self, holder: Holder, number: int, held: asyncio.Event) -> None:
        """Hold the advisory lock of a number, and take it again if the connection is lost."""
        while True:
            try:
                async with await psycopg.AsyncConnection.connect(
                    self._url,
                    autocommit=True,
                    application_name="recall-server holder",
                    options=_SERVER_KEEPALIVE,
                    **_WRITABLE,
                    **_KEEPALIVE,
                ) as raw:
                    # Waits until the server has noticed that the last connection is lost.
                    await raw.execute("SELECT pg_advisory_lock(%s)", [number])
                    holder.id = number
                    held.set()
                    async for _ in raw.notifies():  # nobody notifies: this ends with the connection
                        pass
            except Exception as error:  # noqa: BLE001 - after any error others take the jobs
                log.warning("holder_lost", reason=type(error).__name__)
                holder.id = None
            await asyncio.sleep(HOLD_AGAIN_S)

    async def gone(self, holders: Sequence[int]) -> Sequence[int]:
        # Shared, so that concurrent checks do not block each other; held until the statement ends.
        (rows,) = await self.autocommit([(_GONE, {"holders": list(holders)})], namespace=None)
        return [row["holder"] for row in rows]

    async def files(self) -> Sequence[Path]:
        async with self._apart(autocommit=True) as raw:
            folder = await _data_folder(raw)
        return [folder] if folder else []

    async def texts(self, namespace: str, tables: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
        async with self._apart(options=distribution.OPTIONS) as raw:
            # Under row-level security.
            for statement in entering("recall_app", namespace):
                await raw.execute(statement)
            for table in tables:
                line = sql.SQL("SELECT CAST(t AS text) AS line FROM {} t")
                async with raw.cursor(f"texts_of_{table}") as cursor:
                    await cursor.execute(line.format(sql.Identifier(table)))
                    async for row in cursor:
                        yield table, row["line"]

    @asynccontextmanager
    async def _apart(self, **given: Any) -> AsyncIterator[_Raw]:
        """A connection outside of the pool."""
        with translated():
            async with await Raw.connect(
                self._url, row_factory=dict_row, context=_as_text(), **_WRITABLE, **given
            ) as raw:
                yield raw

    @asynccontextmanager
    async def _begun(self, begin: str, *, unlimited: bool = False) -> AsyncIterator["Connected"]:
        """A transaction; without `begin` it is that of the one batch of statements in the block."""
        with cancelled_as_such(), translated():
            async with self._pool.connection() as raw:
                connection = Connected(raw, unlimited=unlimited)
                try:
                    if not begin:
                        yield connection
                        return
                    # BEGIN is sent with the first statement: each round trip counts.
                    await connection.send(begin, {})
                    yield connection
                    await run_uncancelled(connection.commit())
                except BaseException:  # a cancelled caller must leave nothing behind
                    await run_uncancelled(rolled_back(raw, connection))
                    raise


def _role(namespace: str | None) -> str:
    return "recall_system" if namespace is None else "recall_app"
