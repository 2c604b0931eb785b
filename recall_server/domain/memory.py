"""Memories: extracted statements and their facts."""

import re
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from recall_server.domain.episode import Citation, Source


class MemoryType(StrEnum):
    PREFERENCE = "preference"
    FACT = "fact"
    DECISION = "decision"
    PROCEDURE = "procedure"


class Status(StrEnum):
    ACTIVE = "active"
    DISPUTED = "disputed"
    SUPERSEDED = "superseded"
    EXPIRED = "expired"
    FORGOTTEN = "forgotten"


BELIEVED = frozenset({Status.ACTIVE, Status.DISPUTED})
"""What holds now; of disputed memories, which contradict each other, nobody knows yet which."""
FINDABLE = BELIEVED | {Status.SUPERSEDED}
"""What search finds, a superseded memory below the one in its place."""


@dataclass(frozen=True)
class Fact:
    """(entity, attribute, value); `negated` says that the value does not hold."""

    entity: str
    attribute: str
    value: str
    negated: bool = False


@dataclass(frozen=True)
class Memory:
    """One statement, on two time axes.

    `valid_from`/`valid_until`: when it was true in the world. `recorded_at`/`retired_at`: when it
    was believed here. Active or disputed means not retired. `said_at`: when its source stated it.
    `expires_at`: when it stops being found, with the text that it came from.
    """

    id: str
    text: str
    type: MemoryType
    topic: str
    citation: Citation
    said_at: datetime
    valid_from: datetime
    recorded_at: datetime
    fact: Fact | None = None
    status: Status = Status.ACTIVE
    valid_until: datetime | None = None
    retired_at: datetime | None = None
    superseded_by: str | None = None
    importance: float = 0.5
    confidence: float = 0.8
    reinforcements: int = 0
    access_count: int = 0
    last_accessed_at: datetime | None = None
    source: Source = field(default_factory=Source)
    extractor: str = ""
    container: str = ""
    expires_at: datetime | None = None

    @property
    def searchable(self) -> str:
        return searchable(self.text, self.fact.attribute if self.fact else None)


def searchable(text: str, attribute: str | None) -> str:
    """Return the text to index: the item's text and the words of its attribute, so that "where does
    she live" finds "She moved to Lisbon" (lives_in).
    """
    return f"{text} {attribute.replace('_', ' ')}" if attribute else text


_RULES = (
    (0.20, re.compile(r"\b(?:prefer\w*|always|never|must|favou?rite)\b", re.IGNORECASE)),
    (0.15, re.compile(r"\b(?:correct\w*|forget|remember|deploy\w*|decid\w*)\b", re.IGNORECASE)),
    (
        0.10,
        re.compile(
            r"\b(?:api|code|server|database|python|test\w*|build|bug|release|version|config\w*"
            r"|docker|postgres\w*|sql\w*|git\w*)\b",
            re.IGNORECASE,
        ),
    ),
)
BASE = 0.45
LONG_CHARS = 500


def importance(text: str) -> float:
    """Return 0.45, plus bonuses for words of preference, correction and technique and for length;
    at most 1.
    """
    found = sum(bonus for bonus, words in _RULES if words.search(text))
    return round(min(1.0, BASE + found + (0.05 if len(text) > LONG_CHARS else 0.0)), 4)
