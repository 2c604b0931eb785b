"""Words that several hits have are shown once."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from recall_server.domain.episode import Citation, Span
from recall_server.domain.query import Hit, Item, ItemKind, Scores, asks, repeats, without_headings

NOW = datetime(2026, 1, 1, tzinfo=UTC)
MEMORY, PASSAGE = ItemKind


def item(said: str, kind: ItemKind = PASSAGE, speaker: str | None = "Ana", box: str = "") -> Item:
    cited = Citation("ep_1", Span(0, max(1, len(said))), said, speaker, NOW)
    return Item("id", kind, said, "life", NOW, NOW, cited, said, 0.5, container=box)


@pytest.mark.parametrize(
    ("hits", "found"),
    [
        ([[item("I like tea.")], [item("i like TEA")]], {1: 0}),
        ([[item("- tea at five")], [item("Tea at five")]], {1: 0}),
        ([[item("I like tea.")], [item("I like tea.")], [item("I like tea.")]], {1: 0, 2: 0}),
        ([[item("I like tea.")], [item("I like tea.", MEMORY)]], {1: 0}),
        ([[item("I like tea."), item("And milk.")], [item("And milk.")]], {1: 0}),
        ([[item("And milk.")], [item("I like tea."), item("And milk.")]], {}),
        ([[item("I like tea.", MEMORY)], [item("I like tea.", MEMORY)]], {}),
        ([[item("I like tea.")], [item("I like teal.")]], {}),
        ([[item("Tea?")], [item("Tea?")]], {}),
        ([[item("\U0001f44d")], [item("!!!")]], {}),
        ([[item("")], [item("", MEMORY)]], {}),
        ([[item("I like tea.")], [item("I like tea.", speaker="Ben")]], {}),
        ([[item("I like tea.")], [item("I like tea.", speaker="tool")]], {}),
        ([[item("I like tea.")], [item("I like tea.", box="work")]], {}),
    ],
)
def test_a_hit_repeats_one_that_says_all_of_it(
    hits: list[list[Item]], found: dict[int, int]
) -> None:
    assert repeats(hits) == found


@pytest.mark.parametrize(
    ("said", "question"),
    [
        ("Is it far?", True),
        ("how much for the hob", True),
        ("and when is the fair in Graz", True),
        ("wann ist das Fest", True),
        ("How much it costs is on the bill. Ben has it.", False),
        ("When we arrived it rained", False),
        ("whatever is cheap", False),
        ("which", False),
    ],
)
def test_a_short_question_needs_no_mark(said: str, question: bool) -> None:
    assert asks(said) is question
    assert Hit(item(said), Scores(1.0, 1.0), f"Ana: {said}").asks is question


@pytest.mark.parametrize(
    ("said", "cited", "shown", "left"),
    [
        (
            "Trip, Food: Rice is cheap.",
            "Rice is cheap.",
            "Trip, Food: Tea is not.",
            "Rice is cheap.",
        ),
        ("Trip, Food: Rice is cheap.", "Rice is cheap.", "Trip, Art: Go.", "Food: Rice is cheap."),
        ("Log 9:30 – Rice came.", "Rice came.", "Log 9:30 – Tea came.", "Rice came."),
        ("Log: Rice came.", "Rice came.", "# Log\nTea came.", "Rice came."),
        ("On Monday, rice came.", "On Monday, rice came.", "On Monday, tea came.", None),
        ("Trip: At nine, eat.", "At nine, eat.", "Trip: At nine, go.", "At nine, eat."),
        (
            "## Food\n- Rice is cheap.",
            "- Rice is cheap.",
            "## Food\n- Tea is not.",
            "- Rice is cheap.",
        ),
    ],
)
def test_what_stands_beside_a_hit_has_no_headings_that_the_hit_shows(
    said: str, cited: str, shown: str, left: str | None
) -> None:
    one = item(cited, PASSAGE if "\n" in said else MEMORY, None)._replace(text=said)
    hit = Hit(one, Scores(1.0, 1.0), shown)
    assert without_headings(one, hit) == (left or said)
    by_ana = one._replace(citation=replace(one.citation, speaker="Ana"))
    assert "\n" in said or without_headings(by_ana, hit) == said
