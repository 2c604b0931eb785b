"""A database that Citus distributes over several nodes: each namespace lies on one of them, and the
tables that belong to no namespace lie on all.

Citus records in `pg_dist_partition` which tables are distributed. They are skipped, so an
interrupted distribution can be continued.
"""

import asyncio
from collections.abc import Sequence
from typing import LiteralString

import psycopg
from psycopg import sql
from psycopg.rows import DictRow, dict_row

from recall_server.domain.errors import NotDistributable
from recall_server.storage.driver import Connection
from recall_server.storage.postgres.connection import translated
from recall_server.storage.tables import registry

# Forwards SET LOCAL to the nodes. A Postgres without Citus ignores this setting.
OPTIONS = "-c citus.propagate_set_commands=local"
# Citus logs in to its nodes as the role of the transaction.
ROLES = ("recall_app", "recall_eraser", "recall_system")
# How long to wait until servers that are being stopped have disconnected.
STOPPING_S = 5.0
_POLL_S = 0.1

_FOUND = """
SELECT to_regclass('pg_dist_partition') IS NOT NULL AND EXISTS (
  SELECT FROM pg_proc WHERE proname = 'create_distributed_table' AND pg_function_is_visible(oid)
) AS found
"""
_DISTRIBUTED = """
SELECT c.relname AS name FROM pg_dist_partition p JOIN pg_class c ON c.oid = p.logicalrelid
WHERE c.relnamespace = current_schema()::regnamespace
"""
_TRIGGERS = """
SELECT DISTINCT c.relname AS name FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
WHERE NOT t.tgisinternal AND c.relnamespace = current_schema()::regnamespace
  AND c.relname = ANY(%(tables)s) ORDER BY 1
"""
_OTHERS = """
SELECT pid FROM pg_stat_activity
WHERE datname = current_database() AND application_name LIKE 'recall-server%'
  AND pid <> pg_backend_pid()
"""
_NO_LOGIN = "SELECT rolname FROM pg_roles WHERE rolname = ANY(%(roles)s) AND NOT rolcanlogin"

Raw = psycopg.AsyncConnection[DictRow]


def placed() -> list[registry.Table]:
    """Return the tables to be distributed, each after those that it refers to."""
    rest = [table for table in reversed(registry.TABLES) if not table.local]
    return sorted(rest, key=lambda table: table.name != "namespaces")


async def exists(connection: Connection) -> bool:
    """Return whether the database has Citus."""
    return bool((await connection.fetch(_FOUND, {}))[0]["found"])


async def missing(connection: Connection) -> list[str]:
    """Return the tables that are not distributed yet, in a database that has Citus."""
    done = {row["name"] for row in await connection.fetch(_DISTRIBUTED, {})}
    return [table.name for table in placed() if table.name not in done]


async def is_distributed(raw: psycopg.AsyncConnection[tuple[object, ...]]) -> bool:
    """Return whether any table is distributed."""
    found = await (await raw.execute(_FOUND)).fetchone()
    return found == (True,) and bool(await (await raw.execute(_DISTRIBUTED)).fetchall())


async def distribute(url: str, lock: int) -> list[str]:
    """Distribute the tables that are not distributed yet, under the advisory lock `lock`. Return
    their names. Raises `NotDistributable` if it cannot be done.
    """
    with translated():
        async with await Raw.connect(
            url, autocommit=True, row_factory=dict_row, application_name="recall-distribute"
        ) as raw:
            await raw.execute("SELECT pg_advisory_lock(%s)", [lock])
            wanted = await _possible(raw)
            for role in await _names(raw, _NO_LOGIN, "rolname", roles=list(ROLES)):
                await raw.execute(sql.SQL("ALTER ROLE {} LOGIN").format(sql.Identifier(role)))
            for table in wanted:
                await _spread(raw, table)
            # The rows that were copied to the nodes are still here too, where no query sees them
            # and no erasure would reach them.
            for table in placed():
                await raw.execute(
                    "SELECT truncate_local_data_after_distributing_table(%s)", [table.name]
                )
    return [table.name for table in wanted]


async def _possible(raw: Raw) -> list[registry.Table]:
    """Return the tables to be distributed now. Raises `NotDistributable`."""
    if not (await _row(raw, _FOUND))["found"]:
        raise NotDistributable(
            "This Postgres has no Citus. Have a superuser run CREATE EXTENSION citus in the "
            "database of every node, and add the nodes, then do it again."
        )
    names = [table.name for table in placed()]
    if triggers := await _names(raw, _TRIGGERS, "name", tables=names):
        raise NotDistributable(
            f"There are triggers on {', '.join(triggers)}, which Citus refuses. They are none of "
            "this server's: drop them."
        )
    for _ in range(int(STOPPING_S / _POLL_S)):
        if not await _names(raw, _OTHERS, "pid"):
            break
        await asyncio.sleep(_POLL_S)
    else:
        raise NotDistributable(
            "Servers or workers are connected to this database. Stop them, then do it again."
        )
    done = set(await _names(raw, _DISTRIBUTED, "name"))
    return [table for table in placed() if table.name not in done]


async def _spread(raw: Raw, table: registry.Table) -> None:
    """Distribute a table with all of its rows, or not at all."""
    async with raw.transaction():
        # Use one connection to each node: the table is altered again after its rows are copied.
        await raw.execute("SET LOCAL citus.multi_shard_modify_mode TO 'sequential'")
        # The owner must be able to copy the rows of all tenants.
        await raw.execute(_changed(table, "NO FORCE ROW LEVEL SECURITY"))
        before = await _count(raw, table)
        await raw.execute(spreading(table))
        if await _count(raw, table) != before:
            raise NotDistributable(
                f"Citus has not copied all rows of {table.name}, so nothing of it was changed. The "
                "log of Postgres says why."
            )
        await raw.execute(_changed(table, "FORCE ROW LEVEL SECURITY"))


def spreading(table: registry.Table) -> sql.Composed:
    """Return the statement that distributes a table: together with the other rows of each
    namespace, or to all nodes.
    """
    if not table.tenant:
        return sql.SQL("SELECT create_reference_table({})").format(sql.Literal(table.name))
    beside = "" if table.name == "namespaces" else ", colocate_with => 'namespaces'"
    return sql.SQL("SELECT create_distributed_table({}, 'namespace'{})").format(
        sql.Literal(table.name), sql.SQL(beside)
    )


def _changed(table: registry.Table, how: LiteralString) -> sql.Composed:
    return sql.SQL("ALTER TABLE {} {}").format(sql.Identifier(table.name), sql.SQL(how))


async def _count(raw: Raw, table: registry.Table) -> int:
    counted = sql.SQL("SELECT count(*) AS rows FROM {}").format(sql.Identifier(table.name))
    return int((await _row(raw, counted))["rows"])


async def _row(raw: Raw, query: str | sql.Composed) -> DictRow:
    row = await (await raw.execute(query)).fetchone()
    assert row is not None
    return row


async def _names(raw: Raw, query: str, column: str, **params: Sequence[str]) -> list[str]:
    return [row[column] for row in await (await raw.execute(query, params or None)).fetchall()]
