"""What a database says of itself that bears on safety: asked of the engine, as the owner."""

from datetime import datetime

from recall_server.domain.findings import Finding, judged
from recall_server.storage.driver import Connection, Engine, Row
from recall_server.storage.rows import moment

# The first with the operator ->>.
SQLITE_OLDEST = (3, 38, 0)
CLOCK_WARN_S = 5.0
CLOCK_FAIL_S = 60.0
OLD_READER_S = 3_600.0
# Smaller tables are read as a whole in no time.
UNSEEN_BYTES = 8_388_608

_ROLES = """
SELECT r.rolname, r.rolsuper, r.rolbypassrls, r.rolcanlogin FROM pg_roles r
WHERE r.rolname IN (session_user, 'recall_app', 'recall_system')
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
# What a crash of the machine would take of what was acknowledged, or leave half done.
_LOSSY = """
SELECT name, setting FROM pg_settings
WHERE name IN ('fsync', 'full_page_writes', 'synchronous_commit') AND setting = 'off'
ORDER BY name
"""
# Never looked at: Postgres takes a namespace for a row or two, and reads all of it for a few keys.
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
    """The checks of an engine."""
    if engine == "sqlite":
        return await _sqlite(connection)
    return await _postgres(connection, now)


async def _sqlite(connection: Connection) -> list[Finding]:
    async def said(sql: str) -> str:
        return str(next(iter((await connection.fetch(sql, {}))[0])))

    version = await said("SELECT sqlite_version()")
    secure, journal = await said("PRAGMA secure_delete"), await said("PRAGMA journal_mode")
    synchronous, foreign = await said("PRAGMA synchronous"), await said("PRAGMA foreign_keys")
    oldest = ".".join(map(str, SQLITE_OLDEST))
    return [
        judged(
            "sqlite_version",
            f"SQLite {version}",
            fail=None
            if tuple(map(int, version.split("."))) >= SQLITE_OLDEST
            else f"SQLite {version} is older than {oldest}. Use a Python that brings a newer one.",
        ),
        judged(
            "secure_delete",
            "what is deleted is overwritten",
            fail=None
            if secure == "1"
            else "secure_delete is off: deleted text stays in the file. Use another SQLite build.",
        ),
        judged(
            "durability",
            "a commit reaches the disk before it is acknowledged",
            fail=None
            if journal == "wal" and synchronous in ("2", "3") and foreign == "1"
            else f"journal_mode is {journal}, synchronous {synchronous}, foreign_keys {foreign}; "
            "they must be wal, 2 and 1. Put the file on a local file system.",
        ),
    ]


async def _postgres(connection: Connection, now: datetime) -> list[Finding]:
    roles = await connection.fetch(_ROLES, {})
    ours = [row for row in roles if row["rolname"] in ("recall_app", "recall_system")]
    user = [row for row in roles if row not in ours]
    unbound = [row["rolname"] for row in ours if _above(row) or row["rolcanlogin"]]
    above = [row["rolname"] for row in user if _above(row)]
    open_tables = [row["relname"] for row in await connection.fetch(_WALLS, {})]
    truncates = [row["relname"] for row in await connection.fetch(_TRUNCATES, {})]
    logged = [f"{r['name']}={r['setting']}" for r in await connection.fetch(_LOGGED, {})]
    lossy = [f"{r['name']}={r['setting']}" for r in await connection.fetch(_LOSSY, {})]
    unseen = [r["relname"] for r in await connection.fetch(_UNSEEN, {"bytes": UNSEEN_BYTES})]
    oldest = (await connection.fetch(_OLDEST, {}))[0]["seconds"]
    clock = moment((await connection.fetch("SELECT clock_timestamp() AS at", {}))[0]["at"])
    apart = abs((clock - now).total_seconds())
    says = f"the clock of the database is {apart:.0f} s from ours. Set both by NTP."
    return [
        judged(
            "roles",
            "recall_app and recall_system are bound by row-level security",
            fail=f"{', '.join(unbound)} may log in or pass row-level security. "
            "ALTER ROLE ... NOLOGIN NOSUPERUSER NOBYPASSRLS."
            if unbound
            else None,
        ),
        judged(
            "database_user",
            "the user of the database is an ordinary one",
            warn=f"{', '.join(above)} is a superuser or passes row-level security. Use a user "
            "that owns the schema and nothing else."
            if above
            else None,
        ),
        judged(
            "row_level_security",
            "forced on every tenant's table",
            fail=f"it is not forced on {', '.join(open_tables)}. ALTER TABLE ... ENABLE and FORCE "
            "ROW LEVEL SECURITY."
            if open_tables
            else None,
        ),
        judged(
            "truncate",
            "nobody who serves calls may empty a table",
            fail=f"the roles may TRUNCATE {', '.join(truncates)}, which no policy stops. REVOKE it."
            if truncates
            else None,
        ),
        judged(
            "database_log",
            "texts do not get into the log of Postgres",
            warn=f"{', '.join(logged)}: texts get into the log of Postgres. Turn it off for this "
            "database."
            if logged
            else None,
        ),
        judged(
            "durability",
            "a commit reaches the disk before it is acknowledged",
            warn=f"{', '.join(lossy)}: a crash of the machine loses what was acknowledged, or the "
            "database. Turn it on."
            if lossy
            else None,
        ),
        judged(
            "statistics",
            "Postgres knows how large its tables are",
            warn=f"Postgres has not looked at {', '.join(unseen)} yet, and may read all of a "
            "namespace in a search. It looks within minutes where autovacuum is on; ANALYZE does "
            "it now."
            if unseen
            else None,
        ),
        judged(
            "old_reader",
            "nobody holds an old state of the database",
            warn=f"somebody has read one state of the database for {oldest:.0f} s: what is erased "
            "and overwritten stays on its disk. `pg_stat_activity` tells who; end it."
            if oldest > OLD_READER_S
            else None,
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
