"""Which statements say the same, and which contradict each other.

Same entity and attribute with another value: supersede. Multi-valued attributes add. This module
does not know where statements are stored.
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
    """How a new claim relates to a stored memory."""

    SAME = "same"
    CLASHES = "clashes"
    COMPATIBLE = "compatible"


def compare(candidate: Candidate, existing: Memory) -> Verdict:
    """Compare `candidate` with `existing`, an active memory of the same entity."""
    if candidate.fact is None or existing.fact is None:
        return Verdict.COMPATIBLE
    if _replaced(candidate, existing.fact):
        return Verdict.CLASHES
    if normal_attribute(candidate.fact.attribute) != normal_attribute(existing.fact.attribute):
        return Verdict.COMPATIBLE
    return _compare_values(candidate.fact, existing.fact)


def _compare_values(new: Fact, old: Fact) -> Verdict:
    if normal_value(new.value) == normal_value(old.value):
        return Verdict.SAME if new.negated == old.negated else Verdict.CLASHES
    # "Not X" does not contradict "Y", nor does "Y" contradict "not X".
    if new.negated or old.negated or not is_single_valued(new.attribute):
        return Verdict.COMPATIBLE
    return Verdict.CLASHES


def _replaced(candidate: Candidate, existing: Fact) -> bool:
    """Whether the text itself says that the stored value has been replaced."""
    return (
        candidate.correction
        and candidate.replaces is not None
        and not existing.negated
        and normal_value(candidate.replaces) == normal_value(existing.value)
    )


def same_statement(one: str, other: str) -> bool:
    """Whether two texts say the same in nearly the same words: nine tenths of the terms, all
    numbers and the number of negations agree.
    """
    if _numbers(one) != _numbers(other) or negations(one) != negations(other):
        return False
    first, second = set(terms(one)), set(terms(other))
    return bool(first) and len(first & second) >= SAME_STATEMENT * len(first | second)


def _numbers(text: str) -> list[str]:
    return sorted(re.findall(r"\d+", text))


def negations(text: str) -> int:
    return len(_NEGATION.findall(text))
