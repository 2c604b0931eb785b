"""Fusion: one weighted sum of the signals, without a model. Pure, and the same on both engines."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recall_server.domain.search.index_entry import Counts
from recall_server.domain.search.ranking import Candidate, ranks
from recall_server.domain.search.signals import SIGNALS, Evidence, Values

# The share of a re-ranker in the final score: of one that compares the token vectors of a small
# model, and of one that reads question and text together.
COMPARED = 0.3
JUDGED = 0.7


class Fused(NamedTuple):
    """The signals of each item of a pool, in its order, and their sum."""

    evidence: Evidence
    signals: Mapping[str, Values]
    """Those that had a say."""
    finals: Values
    order: Counts
    """The positions of the items at or above the threshold, the best first."""

    def explain(self, positions: Sequence[int]) -> list[Mapping[str, float | None]]:
        """The signals of the items at these positions, as `Scores.signals` has them."""
        at = np.array(positions, np.int64)
        columns: dict[str, Sequence[float | None]] = {}
        for signal in SIGNALS:
            values = self.signals.get(signal.name)
            shown = np.full(len(self.finals), np.nan)
            if values is not None:
                shown = signal.shown(self.evidence, values)
            columns[signal.name] = _or_none(shown[at])
            if signal.ranked:
                columns[f"{signal.name}_rank"] = [
                    None if rank is None else int(rank) for rank in _or_none(ranks(shown)[at])
                ]
        rows = zip(*columns.values(), strict=True)
        return [dict(zip(columns, of_item, strict=True)) for of_item in rows]


def fuse(evidence: Evidence) -> Fused:
    """The items of a pool in the order of their final scores.

    The final score is the weighted mean of the signals that the question gives reason for: whom it
    names, which time. Ties stand in the order of `recorded_at`, the newest first, then of the pool.
    """
    query, recorded_at = evidence.query, evidence.columns["recorded_at"]
    signals: dict[str, Values] = {}
    finals = np.zeros(len(recorded_at))
    full = []
    for signal in SIGNALS:
        weight = signal.weights.get(query.mode)
        if weight is None or signal.name in query.without:
            continue
        values = signal.values(evidence)
        if values is None:
            continue
        signals[signal.name] = values
        finals += weight.at(query.recency_weight) * values
        # The weight that a query gives to recency goes on top of what answers it.
        full.append(weight.at(1.0))
    if total := math.fsum(full):
        finals = finals / total
    finals = np.minimum(1.0, finals)
    order = np.lexsort((-recorded_at, -finals))
    order = order[finals[order] >= query.score_threshold]
    return Fused(evidence, signals, finals, order)


def reranked(
    hits: Sequence[Candidate], scores: Sequence[float], *, judges: bool, min_score: float = 0.0
) -> list[Candidate]:
    """The hits in the order that a re-ranker gives; `scores` are in the order of the hits.

    A re-ranker that judges leaves out hits below `min_score`, and its score counts for more than
    half. The scores of one that only compares are scaled from the least to the greatest first.
    """
    share = JUDGED if judges else COMPARED
    values = scores
    if not judges and scores:
        least = min(scores)
        width = max(max(scores) - least, 1e-9)
        values = [(score - least) / width for score in scores]
    found = [
        hit._replace(final=(1.0 - share) * hit.final + share * value, rerank=score)
        for hit, score, value in zip(hits, scores, values, strict=True)
        if not judges or score >= min_score
    ]
    # The sort is stable: ties stay in their order.
    found.sort(key=lambda hit: hit.final, reverse=True)
    return found


def _or_none(values: Values) -> list[float | None]:
    return [
        None if missing else value
        for value, missing in zip(values.tolist(), np.isnan(values).tolist(), strict=True)
    ]
