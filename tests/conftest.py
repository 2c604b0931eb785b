"""The fixtures that all tests share; tests/support defines them."""

import gc

import pytest

pytest.register_assert_rewrite("tests.support")

from tests.support.application import open_app  # noqa: E402
from tests.support.databases import (  # noqa: E402
    database,
    filled,
    migrated,
    migrated_file,
    postgres,
    postgres_templates,
    sqlite_templates,
    store,
)
from tests.support.engines import ENGINES  # noqa: E402
from tests.support.length import IS_FULL, beyond_the_sample, has_full_length  # noqa: E402
from tests.support.logs import logs, nothing_set  # noqa: E402
from tests.support.mcp_clients import client, era  # noqa: E402
from tests.support.runtime import clock  # noqa: E402
from tests.support.server import running, serve  # noqa: E402

__all__ = [
    "client",
    "clock",
    "database",
    "era",
    "filled",
    "logs",
    "migrated",
    "migrated_file",
    "nothing_set",
    "open_app",
    "postgres",
    "postgres_templates",
    "running",
    "serve",
    "sqlite_templates",
    "store",
]


def pytest_configure(config: pytest.Config) -> None:
    # The tests of the extra's models have an environment without it.
    if config.pluginmanager.hasplugin("hypothesispytest"):
        from hypothesis import settings  # noqa: PLC0415

        # A busy machine takes longer than the deadline of an example.
        settings.register_profile("recall", deadline=None)
        settings.load_profile("recall")


# A test that needs one of these has a database: SQLite, PostgreSQL, or both.
DATABASES = frozenset({"database", "postgres", "sqlite_templates"})


@pytest.hookimpl(tryfirst=True)  # before `-m` selects by marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if DATABASES.intersection(getattr(item, "fixturenames", ())):
            item.add_marker("db")
    beyond = beyond_the_sample(items)
    if IS_FULL:
        for item in beyond:
            item.add_marker(has_full_length)
    elif beyond:
        config.hook.pytest_deselected(items=beyond)
        left = {*beyond}
        items[:] = [item for item in items if item not in left]


def pytest_report_header() -> str:
    return f"engines: {', '.join(ENGINES)}"


def pytest_collection_finish() -> None:
    """Imported and collected objects stay to the end, so the garbage collector need not look at
    them.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)
