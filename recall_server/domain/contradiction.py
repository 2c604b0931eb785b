"""Which statements say the same, which clash, and which of two that clash is the newer.

FEATURES F01 (same entity and attribute, another value: supersede; multi-valued attributes add),
C07. Nothing here knows where the statements are kept.
"""

import re
from enum import StrEnum

from recall_server.domain.attributes import is_single_valued, normal_attribute, normal_value
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Fact, Memory
from recall_server.domain.text.terms import terms

SAME_STATEMENT = 0.9
_NEGATION = re.compile(
    r"\b(?:not|no|never|none|without|neither|nor|cannot|stopped|quit)\b|n['’]t\b", re.IGNORECASE
)


class Verdict(StrEnum):
    """What a new claim does to a known one."""

    SAME = "same"
    CLASHES = "clashes"
    COMPATIBLE = "compatible"


def compare(candidate: Candidate, known: Memory) -> Verdict:
    """What `candidate` does to `known`, an active memory of the same entity."""
    if candidate.fact is None or known.fact is None:
        return Verdict.COMPATIBLE
    if _replaced(candidate, known.fact):
        return Verdict.CLASHES
    if normal_attribute(candidate.fact.attribute) != normal_attribute(known.fact.attribute):
        return Verdict.COMPATIBLE
    return _compare_values(candidate.fact, known.fact)


def _compare_values(new: Fact, old: Fact) -> Verdict:
    if normal_value(new.value) == normal_value(old.value):
        return Verdict.SAME if new.negated == old.negated else Verdict.CLASHES
    # "Not X" says nothing against Y, nor Y against "not X".
    if new.negated or old.negated or not is_single_valued(new.attribute):
        return Verdict.COMPATIBLE
    return Verdict.CLASHES


def _replaced(candidate: Candidate, known: Fact) -> bool:
    """Whether the text itself says that the known value has been replaced."""
    return (
        candidate.correction
        and candidate.replaces is not None
        and not known.negated
        and normal_value(candidate.replaces) == normal_value(known.value)
    )


def same_statement(one: str, other: str) -> bool:
    """Whether two texts say the same in nearly the same words: the terms agree to nine tenths,
    and so do all numbers and the number of negations.
    """
    if _numbers(one) != _numbers(other) or negations(one) != negations(other):
        return False
    first, second = set(terms(one)), set(terms(other))
    return bool(first) and len(first & second) >= SAME_STATEMENT * len(first | second)


def _numbers(text: str) -> list[str]:
    return sorted(re.findall(r"\d+", text))


def negations(text: str) -> int:
    return len(_NEGATION.findall(text))
