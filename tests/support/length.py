"""The length of tests that show more the longer they run, and the cases on both engines."""

import os
from collections import defaultdict
from collections.abc import Iterable

import pytest

from tests.support.engines import ENGINES

IS_FULL = os.environ.get("RECALL_TEST_LENGTH") == "full"
# Of so many cases that run on SQLite, one runs on PostgreSQL too: of the tests of a module, or, in
# these, of the cases of a test.
_CASES_FOR_ONE = 4
_EACH_TEST_ON_BOTH = (
    *("tests/integration/storage/", "tests/security/test_isolation", "tests/security/test_scan"),
    *("tests/stories/", "tests/faults/"),
)
# `make faults` runs the first at full length, and is the only one to run the second.
has_full_length = pytest.mark.full_length
only_at_full_length = pytest.mark.full_length(only=True)


def at_full_length(full: int, otherwise: int) -> int:
    """Return `full` under `make faults`; in the suite, enough to show that the rule holds."""
    return full if IS_FULL else otherwise


# For a test that starts many processes, or takes many seconds, on each engine.
on_both_at_full_length = pytest.mark.parametrize(
    "database", ENGINES if IS_FULL else ENGINES[:1], indirect=True
)


def beyond_the_sample(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return what only `make faults` runs: tests that say so, and most cases on PostgreSQL that run
    on SQLite too.
    """
    beyond: list[pytest.Item] = []
    on_sqlite: set[str] = set()
    on_postgres: dict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        test = item.nodeid.partition("[")[0]
        mark = item.get_closest_marker("full_length")
        if mark is not None and mark.kwargs.get("only"):
            beyond.append(item)
        elif (engine := _engine_of(item)) == "sqlite":
            on_sqlite.add(test)
        elif engine == "postgres":
            on_postgres[test].append(item)
    alike: dict[str, list[pytest.Item]] = defaultdict(list)
    for test in on_postgres.keys() & on_sqlite:
        each = test.startswith(_EACH_TEST_ON_BOTH)
        alike[test if each else test.partition("::")[0]] += on_postgres[test]
    for same in alike.values():
        same.sort(key=lambda item: item.nodeid)
        beyond += [item for number, item in enumerate(same) if number % _CASES_FOR_ONE]
    return beyond


def _engine_of(item: pytest.Item) -> str | None:
    called = getattr(item, "callspec", None)
    given = called.params if called is not None else {}
    return given.get("database") or given.get("filled")
