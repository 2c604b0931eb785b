"""Which memories are alike enough to be made into one (FEATURES G04, mode merge). Pure; what each
of them claims decides whether they may go together at all, likeness only whether they should.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.attributes import (
    canonical,
    is_single_valued,
    normal_attribute,
    normal_entity,
    normal_value,
)
from recall_server.domain.contradiction import negations
from recall_server.domain.memory import Memory, MemoryType
from recall_server.domain.text.terms import terms

ROWS_AT_ONCE = 256
# Below this a float32 cosine is noise: two equal vectors may have 0.9999999.
NOISE = 1e-6
NONE = -1

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Positions = NDArray[np.intp]


def clusters(
    memories: Sequence[Memory], vectors: Mapping[str, Floats], threshold: float
) -> list[tuple[Memory, ...]]:
    """Groups of two or more alike memories, in the order of their first ids; members too.

    `vectors` are of length 1, by memory id. In the order of their ids, whatever the order given, a
    memory joins the first cluster with whose every member it is alike (complete linkage), or begins
    one. Alike is a cosine of at least `threshold` (in (0, 1]) where both have a vector of the same
    size, else `lexical_threshold`.

    Never in one cluster: memories of different types; facts about different entities; what
    contradicts (another value of a single-valued attribute, the denial of a fact, another number of
    negations unless both state the same fact, the same words with other numbers); and two
    single-valued attributes, of which one fact could keep only one open to be superseded.

    Time is quadratic, for 5,000 memories about 1 s, or 3 s for long texts without vectors. Memory
    is linear: `ROWS_AT_ONCE` cosines, 1 kB, for each memory, a copy of its vector, and its terms.
    """
    ordered = sorted(memories, key=lambda memory: memory.id)
    found = [
        cluster
        for kind in MemoryType
        for cluster in _greedy([m for m in ordered if m.type is kind], vectors, threshold)
    ]
    return sorted(found, key=lambda cluster: cluster[0].id)


def lexical_threshold(threshold: float) -> float:
    """The Jaccard of two texts' terms that counts as much as this cosine of their vectors: t³.

    Measured on some 400 memories of chats with static word vectors: pairs of cosine .75, .85, .92
    share, in the median, .36, .44 and .57 of their terms, about t⁴; and many share as much without
    being alike. The cube, .61 for .85, is on the careful side: words alone know no meaning.
    """
    return threshold**3


def _greedy(
    memories: Sequence[Memory], vectors: Mapping[str, Floats], threshold: float
) -> list[tuple[Memory, ...]]:
    cluster_of = np.zeros(len(memories), dtype=np.intp)
    sizes = np.zeros(len(memories), dtype=np.intp)
    count = 0
    for position, near in enumerate(_near(memories, vectors, threshold)):
        chosen = count
        if near.size:
            agreeing = np.bincount(cluster_of[near], minlength=count)
            whole = np.flatnonzero(agreeing == sizes[:count])
            chosen = int(whole[0]) if whole.size else count
        cluster_of[position] = chosen
        sizes[chosen] += 1
        count = max(count, chosen + 1)
    members: list[list[Memory]] = [[] for _ in range(count)]
    for memory, chosen in zip(memories, cluster_of.tolist(), strict=True):
        members[chosen].append(memory)
    return [tuple(cluster) for cluster in members if len(cluster) > 1]


def _near(
    memories: Sequence[Memory], vectors: Mapping[str, Floats], threshold: float
) -> Iterator[Positions]:
    """For each memory the positions before it of those that it is alike and goes together with."""
    words = [frozenset(terms(memory.text)) for memory in memories]
    claims = _Claims(memories, words)
    matrix, embedded = _matrix([vectors.get(memory.id) for memory in memories])
    overlap = None if embedded.all() else _Overlap(words)
    for start in range(0, len(memories), ROWS_AT_ONCE):
        end = min(start + ROWS_AT_ONCE, len(memories))
        cosines = matrix[start:end] @ matrix[:end].T
        for position in range(start, end):
            alike = cosines[position - start, :position] >= threshold - NOISE
            if overlap is not None:
                lexical = overlap.jaccard(position) >= lexical_threshold(threshold) - NOISE
                both = embedded[:position] & embedded[position]
                alike = np.where(both, alike, lexical)
            near = np.flatnonzero(alike)
            yield near[claims.compatible(position, near)]


def _matrix(vectors: Sequence[Floats | None]) -> tuple[Floats, Flags]:
    """The vectors as rows (0 where there is none), and which rows are real."""
    size = next((vector.size for vector in vectors if vector is not None), 0)
    none = np.zeros(size, dtype=np.float32)
    rows = [none if v is None or v.size != size else v for v in vectors]
    matrix = np.array(rows, dtype=np.float32).reshape(len(rows), size)
    lengths = np.linalg.norm(matrix, axis=1)
    real = np.isfinite(lengths) & (lengths > 0.0)
    matrix[~real] = 0.0
    return matrix, real


class _Overlap:
    """Jaccard by way of postings: only the terms that two texts share cost anything."""

    def __init__(self, words: Sequence[frozenset[str]]) -> None:
        postings: defaultdict[str, list[int]] = defaultdict(list)
        for position, of_one in enumerate(words):
            for term in of_one:
                postings[term].append(position)
        # A term of a single text is shared by none.
        shared = {term: np.array(at) for term, at in postings.items() if len(at) > 1}
        self._postings = [[shared[term] for term in of_one if term in shared] for of_one in words]
        self._sizes = np.array([len(of_one) for of_one in words])

    def jaccard(self, position: int) -> NDArray[np.float64]:
        """The Jaccard of the text at `position` with each one before it."""
        both = np.zeros(position, dtype=np.intp)
        if found := self._postings[position]:
            both = np.bincount(np.concatenate(found), minlength=position)[:position]
        # At least 1: two texts without a term are not known to be alike.
        either = np.maximum(self._sizes[:position] + self._sizes[position] - both, 1)
        return np.asarray(both / either)


class _Claims:
    """What memories claim, as columns of numbers, so that one is compared with many at once."""

    def __init__(self, memories: Sequence[Memory], words: Sequence[frozenset[str]]) -> None:
        facts = [canonical(memory.fact) if memory.fact else None for memory in memories]
        self._entity = _codes([fact and normal_entity(fact.entity) for fact in facts])
        self._attribute = _codes([fact and normal_attribute(fact.attribute) for fact in facts])
        self._value = _codes([fact and normal_value(fact.value) for fact in facts])
        self._negated = np.array([bool(fact and fact.negated) for fact in facts], dtype=np.bool_)
        self._single = np.array(
            [bool(fact and is_single_valued(fact.attribute)) for fact in facts], dtype=np.bool_
        )
        self._negations = np.array([negations(memory.text) for memory in memories])
        figures = [frozenset(filter(_has_digit, of_one)) for of_one in words]
        self._figures = _codes(figures)
        self._wording = _codes(
            [of_one - numbers for of_one, numbers in zip(words, figures, strict=True)]
        )

    def compatible(self, position: int, others: Positions) -> Flags:
        """Which of `others` may be in one cluster with the memory at `position`.

        On facts the rule is that of `contradiction.compare`, which looks at one pair at a time.
        """

        def same(column: Positions) -> Flags:
            return np.asarray(column[others] == column[position])

        both = (self._entity[others] != NONE) & (self._entity[position] != NONE)
        comparable = both & same(self._attribute)
        same_value, negated = same(self._value), self._negated[others]
        same_sign = negated == self._negated[position]
        # "Not X" says nothing against Y, nor Y against "not X".
        exclusive = self._single[position] & ~self._negated[position] & ~negated
        clashing = comparable & np.where(same_value, ~same_sign, exclusive)
        two_single = both & ~same(self._attribute) & self._single[position] & self._single[others]
        denying = ~(comparable & same_value & same_sign) & ~same(self._negations)
        renumbering = same(self._wording) & ~same(self._figures)
        elsewhere = both & ~same(self._entity)
        apart = elsewhere | clashing | two_single | denying | renumbering
        return np.asarray(~apart)


def _has_digit(term: str) -> bool:
    return any(char.isdigit() for char in term)


def _codes(values: Sequence[Hashable | None]) -> Positions:
    """A number for each value, equal for equal ones; NONE for None."""
    known: dict[Hashable, int] = {}
    return np.array(
        [NONE if value is None else known.setdefault(value, len(known)) for value in values],
        dtype=np.intp,
    )
