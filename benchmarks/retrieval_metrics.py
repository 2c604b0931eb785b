"""Measures of a ranking, and of how well evidence separates answerable questions from others.

Pure functions, with the usual formulas.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from recall_server.domain.search.calibration import WEAK_BELOW

SEED = 20261122
RESAMPLES = 2_000
CUTS = (5, 10, 20)


@dataclass(frozen=True)
class Estimate:
    """A mean over questions, with the bounds of its 95 % interval."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        """Return the estimate in percent."""
        return f"{100 * self.mean:.1f} ({100 * self.low:.1f}-{100 * self.high:.1f})"


def recall_at(k: int, ranked: Sequence[str], gold: Collection[str]) -> float:
    """Return the share of the evidence among the first `k`."""
    return len(set(ranked[:k]) & set(gold)) / len(set(gold))


def measures(ranked: Sequence[str], gold: Collection[str]) -> dict[str, float]:
    """Return all measures of one ranking of distinct docs, by name, each in [0, 1].

    R@k is recall; hit@10: whether any evidence is among the first 10; NDCG@10 with gain 1 for
    evidence (Jarvelin & Kekalainen 2002); MRR: 1 / the rank of the first evidence, 0 without any.
    """
    ranks = [rank for rank, doc in enumerate(ranked, 1) if doc in gold]
    gained = math.fsum(1 / math.log2(rank + 1) for rank in ranks if rank <= 10)
    ideal = math.fsum(1 / math.log2(rank + 1) for rank in range(1, min(len(set(gold)), 10) + 1))
    return {
        **{f"R@{k}": recall_at(k, ranked, gold) for k in CUTS},
        "hit@10": float(bool(ranks) and ranks[0] <= 10),
        "NDCG@10": gained / ideal,
        "MRR": 1 / ranks[0] if ranks else 0.0,
    }


def estimates(of_questions: Sequence[dict[str, float]]) -> dict[str, Estimate]:
    """Return the mean of each measure over the questions, with percentile bootstrap intervals:
    questions are drawn with replacement (Efron 1979), always the same ones for the same number of
    questions.
    """
    names = list(of_questions[0])
    values = np.array([[question[name] for name in names] for question in of_questions])
    drawn = np.random.default_rng(SEED).integers(0, len(values), (RESAMPLES, len(values)))
    means = np.array([values[draw].mean(axis=0) for draw in drawn])
    low, high = np.quantile(means, (0.025, 0.975), axis=0)
    mean = values.mean(axis=0)
    return {
        name: Estimate(float(mean[i]), float(low[i]), float(high[i]))
        for i, name in enumerate(names)
    }


def auc(greater: Sequence[float], less: Sequence[float]) -> float:
    """Return the area under the ROC curve: the share of all pairs in which the first is greater,
    and half of those that are equal (Mann & Whitney 1947).
    """
    first, second = np.array(greater)[:, None], np.array(less)[None, :]
    return float((first > second).mean() + (first == second).mean() / 2)


def weak_share(evidence: Sequence[float]) -> float:
    """Return the share with evidence so weak that an agent had better say that it does not know."""
    return float(np.mean(np.array(evidence) < WEAK_BELOW))
