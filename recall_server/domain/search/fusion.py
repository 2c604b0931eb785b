"""The pipeline that decides what answers a question best, without a model: what speaks for an item,
each on its own scale from 0 to 1, in one weighted sum. Pure, and the same on both engines.

The parts and weights are those that found most of the evidence in three sets of conversations
(LoCoMo, REALTALK, BEAM), tuned on one half of each: scores that are brought to one scale found 5
points more than reciprocal ranks, which forget how far ahead the first one is. `Part` names each,
so that it can be left out and what it brings be measured.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.query import Part, Query, Scores, SearchMode
from recall_server.domain.search.index_entry import Counts, Words
from recall_server.domain.search.ranking import DAY_S, DELTA, K1, Candidate, saturated
from recall_server.domain.text.periods import Period, affinity

Column = NDArray[np.float64]

K = TypeVar("K")

# How much each part can add. Keyword and cosine are in the proportion of FEATURES D22.
WEIGHTS: Mapping[Part, float] = {
    Part.KEYWORD: 0.3,
    Part.COSINE: 0.7,
    Part.SPEAKER: 0.3,
    Part.SESSION: 0.25,
    Part.TIME: 0.4,
    Part.RECENCY: 0.1,
}
# What the turn before and the one behind lend of their keyword score: a question stands beside its
# answer.
NEIGHBOUR = 0.1
# The share of a re-ranker in the final score: of one that compares the token vectors of a small
# model, and of one that reads question and text together.
COMPARED = 0.3
JUDGED = 0.7


class Pool(NamedTuple):
    """Items as columns, in the order of their ids. Moments are seconds since 1970; items of one
    session, and of one episode, have its number there, and such as have no place one below 0.
    """

    recorded_at: Column
    valid_from: Column
    importance: Column
    accesses: Column
    session: Counts
    episode: Counts
    position: Counts


class Evidence(NamedTuple):
    """What is known of the items of a pool: their words, among them the terms of the speakers that
    the question names (`named`), and their cosines (not a number: none). `idf` is of the terms
    asked for, in their order; `periods` are the times that it names.
    """

    words: Words
    idf: Mapping[str, float]
    average_length: float
    cosines: Column
    named: frozenset[str] = frozenset()
    periods: tuple[Period, ...] = ()


class Fused(NamedTuple):
    """What speaks for each item of a pool, in its order."""

    pool: Pool
    parts: Mapping[Part, Column]
    cosines: Column
    finals: Column
    order: Counts
    """The places of the items at or above the threshold, the best first."""

    def scores(self, places: Sequence[int]) -> list[Scores]:
        """What spoke for the items at these places."""
        at = np.array(places, np.int64)
        keyword = self.parts.get(Part.KEYWORD, np.zeros(len(self.finals)))
        told = {part: values[at].tolist() for part, values in self.parts.items()}
        nothing = [None] * len(at)
        columns = zip(
            self.finals[at].tolist(),
            told.get(Part.RECENCY, [0.0] * len(at)),
            self.pool.importance[at].tolist(),
            keyword[at].tolist(),
            _ranks(np.where(keyword > 0.0, keyword, np.nan), at),
            self.cosines[at].tolist(),
            _ranks(self.cosines, at),
            told.get(Part.SPEAKER, nothing),
            told.get(Part.SESSION, nothing),
            told.get(Part.TIME, nothing),
            strict=True,
        )
        return [
            Scores(
                final=final,
                rrf=0.0,
                recency=fresh,
                importance=importance,
                strength=0.0,
                keyword=words or None,
                keyword_rank=words_rank,
                cosine=None if cosine_rank is None else cosine,
                cosine_rank=cosine_rank,
                speaker=speaker,
                session=session,
                time=time,
            )
            for (
                final,
                fresh,
                importance,
                words,
                words_rank,
                cosine,
                cosine_rank,
                speaker,
                session,
                time,
            ) in columns
        ]


def fuse(pool: Pool, evidence: Evidence, query: Query, now: datetime) -> Fused:
    """The items in the order of what speaks for them.

    The final score is the weighted mean of the parts that the question gives reason for: whom it
    names, which time. Ties stand in the order of `recorded_at`, the newest first, then of the pool.
    """
    parts = _parts(pool, evidence, query, now)
    total = math.fsum(WEIGHTS[part] for part in parts)
    finals = np.zeros(len(pool.recorded_at))
    for part, values in parts.items():
        finals += _weight(part, query) * values
    finals = np.minimum(1.0, finals / total) if total else finals
    order = np.lexsort((-pool.recorded_at, -finals))
    order = order[finals[order] >= query.score_threshold]
    return Fused(pool, parts, evidence.cosines, finals, order)


def _weight(part: Part, query: Query) -> float:
    """What a query gives weight to goes on top of what answers it."""
    return WEIGHTS[part] * (query.recency_weight if part is Part.RECENCY else 1.0)


def _ranks(values: Column, places: Counts) -> list[int | None]:
    """The rank of each of these places among all that have a value, from 1 for the greatest; equal
    ones share the mean of their ranks, rounded down.
    """
    asked = values[places]
    greater = np.sum(values > asked[:, None], axis=1)
    equal = np.sum(values == asked[:, None], axis=1)
    ranks = (greater + (equal + 1) // 2).tolist()
    return [
        None if none else rank for rank, none in zip(ranks, np.isnan(asked).tolist(), strict=True)
    ]


def _parts(pool: Pool, evidence: Evidence, query: Query, now: datetime) -> dict[Part, Column]:
    """Each part that has a say, with its values in the order of the pool."""
    has_vector = ~np.isnan(evidence.cosines)
    if query.mode is SearchMode.VECTOR:
        return {Part.COSINE: np.where(has_vector, np.maximum(0.0, evidence.cosines), 0.0)}
    keyword = bm25(evidence)
    parts: dict[Part, Column] = {}
    beside = keyword if Part.NEIGHBOURS in query.without else _with_neighbours(pool, keyword)
    parts[Part.KEYWORD] = _to_one(beside)
    if has_vector.any():
        parts[Part.COSINE] = _nearness(evidence.cosines)
    if evidence.named:
        theirs = [evidence.words.times[name] > 0 for name in sorted(evidence.named)]
        parts[Part.SPEAKER] = np.any(theirs, axis=0).astype(np.float64)
    parts[Part.SESSION] = _sessions(pool, evidence)
    if evidence.periods:
        fits = [affinity(period, pool.valid_from) for period in evidence.periods]
        parts[Part.TIME] = np.max(fits, axis=0)
    age_days = np.maximum(0.0, now.timestamp() - pool.recorded_at) / DAY_S
    parts[Part.RECENCY] = np.exp(-age_days / (1.0 + np.maximum(0.0, pool.accesses)))
    return {part: values for part, values in parts.items() if part not in query.without}


def reranked(
    hits: Sequence[Candidate], scores: Sequence[float], *, judges: bool, min_score: float = 0.0
) -> list[Candidate]:
    """The hits in the order that another look at their texts gives, `scores` in theirs.

    Of a re-ranker that judges, a hit below `min_score` is left out (FEATURES D15, D16), and its
    score has the greater say; one that only compares is brought to one scale and adds its share.
    """
    share = JUDGED if judges else COMPARED
    values = dict(enumerate(scores))
    if not judges and values:
        values = _from_least_to_most(values)
    found = [
        hit._replace(
            scores=hit.scores._replace(
                final=(1.0 - share) * hit.scores.final + share * values[place],
                rerank=scores[place],
            )
        )
        for place, hit in enumerate(hits)
        if not judges or scores[place] >= min_score
    ]
    # As the sort is stable, ties stay in their order.
    found.sort(key=lambda hit: hit.scores.final, reverse=True)
    return found


def bm25(evidence: Evidence) -> Column:
    """BM25+ (Lv & Zhai 2011) of each item, with the statistics of the namespace, summed in the
    order of the terms; 0 of one that has none of them.
    """
    score = np.zeros(len(evidence.words.lengths))
    for term, idf in evidence.idf.items():
        times = evidence.words.times[term]
        worth = DELTA + saturated(times, evidence.words.lengths, evidence.average_length)
        score += np.where(times > 0, idf * worth, 0.0)
    return score


def _with_neighbours(pool: Pool, keyword: Column) -> Column:
    """Each score with a share of those of the turns before and behind, as far as they are here."""
    placed = np.flatnonzero(pool.episode >= 0)
    if not len(placed):
        return keyword
    # One number for each turn: those of an episode follow each other, and no two episodes meet.
    turns = pool.episode[placed] * (2**32) + pool.position[placed]
    found, at = np.unique(turns, return_inverse=True)
    best = np.zeros(len(found))
    np.maximum.at(best, at, keyword[placed])
    lent = keyword.copy()
    for step in (-1, 1):
        near = np.minimum(np.searchsorted(found, turns + step), len(found) - 1)
        lent[placed] += np.where(found[near] == turns + step, NEIGHBOUR * best[near], 0.0)
    return lent


def _sessions(pool: Pool, evidence: Evidence) -> Column:
    """How well the session of an item matches as a whole, as far as it is in the pool: the words
    asked for, each the rarer the fewer sessions of the pool have it. The best session has 1.
    """
    sessions, at = np.unique(pool.session, return_inverse=True)
    score = np.zeros(len(sessions))
    for term in evidence.idf:
        often = np.bincount(at, evidence.words.times[term], minlength=len(sessions))
        having = np.count_nonzero(often)
        if having:
            rarity = math.log((len(sessions) + 1) / having)
            score += rarity * often * (K1 + 1) / (often + K1)
    return _to_one(score)[at]


def _to_one(values: Column) -> Column:
    """Shares of the greatest; 0 stays 0."""
    most = values.max(initial=0.0)
    return values / most if most > 0 else values


def _nearness(cosines: Column) -> Column:
    """From 0, of the farthest, to 1; as they are, where all are as near: one alone is not far.
    What has none has 0.
    """
    least, most = np.nanmin(cosines), np.nanmax(cosines)
    if least == most:
        near = np.maximum(0.0, cosines)
    else:
        near = (cosines - least) / max(most - least, 1e-9)
    return np.where(np.isnan(cosines), 0.0, near)


def _from_least_to_most(values: Mapping[K, float]) -> dict[K, float]:
    """From 0, of the least, to 1, of the greatest."""
    least, most = min(values.values()), max(values.values())
    width = max(most - least, 1e-9)
    return {key: (value - least) / width for key, value in values.items()}
