"""Estimates how likely one hit, and any of the hits shown, is to answer the question. Pure.

Logistic regressions on LoCoMo, tuned on one half of it: on the ten best hits of each question that
has an answer there, and of the same questions asked of another conversation, where they have none.
`LED` was tuned on fourteen texts with 215 questions too, of which 42 have no answer there.
"""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.search.index_entry import Words
from recall_server.domain.search.question import ROLES
from recall_server.domain.text.terms import SPEAKER, terms, unspaced

WEAK_BELOW = 0.25
"""12 % of the questions with an answer are below this, mostly those that need common sense; of the
questions asked of another conversation, 82 % are."""
NOISE_BELOW = 0.01
"""A hit with less than this share of the best score is noise beside it; in a small store the share
is greater. On LoCoMo, .005 finds .2 points more of the evidence among ten hits, shows as much of
it, and takes 105 characters more."""
# The share grows less than the odds of a hit do. Twelve texts with 140 questions, together, show
# as many answers as with .005 and an exponent of .4, in 55 to 170 characters less of 810 to 1,020.
_NOISE_EXPONENT = 0.12

# A hit below `Calibration.noise_score` is noise too, if the best has so many times its score.
_TIMES_NOISE = 25

# The share of the cosine of a hit without any word of the question. With .9, of 760 questions asked
# of another conversation 621 instead of 608 have weak evidence, and of 762 with an answer 76
# instead of 74.
WITHOUT_WORDS = 0.9

# A conversation of LoCoMo has about 680 documents. Of a few dozen, each is more likely to be the
# one that is asked for: in twelve texts with 30 to 60 documents the odds of a hit were e^1.1 to
# e^1.9 times those of LoCoMo. With e^1.1, evidence is above .25 for 16 of 722 questions about
# another text.
_MEASURED_DOCUMENTS = 680
_FEW_DOCUMENTS = 20
_PER_LOG_OF_DOCUMENTS = 0.4


# The greatest score that is scaled.
_SURE = 0.9999


class Weights(NamedTuple):
    """The weights of a logistic regression."""

    constant: float
    coverage: float
    cosine: float = 0.0
    final: float = 0.0

    def probability(self, coverage: float, cosine: float, final: float = 0.0) -> float:
        """Return the probability, from 0 to 1."""
        score = self.constant + self.coverage * coverage + self.cosine * cosine
        return 1.0 / (1.0 + math.exp(-score - self.final * final))


class Lead(NamedTuple):
    """How far the best candidate is ahead of the mean of the `FOLLOWING` next ones."""

    coverage: float
    cosine: float


# With the lead, .76 instead of .67 of the pairs of a question of LoCoMo whose evidence is shown and
# one whose evidence is not are told apart, and .90 instead of .88 of those of fourteen texts, each
# half by weights tuned on the other. Of the four next ones it is .75. The kind of value that is
# asked for, in the hits or not, told none apart, nor did the rarest word of the question.
FOLLOWING = 9
LED, OF_LEAD = Weights(-4.64, 2.42, 4.04), Lead(3.81, 7.79)
"""The weights for all hits shown, where the lead counts, and those of the lead. They do not depend
on how many documents there are: of right answers 12 % have weak evidence in stores of 20, and 10 %
in one of 3,400."""


class Calibration(NamedTuple):
    """The weights for one hit, and for all hits shown together. `tells_noise`: it was measured that
    the scores of noise are low, below `noise_below` as a share of the best score, or below
    `noise_score`. `by_lead`: the lead of the best hit counts.
    """

    hit: Weights
    evidence: Weights
    tells_noise: bool = True
    noise_below: float = NOISE_BELOW
    noise_score: float = 0.0
    by_lead: bool = False

    def noise(self, best: float) -> float:
        """Return the score below which a hit is noise beside one with the `best` score."""
        return max(self.noise_below * best, min(self.noise_score, best / _TIMES_NOISE))


KEYWORD = Calibration(Weights(-8.49, 3.36, final=5.67), Weights(-3.32, 6.05))
# For vectors of a model that was not measured.
OTHER_VECTORS = Calibration(
    Weights(-9.67, 2.50, final=8.14), Weights(-3.32, 6.05), tells_noise=False
)
# The meaning of a cosine differs by model; the keys are parts of model names.
WITH_VECTORS: Mapping[str, Calibration] = {
    # With the noise score, 27 texts with 372 questions show as many answers together, in 5 to 17 %
    # fewer characters; LoCoMo shows as much, and its R@5, R@10 and R@20 are as before. With .0025,
    # one answer less is shown alone; for words alone, that takes .3 from LoCoMo's R@20.
    "wordllama": Calibration(
        *(Weights(-9.42, 2.13, 3.33, 6.43), Weights(-5.36, 4.83, 6.57)),
        noise_score=0.002,
        by_lead=True,
    ),
    "minilm-l6": Calibration(OTHER_VECTORS.hit, Weights(-5.23, 4.67, 6.24), tells_noise=False),
}


def calibration(
    model: str | None, question: str = "", documents: int = _MEASURED_DOCUMENTS
) -> Calibration:
    """Return the weights for vectors of this model (None: for words alone), for a question in a
    store of so many documents.
    """
    name = next((name for name in WITH_VECTORS if model and name in model.lower()), None)
    found = WITH_VECTORS[name] if name else OTHER_VECTORS if model else KEYWORD
    if name == "wordllama" and unspaced(question):
        # Its tokens of such scripts are few or bytes, so any two texts are near.
        found = KEYWORD
    counted = min(max(documents, _FEW_DOCUMENTS), _MEASURED_DOCUMENTS)
    fewer = _MEASURED_DOCUMENTS / counted
    more = _PER_LOG_OF_DOCUMENTS * math.log(fewer)
    return found._replace(
        hit=found.hit._replace(constant=found.hit.constant + more),
        evidence=found.evidence._replace(constant=found.evidence.constant + more),
        noise_below=NOISE_BELOW * fewer**_NOISE_EXPONENT,
    )


class Measured(Protocol):
    """A hit or candidate that tells how much of the question it contains, and its cosine."""

    @property
    def coverage(self) -> float | None: ...
    @property
    def cosine(self) -> float | None: ...


def power(scores: Sequence[float], evidence: float) -> float:
    """Return the power to which the chance of each hit to miss the answer must be raised, so that
    one of them has it with the likelihood `evidence`.
    """
    misses = sum(math.log1p(-min(score, _SURE)) for score in scores)
    return math.log1p(-min(evidence, _SURE)) / misses if misses else 1.0


def scaled(score: float, power: float) -> float:
    """Return the score with the chance to miss the answer raised to this power: greater scores stay
    greater. Such scores are closer to the share of hits that hold the answer: their Brier score is
    .0233 instead of .0244 on LoCoMo, and .111 instead of .144 for five everyday texts.
    """
    return 1.0 - math.pow(1.0 - min(score, _SURE), power)


def evidence(shown: Sequence[Measured], weights: Calibration, lead: Lead | None = None) -> float:
    """Return about the share of searches with such hits that showed the answer, if as many
    questions have an answer as have none; 0 without a hit. `lead`: that of the best candidate; None
    if their order says little of an answer.
    """
    if not shown:
        return 0.0
    covers = max(one.coverage or 0.0 for one in shown)
    near = max(nearness(one.coverage, one.cosine) for one in shown)
    if lead is not None and lead.coverage > 0 and not covers:
        lead = None  # It is ahead by the names in the question alone.
    if all(one.cosine is None for one in shown):
        return KEYWORD.evidence.probability(covers, near)
    if lead is None or not weights.by_lead:
        return weights.evidence.probability(covers, near)
    ahead = OF_LEAD.coverage * lead.coverage + OF_LEAD.cosine * lead.cosine
    return LED._replace(constant=LED.constant + ahead).probability(covers, near)


def lead_of(coverage: NDArray[np.float64], cosines: NDArray[np.float64]) -> Lead:
    """Return the lead of the first candidate, given the values of all in their order. One without a
    vector, or that is missing, has the cosine 0.
    """
    ahead = [
        float(values[:1].sum() - values[1 : 1 + FOLLOWING].sum() / FOLLOWING)
        for values in (coverage, np.nan_to_num(cosines))
    ]
    return Lead(*ahead)


def nearness(coverage: float | None, cosine: float | None) -> float:
    """Return how much of a cosine counts: less for a hit without any word of the question."""
    near = cosine or 0.0
    return near if coverage else min(near, WITHOUT_WORDS * near)


def asked_weights(
    asked: Sequence[str], idf: Mapping[str, float], documents: int, named: frozenset[str]
) -> dict[str, float]:
    """Return how much each term of a question counts: by idf, and as the rarest possible if the
    namespace does not have it. The names of `named`, the terms of speakers, do not count.
    """
    names = {term for name in named for term in terms(name.removeprefix(SPEAKER))}
    rarest = math.log(documents + 1)
    return {term: idf.get(term, rarest) for term in asked if term not in names}


def known(weights: Mapping[str, float], idf: Mapping[str, float]) -> float:
    """Return the weighted share of the terms of a question that the namespace has."""
    total = math.fsum(weights.values())
    return math.fsum(weights[term] for term in weights if term in idf) / total if total else 1.0


def coverage(
    weights: Mapping[str, float], words: Words, named: frozenset[str]
) -> NDArray[np.float64]:
    """Return how much of a question each item contains: the weighted share of its terms. `weights`
    are those of `asked_weights`; `words` has how often each item has each term.

    Where speakers are named, only their items count: "What did Ana bake?" is not answered by what
    Ben baked. If several are named and no item has them all, items of anybody count; "I" may ask
    for what others said.
    """
    times, shares = words.times, np.zeros(len(words.lengths))
    total = math.fsum(weights.values())
    for term, weight in weights.items():
        if term in times:
            shares += weight / total * (times[term] > 0)
    people = sorted(named - ROLES)
    if people:
        theirs = np.all([times[person] > 0 for person in people], axis=0)
        if len(people) == 1 or theirs.any():
            shares[~theirs] = 0.0
    return shares
