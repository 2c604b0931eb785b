"""When that was which a question names beside what it asks for, "before the move": as long as it is
remembered, what is remembered of it has its time. Pure.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta

from recall_server.domain.findable import Occurrence
from recall_server.domain.periods import Period
from recall_server.domain.when import Event, Order
from recall_server.domain.words import SPEAKER, terms

COVERED_MIN = 0.7
"""How much of an event an item has to say to be about it: of 58 questions of LoCoMo that name one,
47 find it so, and lose nothing by it."""
AROUND = timedelta(days=1)
GRAIN = timedelta(days=7)


def weights(
    event: Event, *, idf: Mapping[str, float], named: frozenset[str], documents: int
) -> dict[str, float]:
    """The terms of an event with what each tells: its idf, where one that the namespace has not is
    as rare as can be. `named` are the terms of speakers that the question names: who it was says
    nothing of what it was.
    """
    names = {term for name in named for term in terms(name.removeprefix(SPEAKER))}
    rarest = math.log(documents + 1)
    return {term: idf.get(term, rarest) for term in terms(event.words) if term not in names}


def tellers(weights: Mapping[str, float], occurrences: Iterable[Occurrence]) -> list[str]:
    """The items that say most of an event: several that say as much, and none where none says
    `COVERED_MIN` of it.
    """
    said: defaultdict[str, set[str]] = defaultdict(set)
    for one in occurrences:
        said[one.item_id].add(one.term)
    shares = {
        item_id: math.fsum(weight for term, weight in weights.items() if term in of_item)
        for item_id, of_item in said.items()
    }
    most = max(shares.values(), default=0.0)
    if not most or most < COVERED_MIN * math.fsum(weights.values()):
        return []
    return sorted(item_id for item_id, share in shares.items() if math.isclose(share, most))


def period(event: Event, moment: datetime) -> Period:
    """What lies to an event as the question says, where that was at `moment`."""
    if event.order is Order.BEFORE:
        return Period(None, moment, event.words, GRAIN)
    if event.order is Order.AFTER:
        return Period(moment, None, event.words, GRAIN)
    return Period(moment - AROUND, moment + AROUND, event.words, GRAIN)
