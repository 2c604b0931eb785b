"""Destroy the traces of deleted rows on Postgres: dead rows in tables and indexes, column
statistics, and the write-ahead log. See PostgresDriver.purge.
"""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.rows import DictRow

from recall_server.domain.errors import DatabaseUnavailable
from recall_server.storage.postgres.connection import entering

# Any constant will do, as long as every replica uses the same.
_PURGE_LOCK = 7_265_636_132
LOCK_TIMEOUT_MS = 1_000
PROBES = 20
PROBE_REST_S = 0.25
# Segments of 16 MB. A longer log is left to the server's own recycling.
SEGMENTS_MAX = 64

_Raw = psycopg.AsyncConnection[DictRow]


async def purge(raw: _Raw, tables: Sequence[str], *, nodes: bool) -> str:
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


async def data_folder(raw: _Raw) -> Path | None:
    """Return the folder of the server's files, if it is known and this process can read it."""
    try:
        row = await (await raw.execute("SHOW data_directory")).fetchone()
    except psycopg.errors.InsufficientPrivilege:
        return None
    folder = Path(row["data_directory"]) if row else None
    readable = folder is not None and os.access(folder / "postmaster.pid", os.R_OK)
    return folder if readable else None


async def texts(raw: _Raw, namespace: str, tables: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
    """Yield every row of a namespace as text, with its table, under row-level security."""
    for statement in entering("recall_app", namespace):
        await raw.execute(statement)
    for table in tables:
        line = sql.SQL("SELECT CAST(t AS text) AS line FROM {} t").format(sql.Identifier(table))
        async with raw.cursor(f"texts_of_{table}") as cursor:
            await cursor.execute(line)
            async for row in cursor:
                yield table, row["line"]
