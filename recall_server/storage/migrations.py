"""Applies `migrations/`: in order, each once, under a lock that all replicas share.

A migration is `NNNN_what.sql` for both engines or the pair `NNNN_what.sqlite.sql` and
`NNNN_what.postgres.sql`. Forward only; an applied one must not be edited.
"""

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from recall_server.domain.errors import DatabaseUnusable
from recall_server.storage.driver import Connection, Driver, Engine

_NAME = re.compile(r"(\d{4})_(\w+?)(?:\.(sqlite|postgres))?\.sql")

_CREATE = """
CREATE TABLE IF NOT EXISTS schema_version (
  version INTEGER PRIMARY KEY,
  name TEXT NOT NULL,
  checksum TEXT NOT NULL,
  applied_at TEXT NOT NULL
)
"""


@dataclass(frozen=True)
class Migration:
    """One step, as it reads for one engine."""

    version: int
    name: str
    sql: str

    @property
    def checksum(self) -> str:
        return hashlib.sha256(self.sql.encode()).hexdigest()


def read(folder: Path, engine: Engine) -> list[Migration]:
    """The migrations for `engine`, in order. Raises `ValueError` on a gap or a missing half."""
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


async def migrate(driver: Driver, folder: Path, now: datetime) -> list[str]:
    """Bring the database up to date and return the names of what was applied.

    Any number of replicas may call this at once. Raises `DatabaseUnusable` where the database was
    made by a newer release, or an applied migration has been edited.
    """
    wanted = read(folder, driver.engine)
    async with driver.migration() as connection:
        done = await _applied(connection, wanted)
    names = []
    for migration in wanted:
        if migration.version in done:
            continue
        # Each in a transaction of its own: a failing one leaves the earlier ones in place.
        async with driver.migration() as connection:
            if migration.version in await _applied(connection, wanted):
                continue  # by another replica, meanwhile
            await connection.script(migration.sql)
            await connection.script(
                "INSERT INTO schema_version (version, name, checksum, applied_at) VALUES "
                f"({migration.version}, '{migration.name}', '{migration.checksum}', "
                f"'{now.isoformat()}')"
            )
            names.append(f"{migration.version:04}_{migration.name}")
    return names


async def _applied(connection: Connection, wanted: Sequence[Migration]) -> set[int]:
    """The versions that have been applied; raises `DatabaseUnusable` as `migrate` does."""
    await connection.script(_CREATE)
    rows = await connection.fetch("SELECT version, checksum FROM schema_version", {})
    done = {int(row["version"]): str(row["checksum"]) for row in rows}
    if max(done, default=0) > len(wanted):
        raise DatabaseUnusable(
            f"The database has schema version {max(done)}; this release knows "
            f"{len(wanted)}. Start a release that is at least as new."
        )
    for migration in wanted:
        if done.get(migration.version, migration.checksum) != migration.checksum:
            raise DatabaseUnusable(
                f"Migration {migration.version:04}_{migration.name} was edited after it "
                "was applied. Put the original file back."
            )
    return set(done)
