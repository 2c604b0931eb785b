"""The formulas of ranking: candidates, BM25, fusion, diversity and limits. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from heapq import heapify, heappop, heappush
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray
from rank_bm25 import BM25Plus

from recall_server.domain.query import Hit
from recall_server.domain.search.index_entry import TermPostings, Words

T = TypeVar("T")

K1 = 1.2  # K1 .6 with B .4 gains 2 points on chats and loses 7 on long messages (measured)
B = 0.75
DELTA = 1.0  # of BM25+: what an occurrence is worth however long the document is
RRF_K = 60
TOKEN_CHARS = 4
PRODUCTS_MAX = 500_000  # how many numbers are multiplied at once: above a million, in threads
REPETITION = 0.9


Row = NDArray[np.float64]
Numbers = NDArray[np.integer[Any]]
Matrix = NDArray[np.float64]


class Candidate(NamedTuple):
    """A possible hit, given by the slots of its best item and of the `others` that belong to it:
    ranking does not need their texts. `score` is how likely it is to answer the question
    (`calibration.py`), given `final`, `coverage` and `cosine`. `later` is the slot of the item that
    it gave way to, `repeats` are the slots of those that say the same.
    """

    slot: int
    final: float
    score: float = 0.0
    coverage: float = 0.0
    cosine: float | None = None
    rerank: float | None = None
    others: tuple[int, ...] = ()
    later: int | None = None
    repeats: tuple[int, ...] = ()


def bm25_weights(document_frequencies: Mapping[str, int], documents: int) -> dict[str, float]:
    """Return the idf of each term, `ln((N + 1) / df)` of BM25+ (Lv & Zhai 2011); always positive.

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
    """Return the BM25+ score of each document (a list of terms) of the pool, in its order; >= 0.

    Without `idf` (of `bm25_weights`) and `average_length` the pool is its own statistics.
    Give those of the namespace: in a pool chosen for holding the rare word of the query, that
    word is no longer rare. A term asked twice counts once; a document without any scores 0.
    """
    asked = dict.fromkeys(query_terms)
    # Only the terms asked for and the length of a document count.
    matching = [[term for term in document if term in asked] for document in pool]
    if not any(matching):
        return [0.0] * len(pool)  # the library could divide by zero
    # The library adds delta to every document, so that none scores 0; the paper adds it for a term
    # that occurs. So the library is called without delta, and it is added here.
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
    """Return `bm25plus` of the documents with these words, in their order."""
    often = {term: words.times[term].tolist() for term in idf}
    # The other words do not matter, only their number.
    documents = []
    for place, length in enumerate(words.lengths.tolist()):
        said = [term for term in idf for _ in range(often[term][place])]
        documents.append(said + [""] * (length - len(said)))
    return np.array(bm25plus(list(idf), documents, idf=idf, average_length=average_length))


def saturated(times: Numbers, lengths: Numbers, average_length: float) -> Row:
    """Return the BM25 worth of a term's occurrences in each document: each further one adds less,
    and one in a longer document adds less than in a shorter one.
    """
    worth: Row = times * (K1 + 1) / (times + K1 * (1 - B + B * lengths / average_length))
    return worth


def bm25(words: Words, *, idf: Mapping[str, float], average_length: float) -> Row:
    """Return BM25+ of each document, summed in the order of the terms; 0 without any of them."""
    score = np.zeros(len(words.lengths))
    for term, weight in idf.items():
        times = words.times[term]
        worth = DELTA + saturated(times, words.lengths, average_length)
        score += np.where(times > 0, weight * worth, 0.0)
    return score


def ranks(values: Row) -> Row:
    """Return the rank of each value, from 1 for the greatest; equal values share the mean of their
    ranks. NaN has no rank.

    So no accident of ids or of row order decides, and many equal values count neither as all first
    nor as all last.
    """
    ranked = np.full(len(values), np.nan)
    have = ~np.isnan(values)
    _, at, counts = np.unique(-values[have], return_inverse=True, return_counts=True)
    before = np.cumsum(counts) - counts
    ranked[have] = (before + (counts + 1) / 2)[at]
    return ranked


def reciprocal_ranks(ranked: Row) -> Row:
    """Return the share of each rank of a list in reciprocal rank fusion (Cormack et al. 2009).

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
    """Return how alike each two of the best are, from 0 to 1; `vectors` and `words` are by slot.

    If both have a vector (of the length of the first one found): their cosine, negative ones as 0.
    All other pairs: the Jaccard index of their terms. Rounded to 6 digits.
    """
    known = [vectors.get(one.slot) for one in best]
    size = next((vector.size for vector in known if vector is not None), 0)
    none = np.zeros(size, dtype=np.float32)
    rows = np.array([none if v is None or v.size != size else v for v in known], np.float64)
    rows = rows.reshape(len(best), size)
    norms = np.sqrt(np.vecdot(rows, rows))
    have = np.isfinite(norms) & (norms > 0.0)
    if have.all():
        alike = _products(rows / norms[:, None]).clip(0.0, 1.0)
    else:
        rows[~have] = 0.0
        cosines = _products(rows / np.where(have, norms, 1.0)[:, None]).clip(0.0, 1.0)
        overlap = _overlap([frozenset(words.get(one.slot, ())) for one in best])
        alike = np.where(have[:, None] & have, cosines, overlap)
    # Below 6 digits float32 is noise, and noise must not break a tie.
    return alike.round(6)


def _products(rows: Matrix) -> Matrix:
    """Return the product of each two rows, a few rows at a time: one large product would start
    threads, which cost ten times what they save.
    """
    at_once = max(1, PRODUCTS_MAX // max(1, rows.size))
    parts = [rows[at : at + at_once] @ rows.T for at in range(0, len(rows), at_once)]
    return np.concatenate(parts) if parts else rows @ rows.T


def _overlap(sets: Sequence[frozenset[str]]) -> Matrix:
    """Return the Jaccard index of each two sets."""
    numbers: dict[str, int] = {}
    for one in sets:
        for term in one:
            numbers.setdefault(term, len(numbers))
    has = np.zeros((len(sets), len(numbers)))
    for row, one in enumerate(sets):
        has[row, [numbers[term] for term in one]] = 1.0
    shared = _products(has)
    sizes = has.sum(axis=1)
    # At least 1: two texts without terms do not count as alike.
    jaccard: Matrix = shared / np.maximum(sizes[:, None] + sizes - shared, 1.0)
    return jaccard


def repetition(alike: Matrix) -> Matrix:
    """Return the part of likeness that is repetition: 0 up to `REPETITION`, then linear up to 1.
    Texts about one matter are alike too, and all are wanted: as a penalty, likeness costs 2 points
    of recall@10 on LoCoMo at lambda 0.5, and this costs 0.1; from 0.85 on it costs 0.3 with vectors
    of MiniLM.
    """
    return ((alike - REPETITION) / (1.0 - REPETITION)).clip(0.0, 1.0)


# The columns that say where the words of an item are.
PLACED = ("episode", "position", "span_start", "span_end", "memory")


def quoted(best: Sequence[Candidate], columns: Mapping[str, NDArray[Any]]) -> Matrix:
    """Return, by the place of a hit and of another one, 1 if the first one's passages, which it
    quotes, contain the words that the other cites, else 0. `columns` are `PLACED` of the slots of
    all hits, each hit with its others, in this order.
    """
    rows = iter(zip(*(columns[name].tolist() for name in PLACED), strict=True))
    of_message: dict[Hashable, list[tuple[int, list[tuple[Any, ...]]]]] = {}
    for place, one in enumerate(best):
        of_hit = [next(rows) for _ in (one.slot, *one.others)]
        episode, position = of_hit[0][:2]
        if episode >= 0:
            of_message.setdefault((episode, position), []).append((place, of_hit))
    matrix = np.zeros((len(best), len(best)))
    for hits in of_message.values():
        for place, of_hit in hits if len(hits) > 1 else ():
            spans = [(start, end) for _, _, start, end, memory in of_hit if not memory]
            for other, ((_, _, start, end, memory), *_) in hits:
                inside = any(first <= start and end <= last for first, last in spans)
                matrix[place, other] = float(place != other and memory and inside)
    return matrix


def diversify(finals: Sequence[float], alike: Matrix, mmr_lambda: float) -> list[int]:
    """Return the places of the hits by maximal marginal relevance (Carbonell & Goldstein 1998).

    Repeatedly picks the greatest `lambda * relevance - (1 - lambda) * likeness to the most similar
    one picked`; ties go to the earlier hit. Relevance is the final score, scaled so that the best
    hit has 1 and the last 0, the range of likeness: finals lie so close together that likeness
    alone would decide. Lambda 1 keeps the order exactly; 0 starts with the first hit and then only
    spreads.
    """
    if mmr_lambda >= 1.0 or not finals:
        return list(range(len(finals)))
    scores = np.array(finals)
    relevance = mmr_lambda * (scores - scores.min()) / max(float(np.ptp(scores)), 1e-12)
    penalty = (1.0 - mmr_lambda) * alike
    np.fill_diagonal(penalty, 0.0)
    places, others = np.nonzero(penalty)
    lowered: dict[int, list[tuple[int, float]]] = {}
    left = (relevance[others] - penalty[places, others]).tolist()
    for place, other, value in zip(places.tolist(), others.tolist(), left, strict=True):
        lowered.setdefault(place, []).append((other, value))
    marginal: list[float] = relevance.tolist()
    queue = [(-value, place) for place, value in enumerate(marginal)]
    heapify(queue)
    order: list[int] = []
    while queue:
        value, best = heappop(queue)
        if -value > marginal[best]:
            heappush(queue, (-marginal[best], best))
            continue
        order.append(best)
        # The minimum over all picked hits is the value for the most similar one.
        for other, value in lowered.get(best, ()):
            marginal[other] = min(marginal[other], value)
    return order


def tokens(hit: Hit) -> int:
    """Return the tokens of a hit's text and quote: one for 4 characters, rounded up."""
    return text_tokens(hit.text) + text_tokens(hit.quote)


def text_tokens(text: str) -> int:
    return -(-len(text) // TOKEN_CHARS)


def fit_budget(found: Sequence[T], max_tokens: int | None, cost: Callable[[T], int]) -> list[T]:
    """Return the hits or lines that fit the budget together, in their order; `None` is no budget.

    One that does not fit is skipped: stopping there would return nothing whenever the best one
    alone is too long.
    """
    if max_tokens is None:
        return list(found)
    left, fitting = max_tokens, []
    for one in found:
        if (price := cost(one)) <= left:
            fitting.append(one)
            left -= price
    return fitting


# `best` first finds a lower bound among this many values.
FIRST = 4_096

Slots = NDArray[np.int64]
Flags = NDArray[np.bool_]
Column = NDArray[np.float64]


def by_words(
    postings: Mapping[str, TermPostings],
    idf: Mapping[str, float],
    average_length: float,
    allowed: Flags,
    limit: int,
) -> Slots:
    """Return the `limit` of the `allowed` slots with the best BM25 score, best first; among equal
    ones the lesser slots. It takes one pass over the postings of the terms of `idf`: a search of
    100,000 takes 0.5 ms, of a million 6 ms.
    """
    scores = np.zeros(len(allowed))
    # In a fixed order, shortest first, so that equal documents get exactly equal sums.
    for term in sorted(idf, key=lambda term: len(postings[term].slots)):
        slots, times, lengths = postings[term]
        # Slots beyond `allowed` were added since it was read.
        end = int(np.searchsorted(slots, len(allowed)))
        worth = idf[term] * saturated(times[:end], lengths[:end], average_length)
        # `np.add.at` looks each slot up once, `scores[slots] +=` twice.
        np.add.at(scores, slots[:end], worth)
    found = np.flatnonzero((scores > 0.0) & allowed)
    return best(found, scores[found], limit)[0]


def best(slots: Slots, values: Column, limit: int) -> tuple[Slots, Column]:
    """Return the `limit` slots with the greatest values, and these values, the greatest first;
    among equal ones the lesser slots.
    """
    # A value that is not among the best of a part is not among the best of all, and a part is
    # quickly partitioned.
    for many in (FIRST, len(values)):
        part = values[:many]
        if len(part) > limit:
            last = len(part) - limit
            chosen = values >= np.partition(part, last)[last]
            slots, values = slots[chosen], values[chosen]
    order = np.lexsort((slots, -values))[:limit]
    return slots[order], values[order]


@lru_cache(maxsize=128)
def _shares(count: int) -> Column:
    """The shares of the places of a list of so many."""
    return reciprocal_ranks(np.arange(1.0, count + 1))


def joined(lists: Sequence[Slots], limit: int) -> Slots:
    """Return the `limit` slots that rank highest in all `lists` together, by reciprocal rank
    fusion.
    """
    used = [one for one in lists if len(one)]
    if not used:
        return np.zeros(0, np.int64)
    shares = [_shares(len(one)) for one in used]
    found, at = np.unique(np.concatenate(used), return_inverse=True)
    summed: Column = np.bincount(at, np.concatenate(shares)).astype(np.float64)
    return best(found, summed, limit)[0]


# How many further passages of a message one hit shows.
PASSAGES_MORE = 3


def by_message(
    order: Sequence[int], columns: Mapping[str, NDArray[Any]], near: int
) -> Iterator[list[int]]:
    """Yield the places of `order` grouped into hits, the best place of each first: the passages of
    one message are one hit, and so are a memory and the passages that it cites. Only places among
    the first `near` join a better one; later ones of the same message are left out.
    """
    memory, episode, position, start, end = (
        columns[name].tolist()
        for name in ("memory", "episode", "position", "span_start", "span_end")
    )
    hits: list[list[int]] = []
    # The hits of each message: those led by a memory (True), by a passage (False), and all (None).
    of_message: dict[tuple[int, int], dict[bool | None, list[list[int]]]] = {}
    for rank, place in enumerate(order):
        if rank == near:
            yield from hits
        if episode[place] < 0:  # of no message
            if rank < near:
                hits.append([place])
            else:
                yield [place]
            continue
        message = of_message.setdefault(
            (episode[place], position[place]), {True: [], False: [], None: []}
        )
        # A memory and a passage are one hit if the memory cites words of the passage.
        homes = [
            hit
            for hit in message[not memory[place]]
            if start[hit[0]] < end[place] and start[place] < end[hit[0]]
        ]
        if memory[place]:
            homes = [hit for hit in homes if not any(memory[one] for one in hit)]
        else:
            homes = homes or message[None]
        if not homes:
            hit = [place]
            message[memory[place]].append(hit)
            message[None].append(hit)
            if rank >= near:
                yield [place]
            else:
                hits.append(hit)
        elif rank < near and (memory[place] or len(homes[0]) <= PASSAGES_MORE):
            homes[0].append(place)
    if len(order) <= near:
        yield from hits


# A passage of a message with less than this share of the score of the best one is noise beside it.
# In nineteen texts with 210 questions, .2 saves 20 of 865 characters, .4 another 6, without losing
# an answer.
JOINED_SHARE = 0.2


def without_noise(
    hit: Sequence[int], scores: Sequence[float], columns: Mapping[str, NDArray[Any]]
) -> list[int]:
    """Return the places of a hit, given with their scores, without those passages that are noise
    beside the best of them, and that no memory of the hit cites.
    """
    memory, start, end = (columns[name] for name in ("memory", "span_start", "span_end"))
    cited = [at for at in hit if memory[at]]
    least = JOINED_SHARE * max(scores)
    return [
        at
        for at, score in zip(hit, scores, strict=True)
        if score >= least
        or at == hit[0]
        or any(start[one] < end[at] and start[at] < end[one] for one in cited)
    ]


SHARE = 0.3
"""The share of the hits that each source leaves to other sources, if these have so many. A source
is a session, or a text without one. Answers are often all in one session: on LoCoMo, reserving half
of ten hits costs 1 point of recall@10, and this share costs 0.1 to 0.3."""


def others(limit: int) -> int:
    """Return how many of `limit` hits are reserved for other sources: one of two and of five. Two
    of five would push out answers if several texts are stored.
    """
    return max(min(1, limit - 1), int(limit * SHARE))


def spread(
    places: Iterable[int], sources: Sequence[Hashable], size: int, reserved: int
) -> list[int]:
    """Return the first `size` of `places`, in their order, of which each source gets at most
    `size - reserved`; `sources` has the source at each place. If the other sources do not fill the
    rest, the best places left out follow at the end. Reads no more of `places` than needed.
    """
    seen: dict[Hashable, int] = {}
    kept, left_out = list[int](), list[int]()
    most = size - reserved
    for place in places:
        if len(kept) == size:
            break
        source = sources[place]
        times = seen[source] = seen.get(source, 0) + 1
        (kept if times <= most else left_out).append(place)
    return [*kept, *left_out][:size]


# The share of a re-ranker in the final score: for one that compares the token vectors of a small
# model, and for one that reads question and text together (it "judges").
COMPARED = 0.3
JUDGED = 0.7


def reranked(
    hits: Sequence[Candidate], scores: Sequence[float], *, judges: bool, min_score: float = 0.0
) -> list[Candidate]:
    """Return the hits in the order of a re-ranker; `scores` are in the order of the hits.

    If the re-ranker judges, hits below `min_score` are left out, and its score counts for more than
    half. The scores of one that only compares are first scaled to the range from 0 to 1.
    """
    share = JUDGED if judges else COMPARED
    values = scores
    if not judges and scores:
        least = min(scores)
        width = max(max(scores) - least, 1e-9)
        values = [(score - least) / width for score in scores]
    finals = [
        (1.0 - share) * hit.final + share * value for hit, value in zip(hits, values, strict=True)
    ]
    found = [
        hit._replace(final=final, score=final, rerank=score)
        for hit, score, final in zip(hits, scores, finals, strict=True)
        if not judges or score >= min_score
    ]
    # The sort is stable: ties stay in their order.
    found.sort(key=lambda hit: hit.final, reverse=True)
    return found
