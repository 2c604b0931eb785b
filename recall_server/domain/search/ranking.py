"""The formulas of ranking: BM25, reciprocal ranks, diversity and the token budget. Pure.

The database only selects candidates; the order comes from here, summed in a fixed sequence. So the
same inputs give bit-equal scores, whatever the engine and in whatever order it returned its rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Plus

from recall_server.domain.query import Hit
from recall_server.domain.search.index_entry import Words

K1 = 1.2  # K1 .6 with B .4 gains 2 points on chats and loses 7 on long messages (measured)
B = 0.75
DELTA = 1.0  # of BM25+: what an occurrence is worth however long the document is
RRF_K = 60
TOKEN_CHARS = 4
REPETITION = 0.9


Row = NDArray[np.float64]
Numbers = NDArray[np.integer[Any]]
Matrix = NDArray[np.float64]


class Candidate(NamedTuple):
    """An item that may become a hit, by its slot: ranking does not need its text."""

    slot: int
    final: float
    rerank: float | None = None


def bm25_weights(document_frequencies: Mapping[str, int], documents: int) -> dict[str, float]:
    """Term to idf, `ln((N + 1) / df)` of BM25+ (Lv & Zhai 2011); always positive.

    `documents` (N) counts the namespace. A df of 0 has no weight and is left out; one beyond N
    (the two counts were read apart) counts as N. The SQL that selects similar items sums
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


def bm25plus_of(words: Words, *, idf: Mapping[str, float], average_length: float) -> Row:
    """`bm25plus` of the documents of which these are the words, in their order."""
    often = {term: words.times[term].tolist() for term in idf}
    # Which other words there are makes no difference; how many does.
    documents = []
    for place, length in enumerate(words.lengths.tolist()):
        said = [term for term in idf for _ in range(often[term][place])]
        documents.append(said + [""] * (length - len(said)))
    return np.array(bm25plus(list(idf), documents, idf=idf, average_length=average_length))


def saturated(times: Numbers, lengths: Numbers, average_length: float) -> Row:
    """The worth of the occurrences of a term in BM25, by documents: the more, the less each adds,
    and less in a longer one than in a shorter one.
    """
    worth: Row = times * (K1 + 1) / (times + K1 * (1 - B + B * lengths / average_length))
    return worth


def bm25(words: Words, *, idf: Mapping[str, float], average_length: float) -> Row:
    """BM25+ of each document, summed in the order of the terms; 0 without any of them."""
    score = np.zeros(len(words.lengths))
    for term, weight in idf.items():
        times = words.times[term]
        worth = DELTA + saturated(times, words.lengths, average_length)
        score += np.where(times > 0, weight * worth, 0.0)
    return score


def ranks(values: Row) -> Row:
    """The rank of each value, from 1 for the greatest; equal ones share the mean of their ranks.
    A value that is not a number has no rank.

    So no accident of ids or of row order decides, and a crowd that the list cannot tell apart
    neither counts as all first nor as all last.
    """
    ranked = np.full(len(values), np.nan)
    have = ~np.isnan(values)
    _, at, counts = np.unique(-values[have], return_inverse=True, return_counts=True)
    before = np.cumsum(counts) - counts
    ranked[have] = (before + (counts + 1) / 2)[at]
    return ranked


def reciprocal_ranks(ranked: Row) -> Row:
    """The share of each rank of a list in reciprocal rank fusion (Cormack et al. 2009).

    `1 / (k + rank)`, scaled so that the first has 1 and a place just past the end of the list 0:
    unscaled, rank 10 would be worth 0.87 of rank 1 and any other signal would decide.
    """
    end = 1 / (RRF_K + np.count_nonzero(~np.isnan(ranked)) + 1)
    return (1 / (RRF_K + ranked) - end) / (1 / (RRF_K + 1) - end)


def likeness(
    best: Sequence[Candidate],
    vectors: Mapping[int, NDArray[np.float32]],
    words: Mapping[int, Collection[str]],
) -> Matrix:
    """How alike each two of the best are, from 0 to 1; `vectors` and `words` are by slot.

    Two that both have a vector (of the length of the first one found): their cosine, negative
    ones as 0. All other pairs: Jaccard of their terms. Rounded to 6 digits.
    """
    matrix, have = _unit_rows([vectors.get(one.slot) for one in best])
    alike = np.clip(matrix @ matrix.T, 0.0, 1.0)
    if not have.all():
        overlap = _overlap([frozenset(words.get(one.slot, ())) for one in best])
        alike = np.where(have[:, None] & have, alike, overlap)
    # Below 6 digits float32 is noise, and noise must not break a tie.
    rounded: Matrix = np.round(alike, 6)
    return rounded


def _unit_rows(vectors: Sequence[NDArray[np.float32] | None]) -> tuple[Matrix, NDArray[np.bool_]]:
    """The vectors at length 1 as rows (0 where there is none), and which rows are real."""
    size = next((vector.size for vector in vectors if vector is not None), 0)
    none = np.zeros(size, dtype=np.float32)
    rows = [none if v is None or v.size != size else v for v in vectors]
    matrix = np.array(rows, dtype=np.float64).reshape(len(rows), size)
    norms = np.linalg.norm(matrix, axis=1)
    have = np.isfinite(norms) & (norms > 0.0)
    matrix[~have] = 0.0
    return matrix / np.where(have, norms, 1.0)[:, None], have


def _overlap(sets: Sequence[frozenset[str]]) -> Matrix:
    """Jaccard of each two sets."""
    numbers: dict[str, int] = {}
    for terms in sets:
        for term in terms:
            numbers.setdefault(term, len(numbers))
    has = np.zeros((len(sets), len(numbers)))
    for at, terms in enumerate(sets):
        has[at, [numbers[term] for term in terms]] = 1.0
    shared = has @ has.T
    sizes = has.sum(axis=1)
    # At least 1: two texts without a term are not alike as far as anybody can tell.
    jaccard: Matrix = shared / np.maximum(sizes[:, None] + sizes - shared, 1.0)
    return jaccard


def repetition(alike: Matrix) -> Matrix:
    """The part of likeness that is repetition: 0 up to `REPETITION`, from there to 1. Texts about
    one matter are alike too, and all wanted: as a penalty their likeness costs 2 points of
    recall@10 on LoCoMo at lambda .5, and this costs .1; from .85 on it costs .3 with vectors of
    MiniLM.
    """
    return np.clip((alike - REPETITION) / (1.0 - REPETITION), 0.0, 1.0)


def diversify(finals: Sequence[float], alike: Matrix, mmr_lambda: float) -> Iterator[int]:
    """The places of the hits by maximal marginal relevance (Carbonell & Goldstein 1998).

    Picks, again and again, the greatest `lambda * relevance - (1 - lambda) * likeness to the most
    similar one picked`; ties go to the earlier hit. Relevance is the final score, scaled so that
    the best hit has 1 and the last 0, as likeness does: finals lie so close together that likeness
    alone would decide. Lambda 1 keeps the order exactly; 0 starts with the first hit and then only
    spreads. Each that is taken costs O(hits).
    """
    if mmr_lambda >= 1.0 or not finals:
        yield from range(len(finals))
        return
    scores = np.array(finals)
    relevance = mmr_lambda * (scores - scores.min()) / max(float(np.ptp(scores)), 1e-12)
    penalty = (1.0 - mmr_lambda) * alike
    marginal = relevance.copy()
    for _ in finals:
        best = int(marginal.argmax())
        yield best
        # The least over those picked is what the most similar one leaves.
        np.minimum(marginal, relevance - penalty[best], out=marginal)
        marginal[best] = -np.inf


def tokens(hit: Hit) -> int:
    """The tokens of a hit's text: one for 4 characters, rounded up."""
    return text_tokens(hit.item.text)


def text_tokens(text: str) -> int:
    return -(-len(text) // TOKEN_CHARS)


def fit_budget(
    hits: Sequence[Hit], max_tokens: int | None, cost: Callable[[Hit], int] = tokens
) -> list[Hit]:
    """The hits that fit the budget together, in their order; `None` is no budget.

    A hit that does not fit is skipped: stopping at it would answer nothing at all whenever the best
    hit alone is too long.
    """
    if max_tokens is None:
        return list(hits)
    left, fitting = max_tokens, []
    for hit in hits:
        if (price := cost(hit)) <= left:
            fitting.append(hit)
            left -= price
    return fitting
