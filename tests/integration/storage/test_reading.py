"""SQLite is read and written in threads, and nothing runs on the event loop."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from recall_server.storage.driver import Row
from recall_server.storage.sqlite import SqliteDriver

BRIEF = "SELECT 1 AS n"
LONG = """
WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 1000000)
SELECT COUNT(*) AS n FROM n
"""


@pytest.fixture
async def driver(tmp_path: Path) -> AsyncIterator[SqliteDriver]:
    made = SqliteDriver(tmp_path / "recall.db")
    await made.open()
    yield made
    await made.close()


async def _order(driver: SqliteDriver, sql: str, seen: list[str]) -> Row:
    """Read while another task wants to run, and record which is done first."""

    async def read() -> Row:
        async with driver.transaction(namespace="alice", write=False) as connection:
            (row,) = await connection.fetch(sql, {})
            seen.append("read")
            (again,) = await connection.fetch(BRIEF, {})
            assert again["n"] == 1
        return row

    async def another() -> None:
        seen.append("another")

    async with asyncio.TaskGroup() as group:
        reading = group.create_task(read())
        group.create_task(another())
    return reading.result()


async def test_nothing_is_read_on_the_event_loop(driver: SqliteDriver) -> None:
    seen: list[str] = []

    assert (await _order(driver, BRIEF, seen))["n"] == 1

    assert seen == ["another", "read"]


async def test_what_takes_long_keeps_nobody_waiting_and_is_read_as_a_whole(
    driver: SqliteDriver,
) -> None:
    seen: list[str] = []

    assert (await _order(driver, LONG, seen))["n"] == 1_000_001

    assert seen == ["another", "read"]


async def test_a_query_by_itself_keeps_nobody_waiting(driver: SqliteDriver) -> None:
    reading = asyncio.create_task(driver.autocommit([(LONG, {})], namespace="alice"))
    await asyncio.sleep(0)

    assert not reading.done()
    ((row,),) = await reading
    assert row["n"] == 1_000_001


TABLE = "CREATE TABLE IF NOT EXISTS notes (text TEXT)"
WRITE = "INSERT INTO notes VALUES ('x') RETURNING 1 AS n"


async def _written(driver: SqliteDriver, seen: list[str]) -> None:
    async with driver.transaction(namespace="alice", write=True) as connection:
        await connection.fetch(WRITE, {})
        seen.append("written")


async def test_nothing_is_written_on_the_event_loop(driver: SqliteDriver) -> None:
    seen: list[str] = []
    async with driver.migration() as connection:
        await connection.fetch(TABLE, {})

    async def another() -> None:
        seen.append("another")

    async with asyncio.TaskGroup() as group:
        group.create_task(_written(driver, seen))
        group.create_task(another())

    assert seen == ["another", "written"]


async def test_where_another_program_writes_nobody_else_waits_for_it(
    driver: SqliteDriver, tmp_path: Path
) -> None:
    seen: list[str] = []
    async with driver.migration() as connection:
        await connection.fetch(TABLE, {})
    with closing(sqlite3.connect(tmp_path / "recall.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(_written(driver, seen))
        await asyncio.sleep(0)
        assert seen == []
        other.execute("COMMIT")
        await writing
        (count,) = other.execute("SELECT count(*) FROM notes").fetchone()

    assert seen == ["written"]
    assert count == 1
