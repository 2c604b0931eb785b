"""What all tests share: a store and a house over every engine, a clock that stands still."""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.config import Settings
from recall_server.resources import shipped
from recall_server.storage import driver_for
from recall_server.storage.migrations import migrate
from recall_server.storage.store import Store
from tests.engines import ENGINES, KEY_FILE, Postgres, running_postgres
from tests.fakes import HashEmbedder
from tests.surface.logs import logs_restored

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def pytest_report_header() -> str:
    return f"engines: {', '.join(ENGINES)}"


class Clock:
    """Time that passes when a test says so."""

    def __init__(self) -> None:
        self.time = NOON

    def __call__(self) -> datetime:
        return self.time

    def pass_(self, time: timedelta) -> None:
        self.time += time


class Chance:
    """Bytes that are the same in every run."""

    def __init__(self) -> None:
        self._drawn = 0

    def __call__(self, count: int) -> bytes:
        self._drawn += 1
        return hashlib.sha256(str(self._drawn).encode()).digest()[:count]


@pytest.fixture(autouse=True)
def logs() -> Iterator[None]:
    """A command that a test runs in this process configures the log for its own output."""
    with logs_restored():
        yield


@pytest.fixture
def clock() -> Clock:
    return Clock()


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
    """The name of a Postgres database to copy."""
    with postgres.database() as url:
        asyncio.run(_prepare(url))
        yield url.split("dbname=")[1].split()[0]


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A SQLite file to copy."""
    path = tmp_path_factory.mktemp("migrated") / "recall.db"
    asyncio.run(_prepare(path))
    return path


@pytest.fixture(params=ENGINES)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path | str]:
    """A database of each engine, migrated and empty: a path, or a URL."""
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


def settings_for(database: Path | str, **given: object) -> Settings:
    where: dict[str, object] = {"db_path": database}
    if isinstance(database, str):
        where = {"db_url": database, "key_file": KEY_FILE}
    settings = Settings(**{"extractor": "rules", **where, **given})
    # A file is meant even where the developer's environment names a Postgres.
    return settings if isinstance(database, str) else settings.model_copy(update={"db_url": None})


Open = Callable[..., AbstractAsyncContextManager[Application]]


@pytest.fixture
def open_app(database: Path | str, clock: Clock) -> Open:
    """Opens a house on the database of the test: `open_house(extractor=…, deadline_s=…)`."""
    random_bytes = Chance()

    @asynccontextmanager
    async def opened(
        *, extractor: object = None, embedder: object = None, **given: object
    ) -> AsyncIterator[Application]:
        async with open_application(
            settings_for(database, **given),
            extractor=extractor,  # type: ignore[arg-type]
            embedder=embedder or HashEmbedder(),  # type: ignore[arg-type]
            now=clock,
            random_bytes=random_bytes,
        ) as built:
            yield built

    return opened
