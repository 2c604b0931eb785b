"""A database that Citus spreads over several nodes: each namespace lies on one of them, and what
belongs to none on all.

Citus keeps which tables are spread, in `pg_dist_partition`. What stands there is not done again, so
a distribution that broke off goes on where it was.
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

# A real SET LOCAL goes on to the nodes. To a Postgres without Citus it is a name without a meaning.
OPTIONS = "-c citus.propagate_set_commands=local"
# Citus enters its nodes as the role that a transaction takes.
ROLES = ("recall_app", "recall_eraser", "recall_system")
# For how long a server that is being stopped may still be connected.
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
    """The tables that do not stay where they are, each behind those that it refers to."""
    rest = [table for table in reversed(registry.TABLES) if not table.local]
    return sorted(rest, key=lambda table: table.name != "namespaces")


async def exists(connection: Connection) -> bool:
    """Whether the database has Citus."""
    return bool((await connection.fetch(_FOUND, {}))[0]["found"])


async def missing(connection: Connection) -> list[str]:
    """The tables that are still to be spread, in a database that has Citus."""
    done = {row["name"] for row in await connection.fetch(_DISTRIBUTED, {})}
    return [table.name for table in placed() if table.name not in done]


async def is_distributed(raw: psycopg.AsyncConnection[tuple[object, ...]]) -> bool:
    """Whether any table is spread."""
    found = await (await raw.execute(_FOUND)).fetchone()
    return found == (True,) and bool(await (await raw.execute(_DISTRIBUTED)).fetchall())


async def distribute(url: str, lock: int) -> list[str]:
    """Spread what is not spread yet; the names of the tables. Under the advisory lock `lock`.
    Raises `NotDistributable` where it cannot be done.
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
            # What was copied to the nodes is still here as well, out of sight, and in the way of
            # no erasure: nothing of it may stay.
            for table in placed():
                await raw.execute(
                    "SELECT truncate_local_data_after_distributing_table(%s)", [table.name]
                )
    return [table.name for table in wanted]


async def _possible(raw: Raw) -> list[registry.Table]:
    """The tables that are to be spread. Raises `NotDistributable`."""
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
    """With all of its rows, or not at all."""
    async with raw.transaction():
        # One connection to each node: the table is changed again behind its rows.
        await raw.execute("SET LOCAL citus.multi_shard_modify_mode TO 'sequential'")
        # Its owner copies the rows of all tenants, this once.
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
    """The statement that spreads a table: beside the other rows of its namespace, or on all
    nodes.
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
