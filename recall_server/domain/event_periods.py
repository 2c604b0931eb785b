"""When that was which a question names beside what it asks for, "before the move": as long as it is
remembered, what is remembered of it has its time. Pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from datetime import datetime, timedelta

import numpy as np

from recall_server.domain.search.index_entry import Words
from recall_server.domain.search.question_time import Event, Order
from recall_server.domain.text.periods import Period
from recall_server.domain.text.terms import SPEAKER, terms

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


def tellers(weights: Mapping[str, float], words: Words) -> list[int]:
    """The places of those documents that say most of an event: several that say as much, and none
    where none says `COVERED_MIN` of it.
    """
    shares = np.zeros(len(words.lengths))
    for term, times in words.times.items():
        shares += np.where(times > 0, weights[term], 0.0)
    most = shares.max(initial=0.0)
    if not most or most < COVERED_MIN * math.fsum(weights.values()):
        return []
    places: list[int] = np.flatnonzero(np.isclose(shares, most)).tolist()
    return places


def period(event: Event, moment: datetime) -> Period:
    """What lies to an event as the question says, where that was at `moment`."""
    if event.order is Order.BEFORE:
        return Period(None, moment, event.words, GRAIN)
    if event.order is Order.AFTER:
        return Period(moment, None, event.words, GRAIN)
    return Period(moment - AROUND, moment + AROUND, event.words, GRAIN)
