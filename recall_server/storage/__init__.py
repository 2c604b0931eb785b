"""One store over SQLite or Postgres: named SQL, written once."""

from pathlib import Path

from recall_server.domain.errors import DatabaseUnusable
from recall_server.storage.driver import Driver, TimeLimits
from recall_server.storage.sqlite import SqliteDriver


def driver_for(database: Path | str, limits: TimeLimits = TimeLimits()) -> Driver:
    """Return the driver of an SQLite file (a path) or a Postgres database (a URL).

    Raises `DatabaseUnusable` if the extra [postgres] is not installed.
    """
    if isinstance(database, Path):
        return SqliteDriver(database, limits)
    # Imported on use: importing psycopg takes a tenth of the start time of a command.
    try:
        from recall_server.storage.postgres import PostgresDriver  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise DatabaseUnusable(
            f"A Postgres database needs the package {error.name}. Run: "
            "pip install 'recall-server[postgres]'."
        ) from None

    return PostgresDriver(database, limits)
