"""Statements that say the same, contradict each other, or belong together."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from enum import StrEnum
from typing import Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.attributes import (
    canonical,
    is_single_valued,
    normal_attribute,
    normal_entity,
    normal_value,
)
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Fact, Memory, MemoryType
from recall_server.domain.text.terms import terms

SAME_STATEMENT = 0.9
NEAR_DUPLICATE = 0.92
SPELLED_ALIKE = 0.75
OPPOSED = 0.68
# The comparison is quadratic.
COMPARED_CHARS_MAX = 300
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|without|neither|nor|cannot|stopped|quit)\b|n['’]t\b", re.IGNORECASE
)


class Verdict(StrEnum):
    """The relation of a new claim to a stored memory."""

    SAME = "same"
    CLASHES = "clashes"
    COMPATIBLE = "compatible"


def compare(candidate: Candidate, existing: Memory) -> Verdict:
    """Compare `candidate` with `existing`, an active memory of the same entity."""
    if candidate.fact is None or existing.fact is None:
        return Verdict.COMPATIBLE
    new, old = candidate.fact, existing.fact
    # The text itself says that a value has been replaced.
    gone = candidate.replaces if candidate.correction else None
    if gone is not None and not old.negated and normal_value(gone) == normal_value(old.value):
        return Verdict.CLASHES
    if normal_attribute(new.attribute) != normal_attribute(old.attribute):
        return Verdict.COMPATIBLE
    if normal_value(new.value) == normal_value(old.value):
        return Verdict.SAME if new.negated == old.negated else Verdict.CLASHES
    # "Not X" does not contradict "Y", nor does "Y" contradict "not X".
    if new.negated or old.negated or not is_single_valued(new.attribute):
        return Verdict.COMPATIBLE
    return Verdict.CLASHES


def same_statement(one: str, other: str) -> bool:
    """True if two texts say the same in nearly the same words: nine tenths of the terms, all
    numbers and the number of negations agree.
    """
    if _numbers(one) != _numbers(other) or negations(one) != negations(other):
        return False
    first, second = set(terms(one)), set(terms(other))
    return bool(first) and len(first & second) >= SAME_STATEMENT * len(first | second)


def near_duplicates(one: str, other: str) -> bool:
    """True if two texts say nearly the same: at least `NEAR_DUPLICATE` of their characters (of
    their words, if they are long) agree in the same order, words that differ are spelled alike, and
    all numbers and the number of negations agree.
    """
    if _numbers(one) != _numbers(other) or negations(one) != negations(other):
        return False
    first, second = one.lower(), other.lower()
    mine, others = first.split(), second.split()
    words = SequenceMatcher(None, mine, others)
    if max(len(first), len(second)) > COMPARED_CHARS_MAX:
        alike = _alike(words, NEAR_DUPLICATE)
    else:
        alike = _alike(SequenceMatcher(None, first, second, autojunk=False), NEAR_DUPLICATE)
    return alike and all(
        _alike(SequenceMatcher(None, " ".join(mine[i:j]), " ".join(others[k:m])), SPELLED_ALIKE)
        for what, i, j, k, m in words.get_opcodes()
        if what == "replace"
    )


# Terms that say the opposite of each other, and terms that only strengthen or deny.
_OPPOSITES = (
    ("enabl", "disabl"),
    ("allow", "forbid"),
    ("allow", "deni"),
    ("accept", "reject"),
    ("like", "dislik"),
    ("like", "hate"),
    ("love", "hate"),
)
_FORCE = frozenset(("never", "alway", "ever", "everi", "all", "ani", "quit", "stop"))


def opposed(one: str, other: str) -> bool:
    """True if one text denies the other: at least `OPPOSED` of their characters and nine tenths of
    their terms agree, and either one of them is negated, or two terms are opposites.
    """
    first, second = set(terms(one)) - _FORCE, set(terms(other)) - _FORCE
    only = {(mine, others) for mine in first - second for others in second - first}
    opposites = next((i for i in _OPPOSITES if i in only or i[::-1] in only), ())
    negated = negations(one) % 2 != negations(other) % 2
    if negated is bool(opposites) or _numbers(one) != _numbers(other):
        return False
    first, second = first.difference(opposites), second.difference(opposites)
    same = bool(first) and len(first & second) >= SAME_STATEMENT * len(first | second)
    return same and _alike(
        SequenceMatcher(None, one.lower(), other.lower(), autojunk=False), OPPOSED
    )


def _alike(compared: SequenceMatcher[str], least: float) -> bool:
    # Each bound is above the next one and cheaper to compute.
    bounds = (compared.real_quick_ratio, compared.quick_ratio, compared.ratio)
    return all(bound() >= least for bound in bounds)


def _numbers(text: str) -> list[str]:
    return sorted(re.findall(r"\d+", text))


def negations(text: str) -> int:
    return len(_NEGATION.findall(text))


ROWS_AT_ONCE = 256
# Below this a float32 cosine is noise: two equal vectors may have 0.9999999.
NOISE = 1e-6
NONE = -1

Floats = NDArray[np.float32]
Flags = NDArray[np.bool_]
Positions = NDArray[np.intp]


class Statement(Protocol):
    """The parts of a memory that are compared."""

    @property
    def id(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def type(self) -> MemoryType: ...
    @property
    def fact(self) -> Fact | None: ...


S = TypeVar("S", bound=Statement)


def clusters(
    memories: Sequence[S], vectors: Mapping[str, Floats], threshold: float
) -> list[tuple[S, ...]]:
    """Return groups of two or more similar memories, ordered by their first ids; members are
    ordered by id too.

    `vectors` have length 1 and are keyed by memory id. In the order of ids, a memory joins the
    first cluster with every member of which it is similar (complete linkage), or starts a new one.
    Two memories are similar if their cosine is at least `threshold` (in (0, 1]) and both vectors
    have the same size, else if their Jaccard index is at least `lexical_threshold`.

    These are never in one cluster: memories of different types; facts about different entities;
    contradictions (another value of a single-valued attribute, the denial of a fact, another number
    of negations unless both state the same fact, opposite words such as "enabled" and "disabled",
    the same words with other numbers); and two
    single-valued attributes, as the merged memory can hold only one fact that a later claim may
    supersede.

    Time is quadratic: about 1 s for 5,000 memories, 3 s for long texts without vectors. Memory is
    linear: `ROWS_AT_ONCE` cosines (1 kB) per memory, a copy of its vector, and its terms.
    """
    ordered = sorted(memories, key=lambda memory: memory.id)
    found = [
        cluster
        for kind in MemoryType
        for cluster in _greedy([m for m in ordered if m.type is kind], vectors, threshold)
    ]
    return sorted(found, key=lambda cluster: cluster[0].id)


def lexical_threshold(threshold: float) -> float:
    """Return the Jaccard index of terms that counts as much as this cosine: `threshold` cubed.

    Measured on about 400 memories of chats with static word vectors: pairs of cosine 0.75, 0.85 and
    0.92 share, in the median, 0.36, 0.44 and 0.57 of their terms, about the fourth power; many
    dissimilar pairs share as much. The cube, 0.61 for 0.85, is cautious, as words alone carry no
    meaning.
    """
    return threshold**3


def _greedy(
    memories: Sequence[S], vectors: Mapping[str, Floats], threshold: float
) -> list[tuple[S, ...]]:
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
    members: list[list[S]] = [[] for _ in range(count)]
    for memory, chosen in zip(memories, cluster_of.tolist(), strict=True):
        members[chosen].append(memory)
    return [tuple(cluster) for cluster in members if len(cluster) > 1]


def _near(
    memories: Sequence[Statement], vectors: Mapping[str, Floats], threshold: float
) -> Iterator[Positions]:
    """Yield for each memory the positions of earlier memories that are similar to it and
    compatible with it.
    """
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
    """Return the vectors as rows (0 where one is missing), and which rows are real."""
    size = next((vector.size for vector in vectors if vector is not None), 0)
    none = np.zeros(size, dtype=np.float32)
    rows = [none if v is None or v.size != size else v for v in vectors]
    matrix = np.array(rows, dtype=np.float32).reshape(len(rows), size)
    lengths = np.linalg.norm(matrix, axis=1)
    real = np.isfinite(lengths) & (lengths > 0.0)
    matrix[~real] = 0.0
    return matrix, real


class _Overlap:
    """The Jaccard index over postings: only shared terms cost time."""

    def __init__(self, words: Sequence[frozenset[str]]) -> None:
        postings: defaultdict[str, list[int]] = defaultdict(list)
        for position, of_one in enumerate(words):
            for term in of_one:
                postings[term].append(position)
        # A term that only one text has is never shared.
        shared = {term: np.array(at) for term, at in postings.items() if len(at) > 1}
        self._postings = [[shared[term] for term in of_one if term in shared] for of_one in words]
        self._sizes = np.array([len(of_one) for of_one in words])

    def jaccard(self, position: int) -> NDArray[np.float64]:
        """Return the Jaccard index of the text at `position` with each one before it."""
        both = np.zeros(position, dtype=np.intp)
        if found := self._postings[position]:
            both = np.bincount(np.concatenate(found), minlength=position)[:position]
        # At least 1: two texts without terms are not similar.
        either = np.maximum(self._sizes[:position] + self._sizes[position] - both, 1)
        return np.asarray(both / either)


class _Claims:
    """The facts of memories as columns of numbers, to compare one with many at a time."""

    def __init__(self, memories: Sequence[Statement], words: Sequence[frozenset[str]]) -> None:
        facts = [canonical(memory.fact) if memory.fact else None for memory in memories]
        self._entity = _codes([fact and normal_entity(fact.entity) for fact in facts])
        self._attribute = _codes([fact and normal_attribute(fact.attribute) for fact in facts])
        self._value = _codes([fact and normal_value(fact.value) for fact in facts])
        self._negated = np.array([bool(fact and fact.negated) for fact in facts], dtype=np.bool_)
        self._single = np.array(
            [bool(fact and is_single_valued(fact.attribute)) for fact in facts], dtype=np.bool_
        )
        self._negations = np.array([negations(memory.text) for memory in memories])
        figures = [
            frozenset(term for term in of_one if any(map(str.isdigit, term))) for of_one in words
        ]
        self._figures = _codes(figures)
        self._wording = _codes(
            [of_one - numbers for of_one, numbers in zip(words, figures, strict=True)]
        )
        # For each pair of opposites: 1 for the one, -1 for the other, 0 for none or both.
        self._sides = np.array(
            [
                [(one in of_one) - (other in of_one) for one, other in _OPPOSITES]
                for of_one in words
            ],
            dtype=np.int8,
        ).reshape(len(words), len(_OPPOSITES))

    def compatible(self, position: int, others: Positions) -> Flags:
        """Return which of `others` may share a cluster with the memory at `position`.

        Facts follow the rule of `compare`, which compares one pair at a time.
        """

        def same(column: Positions) -> Flags:
            return np.asarray(column[others] == column[position])

        both = (self._entity[others] != NONE) & (self._entity[position] != NONE)
        comparable = both & same(self._attribute)
        same_value, negated = same(self._value), self._negated[others]
        same_sign = negated == self._negated[position]
        # "Not X" does not contradict "Y", nor does "Y" contradict "not X".
        exclusive = self._single[position] & ~self._negated[position] & ~negated
        clashing = comparable & np.where(same_value, ~same_sign, exclusive)
        two_single = both & ~same(self._attribute) & self._single[position] & self._single[others]
        denying = ~(comparable & same_value & same_sign) & ~same(self._negations)
        renumbering = same(self._wording) & ~same(self._figures)
        elsewhere = both & ~same(self._entity)
        opposite = ((self._sides[others] * self._sides[position]) < 0).any(axis=1)
        apart = elsewhere | clashing | two_single | denying | renumbering | opposite
        return np.asarray(~apart)


def _codes(values: Sequence[Hashable | None]) -> Positions:
    """Number the values; equal values get equal numbers, None gets NONE."""
    numbers: dict[Hashable, int] = {}
    return np.array(
        [NONE if value is None else numbers.setdefault(value, len(numbers)) for value in values],
        dtype=np.intp,
    )
