"""Which of all items a search looks at more closely: the best by their words, those nearest by
their vectors, and of both the ones that stand high. Pure, over columns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.findable import TermPostings
from recall_server.domain.ranking import RRF_K, saturated

# Of so many scores the best are looked for first.
SOME = 4_096

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
    """The `limit` of the `allowed` slots with the best BM25 score, best first; of equal ones the
    lesser slots. One pass over the postings of the terms of `idf`: 100,000 of them take 1 ms.
    """
    scores = np.zeros(len(allowed))
    for term, weight in idf.items():
        slots, times, lengths = postings[term]
        # Those are the last: what was added since the flags were read.
        end = int(np.searchsorted(slots, len(allowed)))
        slots, times, lengths = slots[:end], times[:end], lengths[:end]
        # No slot is there twice; this looks each up once, where `scores[slots] +=` does so twice.
        np.add.at(scores, slots, weight * saturated(times, lengths, average_length))
    found = np.flatnonzero((scores > 0.0) & allowed)
    return best(found, scores[found], limit)[0]


def best(slots: Slots, values: Column, limit: int) -> tuple[Slots, Column]:
    """The `limit` slots with the greatest values, and these, the greatest first; of equal ones the
    lesser slots.
    """
    # What is not among the best of some is not among the best of all, and is told in no time.
    for many in (SOME, len(values)):
        part = values[:many]
        if len(part) > limit:
            last = len(part) - limit
            chosen = values >= np.partition(part, last)[last]
            slots, values = slots[chosen], values[chosen]
    order = np.lexsort((slots, -values))[:limit]
    return slots[order], values[order]


def joined(lists: Sequence[Slots], limit: int) -> Slots:
    """The `limit` that stand highest in all `lists` together, by `ranking.rrf`."""
    used = [one for one in lists if len(one)]
    if not used:
        return np.zeros(0, np.int64)
    shares = []
    for one in used:
        end = 1.0 / (RRF_K + len(one) + 1)
        ranks = np.arange(1, len(one) + 1)
        shares.append((1.0 / (RRF_K + ranks) - end) / (1.0 / (RRF_K + 1) - end))
    found, at = np.unique(np.concatenate(used), return_inverse=True)
    summed: Column = np.bincount(at, np.concatenate(shares)).astype(np.float64)
    return best(found, summed, limit)[0]
