"""The databases of a test, migrated and empty, on each engine."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
from psycopg.conninfo import conninfo_to_dict

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
        yield _name(url)


def _name(url: str) -> str:
    return str(conninfo_to_dict(url)["dbname"])


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


Database = Path | str
Fill = Callable[[Database, Path], None]
"""Fills an empty database, and puts files into the folder."""
Filled = Callable[[Fill], Database]


class Templates:
    """Databases that are filled once, for all tests that begin with a copy."""

    def __init__(
        self,
        stack: ExitStack,
        folder: Path,
        empty: Database,
        copy: Callable[[Database, Path], AbstractContextManager[Database]],
    ) -> None:
        """`copy` yields a copy of a database, in that folder if it is a file."""
        self._stack, self._folder, self._empty, self._copy = stack, folder, empty, copy
        self._filled: dict[str, Database] = {}

    @contextmanager
    def copied(self, fill: Fill, into: Path) -> Iterator[Database]:
        """Yield a copy of what `fill` has filled, and copy its files into a folder."""
        name = f"{fill.__module__}.{fill.__qualname__}"
        folder = self._folder / name
        if name not in self._filled:
            folder.mkdir()
            database = self._stack.enter_context(self._copy(self._empty, folder))
            fill(database, folder)
            self._filled[name] = database
        shutil.copytree(folder, into, dirs_exist_ok=True)
        with self._copy(self._filled[name], into) as database:
            yield database


@pytest.fixture(scope="session")
def sqlite_templates(
    migrated_file: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Templates]:
    @contextmanager
    def copy(database: Database, folder: Path) -> Iterator[Database]:
        yield Path(shutil.copy(database, folder))

    with ExitStack() as stack:
        yield Templates(stack, tmp_path_factory.mktemp("templates"), migrated_file, copy)


@pytest.fixture(scope="session")
def postgres_templates(
    postgres: Postgres, migrated: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Templates]:
    @contextmanager
    def copy(database: Database, _: Path) -> Iterator[Database]:
        with postgres.database(_name(str(database))) as url:
            yield url

    with ExitStack() as stack:
        folder = tmp_path_factory.mktemp("templates")
        yield Templates(stack, folder, postgres.named(migrated), copy)


@pytest.fixture(params=ENGINES)
def filled(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Filled]:
    """Return a function that gives a copy of the database that another has filled, on each engine.
    The files that it has written are in `tmp_path` then.
    """
    templates: Templates = request.getfixturevalue(f"{request.param}_templates")
    with ExitStack() as stack:
        yield lambda fill: stack.enter_context(templates.copied(fill, tmp_path))


@pytest.fixture
async def store(database: Path | str) -> AsyncIterator[Store]:
    driver = driver_for(database)
    await driver.open()
    await migrate(driver, shipped("migrations"), NOON)
    opened = Store(driver, cache_bytes_max=1_000_000, mac_key=bytes(32))
    yield opened
    await opened.close()
