"""The pipeline that decides what answers a question best, without a model: what speaks for an item,
each on its own scale from 0 to 1, in one weighted sum. Pure, and the same on both engines.

The parts and weights are those that found most of the evidence in three sets of conversations
(LoCoMo, REALTALK, BEAM), tuned on one half of each: scores that are brought to one scale found 5
points more than reciprocal ranks, which forget how far ahead the first one is. `Part` names each,
so that it can be left out and what it brings be measured.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeVar

from recall_server.domain.findable import Occurrence
from recall_server.domain.model import Hit, Item, Part, Query, Scores, SearchMode
from recall_server.domain.periods import Period, affinity
from recall_server.domain.ranking import DELTA, K1, B, ById, ranks, recency

K = TypeVar("K")

# How much each part can add. Keyword and cosine are in the proportion of FEATURES D22.
WEIGHTS: Mapping[Part, float] = {
    Part.KEYWORD: 0.3,
    Part.COSINE: 0.7,
    Part.SPEAKER: 0.3,
    Part.SESSION: 0.25,
    Part.TIME: 0.4,
    Part.EVENT: 0.2,
    Part.RECENCY: 0.1,
}
# What the turn before and the one behind lend of their keyword score: a question stands beside its
# answer.
NEIGHBOUR = 0.1
# The share of a re-ranker in the final score: of one that compares the token vectors of a small
# model, and of one that reads question and text together.
COMPARED = 0.3
JUDGED = 0.7


class Evidence(NamedTuple):
    """What is known of the items of a pool. `idf` is of the terms asked for, in their order;
    `named` are the terms of the speakers that the question names, `periods` the times, and `events`
    those that the events make which it names.
    """

    occurrences: Sequence[Occurrence]
    idf: Mapping[str, float]
    average_length: float
    cosines: ById
    named: frozenset[str] = frozenset()
    periods: tuple[Period, ...] = ()
    events: tuple[Period, ...] = ()


def fuse(
    pool: Sequence[Item],
    evidence: Evidence,
    query: Query,
    now: datetime,
    *,
    limit: int | None = None,
) -> list[Hit]:
    """The items of the pool at or above the threshold, the best first, `limit` at most, with what
    spoke for each.

    The final score is the weighted mean of the parts that the question gives reason for: whom it
    names, which time. Ties stand in the order of `recorded_at`, the newest first, then of ids.
    """
    parts = _parts(pool, evidence, query, now)
    weighted = [(_weight(part, query), values) for part, values in parts.items()]
    total = math.fsum(WEIGHTS[part] for part in parts)
    finals = [
        (min(1.0, sum([weight * values.get(item.id, 0.0) for weight, values in weighted]) / total))
        if total
        else 0.0
        for item in pool
    ]
    best = sorted(zip(finals, pool, strict=True), key=lambda pair: pair[1].id)
    best.sort(key=lambda pair: (pair[0], pair[1].recorded_at), reverse=True)
    keyword_ranks = ranks(parts.get(Part.KEYWORD, {}))
    cosine_ranks = ranks(evidence.cosines)

    def scores(item: Item, final: float) -> Scores:
        said = {part: values.get(item.id, 0.0) for part, values in parts.items()}
        return Scores(
            final=final,
            rrf=0.0,
            recency=said.get(Part.RECENCY, 0.0),
            importance=item.importance,
            strength=0.0,
            keyword=said.get(Part.KEYWORD) or None,
            keyword_rank=_rank(keyword_ranks, item.id),
            cosine=evidence.cosines.get(item.id),
            cosine_rank=_rank(cosine_ranks, item.id),
            speaker=said.get(Part.SPEAKER),
            session=said.get(Part.SESSION),
            time=said.get(Part.TIME),
            event=said.get(Part.EVENT),
        )

    return [
        Hit(item, scores(item, final))
        for final, item in best[:limit]
        if final >= query.score_threshold
    ]


def _weight(part: Part, query: Query) -> float:
    """What a query gives weight to goes on top of what answers it."""
    return WEIGHTS[part] * (query.recency_weight if part is Part.RECENCY else 1.0)


def _rank(ranked: ById, item_id: str) -> int | None:
    return int(ranked[item_id]) if item_id in ranked else None


def _parts(
    pool: Sequence[Item], evidence: Evidence, query: Query, now: datetime
) -> dict[Part, ById]:
    """Each part that has a say, with its values by item id; what is left out of one has 0."""
    if query.mode is SearchMode.VECTOR:
        return {Part.COSINE: {i: max(0.0, value) for i, value in evidence.cosines.items()}}
    keyword = bm25(evidence)
    parts: dict[Part, ById] = {}
    beside = keyword if Part.NEIGHBOURS in query.without else _with_neighbours(pool, keyword)
    parts[Part.KEYWORD] = _to_one(beside)
    if evidence.cosines:
        parts[Part.COSINE] = _nearness(evidence.cosines)
    if evidence.named:
        parts[Part.SPEAKER] = {
            one.item_id: 1.0 for one in evidence.occurrences if one.term in evidence.named
        }
    parts[Part.SESSION] = _sessions(pool, evidence)
    if evidence.periods:
        parts[Part.TIME] = {
            item.id: max(affinity(period, item.valid_from) for period in evidence.periods)
            for item in pool
        }
    if evidence.events:
        parts[Part.EVENT] = {
            item.id: max(affinity(period, item.valid_from) for period in evidence.events)
            for item in pool
        }
    parts[Part.RECENCY] = {item.id: recency(item, now) for item in pool}
    return {part: values for part, values in parts.items() if part not in query.without}


def reranked(
    hits: Sequence[Hit], scores: Sequence[float], *, judges: bool, min_score: float = 0.0
) -> list[Hit]:
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


def bm25(evidence: Evidence) -> dict[str, float]:
    """BM25+ (Lv & Zhai 2011) of each item that has any term asked for, with the statistics of the
    namespace, summed in the order of the terms.
    """
    rows: defaultdict[str, dict[str, Occurrence]] = defaultdict(dict)
    for one in evidence.occurrences:
        if one.term in evidence.idf:
            rows[one.item_id][one.term] = one
    return {
        item_id: math.fsum(
            idf * (DELTA + _saturated(of_item[term], evidence.average_length))
            for term, idf in evidence.idf.items()
            if term in of_item
        )
        for item_id, of_item in rows.items()
    }


def _saturated(one: Occurrence, average_length: float) -> float:
    return one.times * (K1 + 1) / (one.times + K1 * (1 - B + B * one.length / average_length))


def _with_neighbours(pool: Sequence[Item], keyword: ById) -> dict[str, float]:
    """Each score with a share of those of the turns before and behind, as far as they are here."""
    at: dict[tuple[str, int], float] = {}
    for item in pool:
        if item.place is not None:
            key = (item.place.episode_id, item.place.position)
            at[key] = max(at.get(key, 0.0), keyword.get(item.id, 0.0))
    found = {}
    for item in pool:
        score = keyword.get(item.id, 0.0)
        if item.place is not None:
            for step in (-1, 1):
                key = (item.place.episode_id, item.place.position + step)
                score += NEIGHBOUR * at.get(key, 0.0)
        if score:
            found[item.id] = score
    return found


def _sessions(pool: Sequence[Item], evidence: Evidence) -> dict[str, float]:
    """How well the session of an item matches as a whole, as far as it is in the pool: the words
    asked for, each the rarer the fewer sessions of the pool have it. The best session has 1.
    """
    session_of = {item.id: _session(item) for item in pool}
    sessions = set(session_of.values())
    times: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in evidence.occurrences:
        if one.term in evidence.idf and one.item_id in session_of:
            times[one.term][session_of[one.item_id]] += one.times
    score: defaultdict[str, list[float]] = defaultdict(list)
    for term in evidence.idf:
        of_term: Mapping[str, int] = times.get(term, {})
        rarity = math.log((len(sessions) + 1) / len(of_term)) if of_term else 0.0
        for session, often in of_term.items():
            score[session].append(rarity * often * (K1 + 1) / (often + K1))
    summed = _to_one({session: math.fsum(parts) for session, parts in score.items()})
    return {item_id: summed.get(session, 0.0) for item_id, session in session_of.items()}


def _session(item: Item) -> str:
    return item.place.session if item.place is not None else item.id


def _to_one(values: ById) -> dict[str, float]:
    """Shares of the greatest; 0 stays 0."""
    most = max(values.values(), default=0.0)
    return {key: value / most for key, value in values.items()} if most > 0 else {}


def _nearness(cosines: ById) -> dict[str, float]:
    """From 0, of the farthest, to 1; as they are, where all are as near: one alone is not far."""
    if len(set(cosines.values())) == 1:
        return {key: max(0.0, value) for key, value in cosines.items()}
    return _from_least_to_most(cosines)


def _from_least_to_most(values: Mapping[K, float]) -> dict[K, float]:
    """From 0, of the least, to 1, of the greatest."""
    least, most = min(values.values()), max(values.values())
    width = max(most - least, 1e-9)
    return {key: (value - least) / width for key, value in values.items()}
