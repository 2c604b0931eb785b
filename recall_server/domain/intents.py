"""Intents: what a caller wants done with a statement, and which memory it is about. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from recall_server.domain.attributes import normal_entity
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Memory
from recall_server.domain.openings import CORRECT, FORGET
from recall_server.domain.similarity import Verdict, compare
from recall_server.domain.text.terms import terms


class Intent(StrEnum):
    """The wish for a statement; `auto`: its words decide."""

    AUTO = "auto"
    REMEMBER = "remember"
    CORRECT = "correct"
    FORGET = "forget"


def intended(intent: Intent, text: str, memory_id: str) -> Intent:
    """Return what `auto` means: forget or correct if the first words say so, or correct if a memory
    is named. Any other text is remembered; a correction inside it still counts as one.
    """
    if intent is not Intent.AUTO:
        return intent
    if FORGET.match(text.strip()):
        return Intent.FORGET
    return Intent.CORRECT if memory_id or CORRECT.match(text.strip()) else Intent.REMEMBER


def statement(intent: Intent, text: str) -> str:
    """Return a text without the opening words that only say what to do with it."""
    said = text.strip()
    first = {Intent.FORGET: FORGET, Intent.CORRECT: CORRECT}.get(intent)
    rest = first.sub("", said, count=1) if first and first.match(said) else said
    return rest or said


# A memory is meant if its score is at least this. A correction shares less, as its value differs.
MATCH_MIN = 0.7
CORRECTED_MIN = 0.6
# Two memories match equally well if their scores are at most this far apart.
MARGIN = 0.05
COVERAGE = 0.8
# Memories say "the user" when somebody said "I".
_NOBODY = frozenset({"user", "user's"})


@dataclass(frozen=True)
class Match:
    """How well a memory matches a statement, from 0 to 1."""

    memory: Memory
    score: float


def matches(
    intent: Intent, said: str, candidates: Sequence[Candidate], memories: Sequence[Memory]
) -> list[Match]:
    """Score memories against a statement, the best and newest first: 1 for the same fact, or for
    the fact that a correction contradicts; else by the share of common words.
    """
    sought = Verdict.CLASHES if intent is Intent.CORRECT else Verdict.SAME
    words = frozenset(terms(said)) - _NOBODY
    found = [
        Match(
            memory,
            1.0
            if any(compare(one, memory) is sought and _of_one(one, memory) for one in candidates)
            else _share(words, frozenset(terms(memory.text)) - _NOBODY),
        )
        for memory in memories
    ]
    newest = sorted(found, key=lambda one: (one.memory.recorded_at, one.memory.id), reverse=True)
    return sorted(newest, key=lambda one: -one.score)


def _of_one(candidate: Candidate, memory: Memory) -> bool:
    """True if both are about the same entity."""
    if candidate.fact is None or memory.fact is None:
        return False
    return normal_entity(candidate.fact.entity) == normal_entity(memory.fact.entity)


def _share(said: frozenset[str], known: frozenset[str]) -> float:
    both = len(said & known)
    if not both:
        return 0.0
    return round(COVERAGE * both / len(said) + (1 - COVERAGE) * both / len(known), 4)


def meant(intent: Intent, found: Sequence[Match]) -> list[Match]:
    """Return the memories that may be meant: none, the best one, or all that match equally well."""
    least = CORRECTED_MIN if intent is Intent.CORRECT else MATCH_MIN
    best = [one for one in found if one.score >= least]
    return [one for one in best if one.score >= best[0].score - MARGIN]
