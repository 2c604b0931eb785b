"""Evidence is strong if one item of the right person has most words of the question, and weak
otherwise.
"""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recall_server.domain.query import Scores
from recall_server.domain.search.calibration import (
    KEYWORD,
    OTHER_VECTORS,
    WEAK_BELOW,
    asked_weights,
    calibration,
    coverage,
    evidence,
    lead_of,
    power,
    scaled,
)
from recall_server.domain.search.index_entry import Words

IDF = {"bake": 2.0, "bread": 1.0, "ana": 0.5}
ANA, BEN = frozenset({"@ana"}), frozenset({"@ben"})


Found = list[tuple[str, str]]


def item(item_id: str, *terms: str) -> Found:
    return [(item_id, term) for term in terms]


def share(asked: list[str], found: Found, named: frozenset[str] = frozenset()) -> float:
    items = sorted({item_id for item_id, _ in found})
    times = {
        term: np.array([int((item_id, term) in found) for item_id in items], np.int64)
        for term in [*IDF, *named]
    }
    words = Words(times, np.ones(len(items), np.int64))
    weights = asked_weights(asked, IDF, 99, named)
    said = coverage(weights, words, named)
    return float(said.max(initial=0.0))


def test_the_item_that_says_most_of_the_question_counts_and_rare_words_count_more() -> None:
    found = [*item("one", "bake"), *item("two", "bread")]

    assert share(["bake", "bread"], found) == pytest.approx(2 / 3)
    assert share(["bake", "bread"], [*found, *item("three", "bake", "bread")]) == 1.0


def test_what_no_item_of_the_namespace_says_is_as_rare_as_can_be() -> None:
    assert share(["bake", "unheard"], item("one", "bake")) == pytest.approx(2 / (2 + math.log(100)))


def test_of_somebody_named_only_what_they_said_counts() -> None:
    found = [*item("one", "bake", "bread", "@ben"), *item("two", "bread", "@ana")]

    assert share(["ana", "bake", "bread"], found, ANA) == pytest.approx(1 / 3)
    assert share(["ben", "bake", "bread"], found, BEN) == 1.0
    assert share(["ana", "ben", "bake", "bread"], found, ANA | BEN) == 1.0
    assert share(["carl", "bread"], found, frozenset({"@carl"})) == 0.0


def test_a_name_of_two_words_is_one_person() -> None:
    found = [*item("one", "bake", "@ana", "@lima"), *item("two", "bake", "bread", "@ana", "@berg")]

    assert share(["bake", "bread"], found, frozenset({"@ana", "@lima"})) == pytest.approx(2 / 3)


def test_who_says_i_may_ask_for_what_others_said() -> None:
    found = [*item("one", "bake", "@assistant"), *item("two", "bread", "@user")]

    assert share(["bake"], found, frozenset({"@user"})) == 1.0


def test_a_name_is_no_part_of_what_is_asked() -> None:
    assert share(["ana", "bake"], item("one", "bake", "@ana"), ANA) == 1.0
    assert share(["ana"], item("one", "ana", "@ana"), ANA) == 0.0


def test_nothing_found_or_nothing_asked_covers_nothing() -> None:
    assert share(["bake"], []) == 0.0
    assert share([], item("one", "bake")) == 0.0
    assert of_one(0.0, 0.0, "wordllama/256") < WEAK_BELOW
    assert of_one(0.0, None, None) < WEAK_BELOW
    assert evidence([], KEYWORD) == 0.0


def of_one(covers: float, cosine: float | None, model: str | None) -> float:
    """Return the evidence of one hit with these figures."""
    return evidence([Scores(0.5, 0.5, covers, cosine=cosine)], calibration(model))


def test_evidence_goes_by_the_best_of_the_hits_that_are_shown() -> None:
    weights = calibration("wordllama/256")
    near = Scores(0.5, 0.5, coverage=0.1, cosine=0.8)
    saying = Scores(0.5, 0.5, coverage=0.9, cosine=0.2)
    both = Scores(0.5, 0.5, coverage=0.9, cosine=0.8)

    assert evidence([near, saying], weights) == evidence([both], weights)
    assert evidence([near], weights) < evidence([near, saying], weights)


def test_a_hit_that_others_are_like_is_weaker_evidence_than_one_ahead_of_them() -> None:
    shown = [Scores(0.5, 0.5, coverage=0.6, cosine=0.4)]
    covers, near = np.full(12, 0.6), np.full(12, 0.4)
    ahead = covers.copy(), near.copy()
    for values in ahead:
        values[1:] = 0.0
    weights = calibration("wordllama/256")

    assert lead_of(covers, near) == pytest.approx((0.0, 0.0))
    assert lead_of(*ahead) == pytest.approx((0.6, 0.4))
    among = evidence(shown, weights, lead_of(covers, near))
    assert among < WEAK_BELOW < evidence(shown, weights, lead_of(*ahead))
    # It was measured for one model only.
    assert evidence(shown, KEYWORD, lead_of(*ahead)) == evidence(shown, KEYWORD)


def test_what_is_ahead_by_the_names_of_the_question_alone_is_no_stronger_evidence() -> None:
    weights, lead = calibration("wordllama/256"), lead_of(np.full(1, 0.6), np.full(1, 0.4))
    names, more = (Scores(0.5, 0.5, coverage=one, cosine=0.4) for one in (0.0, 0.1))

    assert evidence([names], weights, lead) == evidence([names], weights) < WEAK_BELOW
    assert evidence([more], weights, lead) > WEAK_BELOW


def test_the_lead_of_few_candidates_counts_those_that_are_missing() -> None:
    assert lead_of(np.zeros(0), np.zeros(0)) == (0.0, 0.0)
    assert lead_of(np.array([1.0]), np.array([np.nan])) == (1.0, 0.0)


def test_a_model_that_was_not_measured_leaves_it_to_the_words() -> None:
    assert of_one(0.6, 0.9, "somebody/else") == of_one(0.6, None, None)
    assert of_one(0.6, 0.9, "wordllama/256/0.4+2") > of_one(0.6, 0.1, "wordllama/256/0.4+2")
    assert of_one(0.6, 0.5, "sentence-transformers/all-MiniLM-L6-v2") != of_one(0.6, None, None)
    assert not calibration("somebody/else").tells_noise
    assert OTHER_VECTORS.hit.probability(0.5, 0.9, 0.5) == OTHER_VECTORS.hit.probability(
        0.5, 0.1, 0.5
    )


def test_in_a_small_store_the_same_hit_is_more_likely_to_be_the_answer() -> None:
    few, hundreds, many = (calibration("wordllama/256", "", n) for n in (40, 400, 100_000))
    odds = [one.hit.probability(0.4, 0.4, 0.9) for one in (few, hundreds, many)]
    nothing = few.hit.probability(0.0, 0.2, 0.55), few.evidence.probability(0.0, 0.2)

    assert odds[0] > odds[1] > odds[2]
    assert 2 * many.noise_below > few.noise_below > hundreds.noise_below > many.noise_below
    assert many == calibration("wordllama/256")
    assert calibration("wordllama/256", "", 1) == calibration("wordllama/256", "", 20)
    assert max(nothing) < WEAK_BELOW


def test_noise_is_unlikely_in_itself_or_beside_the_best_hit() -> None:
    many, words = calibration("wordllama/256"), calibration(None)

    assert many.noise(0.9) == pytest.approx(0.9 * many.noise_below)
    assert many.noise(0.1) == many.noise_score > 0.1 * many.noise_below
    assert 0.0 < many.noise(0.01) < many.noise_score
    # It was measured for vectors.
    assert words.noise(0.1) == pytest.approx(0.1 * words.noise_below)


def test_the_cosine_of_a_chinese_question_says_nothing() -> None:
    hit = calibration("wordllama/256", "租金多少?").hit

    assert hit.probability(0.0, 0.9, 0.6) == hit.probability(0.0, 0.1, 0.6)
    assert calibration("minilm-l6", "租金多少?") == calibration("minilm-l6")


@given(
    st.floats(0, 1), st.floats(0, 1), st.floats(-1, 1), st.sampled_from(["wordllama", "x", None])
)
def test_evidence_and_scores_are_shares_and_grow_with_coverage(
    less: float, more: float, cosine: float, model: str | None
) -> None:
    less, more = sorted((less, more))
    of_hit = calibration(model).hit

    assert 0.0 < of_one(less, cosine, model) <= of_one(more, cosine, model) < 1.0
    assert (
        0.0 < of_hit.probability(less, cosine, more) <= of_hit.probability(more, cosine, more) < 1
    )
    assert of_hit.probability(more, cosine, less) <= of_hit.probability(more, cosine, more)


@given(st.lists(st.floats(1e-4, 0.99), min_size=1, max_size=10), st.floats(0.01, 0.99))
def test_scaled_scores_keep_their_order_and_are_together_as_likely_as_the_evidence(
    scores: list[float], told: float
) -> None:
    found = [scaled(score, power(scores, told)) for score in scores]

    assert [found[at] for at in sorted(range(len(found)), key=scores.__getitem__)] == sorted(found)
    assert 1.0 - math.prod(1.0 - score for score in found) == pytest.approx(told)
    assert all(0.0 <= score < 1.0 for score in found)
