"""Ranking: the published formulas to the digit, and what must hold for any pool."""

import math
import random
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rank_bm25 import BM25Plus

from recall_server.domain.episode import Citation, Span
from recall_server.domain.query import Hit, Item, ItemKind, Query, Scores, SearchMode
from recall_server.domain.search.index_entry import Words
from recall_server.domain.search.ranking import (
    DELTA,
    K1,
    B,
    Candidate,
    Matrix,
    bm25_weights,
    bm25plus,
    bm25plus_of,
    diversify,
    fit_budget,
    likeness,
    quoted,
    ranks,
    reciprocal_ranks,
    repetition,
    tokens,
    without_noise,
)
from recall_server.domain.search.signals import SIGNALS, Evidence, fuse
from recall_server.domain.text.terms import terms

EXAMPLES = settings(max_examples=40, deadline=None)  # The test machine may be busy.

NOW = datetime(2026, 1, 1, tzinfo=UTC)
CITATION = Citation("episode", Span(0, 1))

COLOURS = [["red"], ["red", "green"], ["green", "green", "blue", "blue"], ["blue"], []]


# The weight of rank 2, scaled so that rank 1 is 1 and rank 3, just past the end, is 0.
SECOND_OF_TWO = (1 / 62 - 1 / 63) / (1 / 61 - 1 / 63)


def item(
    key: str, text: str = "x", *, days: float = 0, importance: float = 0.5, accesses: int = 0
) -> Item:
    said = NOW - timedelta(days=days)
    return Item(key, ItemKind.MEMORY, text, "t", said, said, CITATION, "", importance, accesses)


def ids(hits: Iterable[Hit]) -> list[str]:
    return [hit.item.id for hit in hits]


def narrowed(asked: Sequence[str], documents: Sequence[Sequence[str]]) -> list[float]:
    """Compute BM25 as the SQL does, with the documents as the whole namespace."""
    frequencies = Counter(term for document in documents for term in set(document))
    idf = bm25_weights(frequencies, len(documents))
    average = sum(map(len, documents)) / len(documents)

    def of(document: Sequence[str]) -> float:
        norm = K1 * (1 - B + B * len(document) / average)
        return sum(
            idf.get(term, 0.0) * document.count(term) * (K1 + 1) / (document.count(term) + norm)
            for term in asked
        )

    return [of(document) for document in documents]


KEYS = st.sampled_from([a + b for a in "abcd" for b in "abcd"])
ITEMS = st.lists(
    st.builds(
        item,
        KEYS,
        st.sampled_from(["red car", "red bus", "old blue bus in the rain", ""]),
        days=st.floats(-10, 5_000),
        importance=st.floats(0, 1),
        accesses=st.integers(0, 10_000),
    ),
    max_size=12,
    unique_by=lambda it: it.id,
)
KEYWORD = st.dictionaries(KEYS, st.floats(0, 60) | st.sampled_from([1.0, 2.0]), max_size=12)
COSINE = st.dictionaries(KEYS, st.floats(-1, 1) | st.sampled_from([0.5]), max_size=12)
QUERY = st.builds(
    Query,
    st.just("q"),
    recency_weight=st.floats(0, 1),
)


# --- BM25 ---


@EXAMPLES
@given(st.dictionaries(KEYS, st.integers(0, 500), max_size=8), st.integers(0, 400))
def test_every_weight_is_positive_and_a_rarer_word_weighs_more(
    frequencies: dict[str, int], documents: int
) -> None:
    idf = bm25_weights(frequencies, documents)

    assert set(idf) == {term for term, df in frequencies.items() if df}
    assert all(math.isfinite(weight) and weight > 0 for weight in idf.values())
    by_rarity = sorted(idf, key=lambda term: frequencies[term])
    assert [idf[t] for t in by_rarity] == sorted(idf.values(), reverse=True)


@EXAMPLES
@given(
    st.lists(st.sampled_from("abcdef"), min_size=1, max_size=4, unique=True),
    st.lists(st.lists(st.sampled_from("abcdefgh"), max_size=12), min_size=1, max_size=12),
)
def test_the_narrowing_is_the_librarys_score_but_for_its_constant(
    asked: list[str], documents: list[list[str]]
) -> None:
    if not any(documents):
        return
    library = BM25Plus(documents, k1=K1, b=B, delta=DELTA)
    constant = sum(DELTA * library.idf.get(term, 0.0) for term in asked)

    assert narrowed(asked, documents) == pytest.approx(library.get_scores(asked) - constant)


def test_bm25plus_of_documents_that_have_every_word_is_the_librarys() -> None:
    documents = [["red", "bus"], ["red", "red", "bus", "old"], ["green"]]
    library = BM25Plus(documents, k1=K1, b=B, delta=DELTA).get_scores(["red", "bus"])

    assert bm25plus(["red", "bus"], documents)[:2] == pytest.approx(library[:2])


def test_a_document_without_a_word_of_the_question_scores_nothing() -> None:
    scores = bm25plus(["red", "blue"], [*COLOURS, ["green"]])

    assert [score > 0 for score in scores] == [True, True, True, True, False, False]


@pytest.mark.parametrize(
    ("asked", "pool"),
    [
        ([], []),
        (["red"], []),
        (["red"], [[]]),
        (["red"], [[], []]),
        ([], COLOURS),
        (["x"], COLOURS),
    ],
)
def test_nothing_to_match_scores_nothing(asked: list[str], pool: list[list[str]]) -> None:
    assert bm25plus(asked, pool) == [0.0] * len(pool)


def test_a_word_asked_twice_counts_once() -> None:
    assert bm25plus(["red", "red"], COLOURS) == bm25plus(["red"], COLOURS)


def test_a_rare_word_stays_rare_in_a_pool_that_was_chosen_for_it() -> None:
    pool = [["zanzibar"], ["zanzibar"], ["zanzibar"], ["trip"]]
    idf = bm25_weights({"zanzibar": 3, "trip": 400}, 1_000)

    by_pool = bm25plus(["zanzibar", "trip"], pool)
    by_namespace = bm25plus(["zanzibar", "trip"], pool, idf=idf, average_length=8.0)

    assert by_pool[0] < by_pool[3]
    assert by_namespace[0] > by_namespace[3]


@EXAMPLES
@given(st.permutations(range(len(COLOURS))))
def test_bm25plus_does_not_depend_on_the_order_of_the_rows(order: list[int]) -> None:
    straight = bm25plus(["red", "blue", "green"], COLOURS)

    assert bm25plus(["red", "blue", "green"], [COLOURS[i] for i in order]) == [
        straight[i] for i in order
    ]


@EXAMPLES
@given(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True),
    st.lists(st.lists(st.sampled_from("abcdef"), max_size=12), max_size=8),
)
def test_bm25plus_of_words_that_were_counted_is_that_of_the_documents(
    asked: list[str], documents: list[list[str]]
) -> None:
    idf = bm25_weights(dict.fromkeys(asked, 3), 50)
    words = Words(
        {term: np.array([one.count(term) for one in documents], np.int64) for term in asked},
        np.array([len(one) for one in documents], np.int64),
    )
    whole = bm25plus(asked, documents, idf=idf, average_length=5.0)

    assert bm25plus_of(words, idf=idf, average_length=5.0) == pytest.approx(whole)


# --- fusion by ranks ---


def test_equal_scores_share_the_mean_of_their_ranks() -> None:
    assert ranks(np.array([3.0, 2.0, 2.0, 1.0])).tolist() == [1, 2.5, 2.5, 4]


def test_what_has_no_score_has_no_rank() -> None:
    assert ranks(np.array([np.nan, 2.0, 3.0])).tolist() == pytest.approx(
        [np.nan, 2, 1], nan_ok=True
    )
    assert ranks(np.array([])).tolist() == []


def test_the_first_of_a_list_has_all_of_its_share_and_the_next_ones_less() -> None:
    shares = reciprocal_ranks(np.array([1.0, 2.0, np.nan]))

    assert shares.tolist() == pytest.approx([1.0, SECOND_OF_TWO, np.nan], nan_ok=True)


@EXAMPLES
@given(st.lists(st.floats(0, 60) | st.sampled_from([1.0, 2.0]), max_size=12), st.randoms())
def test_shares_of_ranks_lie_between_0_and_1_and_know_no_order_of_the_rows(
    scores: list[float], rnd: random.Random
) -> None:
    shares = reciprocal_ranks(ranks(np.array(scores))).tolist()
    order = rnd.sample(range(len(scores)), len(scores))
    shuffled = reciprocal_ranks(ranks(np.array([scores[at] for at in order]))).tolist()

    assert all(0 < share <= 1 for share in shares)
    assert shuffled == [shares[at] for at in order]


# --- the four-part score ---


def weights(recency_weight: float) -> list[float]:
    """Return the weights of the mode `recall`."""
    of_mode = {one.name: one.weights.get(SearchMode.RECALL) for one in SIGNALS}
    names = ("rrf", "recency", "importance", "strength")
    return [weight.scaled(recency_weight) for name in names if (weight := of_mode[name])]


def test_the_published_weights() -> None:
    assert weights(0) == pytest.approx((0.70, 0.00, 0.20, 0.10))
    assert weights(1) == pytest.approx((0.40, 0.40, 0.10, 0.10))
    assert weights(0.3) == pytest.approx((0.61, 0.12, 0.17, 0.10))


@EXAMPLES
@given(st.floats(0, 1))
def test_the_weights_lie_on_the_line_and_make_1(r: float) -> None:
    line = [a + (b - a) * r for a, b in zip(weights(0), weights(1), strict=True)]

    assert weights(r) == pytest.approx(line)
    assert sum(weights(r)) == pytest.approx(1)


@pytest.mark.parametrize("r", [-0.1, 1.1, math.nan])
def test_a_weight_off_the_line_is_refused(r: float) -> None:
    with pytest.raises(ValueError, match="not a weight"):
        weights(r)


def score(
    pool: Sequence[Item],
    keyword: Mapping[str, float],
    cosine: Mapping[str, float],
    query: Query,
    now: datetime,
) -> list[Hit]:
    """Return the hits of the mode `recall`, from BM25 and cosine of items by their ids."""
    items = sorted(pool, key=lambda one: one.id)
    columns = {
        "said_at": np.array([one.recorded_at.timestamp() for one in items]),
        "recorded_at": np.array([one.recorded_at.timestamp() for one in items]),
        "importance": np.array([one.importance for one in items]),
        "access_count": np.array([one.access_count for one in items]),
    }
    fused = fuse(
        Evidence(
            replace(query, mode=SearchMode.RECALL),
            now,
            columns,
            Words({}, np.zeros(len(items), np.int64)),
            {},
            np.array([keyword.get(one.id, 0.0) for one in items]),
            np.array([cosine.get(one.id, np.nan) for one in items]),
        )
    )
    order = fused.order.tolist()
    finals = fused.finals[order].tolist()
    return [
        Hit(items[at], Scores(final, final, None, signals), items[at].text)
        for at, final, signals in zip(order, finals, fused.explain(order), strict=True)
    ]


def test_the_four_part_score_by_hand() -> None:
    pool = [item("a", days=2, importance=0.8, accesses=1), item("b", days=1, accesses=3)]

    a, b = sorted(
        score(pool, {"a": 7.0, "b": 3.5}, {"b": 0.9}, Query("q"), NOW), key=lambda h: h.item.id
    )

    assert a.scores.signals["rrf"] == pytest.approx((1 / 61) / (2 / 61))
    assert a.scores.signals["recency"] == pytest.approx(math.exp(-2 / 2))
    assert a.scores.signals["strength"] == pytest.approx(math.log(2) / math.log(4))
    assert a.scores.final == pytest.approx(
        0.61 * 0.5 + 0.12 * math.exp(-1) + 0.17 * 0.8 + 0.10 * 0.5
    )
    assert b.scores.signals["rrf"] == pytest.approx((SECOND_OF_TWO + 1) / 2)
    assert b.scores.signals["recency"] == pytest.approx(math.exp(-1 / 4))
    assert b.scores.signals["strength"] == 1.0
    assert (a.scores.signals["keyword"], a.scores.signals["keyword_rank"]) == (1.0, 1)
    assert (b.scores.signals["keyword"], b.scores.signals["keyword_rank"]) == (0.5, 2)
    assert (a.scores.signals["cosine"], a.scores.signals["cosine_rank"]) == (None, None)
    assert (b.scores.signals["cosine"], b.scores.signals["cosine_rank"]) == (0.9, 1)


def test_nobody_has_strength_where_nothing_was_ever_asked_for() -> None:
    hits = score([item("a"), item("b")], {}, {}, Query("q"), NOW)

    assert {hit.scores.signals["strength"] for hit in hits} == {0.0}


def test_what_is_dated_in_the_future_is_of_age_0() -> None:
    (hit,) = score([item("a", days=-3)], {}, {}, Query("q"), NOW)

    assert hit.scores.signals["recency"] == 1.0


def test_recency_decays_more_slowly_for_what_is_read() -> None:
    seldom, often = item("a", days=7), item("b", days=7, accesses=6)

    assert ids(score([seldom, often], {}, {}, Query("q", recency_weight=1), NOW)) == ["b", "a"]


def test_equals_stand_newest_first_and_then_by_id() -> None:
    pool = [item("c", days=1), item("b"), item("a", days=1), item("d")]

    assert ids(score(pool, {}, {}, Query("q", recency_weight=0), NOW)) == ["b", "d", "a", "c"]


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_a_keyword_score_that_is_no_number_is_as_good_as_none(odd: float) -> None:
    (hit,) = score([item("a")], {"a": odd}, {}, Query("q"), NOW)

    assert (hit.scores.signals["keyword"], hit.scores.signals["rrf"]) == (None, 0.0)


@EXAMPLES
@given(ITEMS, KEYWORD, COSINE, QUERY)
def test_every_score_is_finite_and_between_0_and_1(
    pool: list[Item], keyword: dict[str, float], cosine: dict[str, float], query: Query
) -> None:
    for hit in score(pool, keyword, cosine, query, NOW):
        final, signals = hit.scores.final, hit.scores.signals
        names = ("rrf", "recency", "importance", "strength", "keyword")
        assert all(0.0 <= (signals[name] or 0.0) <= 1.0 for name in names)
        assert -1.0 <= (signals["cosine"] or 0.0) <= 1.0
        assert 0.0 <= final <= 1.0


@EXAMPLES
@given(ITEMS, KEYWORD, COSINE, QUERY, st.randoms())
def test_the_order_of_the_rows_changes_nothing_to_the_last_bit(
    pool: list[Item],
    keyword: dict[str, float],
    cosine: dict[str, float],
    query: Query,
    rnd: random.Random,
) -> None:
    shuffled = rnd.sample(pool, len(pool))

    assert score(shuffled, keyword, cosine, query, NOW) == score(pool, keyword, cosine, query, NOW)


@EXAMPLES
@given(ITEMS, KEYWORD, COSINE)
def test_an_unrelated_item_never_reorders_the_others(
    pool: list[Item], keyword: dict[str, float], cosine: dict[str, float]
) -> None:
    query = Query("q")

    before = ids(score(pool, keyword, cosine, query, NOW))
    after = ids(score([*pool, item("unrelated")], keyword, cosine, query, NOW))

    assert [key for key in after if key != "unrelated"] == before


# --- relevance dominates ---

SUBJECTS = ["Alice", "Bob", "The payments team", "Project Atlas", "The deploy job", "Carol"]
VERBS = ["prefers", "decided on", "stopped using", "is testing", "documents"]
THINGS = ["dark mode", "Postgres 16", "the green theme", "a weekly review", "FastAPI for services"]


def peer_texts() -> list[str]:
    rnd = random.Random(31)
    return [
        f"{rnd.choice(SUBJECTS)} {rnd.choice(VERBS)} {rnd.choice(THINGS)}, note {i}"
        for i in range(100, 200)
    ]


def places(texts: list[str], accesses: Sequence[int]) -> list[int]:
    """Ask for each text by its own words, and return its position in the answer, from 1."""
    documents = [terms(text) for text in texts]
    found = []
    for i, document in enumerate(documents):
        pool = [
            item(f"{j:03}", text, accesses=0 if i == j else accesses[j])
            for j, text in enumerate(texts)
        ]
        keyword = dict(zip((it.id for it in pool), bm25plus(document, documents), strict=True))
        found.append(ids(score(pool, keyword, {}, Query("q"), NOW)).index(f"{i:03}") + 1)
    return found


def test_what_has_all_the_words_and_the_number_is_first_among_equals() -> None:
    assert places(peer_texts(), [0] * 100) == [1] * 100


def test_what_only_its_number_tells_from_the_rest_beats_all_that_is_read_more_often() -> None:
    texts = [f"The number of the note about Project Atlas is {i}" for i in range(100, 200)]

    assert places(texts, [i % 6 for i in range(100)]) == [1] * 100


def test_being_read_more_often_does_not_push_the_best_match_off_the_first_ten() -> None:
    found = places(peer_texts(), [i % 6 for i in range(100)])

    # The published weights give the strength .10, which is 13 ranks of RRF with k=60. A next best
    # match that is often read may overtake, but not all of them.
    assert sum(place <= 10 for place in found) >= 95
    assert max(found) <= 13


# --- diversity ---


def test_a_memory_is_a_repetition_of_a_hit_that_quotes_the_words_it_cites() -> None:
    # Slots: a memory with its passage of words 0 to 90; another memory of these words; one of
    # another passage; one of another message.
    columns = {
        "episode": np.array([1, 1, 1, 1, 2]),
        "position": np.array([0, 0, 0, 0, 0]),
        "span_start": np.array([0, 0, 40, 95, 40]),
        "span_end": np.array([30, 90, 90, 120, 90]),
        "memory": np.array([True, False, True, True, True]),
    }
    hits = [Candidate(0, 0.9, others=(1,)), *(Candidate(slot, 0.8) for slot in (2, 3, 4))]

    assert quoted(hits, columns).tolist() == [[0, 1, 0, 0], *[[0, 0, 0, 0]] * 3]


def scored(*finals: float) -> list[Candidate]:
    return [Candidate(slot, final) for slot, final in enumerate(finals)]


def words_of(hits: Sequence[Hit]) -> tuple[list[Candidate], dict[int, list[str]]]:
    """Return the hits at their slots, and the words at each slot."""
    best = [Candidate(slot, hit.scores.final) for slot, hit in enumerate(hits)]
    return best, {slot: terms(hit.item.text) for slot, hit in enumerate(hits)}


def slots(found: Iterable[Candidate]) -> list[int]:
    return [one.slot for one in found]


def diversified(hits: Sequence[Candidate], alike: Matrix, mmr_lambda: float) -> list[Candidate]:
    return [hits[at] for at in diversify([one.final for one in hits], alike, mmr_lambda)]


@EXAMPLES
@given(ITEMS, KEYWORD, COSINE)
def test_lambda_1_keeps_the_order_exactly(
    pool: list[Item], keyword: dict[str, float], cosine: dict[str, float]
) -> None:
    hits, words = words_of(score(pool, keyword, cosine, Query("q"), NOW))
    similarity = likeness(hits, {}, words)

    assert (diversified(hits, similarity, 1.0)) == hits


@EXAMPLES
@given(ITEMS, KEYWORD, st.floats(0, 1), st.integers(0, 20))
def test_diversity_chooses_but_never_invents_or_repeats(
    pool: list[Item], keyword: dict[str, float], mmr_lambda: float, limit: int
) -> None:
    hits, words = words_of(score(pool, keyword, {}, Query("q"), NOW))
    similarity = likeness(hits, {}, words)

    picked = diversified(hits, similarity, mmr_lambda)[:limit]

    assert len(picked) == len(set(slots(picked))) == min(limit, len(hits))
    assert set(slots(picked)) <= set(slots(hits))
    assert picked[:1] == hits[: min(1, limit)]


def test_a_near_duplicate_gives_way() -> None:
    hits = scored(0.9, 0.89, 0.5)
    words = {0: ["red", "bus"], 1: ["red", "bus"], 2: ["green", "car"]}

    assert slots(diversified(hits, likeness(hits, {}, words), 0.5)) == [0, 2, 1]


def test_lambda_0_only_spreads() -> None:
    hits = scored(0.9, 0.8, 0.1)
    words = {0: ["a", "b"], 1: ["a", "c"], 2: ["d"]}

    assert slots(diversified(hits, likeness(hits, {}, words), 0.0)) == [0, 2, 1]


def test_equals_keep_their_order() -> None:
    hits = scored(0.5, 0.5, 0.5, 0.5)

    assert (diversified(hits, likeness(hits, {}, {}), 0.5)) == hits


def test_nothing_diversified_is_nothing() -> None:
    assert (diversified([], likeness([], {}, {}), 0.5)) == []


def test_vectors_speak_where_both_have_one_and_words_elsewhere() -> None:
    hits = scored(0.9, 0.8, 0.7)
    vectors = {0: np.array([3, 4], "f4"), 1: np.array([4, 3], "f4")}
    words = {0: ["a", "b"], 1: ["a", "b"], 2: ["b", "c"]}
    similarity = likeness(hits, vectors, words)

    assert similarity[0].tolist() == pytest.approx([1.0, 0.96, 1 / 3], abs=1e-6)
    assert similarity[2].tolist() == pytest.approx([1 / 3, 1 / 3, 1.0], abs=1e-6)


@pytest.mark.parametrize("odd", [[0, 0], [np.nan, 1], [np.inf, 1], [1, 0, 0], []])
def test_a_vector_that_is_no_direction_or_of_another_model_counts_as_none(odd: list[float]) -> None:
    hits = scored(0.9, 0.8)
    vectors = {0: np.array([1, 0], "f4"), 1: np.array(odd, "f4")}

    assert likeness(hits, vectors, {0: ["a"], 1: ["a"]})[0].tolist() == [1.0, 1.0]


@pytest.mark.perf
def test_many_hits_are_compared_in_the_thread_of_the_caller() -> None:
    """A product of all at once starts another thread, which spins beside it."""
    rows = np.random.default_rng(1).standard_normal((120, 256)).astype("f4")
    hits = scored(*np.linspace(1.0, 0.1, len(rows)).tolist())
    vectors = dict(enumerate(rows / np.linalg.norm(rows, axis=1, keepdims=True)))

    spent, alone = time.process_time(), time.thread_time()
    for _ in range(40):
        similarity = likeness(hits, vectors, {})
    spent, alone = time.process_time() - spent, time.thread_time() - alone

    units = np.stack(list(vectors.values())).astype("f8")
    assert np.allclose(similarity, np.clip(units @ units.T, 0.0, 1.0), atol=1e-6)
    assert spent < 1.3 * alone


def test_opposite_vectors_are_merely_unlike() -> None:
    hits = scored(0.9, 0.8)

    similarity = likeness(hits, {0: np.ones(2, "f4"), 1: -np.ones(2, "f4")}, {})

    assert similarity[0].tolist() == [1.0, 0.0]


def test_likeness_counts_as_repetition_only_where_it_is_close_to_sameness() -> None:
    alike = np.array([0.0, 0.5, 0.9, 0.95, 1.0])

    assert repetition(alike).tolist() == pytest.approx([0, 0, 0, 0.5, 1])


def test_what_is_about_one_matter_keeps_its_order_and_what_is_said_again_gives_way() -> None:
    hits = scored(0.9, 0.8, 0.7, 0.6)
    near = [[1.0, 0.89, 0.89, 0.89], [0.89, 1.0, 0.89, 0.89]] + [[0.89, 0.89, 1.0, 1.0]] * 2
    rows = np.array(near)

    assert (diversified(hits, repetition(rows), 0.5)) == hits
    again = np.array([[1.0, 1.0, 0.89, 0.89]] * 2 + near[2:])
    kept = slots(diversified(hits, repetition(again), 0.5))
    assert kept == [0, 2, 1, 3]


# --- budget ---


def lengths(*chars: int) -> list[Hit]:
    pool = [item(f"{i:03}", "x" * n) for i, n in enumerate(chars)]
    return score(pool, {}, {}, Query("q"), NOW)


def test_a_token_is_four_characters() -> None:
    assert [tokens(hit) for hit in lengths(0, 1, 4, 5, 400)] == [0, 1, 1, 2, 100]


def test_what_does_not_fit_is_skipped_and_the_rest_keeps_its_order() -> None:
    assert ids(fit_budget(lengths(8, 400, 8, 4, 4), 5, tokens)) == ["000", "002", "003"]


def test_no_budget_is_no_limit() -> None:
    hits = lengths(8, 400)

    assert fit_budget(hits, None, tokens) == hits
    assert fit_budget(hits, 0, tokens) == []


def test_the_caller_may_count_tokens_better() -> None:
    assert ids(fit_budget(lengths(8, 400), 2, cost=lambda _: 1)) == ["000", "001"]


@EXAMPLES
@given(st.lists(st.integers(0, 200), max_size=30), st.integers(0, 300))
def test_the_budget_is_never_exceeded(chars: list[int], max_tokens: int) -> None:
    hits = lengths(*chars)

    fitting = fit_budget(hits, max_tokens, tokens)

    assert sum(map(tokens, fitting)) <= max_tokens
    assert sum(len(hit.item.text) for hit in fitting) <= 4 * max_tokens
    assert fitting == [hit for hit in hits if hit in fitting]


def test_a_passage_that_is_noise_beside_the_best_of_its_message_leaves_their_hit() -> None:
    """A memory cites the passage at place 2."""
    columns = {
        "memory": np.array([False, False, False, True]),
        "span_start": np.array([0, 20, 40, 45]),
        "span_end": np.array([20, 40, 60, 50]),
    }

    assert without_noise([0, 1], [0.9, 0.5], columns) == [0, 1]
    assert without_noise([0, 1], [0.9, 0.1], columns) == [0]
    assert without_noise([0, 1], [0.1, 0.9], columns) == [0, 1]
    assert without_noise([1, 3, 2, 0], [0.9, 0.1, 0.1, 0.1], columns) == [1, 3, 2]
