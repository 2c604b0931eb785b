"""From candidates to an ordered, diverse, affordable answer. Pure: `now` is an argument.

The database only narrows; the order comes from here, summed in a fixed sequence, so that the same
inputs give bit-equal scores whatever the engine and in whatever order it returned its rows.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from datetime import datetime
from operator import mul
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Plus

from recall_server.domain.query import Hit, Item, Query, Scores
from recall_server.domain.search.index_entry import Words

K1 = 1.2  # K1 .6 with B .4 gains 2 points on chats and loses 7 on long messages (measured)
B = 0.75
DELTA = 1.0  # of BM25+: what an occurrence is worth however long the document is
RRF_K = 60  # FEATURES D05
TOKEN_CHARS = 4  # FEATURES D10
DAY_S = 86_400
REPETITION = 0.9


ById = Mapping[str, float]
Row = NDArray[np.float64]
Numbers = NDArray[np.integer[Any]]
Similarity = Callable[[int], Row]
"""The likeness, in [0, 1], of the hit at a position to every hit, in their order."""


class Candidate(NamedTuple):
    """What may become an answer, by its slot: whoever chooses has no need of its text."""

    slot: int
    scores: Scores


def bm25_weights(document_frequencies: Mapping[str, int], documents: int) -> dict[str, float]:
    """Term to idf, `ln((N + 1) / df)` of BM25+ (Lv & Zhai 2011); always positive.

    `documents` (N) counts the namespace. A df of 0 has no weight and is left out; one beyond N
    (the two counts were read apart) counts as N. The SQL that narrows sums
    `idf * tf * (K1 + 1) / (tf + K1 * (1 - B + B * length / average_length))`.
    """
    return {
        term: math.log((max(documents, frequency) + 1) / frequency)
        for term, frequency in document_frequencies.items()
        if frequency > 0
    }


def bm25plus(
    query_terms: Sequence[str],
    pool: Sequence[Sequence[str]],
    *,
    idf: Mapping[str, float] | None = None,
    average_length: float | None = None,
) -> list[float]:
    """The BM25+ score of each document (a list of terms) of the pool, in its order; >= 0.

    Without `idf` (of `bm25_weights`) and `average_length` the pool is its own statistics.
    Give those of the namespace: in a pool chosen for holding the rare word of the query, that
    word is no longer rare. A term asked twice counts once; a document without any scores 0.
    """
    asked = dict.fromkeys(query_terms)
    # Of a document no more counts than what was asked for, and how long it is.
    matching = [[term for term in document if term in asked] for document in pool]
    if not any(matching):
        return [0.0] * len(pool)  # also where the library would divide by zero
    # The library pays delta to every document, so that none scores 0; the paper pays it for a
    # term that occurs. So it is asked without, and delta is added here.
    library = BM25Plus(matching, k1=K1, b=B, delta=0)
    library.doc_len = [len(document) for document in pool]
    library.avgdl = average_length or sum(library.doc_len) / len(pool)
    if idf is not None:
        library.idf = idf
    worth = [(term, DELTA * library.idf.get(term, 0.0)) for term in asked]
    return [
        float(without) + math.fsum(weight for term, weight in worth if term in frequencies)
        for without, frequencies in zip(
            library.get_scores(list(asked)), library.doc_freqs, strict=True
        )
    ]


def bm25plus_of(words: Words, *, idf: Mapping[str, float], average_length: float) -> list[float]:
    """`bm25plus` of the documents of which these are the words, in their order."""
    often = {term: words.times[term].tolist() for term in idf}
    # Which other words there are makes no difference; how many does.
    documents = []
    for place, length in enumerate(words.lengths.tolist()):
        said = [term for term in idf for _ in range(often[term][place])]
        documents.append(said + [""] * (length - len(said)))
    return bm25plus(list(idf), documents, idf=idf, average_length=average_length)


def saturated(times: Numbers, lengths: Numbers, average_length: float) -> Row:
    """What occurrences of a term are worth in BM25, by documents: the more, the less each adds, and
    less in a longer one than in a shorter one.
    """
    worth: Row = times * (K1 + 1) / (times + K1 * (1 - B + B * lengths / average_length))
    return worth


def ranks(scores: ById) -> dict[str, float]:
    """Id to rank, from 1 for the best; ids of equal score share the mean of their ranks.

    So no accident of ids or of row order decides, and a crowd that the list cannot tell apart
    neither counts as all first nor as all last.
    """
    groups: defaultdict[float, list[str]] = defaultdict(list)
    for key, score in scores.items():
        groups[score].append(key)
    ranked: dict[str, float] = {}
    for score in sorted(groups, reverse=True):
        middle = len(ranked) + (len(groups[score]) + 1) / 2
        ranked.update(dict.fromkeys(groups[score], middle))
    return ranked


def rrf(rankings: Sequence[ById], k: int = RRF_K) -> dict[str, float]:
    """Reciprocal rank fusion (Cormack et al. 2009), best first: id to a score in (0, 1].

    `sum(1 / (k + rank))`, scaled so that the first of every list has 1 and what stands just past
    the end of every list has 0 (FEATURES C06): unscaled, rank 10 would be worth 0.87 of rank 1 and
    any other part of the score would decide. What a list lacks stands just past its end; an empty
    list is not in use. Equal scores stand in the order of their ids.
    """
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for ranking in rankings:
        end = 1 / (k + len(ranking) + 1)
        for key, rank in ranking.items():
            shares[key].append((1 / (k + rank) - end) / (1 / (k + 1) - end))
    lists = sum(1 for ranking in rankings if ranking)
    fused = {key: min(1.0, math.fsum(parts) / lists) for key, parts in shares.items()}
    return dict(sorted(fused.items(), key=lambda pair: (-pair[1], pair[0])))


class Weights(NamedTuple):
    """What each part of the four-part score counts for; together 1."""

    rrf: float
    recency: float
    importance: float
    strength: float


def weights(recency_weight: float) -> Weights:
    """The published line (FEATURES D07): .70/.00/.20/.10 at 0, .40/.40/.10/.10 at 1."""
    if not 0.0 <= (r := recency_weight) <= 1.0:
        raise ValueError(f"not a weight between 0 and 1: {r}")
    return Weights(0.7 - 0.3 * r, 0.4 * r, 0.2 - 0.1 * r, 0.1)


def recency(item: Item, now: datetime) -> float:
    """How fresh an item is, 1 at first; each access makes it fade more slowly (FEATURES D06)."""
    age_days = max(0.0, (now - item.recorded_at).total_seconds() / DAY_S)
    return math.exp(-age_days / (1 + max(0, item.access_count)))


def score(
    pool: Sequence[Item], keyword: ById, cosine: ById, query: Query, now: datetime
) -> list[Hit]:
    """The backbone's four-part score (FEATURES D06): every item of the pool at or above the
    threshold, the best first, with all its scores.

    `keyword` is BM25 (>= 0) and `cosine` in [-1, 1], by item id; what is missing, not finite, or
    a keyword score of 0, is not in that list. Ids in the pool are distinct. Total order: final,
    then newer `recorded_at`, then id. In `Scores` `keyword` is a share of the best one of the
    pool, and a rank is that of `ranks`, rounded down.
    """
    scores = _Pool(pool, keyword, cosine, query, now).scores
    hits = [Hit(item, scores(item)) for item in pool]
    hits = [hit for hit in hits if hit.scores.final >= query.score_threshold]
    hits.sort(key=lambda hit: hit.item.id)
    hits.sort(key=lambda hit: (hit.scores.final, hit.item.recorded_at), reverse=True)
    return hits


class _Pool:
    """What the score of one item takes from all the others."""

    def __init__(
        self, pool: Sequence[Item], keyword: ById, cosine: ById, query: Query, now: datetime
    ) -> None:
        # Min-max, where the minimum is the 0 of what matches nothing: the pool's own would make
        # the worst match worth none, and shift the others whenever an item joins.
        matching = {k: v for k, v in _finite(pool, keyword).items() if v > 0.0}
        best = max(matching.values(), default=1.0)
        self.keyword = {k: v / best for k, v in matching.items()}
        self.cosine = {k: max(-1.0, min(1.0, v)) for k, v in _finite(pool, cosine).items()}
        self.keyword_ranks, self.cosine_ranks = ranks(self.keyword), ranks(self.cosine)
        self.fused = rrf([self.keyword_ranks, self.cosine_ranks])
        self.busiest = math.log1p(max((max(0, item.access_count) for item in pool), default=0))
        self.weights = weights(query.recency_weight)
        self.now = now

    def scores(self, item: Item) -> Scores:
        accesses = max(0, item.access_count)
        relevance = self.fused.get(item.id, 0.0)
        fresh = recency(item, self.now)
        importance = min(1.0, max(0.0, item.importance))
        strength = math.log1p(accesses) / self.busiest if accesses else 0.0
        keyword, cosine = self.keyword.get(item.id), self.cosine.get(item.id)
        parts = (relevance, fresh, importance, strength)
        return Scores(
            min(1.0, math.fsum(map(mul, self.weights, parts))),
            relevance,
            fresh,
            importance,
            strength,
            keyword,
            None if keyword is None else int(self.keyword_ranks[item.id]),
            cosine,
            None if cosine is None else int(self.cosine_ranks[item.id]),
        )


def _finite(pool: Sequence[Item], values: ById) -> dict[str, float]:
    given = ((item.id, float(values[item.id])) for item in pool if item.id in values)
    return {key: value for key, value in given if math.isfinite(value)}


def likeness(
    best: Sequence[Candidate],
    vectors: Mapping[int, NDArray[np.float32]],
    words: Mapping[int, Collection[str]],
) -> Similarity:
    """How alike the best are, to hand to `diversify`; `vectors` and `words` are by slot.

    Two that both have a vector (of the length of the first one found): their cosine, negative
    ones as 0. All other pairs: Jaccard of their terms (FEATURES D08). Rounded to 6 digits.
    """
    matrix, have = _matrix([vectors.get(one.slot) for one in best])
    if have.all():
        # Below 6 digits float32 is noise, and noise must not break a tie.
        alike: list[Row] = list(np.round(np.clip(matrix @ matrix.T, 0.0, 1.0), 6))
        return alike.__getitem__
    overlap = _overlap([frozenset(words.get(one.slot, ())) for one in best])

    def similar(position: int) -> Row:
        cosine = np.clip(matrix @ matrix[position], 0.0, 1.0)
        mixed: Row = np.where(have & have[position], cosine, overlap(position))
        return np.round(mixed, 6)

    return similar


def _matrix(vectors: Sequence[NDArray[np.float32] | None]) -> tuple[Row, NDArray[np.bool_]]:
    """The vectors at length 1 as rows (0 where there is none), and which rows are real."""
    size = next((vector.size for vector in vectors if vector is not None), 0)
    none = np.zeros(size, dtype=np.float32)
    rows = [none if v is None or v.size != size else v for v in vectors]
    matrix = np.array(rows, dtype=np.float64).reshape(len(rows), size)
    norms = np.linalg.norm(matrix, axis=1)
    have = np.isfinite(norms) & (norms > 0.0)
    matrix[~have] = 0.0
    return matrix / np.where(have, norms, 1.0)[:, None], have


def _overlap(sets: Sequence[frozenset[str]]) -> Similarity:
    """Jaccard of one set with every other, by way of postings: only shared terms cost anything."""
    members: defaultdict[str, list[int]] = defaultdict(list)
    for position, terms in enumerate(sets):
        for term in terms:
            members[term].append(position)
    postings = {term: np.array(positions) for term, positions in members.items()}
    sizes = np.array([len(terms) for terms in sets], dtype=np.float64)

    def row(position: int) -> Row:
        shared = np.zeros(len(sets))
        for term in sets[position]:
            shared[postings[term]] += 1.0
        # At least 1: two texts without a term are not known to be alike.
        return np.asarray(shared / np.maximum(sizes + sizes[position] - shared, 1.0))

    return row


def repetition(alike: Similarity) -> Similarity:
    """What of a likeness is repetition: 0 up to `REPETITION`, from there to 1. Texts about one
    matter are alike too, and all wanted: as a penalty their likeness costs 2 points of recall@10
    on LoCoMo at lambda .5, and this costs .1; from .85 on it costs .3 with vectors of MiniLM.
    """

    def repeated(position: int) -> Row:
        return np.clip((alike(position) - REPETITION) / (1.0 - REPETITION), 0.0, 1.0)

    return repeated


def diversify(
    hits: Sequence[Candidate], similarity: Similarity, mmr_lambda: float
) -> Iterator[Candidate]:
    """The hits by maximal marginal relevance (Carbonell & Goldstein 1998; FEATURES D08).

    Picks, again and again, the greatest `lambda * relevance - (1 - lambda) * likeness to the most
    similar one picked`; ties go to the earlier hit. Relevance is the final score, scaled so that
    the best hit has 1 and the last 0, as likeness does: finals lie so close together that likeness
    alone would decide. Lambda 1 keeps the order of `hits` exactly; 0 starts with the first hit and
    then only spreads. Each that is taken costs O(hits).
    """
    if mmr_lambda >= 1.0 or not hits:
        yield from hits
        return
    finals = np.array([hit.scores.final for hit in hits])
    relevance = mmr_lambda * (finals - finals.min()) / max(float(np.ptp(finals)), 1e-12)
    marginal = relevance.copy()
    for _ in hits:
        best = int(marginal.argmax())
        yield hits[best]
        # The least over those picked is what the most similar one leaves.
        np.minimum(marginal, relevance - (1.0 - mmr_lambda) * similarity(best), out=marginal)
        marginal[best] = -np.inf


def tokens(hit: Hit) -> int:
    """What a hit's text costs: 4 characters a token (FEATURES D10), rounded up."""
    return text_tokens(hit.item.text)


def text_tokens(text: str) -> int:
    return -(-len(text) // TOKEN_CHARS)


def fit_budget(
    hits: Sequence[Hit], max_tokens: int | None, cost: Callable[[Hit], int] = tokens
) -> list[Hit]:
    """The hits that fit the budget together, in their order; `None` is no budget (FEATURES D10).

    A hit that does not fit is skipped, not the end: stopping at it would answer nothing at all
    whenever the best hit alone is too long.
    """
    if max_tokens is None:
        return list(hits)
    left, fitting = max_tokens, []
    for hit in hits:
        if (price := cost(hit)) <= left:
            fitting.append(hit)
            left -= price
    return fitting
