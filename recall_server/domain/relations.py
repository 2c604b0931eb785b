"""Relations: what one memory is to another, by their ids and without words."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Self

from recall_server.domain.memory_event import Histories


class RelationKind(StrEnum):
    """The relation of the memory `from_id` to the memory `to_id`."""

    EXTENDS = "extends"
    SUPERSEDES = "supersedes"
    CONTRADICTS = "contradicts"
    REFINES = "refines"
    EXCEPTION_TO = "exception_to"
    CONSOLIDATES = "consolidates"
    DUPLICATES = "duplicates"


class Reason(StrEnum):
    """The origin of a relation: a rule of reconciliation, a merge, or a caller."""

    RULE = "rule"
    MERGE = "merge"
    HAND = "hand"


BY_HAND = frozenset(RelationKind) - {RelationKind.SUPERSEDES}
"""The relations that a caller may state. Supersession follows from changes of memory only."""


@dataclass(frozen=True)
class Relation:
    """A directed relation between two memories. `made_by`: the token that stated it, if any."""

    from_id: str
    to_id: str
    kind: RelationKind
    reason: Reason
    made_at: datetime
    confidence: float = 1.0
    made_by: str | None = None

    @property
    def inbound(self) -> str:
        """The reason that the event of `to_id` has."""
        return f"inbound {self.kind}"

    def standing(self, histories: Histories) -> Self | None:
        """Return the relation as it was last stated by a change that still stands; None if all
        changes that stated it were taken back. A relation without events came with a memory, and
        stands as long as the memory does.
        """
        ends = histories.related(self.to_id, self.inbound)
        stated = [
            one
            for change_id, one in histories.related(self.from_id, self.kind).items()
            if change_id in ends
        ]
        if not stated:
            return self
        stands = [one for one in stated if one.change_id not in histories.taken_back]
        return replace(self, made_at=stands[0].at, made_by=stands[0].accessor) if stands else None
