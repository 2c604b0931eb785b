"""Relations: what one memory is to another, by their ids and without words."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class RelationKind(StrEnum):
    """What the memory `from_id` does to the memory `to_id`."""

    EXTENDS = "extends"
    SUPERSEDES = "supersedes"
    CONTRADICTS = "contradicts"
    REFINES = "refines"
    EXCEPTION_TO = "exception_to"
    CONSOLIDATES = "consolidates"
    DUPLICATES = "duplicates"


class Reason(StrEnum):
    """Why a relation is there: by a rule of reconciliation, by a merge, or by hand."""

    RULE = "rule"
    MERGE = "merge"
    HAND = "hand"


BY_HAND = frozenset(RelationKind) - {RelationKind.SUPERSEDES}
"""The relations that a caller may state: what supersedes what follows from a change of memory."""


@dataclass(frozen=True)
class Relation:
    """Directed, from one memory to another. `made_by`: the token that stated it, if one did."""

    from_id: str
    to_id: str
    kind: RelationKind
    reason: Reason
    made_at: datetime
    confidence: float = 1.0
    made_by: str | None = None
