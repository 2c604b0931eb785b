"""The databases of a test, migrated and empty, on each engine."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from recall_server import shipped
from recall_server.storage import driver_for
from recall_server.storage.migrations import migrate
from recall_server.storage.store import Store
from tests.support.engines import ENGINES, Postgres, running_postgres
from tests.support.runtime import NOON


async def _prepare(database: Path | str) -> None:
    driver = driver_for(database)
    await driver.open()
    await migrate(driver, shipped("migrations"), NOON)
    await driver.close()


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def migrated(postgres: Postgres) -> Iterator[str]:
    """Return the name of a Postgres database to copy."""
    with postgres.database() as url:
        asyncio.run(_prepare(url))
        yield url.split("dbname=")[1].split()[0]


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a SQLite file to copy."""
    path = tmp_path_factory.mktemp("migrated") / "recall.db"
    asyncio.run(_prepare(path))
    return path


@pytest.fixture(params=ENGINES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    """Yield a database of each engine, migrated and empty: a path, or a URL."""
    if request.param == "sqlite":
        yield Path(shutil.copy(request.getfixturevalue("migrated_file"), tmp_path))
        return
    server: Postgres = request.getfixturevalue("postgres")
    with server.database(request.getfixturevalue("migrated")) as url:
        yield url


@pytest.fixture
async def store(database: Path | str) -> AsyncIterator[Store]:
    driver = driver_for(database)
    await driver.open()
    await migrate(driver, shipped("migrations"), NOON)
    opened = Store(driver, cache_bytes_max=1_000_000, mac_key=bytes(32))
    yield opened
    await opened.close()
