"""Large documents are written and read a part at a time, and are the same."""

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic_core import to_json

from recall_server.domain.task import Outcome
from recall_server.storage import driver
from recall_server.storage.driver import Document, document
from recall_server.storage.tables import tasks
from tests.support.counted import calls
from tests.support.rows import a_memory

LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=8), inner)
)
NUMBERS = {"created": [{"id": n, "of": [1, {}, []]} for n in range(900)], "a": '],}"', "b": []}


@given(VALUES)
def test_what_is_written_and_read_in_parts_is_the_same(value: Any) -> None:
    """Control: so it is at once. PostgreSQL puts blanks between the parts."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(driver, "ITEMS_AT_ONCE", 1)
        patched.setattr(driver, "CHARS_AT_ONCE", 0)
        text = Document(value).text
        assert document(text) == value
        assert document(json.dumps(value, indent=1)) == value

    assert text == to_json(value).decode()
    assert document(text) == value


def test_no_call_reads_all_items_of_a_large_document() -> None:
    """Control: a small one is read at once."""
    text = Document({**NUMBERS, "long": "x" * driver.CHARS_AT_ONCE}).text
    with calls() as many:
        found = document(text)
    short = Document(NUMBERS).text
    with calls() as few:
        document(short)

    assert found["created"] == NUMBERS["created"]
    assert many.count > len(NUMBERS["created"])
    assert few.count < 5


def test_no_call_turns_all_memories_of_a_task() -> None:
    """Control: a task of few memories is turned at once. Both come back as they were."""
    memory = a_memory()
    small, large = (
        Outcome(created=tuple(replace(memory, id=f"mem_{n}") for n in range(many)))
        for many in (2, driver.ITEMS_AT_ONCE + 1)
    )
    counts = []
    for one in (large, small, large):  # the first makes what turns them
        with calls() as called:
            stored = tasks._document(Outcome, one)
            assert isinstance(stored, Document)
            assert tasks._read(Outcome, stored.text) == one
        counts.append(called.count)

    assert counts[1] < driver.ITEMS_AT_ONCE < counts[2]
