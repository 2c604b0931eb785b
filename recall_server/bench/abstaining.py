"""How well the evidence that a search tells parts questions with an answer from others."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from recall_server.bench.retrieval_data import DataSet, Question
from recall_server.domain.search.abstention import WEAK_BELOW


@dataclass(frozen=True)
class Parted:
    """Questions whose answer is not in memory, beside those whose answer is. `auc`: how often one
    of the latter has more evidence than one of the former. `weak`: the share of each below
    `WEAK_BELOW`, where who asks had better say that they do not know.
    """

    questions: int
    auc: float
    weak: float
    answerable_weak: float


def parted(answerable: Sequence[float], others: Sequence[float]) -> Parted | None:
    """By the evidence of each; None where there are none of one kind."""
    if not answerable or not others:
        return None
    return Parted(len(others), auc(answerable, others), _weak(others), _weak(answerable))


def auc(greater: Sequence[float], less: Sequence[float]) -> float:
    """The area under the ROC curve: of all pairs, the share in which the first is the greater, and
    half of those that are equal (Mann & Whitney 1947).
    """
    first, second = np.array(greater)[:, None], np.array(less)[None, :]
    return float((first > second).mean() + (first == second).mean() / 2)


def elsewhere(data: DataSet) -> tuple[Question, ...]:
    """The questions with an answer, asked of the corpus after theirs, with the names of its people
    put in for those of their own: what they ask was never said there. None of one corpus alone.
    """
    corpora = data.corpora
    if len(corpora) < 2:
        return ()
    people = {
        corpus: sorted({d.speaker for s in data.sessions if s.corpus == corpus for d in s.docs})
        for corpus in corpora
    }
    following = dict(zip(corpora, (*corpora[1:], corpora[0]), strict=True))
    return tuple(
        replace(
            one,
            corpus=following[one.corpus],
            gold=(),
            text=_renamed(
                one.text, dict(zip(people[one.corpus], people[following[one.corpus]], strict=False))
            ),
        )
        for one in data.questions
        if one.counts
    )


def _renamed(text: str, names: Mapping[str, str]) -> str:
    if not names:
        return text
    known = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))
    return known.sub(lambda match: names[match[0]], text)


def _weak(evidence: Sequence[float]) -> float:
    return float(np.mean(np.array(evidence) < WEAK_BELOW))
