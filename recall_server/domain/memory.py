"""Memories: extracted statements and their facts."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from recall_server.domain.episode import Citation, Source
from recall_server.domain.moments import passed


class MemoryType(StrEnum):
    """The type of a memory. Extraction makes the first four; the others are for memories that a
    client keeps word for word, or imports. `TYPE_ALIASES` has further names for them.
    """

    PREFERENCE = "preference"
    FACT = "fact"
    DECISION = "decision"
    PROCEDURE = "procedure"
    EPISODIC = "episodic"
    RELATIONSHIP = "relationship"
    PROFILE = "profile"
    CORE = "core"
    SUMMARY = "summary"

    @classmethod
    def _missing_(cls, value: object) -> "MemoryType | None":
        return TYPE_ALIASES.get(value) if isinstance(value, str) else None


EXTRACTED_TYPES = (
    MemoryType.PREFERENCE,
    MemoryType.FACT,
    MemoryType.DECISION,
    MemoryType.PROCEDURE,
)
TYPE_ALIASES = {
    "semantic": MemoryType.FACT,
    "procedural": MemoryType.PROCEDURE,
    "task": MemoryType.PROCEDURE,
    "constraint": MemoryType.PROCEDURE,
    "goal": MemoryType.DECISION,
    "identity": MemoryType.PROFILE,
}
"""The words of other memory systems for these types."""


class Layer(StrEnum):
    """The source of a memory: one event, statements, or several memories. A passage is episodic."""

    EPISODIC = "episodic"
    SEMANTIC = "semantic"
    SCHEMA = "schema"


def layer_of(type_: MemoryType) -> Layer:
    """Return the layer of a memory whose type alone is known."""
    return Layer.EPISODIC if type_ is MemoryType.EPISODIC else Layer.SEMANTIC


class Status(StrEnum):
    """The states of a memory. No row has the state ERASED: an erased memory has no row."""

    ACTIVE = "active"
    DISPUTED = "disputed"
    SUPERSEDED = "superseded"
    DEPRECATED = "deprecated"
    CONSOLIDATED = "consolidated"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    FORGOTTEN = "forgotten"
    ERASED = "erased"


_ENDS = {
    *(Status.SUPERSEDED, Status.DEPRECATED, Status.CONSOLIDATED, Status.EXPIRED),
    *(Status.QUARANTINED, Status.FORGOTTEN, Status.ERASED),
}
TRANSITIONS: Mapping[Status, frozenset[Status]] = {
    Status.ACTIVE: frozenset({Status.DISPUTED, *_ENDS}),
    Status.DISPUTED: frozenset({Status.ACTIVE, *_ENDS}),
    Status.SUPERSEDED: frozenset(
        {Status.ACTIVE, Status.DISPUTED, *_ENDS - {Status.SUPERSEDED, Status.CONSOLIDATED}}
    ),
    Status.DEPRECATED: frozenset({Status.ACTIVE, *_ENDS - {Status.DEPRECATED}}),
    Status.CONSOLIDATED: frozenset({Status.ACTIVE, *_ENDS - {Status.CONSOLIDATED}}),
    Status.EXPIRED: frozenset({Status.QUARANTINED, Status.ERASED}),
    Status.QUARANTINED: frozenset({Status.ACTIVE, *_ENDS - {Status.QUARANTINED}}),
    Status.FORGOTTEN: frozenset(
        {Status.ACTIVE, Status.DISPUTED, *_ENDS - {Status.FORGOTTEN, Status.EXPIRED}}
    ),
    Status.ERASED: frozenset(),
}
"""The states that each state may change to; no other transition happens."""


def before(status: Status) -> list[Status]:
    """Return the states that may change to this one."""
    return [one for one, after in TRANSITIONS.items() if status in after]


class Listed(StrEnum):
    """The states by which memories are listed; forgotten and quarantined ones are not shown."""

    ACTIVE = Status.ACTIVE
    DISPUTED = Status.DISPUTED
    SUPERSEDED = Status.SUPERSEDED
    DEPRECATED = Status.DEPRECATED
    CONSOLIDATED = Status.CONSOLIDATED
    EXPIRED = Status.EXPIRED
    UNRECONCILED = "unreconciled"
    """Not a state: memories that are believed, and whose text a model has not read yet."""

    @property
    def status(self) -> Status | None:
        return None if self is Listed.UNRECONCILED else Status(self)


BELIEVED = frozenset({Status.ACTIVE, Status.DISPUTED})
"""The memories that hold now. Disputed ones contradict each other: it is open which of them holds.
"""
FINDABLE = BELIEVED | {Status.SUPERSEDED}
"""The memories that search finds; a superseded one ranks below its successor."""


UNSEEN = frozenset({Status.QUARANTINED, Status.FORGOTTEN})
"""The memories that no list shows."""


def chain(superseded_by: str | None, successors: Mapping[str, str | None]) -> list[str]:
    """Return the ids of the memories that superseded one, the last of them last, as far as
    `successors` has them, which holds the successor of each.
    """
    found: dict[str, None] = {}
    while superseded_by and superseded_by in successors and superseded_by not in found:
        found[superseded_by] = None
        superseded_by = successors[superseded_by]
    return list(found)


@dataclass(frozen=True)
class Fact:
    """Entity, attribute and value; `negated`: the value does not hold."""

    entity: str
    attribute: str
    value: str
    negated: bool = False


@dataclass(frozen=True)
class Memory:
    """One statement, on two time axes.

    `valid_from`/`valid_until`: when it was true in the world. `recorded_at`/`retired_at`: when it
    was believed here. Active or disputed means not retired. `said_at`: when its source stated it.
    `expires_at`: when it stops being found, with the text that it came from. `unreconciled`: the
    rules made it in place of an unavailable model, which has not read its text since.
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
    layer: Layer = Layer.SEMANTIC
    unreconciled: bool = False

    def true_at(self, at: datetime) -> bool:
        """True if it was true in the world at a moment."""
        return self.valid_from <= at and not passed(self.valid_until, at)

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
    """Return 0.45, plus bonuses for length and for words of preference, correction and technology;
    at most 1.
    """
    found = sum(bonus for bonus, words in _RULES if words.search(text))
    return round(min(1.0, BASE + found + (0.05 if len(text) > LONG_CHARS else 0.0)), 4)


@dataclass(frozen=True)
class Place:
    """The place of a memory in a list, which stays the same while others are stored."""

    recorded_at: datetime
    id: str


def oldest_first(chain: Mapping[str, Memory]) -> list[Memory]:
    """Order by when each began to hold, but keep every memory before its successor: a fact said of
    "last month" may begin before the one that it supersedes.
    """

    def place(memory: Memory) -> tuple[datetime, int, datetime, str]:
        began, passed, later = memory.valid_from, {memory.id}, chain.get(memory.superseded_by or "")
        while later is not None and later.id not in passed:
            passed.add(later.id)
            began, later = min(began, later.valid_from), chain.get(later.superseded_by or "")
        return began, -len(passed), memory.recorded_at, memory.id

    return sorted(chain.values(), key=place)
