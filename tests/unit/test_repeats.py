"""Hits that say only what one above them says."""

from datetime import UTC, datetime

import pytest

from recall_server.domain.episode import Citation, Span
from recall_server.domain.query import Item, ItemKind, repeats

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
