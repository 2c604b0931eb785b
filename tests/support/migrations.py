"""Empty databases, and those of the release before a migration."""

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from recall_server import shipped
from recall_server.storage import driver_for
from recall_server.storage.driver import Driver
from recall_server.storage.migrations import migrate
from tests.support.engines import ENGINES, Postgres
from tests.support.runtime import NOON


@pytest.fixture(params=ENGINES)
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> object:
    """Yield a database without tables."""
    if request.param == "sqlite":
        yield tmp_path / "recall.db"
        return
    server: Postgres = request.getfixturevalue("postgres")
    with server.database() as url:
        yield url


async def run(database: Path | str, folder: Path) -> list[str]:
    driver = driver_for(database)
    await driver.open()
    try:
        return await migrate(driver, folder, NOON)
    finally:
        await driver.close()


@asynccontextmanager
async def released(empty: Path | str, folder: Path, *, before: str) -> AsyncIterator[Driver]:
    """Yield a database of the release just before the migration with that number, with the
    namespaces a, b and c.
    """
    for path in shipped("migrations").glob("*.sql"):
        if path.name < before:
            shutil.copy(path, folder)
    await run(empty, folder)
    driver = driver_for(empty)
    await driver.open()
    try:
        async with driver.migration() as connection:
            for name in ("a", "b", "c"):
                await connection.script(
                    "INSERT INTO namespaces (namespace, created_at) "
                    f"VALUES ('{name}', '2026-03-01')"
                )
        yield driver
    finally:
        await driver.close()
