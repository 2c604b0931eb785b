"""Resolves the event in a question such as "before the move" to the time of the stored items about
it.
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
"""The share of an event's term weight that an item must contain to be about it. Of 58 LoCoMo
questions that name an event, 47 find it with this value and none loses by it.
"""
AROUND = timedelta(days=1)
GRAIN = timedelta(days=7)


def weights(
    event: Event, *, idf: Mapping[str, float], named: frozenset[str], documents: int
) -> dict[str, float]:
    """Return the terms of an event with their idf; a term that the namespace lacks is as rare as
    possible. The terms of speakers that the question names (`named`) are left out.
    """
    names = {term for name in named for term in terms(name.removeprefix(SPEAKER))}
    rarest = math.log(documents + 1)
    return {term: idf.get(term, rarest) for term in terms(event.words) if term not in names}


def tellers(weights: Mapping[str, float], words: Words) -> list[int]:
    """Return the positions of the documents that contain most of the event's weight; several if
    equal, none if no document contains `COVERED_MIN` of it.
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
    """Return the period that the question means when the event was at `moment`."""
    if event.order is Order.BEFORE:
        return Period(None, moment, event.words, GRAIN)
    if event.order is Order.AFTER:
        return Period(moment, None, event.words, GRAIN)
    return Period(moment - AROUND, moment + AROUND, event.words, GRAIN)
