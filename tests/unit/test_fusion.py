"""Fusion: what each part of a search adds, to the digit, and what must hold for any pool."""

import math
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recall_server.domain.memory import MemoryType
from recall_server.domain.query import Query, Scores, SearchMode, Step
from recall_server.domain.search import signals
from recall_server.domain.search.fact_question import Stated
from recall_server.domain.search.index_entry import Words
from recall_server.domain.search.question import TYPES, Broad
from recall_server.domain.search.ranking import bm25, bm25_weights, bm25plus
from recall_server.domain.search.signals import NEIGHBOUR, PARTS, SIGNALS, WITHOUT_WORDS, Evidence
from recall_server.domain.text.dates import Period
from tests.support.paths import ROOT

EXAMPLES = settings(max_examples=40, deadline=None)  # The test machine may be busy.

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DAY = timedelta(days=1)
MODES = (SearchMode.HYBRID, SearchMode.KEYWORD, SearchMode.VECTOR)
MAY_2023 = Period(
    datetime(2023, 5, 1, tzinfo=UTC), datetime(2023, 6, 1, tzinfo=UTC), "in May 2023", 31 * DAY
)


# The weights of the default order.
WEIGHTS = {
    one.name: one.weights[SearchMode.HYBRID].scaled(1.0)
    for one in SIGNALS
    if SearchMode.HYBRID in one.weights
}


class Place(NamedTuple):
    """The turn of an episode that an item comes from."""

    session: str
    episode_id: str
    position: int


class Item(NamedTuple):
    """The fields of a memory or turn that ranking uses."""

    id: str
    said_at: datetime
    recorded_at: datetime
    valid_from: datetime
    importance: float
    access_count: int
    place: Place | None
    type: MemoryType | None = None


class Ranked(NamedTuple):
    """An item with its scores."""

    item: Item
    scores: Scores


def item(
    key: str,
    *,
    days: float = 0,
    accesses: int = 0,
    session: str = "",
    position: int | None = None,
    valid: datetime | None = None,
    recorded: datetime | None = None,
    type_: MemoryType | None = None,
) -> Item:
    said = NOW - timedelta(days=days)
    place = None if position is None else Place(session or "s", f"ep of {session}", position)
    return Item(key, said, recorded or said, valid or said, 0.5, accesses, place, type_)


class Occurrence(NamedTuple):
    """How often a term is in an item, and how long the item is."""

    item_id: str
    term: str
    times: int
    length: int


class Known(NamedTuple):
    """What a search knows of some items, by their ids."""

    occurrences: Sequence[Occurrence]
    idf: Mapping[str, float]
    average_length: float
    cosines: Mapping[str, float]
    named: frozenset[str] = frozenset()
    periods: tuple[Period, ...] = ()
    values: frozenset[str] = frozenset()
    share: float = 1.0
    wording: Mapping[str, float] | None = None
    broad: Broad | None = None
    facts: Mapping[str, str] | None = None


def words(keys: Sequence[str], known: Known) -> Words:
    times = {
        term: np.zeros(len(keys), np.int64) for term in [*known.idf, *known.named, *known.values]
    }
    lengths = np.zeros(len(keys), np.int64)
    for one in known.occurrences:
        if one.item_id in keys and one.term in times:
            at = keys.index(one.item_id)
            times[one.term][at] = one.times
            lengths[at] = max(lengths[at], one.length)
    return Words(times, lengths)


def fuse(pool: Sequence[Item], known: Known, query: Query, now: datetime) -> list[Ranked]:
    """Call `fusion.fuse` with items whose slots are in the order of their ids."""
    items = sorted(pool, key=lambda one: one.id)
    keys = [one.id for one in items]
    names: dict[str, int] = {}
    places = [one.place for one in items]
    columns = {
        "said_at": np.array([one.said_at.timestamp() for one in items]),
        "recorded_at": np.array([one.recorded_at.timestamp() for one in items]),
        "valid_from": np.array([one.valid_from.timestamp() for one in items]),
        "importance": np.array([one.importance for one in items]),
        "access_count": np.array([one.access_count for one in items]),
        "session": np.array(
            [
                names.setdefault(at.session, len(names)) if at else -1 - n
                for n, at in enumerate(places)
            ],
            np.int64,
        ),
        "episode": np.array(
            [names.setdefault(at.episode_id, len(names)) if at else -1 for at in places], np.int64
        ),
        "type": np.array([TYPES.index(one.type) if one.type else -1 for one in items]),
        "memory": np.array([one.type is not None for one in items]),
        "position": np.array([at.position if at else 0 for at in places], np.int64),
    }
    asked = words(keys, known)
    fused = signals.fuse(
        Evidence(
            query,
            now,
            columns,
            asked,
            known.idf,
            bm25(asked, idf=known.idf, average_length=known.average_length),
            np.array([known.cosines.get(key, np.nan) for key in keys]),
            known.named,
            known.periods,
            known.values,
            known.share,
            None
            if known.wording is None
            else np.array([known.wording.get(key, 0.0) for key in keys]),
            known.broad,
            None
            if known.facts is None
            else Stated(
                np.array([known.facts.get(key, "") for key in keys]), np.zeros(len(keys), np.bool_)
            ),
        )
    )
    best = fused.order.tolist()
    return [
        Ranked(items[at], Scores(final, final, None, signals))
        for at, final, signals in zip(
            best, fused.finals[best].tolist(), fused.explain(best), strict=True
        )
    ]


def occurrence(key: str, term: str, times: int = 1, length: int = 10) -> Occurrence:
    return Occurrence(key, term, times, length)


def evidence(
    *occurrences: Occurrence,
    cosines: Mapping[str, float] | None = None,
    named: Sequence[str] = (),
    periods: tuple[Period, ...] = (),
    values: Sequence[str] = (),
    share: float = 1.0,
    wording: Mapping[str, float] | None = None,
    broad: Broad | None = None,
    facts: Mapping[str, str] | None = None,
) -> Known:
    """Make evidence from words of equal rarity, in a namespace of texts of ten words."""
    idf = dict.fromkeys(sorted({one.term for one in occurrences if one.term[0] not in "@="}), 2.0)
    known = (cosines or {}, frozenset(named), periods, frozenset(values), share, wording, broad)
    return Known(occurrences, idf, 10.0, *known, facts)


def only(*parts: str, mode: SearchMode = SearchMode.HYBRID) -> Query:
    """Make a question to which only these parts add."""
    return Query("q", mode=mode, recency_weight=1, without=frozenset(PARTS) - frozenset(parts))


def finals(hits: Sequence[Ranked]) -> dict[str, float]:
    return {hit.item.id: hit.scores.final for hit in hits}


def ids(hits: Sequence[Ranked]) -> list[str]:
    return [hit.item.id for hit in hits]


# --- the parts, one by one ---


def test_by_words_the_best_match_has_all_and_what_has_none_of_them_nothing() -> None:
    pool = [item("a"), item("b"), item("c")]
    known = evidence(occurrence("a", "x"), occurrence("a", "y"), occurrence("b", "x"))

    (a, b, c) = fuse(pool, known, only("keyword"), NOW)

    assert finals([a, b, c]) == pytest.approx({"a": 1.0, "b": 0.5, "c": 0.0})
    assert [hit.scores.signals["keyword"] for hit in (a, b, c)] == [1.0, pytest.approx(0.5), None]
    assert [hit.scores.signals["keyword_rank"] for hit in (a, b, c)] == [1, 2, None]


def test_by_vectors_the_nearest_has_all_and_the_farthest_nothing() -> None:
    pool = [item("a"), item("b"), item("c"), item("none")]
    known = evidence(cosines={"a": 0.9, "b": 0.3, "c": -0.1})

    hits = fuse(pool, known, only("cosine"), NOW)

    assert finals(hits) == pytest.approx({"a": 1.0, "b": 0.4, "c": 0.0, "none": 0.0})
    assert [hit.scores.signals["cosine"] for hit in hits[:2]] == [0.9, 0.3]
    assert {hit.item.id: hit.scores.signals["cosine_rank"] for hit in hits} == {
        "a": 1, "b": 2, "c": 3, "none": None
    }  # fmt: skip


@pytest.mark.parametrize("cosine", [0.8, 0.0, -0.2])
def test_vectors_that_are_all_equally_near_are_as_near_as_they_are(cosine: float) -> None:
    pool = [item("a"), item("b"), item("none")]

    alone = fuse(pool[:1], evidence(cosines={"a": cosine}), only("cosine"), NOW)
    both = fuse(pool, evidence(cosines={"a": cosine, "b": cosine}), only("cosine"), NOW)

    assert finals(alone) == pytest.approx({"a": max(0.0, cosine)})
    assert finals(both) == pytest.approx({"a": max(0, cosine), "b": max(0, cosine), "none": 0})


def test_words_and_sessions_count_less_if_the_namespace_knows_few_words_of_the_question() -> None:
    pool = [item("a", session="s", position=0), item("b", session="t", position=0)]
    words, some = occurrence("a", "x"), only("keyword", "session")

    all_known = finals(fuse(pool, evidence(words), some, NOW))
    a_quarter = finals(fuse(pool, evidence(words, share=0.25), some, NOW))

    assert all_known == pytest.approx({"a": 1.0, "b": 0.0})
    assert a_quarter == pytest.approx({"a": 0.5, "b": 0.0})


def test_what_is_near_without_any_word_of_the_question_counts_for_less() -> None:
    pool = [item("a"), item("b"), item("c")]
    cosines = {"a": 0.9, "b": 0.8, "c": 0.4}

    some = fuse(pool, evidence(occurrence("b", "x"), cosines=cosines), only("cosine"), NOW)
    none = fuse(pool, evidence(cosines=cosines), only("cosine"), NOW)

    assert finals(some) == pytest.approx({"b": 0.8, "a": WITHOUT_WORDS, "c": 0.0})
    assert finals(none) == pytest.approx({"a": 1.0, "b": 0.8, "c": 0.0})
    assert [hit.scores.signals["cosine"] for hit in some] == [0.8, 0.9, 0.4]


def test_a_named_speaker_lifts_his_turns_and_nobody_elses() -> None:
    pool = [item("ana"), item("ben"), item("nobody")]
    spoken = (occurrence("ana", "@ana"), occurrence("ben", "@ben"))

    hits = fuse(pool, evidence(*spoken, named=["@ana"]), only("speaker"), NOW)

    assert finals(hits) == {"ana": 1.0, "ben": 0.0, "nobody": 0.0}
    assert [hit.scores.signals["speaker"] for hit in hits] == [1.0, 0.0, 0.0]


def test_where_several_are_named_each_lifts_his_own_once() -> None:
    pool = [item("both"), item("ana"), item("cid")]
    spoken = [occurrence("both", "@mary"), occurrence("both", "@ann"), occurrence("ana", "@ana")]

    hits = fuse(pool, evidence(*spoken, named=["@mary", "@ann", "@ana"]), only("speaker"), NOW)

    assert finals(hits) == {"both": 1.0, "ana": 1.0, "cid": 0.0}


def test_who_speaks_is_no_word_that_counts() -> None:
    """The name of the speaker counts neither as a word, nor for the session, nor for a neighbouring
    turn.
    """
    pool = [item("a", position=0), item("b", position=1)]
    known = evidence(occurrence("a", "@ana"), named=["@ana"])

    hits = fuse(pool, known, only("keyword", Step.NEIGHBOURS, "session"), NOW)

    assert finals(hits) == {"a": 0.0, "b": 0.0}


def test_the_turns_beside_a_match_are_lent_a_share_of_it() -> None:
    pool = [item(f"t{position}", position=position) for position in range(5)]

    lent = finals(
        fuse(pool, evidence(occurrence("t2", "x")), only("keyword", Step.NEIGHBOURS), NOW)
    )
    kept = finals(fuse(pool, evidence(occurrence("t2", "x")), only("keyword"), NOW))

    share = pytest.approx(NEIGHBOUR)
    assert lent == {"t0": 0.0, "t1": share, "t2": 1.0, "t3": share, "t4": 0.0}
    assert kept == {"t0": 0.0, "t1": 0.0, "t2": 1.0, "t3": 0.0, "t4": 0.0}


def test_nothing_is_lent_from_one_episode_to_another_or_to_what_has_no_place() -> None:
    pool = [
        item("here", session="one", position=0),
        item("next door", session="two", position=1),
        item("nowhere"),
    ]

    hits = fuse(pool, evidence(occurrence("here", "x")), only("keyword", Step.NEIGHBOURS), NOW)

    assert finals(hits) == {"here": 1.0, "next door": 0.0, "nowhere": 0.0}


def test_several_memories_of_one_turn_lend_what_the_best_of_them_has() -> None:
    pool = [item("one", position=0), item("other", position=0), item("beside", position=1)]
    words = (occurrence("one", "x"), occurrence("other", "x"), occurrence("other", "y"))

    found = finals(fuse(pool, evidence(*words), only("keyword", Step.NEIGHBOURS), NOW))

    assert found == pytest.approx({"one": 0.5, "other": 1.0, "beside": NEIGHBOUR})


def test_a_session_with_more_of_the_words_lends_to_all_its_turns() -> None:
    pool = [
        item("x", session="good", position=0),
        item("y", session="good", position=9),
        item("far", session="good", position=99),
        item("other", session="less", position=0),
        item("silent", session="none", position=0),
        item("nowhere"),
    ]
    known = evidence(occurrence("x", "x"), occurrence("y", "y"), occurrence("other", "x"))

    found = finals(fuse(pool, known, only("session"), NOW))

    assert found["x"] == found["y"] == found["far"] == 1.0
    assert 0.0 < found["other"] < 1.0
    assert found["silent"] == found["nowhere"] == 0.0


def test_a_word_that_few_sessions_have_tells_more_of_a_session() -> None:
    pool = [item(f"{n}", session=f"{n}", position=0) for n in range(5)]
    known = evidence(occurrence("0", "rare"), *(occurrence(f"{n}", "common") for n in range(1, 5)))

    found = finals(fuse(pool, known, only("session"), NOW))

    # The figures are ln(6 / 1) and ln(6 / 4), for five sessions.
    assert found["0"] == 1.0
    assert found["1"] == pytest.approx(math.log(6 / 4) / math.log(6))


def test_what_has_no_session_is_one_by_itself() -> None:
    found = finals(
        fuse([item("a"), item("b")], evidence(occurrence("a", "x")), only("session"), NOW)
    )

    assert found == {"a": 1.0, "b": 0.0}


def test_a_period_in_the_question_lifts_what_fits_it_and_leaves_nothing_out() -> None:
    pool = [
        item("before", valid=MAY_2023.start and MAY_2023.start - 31 * DAY),
        item("in it", valid=datetime(2023, 5, 8, tzinfo=UTC)),
        item("years later"),
    ]

    hits = fuse(pool, evidence(periods=(MAY_2023,)), only("time"), NOW)

    assert ids(hits) == ["in it", "before", "years later"]
    found = finals(hits)
    assert found["in it"] == 1.0
    assert found["before"] == pytest.approx(math.exp(-1))
    assert 0.0 < found["years later"] < 1e-6


def test_of_several_periods_the_one_that_fits_best_counts() -> None:
    today = Period(NOW - DAY, NOW, "yesterday", DAY)
    pool = [item("a", days=0.5), item("b", valid=MAY_2023.start)]

    found = finals(fuse(pool, evidence(periods=(MAY_2023, today)), only("time"), NOW))

    assert found == {"a": 1.0, "b": 1.0}


def test_what_was_said_later_has_more_of_recency_however_often_it_was_read() -> None:
    pool = [item("new", days=-1), item("old", days=60), item("read", days=60, accesses=3)]

    found = finals(fuse(pool, evidence(), only("recency"), NOW))

    assert found == pytest.approx({"new": 1.0, "read": 1 / 3, "old": 1 / 3})


def test_when_something_was_handed_in_has_no_say() -> None:
    pool = [item("said before", days=60, recorded=NOW), item("said later", days=30)]

    found = finals(fuse(pool, evidence(), only("recency"), NOW))

    assert found == pytest.approx({"said later": 1 / 2, "said before": 1 / 3})


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_recency_counts_for_as_much_as_the_query_says(weight: float) -> None:
    query = replace(only("recency"), recency_weight=weight)

    assert finals(fuse([item("a")], evidence(), query, NOW)) == {"a": pytest.approx(weight)}


# --- together ---


def test_the_final_score_is_the_weighted_mean_of_the_parts() -> None:
    pool = [
        item("a", session="s", position=0, days=1, valid=MAY_2023.start),
        item("b", session="s", position=1, days=2),
    ]
    known = evidence(
        occurrence("a", "x"),
        occurrence("b", "@ben"),
        occurrence("b", "=money"),
        cosines={"a": 0.1, "b": 0.7},
        named=["@ben"],
        values=["=money"],
        periods=(MAY_2023,),
    )

    b, a = fuse(pool, known, Query("q", recency_weight=0.5), NOW)

    # All words of the question are known.
    total = sum(WEIGHTS.values()) - sum(WEIGHTS[one] for one in ("wording", "broad", "fact"))
    score_a = 0.3 + 0.25 + 0.4 + 0.1 * 0.5 * 30 / 31
    score_b = 0.3 * NEIGHBOUR + 0.7 * WITHOUT_WORDS + 0.3 + 0.3 + 0.25 + 0.1 * 0.5 * 30 / 32
    assert a.scores.final == pytest.approx(score_a / total, abs=1e-9)
    assert b.scores.final == pytest.approx(score_b / total, abs=1e-9)
    of_a, of_b = a.scores.signals, b.scores.signals
    assert (of_a["speaker"], of_a["session"], of_a["time"]) == (0.0, 1.0, 1.0)
    assert (of_b["cosine"], of_b["cosine_rank"], of_b["keyword_rank"]) == (0.7, 1, 2)


def test_the_guide_tells_what_each_part_counts_for() -> None:
    guide = (ROOT / "docs/guide/search.md").read_text("utf-8")
    words = {
        "keyword": "words",
        "cosine": "vectors",
        "wording": "wording",
        "broad": "broad",
        "fact": "fact",
        "speaker": "speaker",
        "value": "value",
        "session": "session",
        "time": "time",
        "recency": "recency",
    }

    assert set(words) == set(WEIGHTS)
    for part, weight in WEIGHTS.items():
        assert f"| {words[part]} | {f'{weight:g}'.removeprefix('0')}" in guide
    assert f"gets a {'fifth' if NEIGHBOUR == 0.2 else NEIGHBOUR} of its score" in guide
    assert f"{f'{WITHOUT_WORDS:g}'.removeprefix('0')} of it counts for an item that has no" in guide


def test_a_part_that_the_question_gives_no_reason_for_says_nothing() -> None:
    (hit,) = fuse([item("a")], evidence(occurrence("a", "x")), Query("q", recency_weight=1), NOW)

    silent = (
        "speaker",
        "value",
        "time",
        "cosine",
        "wording",
        "broad",
        "cosine_rank",
        "rrf",
        "importance",
        "strength",
    )
    assert [hit.scores.signals[name] for name in silent] == [None] * len(silent)
    # It has the full share of words, session and recency.
    assert hit.scores.final == pytest.approx(1.0)


def test_the_wording_counts_as_much_as_words_of_the_question_are_unknown() -> None:
    near = {"a": 1.0, "b": 0.0}

    a, b = fuse([item("a"), item("b")], evidence(share=0.5, wording=near), Query("q"), NOW)
    known_a, known_b = fuse([item("a"), item("b")], evidence(wording=near), Query("q"), NOW)

    half = 0.5 * WEIGHTS["wording"]
    others = WEIGHTS["keyword"] + WEIGHTS["session"] + WEIGHTS["recency"]
    assert a.scores.final - b.scores.final == pytest.approx(half / (half + others))
    assert known_a.scores.final == known_b.scores.final


def test_words_that_ask_for_all_have_no_say() -> None:
    words = evidence(
        occurrence("a", "know"), cosines={"a": 0.9, "b": 0.1}, broad=Broad(frozenset())
    )
    old = item("a", days=9, type_=MemoryType.FACT)

    first, second = fuse([old, item("b", type_=MemoryType.FACT)], words, Query("q"), NOW)

    assert (first.item.id, second.item.id) == ("b", "a")
    assert first.scores.signals["keyword"] is None
    assert first.scores.signals["cosine"] is None


@pytest.mark.parametrize("part", WEIGHTS)
def test_without_a_part_its_effect_is_gone(part: str) -> None:
    """Only that part ranks the second item higher. With words, the session does too."""
    words = evidence(occurrence("b", "x"))
    reason = {
        "keyword": words,
        "cosine": evidence(cosines={"a": 0.1, "b": 0.9}),
        "wording": evidence(share=0.5, wording={"a": 0.1, "b": 0.9}),
        "broad": evidence(broad=Broad(frozenset({MemoryType.DECISION}))),
        "fact": evidence(facts={"b": "lives_in"}),
        "speaker": evidence(occurrence("b", "@ben"), named=["@ben"]),
        "value": evidence(occurrence("b", "=money"), values=["=money"]),
        "session": words,
        "time": evidence(periods=(Period(NOW, None, "", DAY),)),
        "recency": evidence(),
    }[part]
    b = item(
        "b",
        days=8 if part == "recency" else 9,
        valid=NOW if part == "time" else None,
        type_=MemoryType.DECISION if part == "broad" else None,
    )
    of_it = {"keyword", "session"} if reason is words else {part}

    with_it = fuse([item("a", days=9), b], reason, only(*of_it), NOW)
    without = fuse([item("a", days=9), b], reason, only(*frozenset(PARTS) - of_it), NOW)

    assert ids(with_it) == ["b", "a"]
    assert len(set(finals(with_it).values())) == 2
    # Equal items are ordered newest first, then by id.
    assert ids(without) == (["b", "a"] if part == "recency" else ["a", "b"])
    assert len(set(finals(without).values())) == 1


def test_with_no_part_at_all_equals_stand_newest_first_and_then_by_id() -> None:
    pool = [item("c", days=1), item("b"), item("a", days=1), item("d")]

    for mode in MODES:
        hits = fuse(pool, evidence(), only(mode=mode), NOW)
        assert ids(hits) == ["b", "d", "a", "c"]
        assert set(finals(hits).values()) == {0.0}


def test_nothing_fused_is_nothing() -> None:
    for mode in MODES:
        assert fuse([], evidence(), Query("q", mode=mode), NOW) == []


# --- modes ---


def test_mode_vector_is_the_cosine_and_nothing_else() -> None:
    pool = [item("a"), item("b", accesses=9), item("c"), item("none")]
    known = evidence(
        occurrence("b", "x"),
        cosines={"a": 0.8, "b": 0.5, "c": -0.2},
        named=["@b"],
        periods=(MAY_2023,),
    )

    hits = fuse(pool, known, Query("q", mode=SearchMode.VECTOR), NOW)

    assert finals(hits) == pytest.approx({"a": 0.8, "b": 0.5, "c": 0.0, "none": 0.0})
    assert {hit.scores.signals["keyword"] for hit in hits} == {None}


def test_without_vectors_hybrid_is_keyword() -> None:
    pool = [item("a", position=0), item("b", days=3, position=1)]
    known = evidence(occurrence("a", "x"), occurrence("b", "@b"), named=["@b"])

    hybrid, words = (
        fuse(pool, known, Query("q", mode=mode), NOW)
        for mode in (SearchMode.HYBRID, SearchMode.KEYWORD)
    )

    assert hybrid == words


# --- BM25 ---


@EXAMPLES
@given(
    st.lists(st.sampled_from("abcd"), min_size=1, max_size=4, unique=True),
    st.lists(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12), max_size=8),
    st.integers(0, 1_000),
    st.floats(1, 50),
)
def test_our_bm25_is_the_librarys_on_the_same_documents(
    asked: list[str], documents: list[list[str]], others: int, average: float
) -> None:
    known = Counter(term for document in documents for term in set(document))
    idf = bm25_weights({t: known[t] for t in asked}, len(documents) + others)
    postings = [
        Occurrence(f"{number}", term, times, len(document))
        for number, document in enumerate(documents)
        for term, times in Counter(document).items()
    ]
    library = bm25plus(asked, documents, idf=idf, average_length=average)

    keys = [f"{number}" for number in range(len(documents))]
    asked_for = words(keys, Known(postings, idf, average, {}))
    found = bm25(asked_for, idf=idf, average_length=average)

    assert found.tolist() == pytest.approx(library)


# --- what holds of any pool ---

KEYS = st.sampled_from([a + b for a in "abcd" for b in "abcd"])
MOMENTS = st.floats(-10, 5_000).map(lambda days: NOW - timedelta(days=days))
PLACES = st.none() | st.builds(
    Place, st.sampled_from("st"), st.sampled_from("ef"), st.integers(0, 4)
)
POOL = st.lists(
    st.builds(
        lambda key, said, valid, accesses, place: Item(
            key, said, said, valid, 0.5, accesses, place
        ),
        KEYS,
        MOMENTS,
        MOMENTS,
        st.integers(0, 10_000),
        PLACES,
    ),
    max_size=12,
    unique_by=lambda one: one.id,
)
OCCURRENCES = st.lists(
    st.builds(
        Occurrence, KEYS, st.sampled_from(["x", "y", "z", "@a", "@b"]), st.integers(1, 9),
        st.integers(1, 60),
    ),
    max_size=24,
    unique_by=lambda one: (one.item_id, one.term),
)  # fmt: skip
PERIODS = st.sampled_from([(), (MAY_2023,), (MAY_2023, Period(None, NOW, "until today", DAY))])
EVIDENCE = st.builds(
    Known,
    OCCURRENCES,
    st.just({"z": 0.1, "x": 3.0, "y": 1.5}),
    st.floats(1, 100),
    st.dictionaries(KEYS, st.floats(-1, 1) | st.sampled_from([0.5]), max_size=12),
    st.frozensets(st.sampled_from(["@a", "@b"])),
    PERIODS,
    share=st.floats(0, 1),
)
QUERY = st.builds(
    Query,
    st.just("q"),
    mode=st.sampled_from(MODES),
    recency_weight=st.floats(0, 1),
    without=st.frozensets(st.sampled_from(PARTS), max_size=4),
)


@EXAMPLES
@given(POOL, EVIDENCE, QUERY)
def test_every_score_is_between_0_and_1(pool: list[Item], known: Known, query: Query) -> None:
    for hit in fuse(pool, known, query, NOW):
        final, signals = hit.scores.final, hit.scores.signals
        names = ("recency", "keyword", "speaker", "session", "time")
        shares = [final, *(signals[name] for name in names)]
        assert all(0.0 <= share <= 1.0 for share in shares if share is not None)
        asks_for_all = known.broad is not None and not known.broad.topic
        silent = asks_for_all or "cosine" in query.without
        assert signals["cosine"] == (None if silent else known.cosines.get(hit.item.id))


@EXAMPLES
@given(POOL, EVIDENCE, QUERY, st.randoms())
def test_the_order_of_the_rows_changes_nothing_to_the_last_bit(
    pool: list[Item], known: Known, query: Query, rnd: random.Random
) -> None:
    shuffled = known._replace(
        occurrences=rnd.sample(list(known.occurrences), len(known.occurrences)),
        cosines=dict(rnd.sample(list(known.cosines.items()), len(known.cosines))),
    )

    assert fuse(rnd.sample(pool, len(pool)), shuffled, query, NOW) == fuse(pool, known, query, NOW)


@EXAMPLES
@given(POOL, EVIDENCE, QUERY)
def test_the_order_is_total(pool: list[Item], known: Known, query: Query) -> None:
    hits = fuse(pool, known, query, NOW)

    assert sorted(ids(hits)) == sorted(one.id for one in pool)
    stands = [(-h.scores.final, NOW - h.item.said_at, h.item.id) for h in hits]
    assert stands == sorted(stands)


@EXAMPLES
@given(POOL, EVIDENCE, QUERY, st.sampled_from(PARTS))
def test_a_part_left_out_twice_is_left_out_once_and_its_score_is_not_told(
    pool: list[Item], known: Known, query: Query, part: str
) -> None:
    query = replace(query, mode=SearchMode.HYBRID, without=query.without | {part})

    for hit in fuse(pool, known, query, NOW):
        assert hit.scores.signals.get(part) is None
