"""Which of all items a search looks at more closely: the best by their words, those nearest by
their vectors, and of both the ones that stand high. Pure, over columns.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.search.index_entry import TermPostings
from recall_server.domain.search.ranking import reciprocal_ranks, saturated

# Of so many scores the best are looked for first.
SOME = 4_096
# To add up fewer takes less time than to find out whether it must be.
LONG = 65_536
# To look one document up takes as long as to add so many.
LOOK = 16
# Of so few of all slots it is quicker to sort them than to have a number for every one.
FEW = 1 / 64
# More than sums can differ by, in whatever order they are made.
SURE = 1.0 + 1e-9

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
    lesser slots. One pass over the postings of the terms of `idf`: 100,000 of them take 1 ms. Long
    lists that can add nothing new to the best are only looked into (MaxScore, Turtle & Flood 1995).
    """
    lists = sorted(
        (
            _listed(postings[term], weight, average_length, len(allowed))
            for term, weight in idf.items()
        ),
        key=lambda one: len(one.slots),
    )
    if sum(len(one.slots) for one in lists) <= FEW * len(allowed):
        return _by_few(lists, allowed, limit)
    scores = np.zeros(len(allowed))
    for place, one in enumerate(lists):
        if place and len(one.slots) >= LONG:
            few = _contenders(scores, allowed, lists[:place], lists[place:], limit)
            if few is not None:
                for rest in lists[place:]:
                    if len(few) < len(rest.slots) / LOOK:
                        rest.add_to(scores, few)
                    else:
                        rest.add(scores)
                return best(few, scores[few], limit)[0]
        one.add(scores)
    found = np.flatnonzero((scores > 0.0) & allowed)
    return best(found, scores[found], limit)[0]


def _by_few(lists: Sequence[_List], allowed: Flags, limit: int) -> Slots:
    """The same sums in the same order, of nothing but what is in the lists."""
    if not lists:
        return np.zeros(0, np.int64)
    found, at = np.unique(np.concatenate([one.slots for one in lists]), return_inverse=True)
    scores = np.bincount(at, np.concatenate([one.worth for one in lists]))
    here = allowed[found]
    return best(found[here].astype(np.int64), scores[here], limit)[0]


class _List(NamedTuple):
    """The postings of a term, and what makes scores of them."""

    postings: TermPostings
    weight: float
    average_length: float

    @property
    def slots(self) -> NDArray[np.uint32]:
        return self.postings.slots

    @property
    def worth(self) -> Column:
        """What each of its documents gets for the term."""
        _, times, lengths = self.postings
        return self.weight * saturated(times, lengths, self.average_length)

    def add(self, scores: Column) -> None:
        """To the scores of all documents that have the term."""
        # No slot is there twice; this looks each up once, where `scores[slots] +=` does so twice.
        np.add.at(scores, self.slots, self.worth)

    def add_to(self, scores: Column, few: Slots) -> None:
        """To the scores of those of these documents that have it."""
        slots, times, lengths = self.postings
        at, here = self.postings.places(few)
        at = at[here]
        scores[slots[at]] += self.weight * saturated(times[at], lengths[at], self.average_length)

    @property
    def most(self) -> float:
        """No document gets more for the term."""
        _, times, lengths = self.postings
        return self.weight * float(saturated(times.max(), lengths.min(), self.average_length))


def _listed(postings: TermPostings, weight: float, average_length: float, end: int) -> _List:
    """Those behind the last slot were added since it was read which are allowed."""
    slots, times, lengths = postings
    last = int(np.searchsorted(slots, end))
    known = TermPostings(slots[:last], times[:last], lengths[:last])
    return _List(known, weight, average_length)


def _contenders(
    scores: Column, allowed: Flags, added: Sequence[_List], rest: Sequence[_List], limit: int
) -> Slots | None:
    """The documents that can be among the best, where all of these are in the lists that were
    added, whatever the rest does; else None.
    """
    # The last of the best of a part is no better than that of all; a short part tells as much.
    least = 0.0
    for one in added:
        if len(one.slots) < LONG:
            known = scores[one.slots[allowed[one.slots]]]
            if len(known) >= limit:
                least = max(least, float(np.partition(known, -limit)[-limit]))
    # Sums may differ by the order in which they are made.
    more = SURE * math.fsum(one.most for one in rest)
    if least <= more:
        return None
    return np.flatnonzero((scores + more >= least) & allowed)


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
    """The `limit` that stand highest in all `lists` together, by reciprocal rank fusion."""
    used = [one for one in lists if len(one)]
    if not used:
        return np.zeros(0, np.int64)
    shares = [reciprocal_ranks(np.arange(1.0, len(one) + 1)) for one in used]
    found, at = np.unique(np.concatenate(used), return_inverse=True)
    summed: Column = np.bincount(at, np.concatenate(shares)).astype(np.float64)
    return best(found, summed, limit)[0]
