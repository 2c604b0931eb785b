"""What no source can do to an answer, and what the order keeps."""

from datetime import UTC, datetime

from hypothesis import given, settings
from hypothesis import strategies as st

from recall_server.domain.model import Hit, Item, ItemKind, Place, Scores
from recall_server.domain.spreading import others, spread

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SCORES = Scores(0.5, 0.0, 0.0, 0.5, 0.0)


def hit(number: int, source: str) -> Hit:
    place = Place(f"{source} heading {number}", f"ep_{number}", 0, source)
    return Hit(Item(f"i{number}", ItemKind.TURN, "", "", NOW, NOW, None, 0.5, place=place), SCORES)


def sources(hits: list[Hit]) -> str:
    return "".join(hit.item.place.source for hit in hits if hit.item.place)


def of(letters: str) -> list[Hit]:
    return [hit(number, source) for number, source in enumerate(letters)]


def test_half_of_an_answer_is_for_others_if_there_are_any() -> None:
    """LLM-09. A heading within a text makes no other source of it."""
    assert sources(spread(of("aaaaaaaabcd"), 6, others(6))) == "aaabcd"
    assert sources(spread(of("aaaaaaaab"), 6, others(6))) == "aaabaa"
    assert sources(spread(of("aaaaaaaa"), 6, others(6))) == "aaaaaa"
    assert sources(spread(of("ab"), 6, others(6))) == "ab"
    assert sources(spread(of("aab"), 1, others(1))) == "a"


@settings(max_examples=200, deadline=None)
@given(st.text("abcd", max_size=40), st.integers(1, 20))
def test_nothing_is_made_up_and_nothing_lost_that_there_is_room_for(text: str, size: int) -> None:
    hits = of(text)
    found = spread(hits, size, others(size))

    assert len(found) == min(size, len(hits))
    assert len({one.item.id for one in found}) == len(found)
    for source in set(text):
        rest = sum(one != source for one in text)
        assert sources(found).count(source) <= max(size - others(size), size - rest)
