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
# `make faults` runs these at full length.
has_full_length = pytest.mark.full_length


def at_full_length(full: int, otherwise: int) -> int:
    """Return `full` under `make faults`; in the suite, enough to show that the rule holds."""
    return full if IS_FULL else otherwise


# For a test that starts many processes, or takes many seconds, on each engine.
on_both_at_full_length = pytest.mark.parametrize(
    "database", ENGINES if IS_FULL else ENGINES[:1], indirect=True
)


def beyond_the_sample(items: Iterable[pytest.Item]) -> list[pytest.Item]:
    """Return the cases on PostgreSQL that only `make faults` runs: all but the first of each four
    of a test.
    """
    cases = defaultdict(list)
    for item in items:
        called = getattr(item, "callspec", None)
        given = called.params if called is not None else {}
        if "postgres" in (given.get("database"), given.get("filled")):
            cases[item.nodeid.partition("[")[0]].append(item)
    return [
        item
        for same in cases.values()
        for number, item in enumerate(same)
        if number % _CASES_FOR_ONE
    ]
