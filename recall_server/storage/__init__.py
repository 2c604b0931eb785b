"""One store over SQLite or Postgres: named SQL, written once."""

from pathlib import Path

from recall_server.storage.driver import Driver, TimeLimits
from recall_server.storage.sqlite.driver import SqliteDriver


def driver_for(database: Path | str, limits: TimeLimits = TimeLimits()) -> Driver:
    """A path is an SQLite file; a URL is a Postgres database."""
    if isinstance(database, Path):
        return SqliteDriver(database, limits)
    # Imported on use: psycopg takes a tenth of the time that a command needs to start.
    from recall_server.storage.postgres.driver import PostgresDriver  # noqa: PLC0415

    return PostgresDriver(database, limits)
