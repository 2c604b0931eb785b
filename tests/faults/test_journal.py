"""A reader that keeps one snapshot for long while others write is ended, and the journal becomes
short again.
"""

import asyncio
import sqlite3
from contextlib import AsyncExitStack, closing
from pathlib import Path

import httpx2
import psycopg
import pytest

from recall_server.application import Application
from recall_server.doctor import examine
from recall_server.domain.errors import QueryTimeout
from recall_server.storage import inspection
from recall_server.storage.driver import Driver
from recall_server.storage.inspection import Level
from recall_server.storage.sqlite import LARGE_ROWS, READERS, SqliteDriver
from recall_server.storage.sqlite.connection import JOURNAL_BYTES
from tests.support.application import Open
from tests.support.conversation import ALICE, context, enter, remember
from tests.support.engines import on_sqlite
from tests.support.server import Serve

TEXT = "Alice: I live in Lisbon."
WITHIN_S = 60.0
PIECE_BYTES = 4_194_304


def journal(database: Path) -> int:
    return database.with_name(database.name + "-wal").stat().st_size


async def write(driver: Driver, pieces: int) -> None:
    """Write this many pieces, each in its own transaction, into a table without a tenant."""
    for _ in range(pieces):
        async with driver.transaction(namespace=None, write=True) as connection:
            await connection.fetch("CREATE TABLE IF NOT EXISTS filler (piece BLOB)", {})
            await connection.fetch("DELETE FROM filler", {})
            await connection.fetch(f"INSERT INTO filler VALUES (zeroblob({PIECE_BYTES}))", {})


async def test_the_commit_of_a_large_change_leaves_the_journal_to_a_reader(tmp_path: Path) -> None:
    """Others would wait while it is copied. Control: a reader copies it, if one is free."""
    path = tmp_path / "recall.db"
    driver = SqliteDriver(path)
    await driver.open()

    async def many() -> None:
        async with driver.transaction(namespace=None, write=True) as connection:
            await connection.fetch("CREATE TABLE filler (piece BLOB)", {})
            values = ", ".join(["(zeroblob(16384))"] * (LARGE_ROWS + 1))
            await connection.fetch(f"INSERT INTO filler VALUES {values}", {})

    async with AsyncExitStack() as busy, asyncio.timeout(WITHIN_S):
        for _ in range(READERS):
            await busy.enter_async_context(driver.transaction(namespace=None, write=False))
        writing = asyncio.create_task(many())
        with closing(sqlite3.connect(path)) as raw:
            while not raw.execute("SELECT 1 FROM sqlite_master").fetchall():  # noqa: ASYNC110
                await asyncio.sleep(0)
        left = path.stat().st_size
        await busy.aclose()
        await writing
    copied = path.stat().st_size
    await driver.close()

    assert left < 100_000
    assert copied > LARGE_ROWS * 16_384


async def test_a_snapshot_that_is_held_too_long_is_let_go(open_app: Open) -> None:
    """This holds whether it is read or not. A second snapshot works as before."""
    async with open_app(export_s=1.0) as application, asyncio.timeout(WITHIN_S):
        await enter(application)
        await remember(application, TEXT)

        async def read() -> None:
            async with application.store.snapshot(ALICE) as tx:
                while True:
                    await tx.exports.exists()

        async def rest() -> None:
            async with application.store.snapshot(ALICE) as tx:
                await tx.exports.exists()
                await _let_go(application)
                await tx.exports.exists()

        for late in (read, rest):
            with pytest.raises(QueryTimeout, match="RECALL_EXPORT_S"):
                await late()
        async with application.store.snapshot(ALICE) as tx:
            assert await tx.exports.exists()


async def test_a_snapshot_ends_before_the_journal_fills_the_disk(tmp_path: Path) -> None:
    """While it is held, each page that others write stays in the journal. Control: a snapshot
    outlives less.
    """
    database = tmp_path / "recall.db"
    driver = SqliteDriver(database, journal_bytes_max=3 * PIECE_BYTES)

    async def held_while(pieces: int) -> None:
        async with driver.snapshot("alice") as snapshot:
            await snapshot.fetch("SELECT 1 FROM sqlite_master", {})
            await write(driver, pieces)
            await snapshot.fetch("SELECT 1 FROM sqlite_master", {})

    await driver.open()
    try:
        await held_while(2)
        with pytest.raises(QueryTimeout, match="others wrote"):
            await held_while(20)
        longest = journal(database)
        await held_while(0)
    finally:
        await driver.close()

    assert longest < 6 * PIECE_BYTES


async def _let_go(application: Application) -> None:
    """Wait until nobody reads an old state."""
    if application.store.engine == "sqlite":
        file = application.settings.db_path
        with closing(sqlite3.connect(file, timeout=0, isolation_level=None)) as other:
            busy = 1
            while busy:
                busy = other.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
                await asyncio.sleep(0)
        return
    reading = (
        "SELECT 1 FROM pg_stat_activity"
        " WHERE state = 'idle in transaction' AND datname = current_database()"
    )
    url = str(application.settings.database)
    async with await psycopg.AsyncConnection.connect(url, autocommit=True) as other:
        while await (await other.execute(reading)).fetchone():  # noqa: ASYNC110  # of a server
            await asyncio.sleep(0)


async def test_an_export_that_takes_too_long_is_broken_off_and_can_be_made_again(
    open_app: Open,
) -> None:
    """The error has its code, and comes before the end line."""
    async with open_app(export_s=0.2) as application, asyncio.timeout(WITHIN_S):
        await enter(application)
        await remember(application, TEXT)

        async def lines() -> bytes:
            pieces = application.services.export.stream(context(application))
            return b"".join([piece async for piece in pieces])

        pieces = application.services.export.stream(context(application))
        await anext(pieces)
        await _let_go(application)
        with pytest.raises(QueryTimeout, match="RECALL_EXPORT_S"):
            await anext(pieces)
        assert b'"end"' in await lines()


@on_sqlite
async def test_a_journal_that_had_to_grow_is_told_and_is_short_again_afterwards(
    serve: Serve, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program reads an old state. `/ready` and the self-check report it, and the server
    keeps working.
    """
    monkeypatch.setattr(inspection, "JOURNAL_WARN_BYTES", JOURNAL_BYTES)
    pieces = 2 + JOURNAL_BYTES // PIECE_BYTES

    async def told() -> tuple[int, list[str], Level]:
        async with httpx2.AsyncClient(base_url=running.address) as http:
            answer = await http.get("/ready")
        found = {one.check: one.level for one in await examine(running.application)}
        return answer.status_code, answer.json().get("warnings", []), found["journal"]

    async with serve() as running:
        await enter(running.application)
        await write(running.application.store.driver, pieces)
        alone = journal(database)
        before = await told()
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN")
            other.execute("SELECT * FROM namespaces").fetchall()
            await write(running.application.store.driver, pieces)
            grown = journal(database)
            during = await told()
            other.execute("COMMIT")
        await write(running.application.store.driver, 2)
        after, short = await told(), journal(database)

    assert before == after == (200, [], Level.OK)
    assert during == (200, ["journal"], Level.WARN)
    assert alone < JOURNAL_BYTES < grown
    assert short <= JOURNAL_BYTES
