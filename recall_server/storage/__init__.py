"""One store over SQLite or Postgres: named SQL, written once."""

from pathlib import Path

from recall_server.storage.driver import Driver
from recall_server.storage.postgres import PostgresDriver
from recall_server.storage.sqlite import SqliteDriver


def driver_for(database: Path | str) -> Driver:
    """A path is an SQLite file; a URL is a Postgres database."""
    return PostgresDriver(database) if isinstance(database, str) else SqliteDriver(database)
