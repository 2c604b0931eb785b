"""How likely it is that the hits of a search hold the answer, so that the client may abstain. Pure.

Two things tell questions whose answer is in memory from others: how like the question the nearest
vector is, and how much of the question one item says, where the question names a speaker an item
of theirs. How far the first hit is ahead of the rest tells less, and adds nothing to these.

The coefficients are a logistic regression over LoCoMo: 760 questions with an answer, against the
same asked of another conversation with its people's names put in (760), and 237 that ask one person
about what the other did. With a conversation left out of the fit and asked: AUC .92 against the
former of these, .69 against the latter.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recall_server.domain.search.index_entry import Counts
from recall_server.domain.search.question import ROLES
from recall_server.domain.text.terms import SPEAKER, terms

WEAK_BELOW = 0.25
"""Of the questions with an answer 6 % are below, mostly such as want common sense; of those asked
of another conversation 69 %, of those that ask the wrong person 16 %."""


class Weights(NamedTuple):
    """Of a logistic regression."""

    constant: float
    coverage: float
    cosine: float = 0.0


WORDS_ALONE = Weights(-2.82, 6.14)
# The meaning of a cosine differs by model; the keys are parts of model names.
WITH_VECTORS: Mapping[str, Weights] = {
    "wordllama": Weights(-4.22, 4.78, 4.58),
    "minilm-l6": Weights(-5.23, 4.67, 6.24),
}


def evidence(coverage: float, cosine: float | None, model: str | None) -> float:
    """The strength of the evidence, from 0 to 1: about the share of searches with these figures
    that have found the answer, where as many questions have one as have none.

    `cosine` is that of the nearest vector, by `model`; of a model that was not measured, and where
    it is None, the words alone count.
    """
    weights = WORDS_ALONE
    if cosine is not None and model is not None:
        fitting = (of for name, of in WITH_VECTORS.items() if name in model.lower())
        weights = next(fitting, WORDS_ALONE)
    score = weights.constant + weights.coverage * coverage + weights.cosine * (cosine or 0.0)
    return 1.0 / (1.0 + math.exp(-score))


def coverage(
    asked: Sequence[str],
    times: Mapping[str, Counts],
    *,
    idf: Mapping[str, float],
    documents: int,
    named: frozenset[str],
) -> float:
    """How much of a question one item says, of that item which says most: the share of the terms
    asked for, each by its idf, where one that the namespace has not is as rare as can be. `times`
    is how often each item has each term that the namespace has.

    `named` are the terms of speakers that the question names. Their names are no part of what is
    asked, and it is their items that count: "What did Ana bake?" is not answered by what Ben has
    baked. Of several that no item has together any counts; "I" may ask for what others said.
    """
    names = {term for name in named for term in terms(name.removeprefix(SPEAKER))}
    rarest = math.log(documents + 1)
    weights = {term: idf.get(term, rarest) for term in asked if term not in names}
    total = math.fsum(weights.values())
    if not total or not times:
        return 0.0
    said = sum(weight * (times[term] > 0) for term, weight in weights.items() if term in times)
    shares = np.zeros(len(next(iter(times.values())))) + said
    people = sorted(named - ROLES)
    if people:
        theirs = np.all([times[person] > 0 for person in people], axis=0)
        if len(people) == 1 or theirs.any():
            shares = shares[theirs]
    return float(shares.max(initial=0.0)) / total
