"""Checks of a database: of its engine, asked as the owner of the schema, and of its disk space."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from pathlib import Path

from recall_server.storage.driver import Connection, Engine, Row, moment


class Level(StrEnum):
    """`WARN` may be intended; with `FAIL` a server does not start."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """The result of one check: its name, and one line with the fault and the next step."""

    check: str
    level: Level
    text: str


def judged(
    check: str, good: str, *, fail: str | None = None, warn: str | None = None, when: bool = True
) -> Finding:
    """Return the worst result of a check: `fail` or `warn` if given and `when`, else `good`."""
    if when and fail is not None:
        return Finding(check, Level.FAIL, fail)
    if when and warn is not None:
        return Finding(check, Level.WARN, warn)
    return Finding(check, Level.OK, good)


# The first release with the operator ->>.
SQLITE_OLDEST = (3, 38, 0)
CLOCK_WARN_S = 5.0
CLOCK_FAIL_S = 60.0
OLD_READER_S = 3_600.0
# Reading a smaller table as a whole takes next to no time.
UNSEEN_BYTES = 8_388_608

_OURS = ("recall_app", "recall_eraser", "recall_system")
_ROLES = """
SELECT r.rolname, r.rolsuper, r.rolbypassrls, r.rolcanlogin FROM pg_roles r
WHERE r.rolname IN (session_user, 'recall_app', 'recall_eraser', 'recall_system')
"""
_WALLS = """
SELECT c.relname FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
  AND a.attname = 'namespace' AND NOT a.attisdropped AND NOT (
    c.relrowsecurity AND c.relforcerowsecurity AND EXISTS (
      SELECT FROM pg_policy p WHERE p.polrelid = c.oid AND p.polname = 'tenant'))
ORDER BY c.relname
"""
_TRUNCATES = """
SELECT c.relname FROM pg_class c
WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace
  AND (has_table_privilege('recall_app', c.oid, 'TRUNCATE')
    OR has_table_privilege('recall_system', c.oid, 'TRUNCATE'))
ORDER BY c.relname
"""
_LOGGED = """
SELECT name, setting FROM pg_settings WHERE
  (name = 'log_statement' AND setting IN ('mod', 'all'))
  OR (name = 'log_min_duration_statement' AND setting <> '-1'
    AND current_setting('log_parameter_max_length') <> '0')
  OR (name = 'log_parameter_max_length_on_error' AND setting <> '0')
ORDER BY name
"""
# With these off, a crash of the machine loses acknowledged writes, or leaves them half done.
_LOSSY = """
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
ORDER BY name
"""
# The users that can read the rows of all namespaces, as a dump must: the user itself first, then
# those with the fewest rights.
_DUMPERS = """
SELECT r.rolname FROM pg_roles r
WHERE r.rolcanlogin AND (r.rolsuper
  OR (r.rolbypassrls AND pg_has_role(r.oid, 'pg_read_all_data', 'MEMBER')))
ORDER BY r.rolname <> session_user, r.rolsuper, r.rolname
"""
# Tables never analyzed: Postgres assumes a row or two per namespace, and scans all of it for a few
# keys.
_UNSEEN = """
SELECT relname FROM pg_class
WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
  AND reltuples < 0 AND pg_relation_size(oid) > %(bytes)s
ORDER BY relname
"""
_OLDEST = """
SELECT COALESCE(max(extract(epoch FROM clock_timestamp() - xact_start)), 0)::float AS seconds
FROM pg_stat_activity WHERE backend_xmin IS NOT NULL AND datname = current_database()
"""


async def inspect(connection: Connection, engine: Engine, now: datetime) -> list[Finding]:
    if engine == "sqlite":
        return await _sqlite(connection)
    return await _postgres(connection, now)


async def _sqlite(connection: Connection) -> list[Finding]:
    async def value_of(sql: str) -> str:
        return str(next(iter((await connection.fetch(sql, {}))[0].values())))

    version = await value_of("SELECT sqlite_version()")
    secure, journal = await value_of("PRAGMA secure_delete"), await value_of("PRAGMA journal_mode")
    synchronous, foreign = (
        await value_of("PRAGMA synchronous"),
        await value_of("PRAGMA foreign_keys"),
    )
    oldest = ".".join(map(str, SQLITE_OLDEST))
    return [
        judged(
            "sqlite_version",
            f"SQLite {version}",
            fail=f"SQLite {version} is older than {oldest}. Use a Python that brings a newer one.",
            when=tuple(map(int, version.split("."))) < SQLITE_OLDEST,
        ),
        judged(
            "secure_delete",
            "what is deleted is overwritten",
            fail="secure_delete is off: deleted text stays in the file. Use another SQLite build.",
            when=secure != "1",
        ),
        judged(
            "durability",
            "a commit reaches the disk before it is acknowledged",
            fail=f"journal_mode is {journal}, synchronous {synchronous}, foreign_keys {foreign}; "
            "they must be wal, 2 and 1. Put the file on a local file system.",
            when=not (journal == "wal" and synchronous in ("2", "3") and foreign == "1"),
        ),
    ]


BACKUP_ROLE = "CREATE ROLE recall_backup LOGIN BYPASSRLS; GRANT pg_read_all_data TO recall_backup;"


async def dumper(connection: Connection) -> str | None:
    """Return the Postgres user that can dump this database; None if there is none."""
    rows = await connection.fetch(_DUMPERS, {})
    return str(rows[0]["rolname"]) if rows else None


async def _postgres(connection: Connection, now: datetime) -> list[Finding]:
    # Imported on use: an installation for SQLite may lack psycopg.
    from recall_server.storage.postgres import distribution  # noqa: PLC0415

    spread = await distribution.exists(connection)
    missing = await distribution.missing(connection) if spread else []
    roles = await connection.fetch(_ROLES, {})
    ours = [row for row in roles if row["rolname"] in _OURS]
    user = [row for row in roles if row not in ours]
    # Citus logs in to its nodes as these roles.
    unbound = [row["rolname"] for row in ours if _above(row) or (row["rolcanlogin"] and not spread)]
    barred = [row["rolname"] for row in ours if not row["rolcanlogin"]]
    above = [row["rolname"] for row in user if _above(row)]
    open_tables = [row["relname"] for row in await connection.fetch(_WALLS, {})]
    truncates = [row["relname"] for row in await connection.fetch(_TRUNCATES, {})]
    logged = [f"{r['name']}={r['setting']}" for r in await connection.fetch(_LOGGED, {})]
    lossy = [f"{r['name']}={r['setting']}" for r in await connection.fetch(_LOSSY, {})]
    unseen = [r["relname"] for r in await connection.fetch(_UNSEEN, {"bytes": UNSEEN_BYTES})]
    oldest = (await connection.fetch(_OLDEST, {}))[0]["seconds"]
    dumps = await dumper(connection)
    clock = moment((await connection.fetch("SELECT clock_timestamp() AS at", {}))[0]["at"])
    apart = abs((clock - now).total_seconds())
    says = f"the clock of the database is {apart:.0f} s from ours. Set both by NTP."
    of_nodes = judged(
        "distribution",
        "every table lies on the nodes of Citus",
        fail=f"{', '.join(barred)} may not log in to the nodes of Citus. Run "
        "`recall migrate --distribute`."
        if barred and len(missing) < len(distribution.placed())
        else None,
        warn=f"{', '.join(missing)} lie on one node of Citus. Stop the servers and run "
        "`recall migrate --distribute`."
        if missing
        else None,
    )
    return [
        *([of_nodes] if spread else []),
        judged(
            "roles",
            "the roles of this server are bound by row-level security",
            fail=f"{', '.join(unbound)} may log in or pass row-level security. "
            "ALTER ROLE ... NOLOGIN NOSUPERUSER NOBYPASSRLS.",
            when=bool(unbound),
        ),
        judged(
            "database_user",
            "the user of the database is an ordinary one",
            warn=f"{', '.join(above)} is a superuser or passes row-level security. Use a user "
            "that owns the schema and nothing else.",
            when=bool(above),
        ),
        judged(
            "row_level_security",
            "forced on every tenant's table",
            fail=f"it is not forced on {', '.join(open_tables)}. ALTER TABLE ... ENABLE and FORCE "
            "ROW LEVEL SECURITY.",
            when=bool(open_tables),
        ),
        judged(
            "truncate",
            "nobody who serves calls may empty a table",
            fail=f"the roles may TRUNCATE {', '.join(truncates)}, which no policy stops. "
            "REVOKE it.",
            when=bool(truncates),
        ),
        judged(
            "backup_role",
            f"{dumps} can dump the database",
            warn="nobody can dump the database, as row-level security is forced on its owner. A "
            f"superuser makes a user for it: {BACKUP_ROLE}",
            when=dumps is None,
        ),
        judged(
            "database_log",
            "texts do not get into the log of Postgres",
            warn=f"{', '.join(logged)}: texts get into the log of Postgres. Turn it off for this "
            "database.",
            when=bool(logged),
        ),
        judged(
            "durability",
            "a commit reaches the disk before it is acknowledged",
            warn=f"{', '.join(lossy)}: a crash of the machine loses what was acknowledged, or the "
            "database. Turn it on.",
            when=bool(lossy),
        ),
        judged(
            "statistics",
            "Postgres knows how large its tables are",
            warn=f"Postgres has not looked at {', '.join(unseen)} yet, and may read all of a "
            "namespace in a search. It looks within minutes where autovacuum is on; ANALYZE does "
            "it now.",
            when=bool(unseen),
        ),
        judged(
            "old_reader",
            "nobody holds an old state of the database",
            warn=f"somebody has read one state of the database for {oldest:.0f} s: what is erased "
            "and overwritten stays on its disk. `pg_stat_activity` tells who; end it.",
            when=oldest > OLD_READER_S,
        ),
        judged(
            "clock",
            "ours and the database's agree",
            fail=says if apart > CLOCK_FAIL_S else None,
            warn=says if apart > CLOCK_WARN_S else None,
        ),
    ]


def _above(row: Row) -> bool:
    return bool(row["rolsuper"] or row["rolbypassrls"])


# Tables by what fills them; the rest is `other`.
_KINDS = {
    "texts": ("episodes", "turns", "forgotten", "quarantine"),
    "memories": ("memories", "citations", "decisions", "memory_counts", "memory_events"),
    "embeddings": ("embeddings",),
    "words": ("documents", "postings", "terms"),
    "audit": ("tool_call_records", "audit_details", "audit_heads"),
    "jobs": ("operations", "queues"),
    "tasks": ("runs", "run_events", "push_configs", "webhooks", "webhook_events"),
}
_SIZES = {
    "sqlite": """
        SELECT m.tbl_name AS name, sum(d.pgsize) AS bytes
        FROM dbstat d JOIN sqlite_master m ON m.name = d.name
        GROUP BY m.tbl_name
    """,
    "postgres": """
        SELECT relname AS name, pg_total_relation_size(oid) AS bytes FROM pg_class
        WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
    """,
}


async def bytes_by_kind(connection: Connection, engine: Engine) -> dict[str, int]:
    """Return the bytes on disk of each kind of data, with its indexes. On SQLite this reads every
    page.
    """
    kind_of = {table: kind for kind, tables in _KINDS.items() for table in tables}
    found = dict.fromkeys((*_KINDS, "other"), 0)
    for row in await connection.fetch(_SIZES[engine], {}):
        found[kind_of.get(row["name"], "other")] += int(row["bytes"])
    return found


# A journal grows this long only while somebody reads an old state for minutes.
JOURNAL_WARN_BYTES = 268_435_456
# A purge rewrites the file, and an erasure needs disk space for its records.
FREE_WARN_BYTES = 536_870_912


def space_findings(path: Path) -> Iterator[Finding]:
    """Yield the checks `disk_space` and `journal` of an existing database file. They cost a few
    system calls, so they can be made at any time.
    """
    free, size = free_bytes(path), path.stat().st_size
    wanted = FREE_WARN_BYTES + size
    yield judged(
        "disk_space",
        f"{mb(free)} are free on the disk of {path}",
        warn=f"{mb(free)} are free on the disk of {path}, of which a purge needs {mb(size)}. "
        f"When it is full nothing can be kept, nor erased. Have {mb(wanted)} free.",
        when=free < wanted,
    )
    journal = path.with_name(path.name + "-wal")
    length = journal.stat().st_size if journal.exists() else 0
    yield judged(
        "journal",
        f"the journal of {path} has {mb(length)}",
        warn=f"the journal of {path} has {mb(length)}: another program reads an old state of the "
        "database, and nothing gets into it. End that program; `fuser` names it.",
        when=length > JOURNAL_WARN_BYTES,
    )


def free_bytes(path: Path) -> int:
    """Return the bytes that this process may still use on the disk of a file."""
    disk = os.statvfs(path)
    return disk.f_bavail * disk.f_frsize


def mb(count: int) -> str:
    return f"{count / 1_048_576:,.0f} MB"
