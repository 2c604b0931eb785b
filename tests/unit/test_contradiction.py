"""Which statements say the same, and which clash."""

import pytest

from recall_server.domain.episode import Citation, Span
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Fact, Memory, MemoryType
from recall_server.domain.similarity import (
    Verdict,
    compare,
    near_duplicates,
    opposed,
    same_statement,
)
from tests.support.runtime import NOON


def candidate(fact: Fact | None, replaces: str | None = None) -> Candidate:
    return Candidate(
        "text",
        MemoryType.FACT,
        Span(0, 4),
        fact,
        correction=replaces is not None,
        replaces=replaces,
    )


def memory(fact: Fact | None) -> Memory:
    return Memory(
        "mem_1", "text", MemoryType.FACT, "t", Citation("ep_1", Span(0, 4)), NOON, NOON, NOON, fact
    )


@pytest.mark.parametrize(
    ("new", "old", "verdict"),
    [
        (Fact("Ann", "lives_in", "Oslo"), Fact("Ann", "lives_in", "oslo."), Verdict.SAME),
        (Fact("Ann", "lives_in", "Rome"), Fact("Ann", "lives_in", "Oslo"), Verdict.CLASHES),
        (Fact("Ann", "Lives in", "Rome"), Fact("Ann", "lives_in", "Oslo"), Verdict.CLASHES),
        (Fact("Ann", "speaks", "French"), Fact("Ann", "speaks", "German"), Verdict.COMPATIBLE),
        (Fact("Ann", "likes", "tea", True), Fact("Ann", "likes", "tea"), Verdict.CLASHES),
        (Fact("Ann", "likes", "tea", True), Fact("Ann", "likes", "tea", True), Verdict.SAME),
        (
            Fact("Ann", "lives_in", "Oslo", True),
            Fact("Ann", "lives_in", "Rome"),
            Verdict.COMPATIBLE,
        ),
        (Fact("Ann", "lives_in", "Rome"), Fact("Ann", "works_at", "Acme"), Verdict.COMPATIBLE),
    ],
)
def test_facts_are_compared_by_attribute_value_and_negation(
    new: Fact, old: Fact, verdict: Verdict
) -> None:
    assert compare(candidate(new), memory(old)) is verdict


def test_a_stated_correction_reaches_the_value_under_any_attribute() -> None:
    new = candidate(Fact("team", "uses_for_database", "Postgres"), replaces="MySQL")

    assert compare(new, memory(Fact("team", "uses", "mysql"))) is Verdict.CLASHES
    assert compare(new, memory(Fact("team", "uses", "Redis"))) is Verdict.COMPATIBLE


def test_what_is_no_fact_clashes_with_nothing() -> None:
    assert compare(candidate(None), memory(Fact("Ann", "likes", "tea"))) is Verdict.COMPATIBLE


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("Ann lives in Oslo.", "ann lives in Oslo", True),
        ("Ann likes tea.", "Ann does not like tea.", False),
        ("Room 12 is booked.", "Room 13 is booked.", False),
        ("Ann lives in Oslo.", "Ben lives in Oslo.", False),
        ("", "", False),
    ],
)
def test_two_texts_say_the_same_only_with_the_same_numbers_and_negations(
    one: str, other: str, same: bool
) -> None:
    assert same_statement(one, other) is same


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("The report is due on Friday.", "The reports is due on Friday.", True),
        ("The report is due on Friday.", "The report is due on Monday.", False),
        (
            "The quarterly report of the harbour office is due on Friday.",
            "The quarterly report of the harbour office is due on Monday.",
            False,
        ),
        (
            "The quarterly report of the harbour office is due on Friday.",
            "The quarterly report of the harbor offices is due on Friday.",
            True,
        ),
        ("The report is due on day 5.", "The report is due on day 6.", False),
        ("The report is due on Friday.", "The report is not due on Friday.", False),
        ("A long report. " * 40, "A long report. " * 40 + "Indeed.", True),
        ("A long report. " * 40, "A short report. " * 40, False),
    ],
)
def test_near_duplicates_differ_in_little_but_numbers_and_negations(
    one: str, other: str, same: bool
) -> None:
    assert near_duplicates(one, other) is same
    assert near_duplicates(other, one) is same


@pytest.mark.parametrize(
    ("one", "other", "opposes"),
    [
        ("Ann likes tea.", "Ann does not like tea.", True),
        ("The build runs on every push to main.", "The build never runs on a push to main.", True),
        ("Dark mode is enabled for guests.", "Dark mode is disabled for guests.", True),
        ("Dark mode is enabled for guests.", "Dark mode is not disabled for guests.", False),
        ("Ann likes tea.", "Ann does not like coffee.", False),
        ("Ann likes tea.", "Ann always likes tea.", False),
        ("Ann never likes tea.", "Ann does not like tea.", False),
        ("Room 12 is booked.", "Room 13 is not booked.", False),
        ("Tokens are stored.", "No.", False),
        ("", "not", False),
    ],
)
def test_two_texts_are_opposed_if_one_denies_what_the_other_says(
    one: str, other: str, opposes: bool
) -> None:
    assert opposed(one, other) is opposes
    assert opposed(other, one) is opposes
