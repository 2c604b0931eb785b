"""Applies `migrations/`: in order, each once, under a lock that all replicas share.

A migration is `NNNN_what.sql` for both engines or the pair `NNNN_what.sqlite.sql` and
`NNNN_what.postgres.sql`. Forward only; an applied one must not be edited.

A line `-- reads: NNNN` in a migration says that releases whose newest migration is NNNN or later
can use the tables as it leaves them. Without this line only releases that have the migration can.
"""

import hashlib
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path

from recall_server.domain.errors import DatabaseUnusable, SchemaOutdated, SchemaTooNew
from recall_server.storage.driver import Connection, Driver, Engine

_NAME = re.compile(r"(\d{4})_(\w+?)(?:\.(sqlite|postgres))?\.sql")

_READS = re.compile(r"^-- reads: (\d{4})$", re.MULTILINE)

_CREATE = """
CREATE TABLE IF NOT EXISTS schema_version (
  version INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  checksum TEXT NOT NULL,
  applied_at TEXT NOT NULL,
  reads INTEGER
)
"""
_ADD_READS = "ALTER TABLE schema_version ADD COLUMN reads INTEGER"


@dataclass(frozen=True)
class Migration:
    """One migration, with its text for one engine."""

    version: int
    name: str
    sql: str

    @cached_property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()

    @cached_property
    def reads(self) -> int:
        """The newest migration that a release must have to use the tables as this one leaves
        them.
        """
        stated = _READS.search(self.sql)
        return int(stated[1]) if stated else self.version


@dataclass(frozen=True)
class Pending:
    """The names of the migrations to be applied, and of those among them after which the release
    that applied the last one cannot use the tables.
    """

    names: list[str]
    breaking: list[str]


def read(folder: Path, engine: Engine) -> list[Migration]:
    """Return the migrations for `engine`, in order. Raises `ValueError` on a gap, a number used
    twice or a wrong name.
    """
    found: dict[int, Migration] = {}
    for path in sorted(folder.glob("*.sql")):
        match = _NAME.fullmatch(path.name)
        if match is None:
            raise ValueError(f"{path.name} is not named like a migration")
        if match[3] in (None, engine):
            version = int(match[1])
            if version in found:
                raise ValueError(f"two migrations have the number {version:04}")
            found[version] = Migration(version, match[2], path.read_text(encoding="utf-8"))
    if sorted(found) != list(range(1, len(found) + 1)) or not found:
        raise ValueError(f"the migrations for {engine} are not numbered 0001, 0002, …")
    return [found[version] for version in sorted(found)]


class _NotKept(Exception):
    """Rolls back a transaction that was only a trial."""


async def pending(driver: Driver, folder: Path) -> Pending:
    """Return what `migrate` would apply, without changing anything. Raises as `migrate` does."""
    wanted = read(folder, driver.engine)
    async with driver.migration() as connection:
        done = await _applied(connection, driver.engine, wanted)
    missing, newest = [one for one in wanted if one.version not in done], max(done, default=0)
    breaking = [_named(one) for one in missing if done and one.reads > newest]
    return Pending([_named(one) for one in missing], breaking)


async def try_out(driver: Driver, folder: Path, now: datetime) -> list[str]:
    """Run `migrate` in one transaction and roll it back. Return the names; raises as `migrate`."""
    wanted, names = read(folder, driver.engine), []
    with suppress(_NotKept):
        async with driver.migration() as connection:
            done = await _applied(connection, driver.engine, wanted)
            for migration in wanted:
                if migration.version not in done:
                    await _apply(connection, migration, now)
                    names.append(_named(migration))
            raise _NotKept
    return names


async def migrate(
    driver: Driver, folder: Path, now: datetime, *, only_new: bool = False
) -> list[str]:
    """Bring the database up to date. Return the names of the migrations that were applied.
    `only_new`: migrate only an empty database. An empty one is migrated whole or not at all.

    Any number of replicas may call this at once. Raises `SchemaTooNew` if a newer release has left
    tables that this one cannot read, `SchemaOutdated` if `only_new` forbids to migrate, and
    `DatabaseUnusable` if an applied migration has been edited.
    """
    wanted = read(folder, driver.engine)
    async with driver.migration() as connection:
        done = await _applied(connection, driver.engine, wanted)
        if not done:
            # A new database is whole or empty: one that is half made looks like an older release's.
            for migration in wanted:
                await _apply(connection, migration, now)
            return [_named(one) for one in wanted]
    missing = [one for one in wanted if one.version not in done]
    if only_new and done and missing:
        raise SchemaOutdated(max(done), len(wanted))
    names = []
    for migration in missing:
        # Each in a transaction of its own: a failing one leaves the earlier ones in place.
        async with driver.migration() as connection:
            if migration.version in await _applied(connection, driver.engine, wanted):
                continue  # another replica has applied it meanwhile
            await _apply(connection, migration, now)
            names.append(_named(migration))
    return names


def _named(migration: Migration) -> str:
    return f"{migration.version:04}_{migration.name}"


async def _apply(connection: Connection, migration: Migration, now: datetime) -> None:
    await connection.script(_CREATE)
    rows = await connection.fetch("SELECT * FROM schema_version LIMIT 1", {})
    if rows and "reads" not in rows[0]:
        await connection.script(_ADD_READS)
    await connection.script(migration.sql)
    await connection.script(
        "INSERT INTO schema_version (version, name, checksum, applied_at, reads) VALUES "
        f"({migration.version}, '{migration.name}', '{migration.checksum}', '{now.isoformat()}',"
        f" {migration.reads})"
    )


_EXISTS = {
    "sqlite": "SELECT 1 AS found FROM sqlite_master WHERE name = 'schema_version'",
    # Not to_regclass: it caches that there was no table, even if another replica has made it since.
    "postgres": """SELECT 1 AS found FROM pg_catalog.pg_tables
WHERE tablename = 'schema_version' AND schemaname = ANY (current_schemas(FALSE))""",
}


async def _applied(connection: Connection, engine: Engine, wanted: Sequence[Migration]) -> set[int]:
    """Return the versions that have been applied. Raises as `migrate` does."""
    if not await connection.fetch(_EXISTS[engine], {}):
        return set()
    rows = await connection.fetch("SELECT * FROM schema_version", {})
    done = {int(row["version"]): str(row["checksum"]) for row in rows}
    newer = [dict(row) for row in rows if row["version"] > len(wanted)]
    if any((row.get("reads") or row["version"]) > len(wanted) for row in newer):
        raise SchemaTooNew(max(done), len(wanted))
    for migration in wanted:
        if done.get(migration.version, migration.checksum) != migration.checksum:
            raise DatabaseUnusable(
                f"Migration {_named(migration)} was edited after it was applied. Put the original "
                "file back."
            )
    return set(done)
