"""No source can fill an answer, and the order is kept."""

from hypothesis import given, settings
from hypothesis import strategies as st

from recall_server.domain.search.ranking import others, spread


def spread_of(letters: str, size: int) -> list[int]:
    """Return the positions of the items that are shown. Each letter is a source."""
    return spread(range(len(letters)), letters, size, others(size))


def sources(letters: str, size: int) -> str:
    return "".join(letters[place] for place in spread_of(letters, size))


def test_of_ten_hits_three_are_for_others_if_there_are_any() -> None:
    assert sources("aaaaaaaaaabcde", 10) == "aaaaaaabcd"
    assert sources("aaaaaaaaaab", 10) == "aaaaaaabaa"
    assert sources("aaaaaaaaaa", 10) == "aaaaaaaaaa"
    assert sources("ab", 10) == "ab"
    assert sources("aaaaabb", 5) == "aaaab"
    assert sources("aab", 2) == "ab"
    assert sources("aab", 1) == "a"


@settings(max_examples=200, deadline=None)
@given(st.text("abcd", max_size=40), st.integers(1, 20))
def test_nothing_is_made_up_and_nothing_lost_that_there_is_room_for(text: str, size: int) -> None:
    found = spread_of(text, size)

    assert len(found) == min(size, len(text))
    assert len(set(found)) == len(found)
    for source in set(text):
        rest = sum(one != source for one in text)
        shown = sum(text[place] == source for place in found)
        assert shown <= max(size - others(size), size - rest)
