"""The ranking signals: every number that can speak for an item in a search, each on its own scale
from 0 to 1.

A signal is one entry of `SIGNALS`. The columns that search holds in memory, the weighted sum, the
output of `explain` and the names that `Query.without` accepts all follow from this list.

The weights of the default order are those that found most of the evidence in three sets of
conversations (LoCoMo, REALTALK, BEAM), tuned on one half of each: scores on a common scale found 5
points more than reciprocal ranks, which lose how far ahead the first item is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.attributes import is_single_valued
from recall_server.domain.query import Query, SearchMode, Step
from recall_server.domain.search.fact_question import Stated
from recall_server.domain.search.index_entry import Counts, Words
from recall_server.domain.search.question import Broad
from recall_server.domain.search.ranking import K1, ranks, reciprocal_ranks
from recall_server.domain.text.dates import Period, affinity

DAY_S = 86_400
# Conversations are stored months later: on a scale of days, all of one would be equally old.
FRESH_DAYS = 30
# The share of its keyword score that a turn adds to the turns before and after it, as an answer is
# often next to its question.
NEIGHBOUR = 0.2
# The share of its nearness that counts for an item without any word of the question, if others have
# one. Vectors of words call much near: in six texts that nobody had tuned on, this share showed 2.3
# points more of the answers among five hits, in 5 to 17 % fewer characters; on LoCoMo as many.
WITHOUT_WORDS = 0.6

WORDING, BROAD, FACT = "wording", "broad", "fact"
# The value of a memory with an earlier value of the fact that is asked for; the last one has 1.
EARLIER = 0.25

Values = NDArray[np.float64]


class Column(NamedTuple):
    """One number of each item, held in memory. The query `placed` selects it under this name. A
    time is in seconds since 1970.
    """

    name: str
    dtype: type[np.generic]
    is_time: bool = False


SAID_AT = Column("said_at", np.float64, is_time=True)
RECORDED_AT = Column("recorded_at", np.float64, is_time=True)
VALID_FROM = Column("valid_from", np.float64, is_time=True)
IMPORTANCE = Column("importance", np.float64)
ACCESS_COUNT = Column("access_count", np.int64)


class Evidence(NamedTuple):
    """All that ranking knows of the items of a pool, in the order of their ids, and of the
    question.

    `columns`: a value for each item: those of `COLUMNS`, the numbers of its `session` and `episode`
    (below 0 if it has none), and its `position` there.
    `keyword`: BM25, 0 without a match.
    `cosines`: NaN if an item has no vector.
    `named`: the terms of the speakers that the question names.
    `periods`: the times that the question names.
    `values`: the terms of the kinds of value that the question asks for.
    `known`: the share of the question's terms that the namespace has (`calibration.known`).
    `wording`: how like the question the words of the items are, if it was computed.
    `broad`: what the question asks for, if that is all of something.
    `stated`: which items state the fact that the question asks for, if it asks for one.
    """

    query: Query
    now: datetime
    columns: Mapping[str, NDArray[Any]]
    words: Words
    idf: Mapping[str, float]
    keyword: Values
    cosines: Values
    named: frozenset[str] = frozenset()
    periods: tuple[Period, ...] = ()
    values: frozenset[str] = frozenset()
    known: float = 1.0
    wording: Values | None = None
    broad: Broad | None = None
    stated: Stated | None = None

    @property
    def about_others(self) -> NDArray[np.bool_]:
        """Which items state what is asked of another subject, and do not name the one asked for:
        memories, and the words that they cite.
        """
        assert self.stated is not None
        found = self.stated.of_others.copy()
        for term in self.stated.called & self.words.times.keys():
            found &= self.words.times[term] == 0
        episode, start, end = (self.columns[one] for one in ("episode", "span_start", "span_end"))
        for at in np.flatnonzero(found):
            if episode[at] >= 0:
                found |= (episode == episode[at]) & (start < end[at]) & (start[at] < end)
        return found

    @property
    def until(self) -> datetime | None:
        """The end of the last time that the question names; None if it names none, or no end."""
        ends = [one.end for one in self.periods]
        return max(filter(None, ends), default=None) if all(ends) else None


class Weight(NamedTuple):
    """The weight of a signal, as a linear function of `Query.recency_weight`."""

    base: float
    per_recency: float = 0.0

    def scaled(self, recency_weight: float) -> float:
        """Return the weight. Raises `ValueError` unless `recency_weight` is from 0 to 1."""
        if not 0.0 <= recency_weight <= 1.0:
            raise ValueError(f"not a weight between 0 and 1: {recency_weight}")
        return self.base + self.per_recency * recency_weight


class Signal(NamedTuple):
    """A number that speaks for an item.

    `weights`: its weight in each mode in which it takes part.
    `values`: computes it for a pool; None if the question gives no reason for it.
    `shown`: computes what `explain` shows, if the value in the sum is scaled; NaN becomes null.
    `ranked`: `explain` shows the rank too.
    `scaled`: how much of the weights counts for a question.
    `of_words`: it is computed from the words of the question, and has no say if these ask for all
    that is remembered.
    """

    name: str
    weights: Mapping[SearchMode, Weight]
    values: Callable[[Evidence], Values | None]
    columns: tuple[Column, ...] = ()
    shown: Callable[[Evidence, Values], Values] | None = None
    ranked: bool = False
    scaled: Callable[[Evidence], float] | None = None
    of_words: bool = False


def _keyword(evidence: Evidence) -> Values:
    """Return BM25 as a share of the best in the pool, less if few words of the question are known
    (not in the mode `recall`, whose formula has ranks).
    """
    keyword = evidence.keyword
    if evidence.query.mode is SearchMode.RECALL:
        return _share(np.where(np.isfinite(keyword), np.maximum(keyword, 0.0), 0.0))
    if Step.NEIGHBOURS not in evidence.query.without:
        keyword = _with_neighbours(evidence, keyword)
    return math.sqrt(evidence.known) * _share(keyword)


def _keyword_shown(_: Evidence, values: Values) -> Values:
    return np.where(values > 0.0, values, np.nan)


def _with_neighbours(evidence: Evidence, keyword: Values) -> Values:
    """Return each score plus a share of those of the turns before and after, if in the pool."""
    episode, position = evidence.columns["episode"], evidence.columns["position"]
    placed = np.flatnonzero(episode >= 0)
    if not len(placed):
        return keyword
    # One number for each turn: consecutive within an episode, and far apart between episodes.
    turns = episode[placed] * (2**32) + position[placed]
    found, at = np.unique(turns, return_inverse=True)
    best = np.zeros(len(found))
    np.maximum.at(best, at, keyword[placed])
    lent = keyword.copy()
    for step in (-1, 1):
        near = np.minimum(np.searchsorted(found, turns + step), len(found) - 1)
        lent[placed] += np.where(found[near] == turns + step, NEIGHBOUR * best[near], 0.0)
    return lent


def _share(values: Values) -> Values:
    """Return the values as shares of the greatest; 0 stays 0."""
    most = values.max(initial=0.0)
    return values / most if most > 0 else values


def _cosine(evidence: Evidence) -> Values | None:
    """Return the cosines scaled from 0, the farthest, to 1, less for items without any word of the
    question; in mode `vector` unscaled. An item without a vector has 0.
    """
    cosines, mode = evidence.cosines, evidence.query.mode
    missing = np.isnan(cosines)
    if mode is SearchMode.VECTOR:
        return np.where(missing, 0.0, np.maximum(0.0, cosines))
    known = cosines[~missing]
    if not len(known):
        return None
    least, most = known.min(), known.max()
    if least == most:
        # A single item must not count as the farthest.
        near = np.maximum(0.0, cosines)
    else:
        near = (cosines - least) / max(most - least, 1e-9)
    having = evidence.keyword > 0.0
    if having.any():
        near = np.where(having, near, WITHOUT_WORDS * near)
    return np.where(missing, 0.0, near)


def _cosine_shown(evidence: Evidence, _: Values) -> Values:
    return evidence.cosines


def _speaker(evidence: Evidence) -> Values | None:
    """Return 1 for items whose speaker the question names."""
    if not evidence.named:
        return None
    theirs = [evidence.words.times[name] > 0 for name in sorted(evidence.named)]
    spoken: Values = np.any(theirs, axis=0).astype(np.float64)
    return spoken


def _value(evidence: Evidence) -> Values | None:
    """Return 1 for items with a value of a kind that the question asks for."""
    if not evidence.values:
        return None
    having = [evidence.words.times[kind] > 0 for kind in sorted(evidence.values)]
    values: Values = np.any(having, axis=0).astype(np.float64)
    return values


def _broad(evidence: Evidence) -> Values | None:
    """Return 1 for the memories that a broad question asks for, in the time that it names, and .5
    for other items.
    """
    if evidence.broad is None:
        return None
    about = evidence.broad.about(evidence.words, evidence.columns, evidence.named)
    fits = _time(evidence)
    if fits is not None:
        about &= fits == 1.0
    values: Values = np.where(evidence.columns["memory"], 1.0, 0.5) * about
    return values


def _fact(evidence: Evidence) -> Values | None:
    """Return 1 for the memories that state the fact that the question asks for; of an attribute
    with one value only for the last one at the time that the question names, or now, and `EARLIER`
    for the others. "We moved to York" supersedes no home, as it may be a system; but who asks for
    a home gets it.
    """
    if evidence.stated is None or not evidence.stated.attributes.any():
        return None
    facts = evidence.stated.attributes
    facts = np.where(facts == "moved_to", "lives_in", facts)
    starts = evidence.columns["valid_from"]
    begun = starts <= evidence.now.timestamp()
    if evidence.until is not None:
        begun &= starts < evidence.until.timestamp()
    values = np.where(facts == "", 0.0, 1.0)
    for attribute in filter(is_single_valued, set(facts.tolist()) - {""}):
        having = facts == attribute
        since = np.where(having & begun, starts, -np.inf)
        values[having & (since < since.max())] = EARLIER
    return values


def _session(evidence: Evidence) -> Values:
    """Return how well the session of an item matches as a whole, within the pool: by the words
    asked for, weighted by how few sessions of the pool have them. The best session has 1, or less
    if few words of the question are known: one common word may choose it.
    """
    sessions, at = np.unique(evidence.columns["session"], return_inverse=True)
    score = np.zeros(len(sessions))
    for term in evidence.idf:
        often = np.bincount(at, evidence.words.times[term], minlength=len(sessions))
        having = np.count_nonzero(often)
        if having:
            rarity = math.log((len(sessions) + 1) / having)
            score += rarity * often * (K1 + 1) / (often + K1)
    return math.sqrt(evidence.known) * _share(score)[at]


def _time(evidence: Evidence) -> Values | None:
    """Return how well an item fits the best fitting time that the question names."""
    if not evidence.periods:
        return None
    moments = evidence.columns["valid_from"]
    fits: Values = np.max([affinity(period, moments) for period in evidence.periods], axis=0)
    return fits


def _rrf(evidence: Evidence) -> Values:
    """Return the mean reciprocal rank by words and by vectors, over the lists in use."""
    keyword = _keyword(evidence)
    lists = [_keyword_shown(evidence, keyword), evidence.cosines]
    used = [one for one in lists if not np.isnan(one).all()]
    if not used:
        return np.zeros(len(keyword))
    shares = [np.nan_to_num(reciprocal_ranks(ranks(one))) for one in used]
    mean: Values = np.sum(shares, axis=0) / len(used)
    return np.minimum(1.0, mean)


def _recency(evidence: Evidence) -> Values:
    """Return 1 for what was just said, a half after `FRESH_DAYS`; the time when it was said counts,
    not when it was stored, and accesses do not. The mode `recall` has its own formula: time
    counts from the recording, and each access makes an item fade more slowly.
    """
    columns, now = evidence.columns, evidence.now.timestamp()
    fresh: Values
    if evidence.query.mode is SearchMode.RECALL:
        age_days = np.maximum(0.0, now - columns["recorded_at"]) / DAY_S
        fresh = np.exp(-age_days / (1.0 + np.maximum(0.0, columns["access_count"])))
    else:
        age_days = np.maximum(0.0, now - columns["said_at"]) / DAY_S
        fresh = 1.0 / (1.0 + age_days / FRESH_DAYS)
    return fresh


def _importance(evidence: Evidence) -> Values:
    importance: Values = np.clip(evidence.columns["importance"], 0.0, 1.0)
    return importance


def _strength(evidence: Evidence) -> Values:
    """Return how often an item was accessed (logarithm), as a share of the most accessed one."""
    return _share(np.log1p(np.maximum(0.0, evidence.columns["access_count"])))


HYBRID, KEYWORD = SearchMode.HYBRID, SearchMode.KEYWORD
VECTOR, RECALL = SearchMode.VECTOR, SearchMode.RECALL

# Signals are summed in this order. A weight of 0 shows a signal that counts through another one.
SIGNALS: tuple[Signal, ...] = (
    Signal(
        "keyword",
        {HYBRID: Weight(0.3), KEYWORD: Weight(0.3), RECALL: Weight(0.0)},
        _keyword,
        shown=_keyword_shown,
        ranked=True,
        of_words=True,
    ),
    Signal(
        "cosine",
        {HYBRID: Weight(0.7), KEYWORD: Weight(0.7), VECTOR: Weight(0.7), RECALL: Weight(0.0)},
        _cosine,
        shown=_cosine_shown,
        ranked=True,
        of_words=True,
    ),
    # Scaled by the share of the question's terms that the namespace does not have.
    Signal(
        WORDING,
        {HYBRID: Weight(1.5)},
        lambda evidence: evidence.wording,
        scaled=lambda evidence: 1.0 - evidence.known,
        of_words=True,
    ),
    Signal(BROAD, {HYBRID: Weight(0.5), KEYWORD: Weight(0.5)}, _broad),
    Signal(FACT, {HYBRID: Weight(2.0), KEYWORD: Weight(2.0)}, _fact),
    Signal("speaker", {HYBRID: Weight(0.3), KEYWORD: Weight(0.3)}, _speaker),
    Signal("value", {HYBRID: Weight(0.3), KEYWORD: Weight(0.3)}, _value),
    Signal("session", {HYBRID: Weight(0.25), KEYWORD: Weight(0.25)}, _session, of_words=True),
    Signal("time", {HYBRID: Weight(0.4), KEYWORD: Weight(0.4)}, _time, (VALID_FROM,)),
    # The four-part score of the mode `recall`: its weights always add up to 1.
    Signal("rrf", {RECALL: Weight(0.7, -0.3)}, _rrf),
    Signal(
        "recency",
        {HYBRID: Weight(0.0, 0.1), KEYWORD: Weight(0.0, 0.1), RECALL: Weight(0.0, 0.4)},
        _recency,
        (SAID_AT, RECORDED_AT, ACCESS_COUNT),
    ),
    Signal("importance", {RECALL: Weight(0.2, -0.1)}, _importance, (IMPORTANCE,)),
    Signal("strength", {RECALL: Weight(0.1)}, _strength, (ACCESS_COUNT,)),
)

_OF_COSINES = ("cosine", "rrf")


def without_cosines(signals: Mapping[str, Values]) -> dict[str, Values]:
    """Return those signals that stay the same if the cosines change."""
    return {name: values for name, values in signals.items() if name not in _OF_COSINES}


COLUMNS: tuple[Column, ...] = tuple(
    dict.fromkeys(column for signal in SIGNALS for column in signal.columns)
)
"""The columns that search holds in memory for the signals."""

PARTS: tuple[str, ...] = (*(signal.name for signal in SIGNALS), *Step)
"""The names that `Query.without` accepts."""


class Fused(NamedTuple):
    """The signals of each item of a pool, in its order, and their sum."""

    evidence: Evidence
    signals: Mapping[str, Values]
    """The values of the signals that had a say."""
    weights: Mapping[str, float]
    """Their weights, so that the weighted sum is the final score."""
    finals: Values
    order: Counts
    """The positions of the items, the best first."""

    def explain(self, positions: Sequence[int]) -> list[Mapping[str, float | None]]:
        """Return the signals of the items at these positions, in the form of `Scores.signals`."""
        at = np.array(positions, np.int64)
        columns: dict[str, Sequence[float | None]] = {}
        for signal in SIGNALS:
            values = self.signals.get(signal.name)
            shown = np.full(len(self.finals), np.nan) if values is None else values
            if values is not None and signal.shown is not None:
                shown = signal.shown(self.evidence, values)
            columns[signal.name] = _or_none(shown[at])
            if signal.ranked:
                columns[f"{signal.name}_rank"] = [
                    None if rank is None else int(rank) for rank in _or_none(ranks(shown)[at])
                ]
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, of_item, strict=True)) for of_item in rows]


def fuse(evidence: Evidence, known: Mapping[str, Values] = MappingProxyType({})) -> Fused:
    """Rank the items of a pool by their final scores. `known`: signals that are computed already.

    The final score is the weighted mean of the signals that the question gives reason for: the
    speaker counts only if it names one, the time only if it names one. Ties are in the order of the
    time said, latest first, then in the order of the pool.
    """
    query, said_at = evidence.query, evidence.columns["said_at"]
    in_words = evidence.broad is None or bool(evidence.broad.topic)
    signals: dict[str, Values] = {}
    weights: dict[str, float] = {}
    finals = np.zeros(len(said_at))
    full = []
    for signal in SIGNALS:
        weight = signal.weights.get(query.mode)
        if weight is None or signal.name in query.without or (signal.of_words and not in_words):
            continue
        values = known.get(signal.name)
        if values is None:
            values = signal.values(evidence)
        if values is None:
            continue
        signals[signal.name] = values
        share = 1.0 if signal.scaled is None else signal.scaled(evidence)
        weights[signal.name] = share * weight.scaled(query.recency_weight)
        finals += weights[signal.name] * values
        # Divide by the weights at full recency, so that recency adds to the other signals and does
        # not dilute them.
        full.append(share * (weight.base + weight.per_recency))
    if total := math.fsum(full):
        finals = finals / total
        weights = {name: weight / total for name, weight in weights.items()}
    finals = np.minimum(1.0, finals)
    order = np.lexsort((-said_at, -finals))
    return Fused(evidence, signals, weights, finals, order)


def _or_none(values: Values) -> list[float | None]:
    return [
        None if missing else value
        for value, missing in zip(values.tolist(), np.isnan(values).tolist(), strict=True)
    ]
