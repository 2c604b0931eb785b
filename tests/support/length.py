"""The length of tests that show more the longer they run, and the cases on both engines."""

import os
from collections import defaultdict
from collections.abc import Iterable

import pytest

from tests.support.engines import ENGINES

IS_FULL = os.environ.get("RECALL_TEST_LENGTH") == "full"
# Of the cases of one test that differ in their data only, so many run on SQLite for each that also
# runs on PostgreSQL.
_CASES_FOR_ONE = 4
# `make faults` runs these at full length, and those that take longest nobody else does.
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
    """Return what only `make faults` runs: tests that say so, and cases on PostgreSQL. Of a test of
    a protocol that runs on SQLite too these are all of them, and of another all but the first of
    each four.
    """
    beyond, cases = [], defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("full_length")
        if mark is not None and mark.kwargs.get("only"):
            beyond.append(item)
        elif engine := _engine_of(item):
            cases[item.nodeid.partition("[")[0], engine].append(item)
    for (test, engine), same in cases.items():
        if engine == "postgres":
            of_protocol = test.startswith("tests/api/") and (test, "sqlite") in cases
            kept = [] if of_protocol else same[::_CASES_FOR_ONE]
            beyond += [item for item in same if item not in kept]
    return beyond


def _engine_of(item: pytest.Item) -> str | None:
    called = getattr(item, "callspec", None)
    given = called.params if called is not None else {}
    return given.get("database") or given.get("filled")
