"""Where SQLite is read and written: at once what takes no time, in a thread what would keep others
waiting.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from recall_server.storage.driver import Row
from recall_server.storage.sqlite.driver import SqliteDriver

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
    """Read, while somebody else wants to go on; who is done first comes first."""

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


async def test_what_takes_no_time_is_read_at_once(driver: SqliteDriver) -> None:
    seen: list[str] = []

    assert (await _order(driver, BRIEF, seen))["n"] == 1

    assert seen == ["read", "another"]


async def test_what_takes_long_keeps_nobody_waiting_and_is_read_as_a_whole(
    driver: SqliteDriver,
) -> None:
    seen: list[str] = []

    assert (await _order(driver, LONG, seen))["n"] == 1_000_001

    assert seen == ["another", "read"]


async def test_alone_too_what_takes_long_keeps_nobody_waiting(driver: SqliteDriver) -> None:
    reading = asyncio.create_task(
        driver.autocommit(LONG, {}, namespace="alice", write=False, lasting=True)
    )
    await asyncio.sleep(0)

    assert not reading.done()
    (row,) = await reading
    assert row["n"] == 1_000_001


async def test_who_reads_on_and_on_lets_others_go_on(driver: SqliteDriver) -> None:
    over = False

    async def end() -> None:
        nonlocal over
        over = True

    async with asyncio.TaskGroup() as group:
        group.create_task(end())
        for _ in range(10_000):
            await driver.autocommit(BRIEF, {}, namespace="alice", write=False, lasting=True)
            if over:
                break
        assert over


TABLE = "CREATE TABLE IF NOT EXISTS notes (text TEXT)"
WRITE = "INSERT INTO notes VALUES ('x') RETURNING 1 AS n"


async def _written(driver: SqliteDriver, seen: list[str], *, brief: bool) -> None:
    async with driver.transaction(namespace="alice", write=True, brief=brief) as connection:
        await connection.fetch(WRITE, {})
        seen.append("written")


@pytest.mark.parametrize(
    ("brief", "order"), [(True, ["written", "another"]), (False, ["another", "written"])]
)
async def test_what_is_brief_is_written_at_once(
    driver: SqliteDriver, brief: bool, order: list[str]
) -> None:
    seen: list[str] = []
    async with driver.migration() as connection:
        await connection.fetch(TABLE, {})

    async def another() -> None:
        seen.append("another")

    async with asyncio.TaskGroup() as group:
        group.create_task(_written(driver, seen, brief=brief))
        group.create_task(another())

    assert seen == order


async def test_where_another_program_writes_nobody_else_waits_for_it(
    driver: SqliteDriver, tmp_path: Path
) -> None:
    seen: list[str] = []
    async with driver.migration() as connection:
        await connection.fetch(TABLE, {})
    with closing(sqlite3.connect(tmp_path / "recall.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        writing = asyncio.create_task(_written(driver, seen, brief=True))
        await asyncio.sleep(0)
        assert seen == []
        other.execute("COMMIT")
        await writing
        (count,) = other.execute("SELECT count(*) FROM notes").fetchone()

    assert seen == ["written"]
    assert count == 1
