"""Memories: extracted statements and their facts."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recall_server.domain.episode import Citation


class MemoryType(StrEnum):
    """The kind of statement."""

    PREFERENCE = "preference"
    FACT = "fact"
    DECISION = "decision"
    PROCEDURE = "procedure"


class Status(StrEnum):
    """The life cycle of a memory."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    FORGOTTEN = "forgotten"


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
    was believed here. Active means not retired. `said_at`: when its source stated it.
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
    session_id: str | None = None
    agent_id: str | None = None
    extractor: str = ""
    container: str = ""

    @property
    def searchable(self) -> str:
        return searchable(self.text, self.fact.attribute if self.fact else None)


def searchable(text: str, attribute: str | None) -> str:
    """Return the text to index: the item's text and the words of its attribute, so that "where does
    she live" finds "She moved to Lisbon" (lives_in).
    """
    return f"{text} {attribute.replace('_', ' ')}" if attribute else text
