"""What a search looks at: the best items by words, as the library ranks them, and the best of two
lists.
"""

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_server.domain.search import ranking
from recall_server.domain.search.index_entry import TermPostings, words_in
from recall_server.domain.search.ranking import by_words, joined

EXAMPLES = settings(max_examples=40, deadline=None)
DOCUMENTS = st.lists(st.lists(st.sampled_from("abcdef"), max_size=12), max_size=12)


def postings_of(documents: list[list[str]]) -> dict[str, TermPostings]:
    """Return the postings of documents whose slots are their positions."""
    found = {}
    for term in "abcdef":
        having = [slot for slot, document in enumerate(documents) if term in document]
        found[term] = TermPostings(
            np.array(having, np.uint32),
            np.array([Counter(documents[slot])[term] for slot in having], np.uint16),
            np.array([len(documents[slot]) for slot in having], np.uint32),
        )
    return found


@EXAMPLES
@given(DOCUMENTS, st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True))
def test_by_words_the_order_is_that_of_the_libraries_bm25(
    documents: list[list[str]], asked: list[str]
) -> None:
    postings = postings_of(documents)
    idf = ranking.bm25_weights({t: len(postings[t].slots) for t in asked}, len(documents))
    plus = ranking.bm25plus(asked, documents, idf=idf, average_length=5.0)
    # Subtract what BM25+ adds for each term.
    scores = [
        round(score - sum(idf[t] for t in asked if t in document), 9)
        for score, document in zip(plus, documents, strict=True)
    ]
    expected = np.lexsort((np.arange(len(scores)), -np.array(scores))).tolist()

    allowed = np.ones(len(documents), np.bool_)
    found = by_words(postings, idf, 5.0, allowed, 100).tolist()

    assert [scores[slot] for slot in found] == [scores[slot] for slot in expected if scores[slot]]


def test_of_many_the_best_are_found_and_equals_by_their_slots() -> None:
    postings = postings_of([["a"], ["a", "b"], ["a"], ["a"], ["b", "a"]])
    idf = {"a": 1.0, "b": 2.0}

    assert by_words(postings, idf, 2.0, np.ones(5, np.bool_), 3).tolist() == [1, 4, 0]


def test_among_tens_of_thousands_the_best_are_those_of_a_full_sort() -> None:
    made = np.random.default_rng(5)
    count = 30_000
    postings = {
        "a": TermPostings(
            np.arange(count, dtype=np.uint32),
            made.integers(1, 9, count).astype(np.uint16),
            made.integers(9, 60, count).astype(np.uint32),
        )
    }
    allowed = made.random(count) < 0.9

    found = by_words(postings, {"a": 1.0}, 30.0, allowed, 50)

    _, times, lengths = postings["a"]
    scores = times * 2.2 / (times + 1.2 * (0.25 + 0.75 / 30.0 * lengths))
    best = [slot for slot in np.lexsort((np.arange(count), -scores.round(12))) if allowed[slot]]
    assert found.tolist() == best[:50]


def test_what_is_not_allowed_or_not_known_yet_is_not_found() -> None:
    postings = postings_of([["a"], ["a"], ["a"]])

    assert by_words(postings, {"a": 1.0}, 2.0, np.array([True, False]), 9).tolist() == [0]


LISTS = st.lists(st.lists(st.integers(0, 30), max_size=12, unique=True), min_size=1, max_size=2)


@EXAMPLES
@given(LISTS, st.integers(1, 20))
def test_what_stands_high_in_both_lists_is_as_rank_fusion_says(
    lists: list[list[int]], limit: int
) -> None:
    fused: dict[int, float] = defaultdict(float)
    for one in lists:
        end = 1 / (60 + len(one) + 1)
        for rank, slot in enumerate(one, 1):
            fused[slot] += (1 / (60 + rank) - end) / (1 / 61 - end)
    expected = sorted(fused, key=lambda slot: (-fused[slot], slot))[:limit]

    found = joined([np.array(one, np.int64) for one in lists], limit).tolist()

    assert [fused[slot] for slot in found] == pytest.approx([fused[slot] for slot in expected])
    assert len(set(found)) == len(found)


def test_words_are_counted_in_the_documents_that_have_them() -> None:
    postings = postings_of([["a", "a", "b"], ["b"], ["c"]])

    words = words_in(np.array([0, 2, 7]), {term: postings[term] for term in "ab"})

    assert {term: times.tolist() for term, times in words.times.items()} == {
        "a": [2, 0, 0],
        "b": [1, 0, 0],
    }
    assert words.lengths.tolist() == [3, 0, 0]
