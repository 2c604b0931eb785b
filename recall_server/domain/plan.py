"""A change of memory as a value: made by rules, shown as a dry run, applied in one transaction."""

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from recall_server.domain.model import Citation, Memory


@dataclass(frozen=True)
class Add:
    """A new memory. One that was outdated before it was told arrives already superseded."""

    memory: Memory


@dataclass(frozen=True)
class Supersede:
    """An active memory gives way to another. Expects to find it active."""

    memory_id: str
    by: str
    valid_until: datetime


@dataclass(frozen=True)
class Reinforce:
    """An active memory has been stated again. Expects to find it active."""

    memory_id: str
    citation: Citation


@dataclass(frozen=True)
class Forget:
    """An active memory is no longer to be recalled. Expects to find it active."""

    memory_id: str


Change = Add | Supersede | Reinforce | Forget

_COUNTED = {Add: "added", Supersede: "superseded", Reinforce: "reinforced", Forget: "forgotten"}


@dataclass(frozen=True)
class Plan:
    """Changes that stand or fall together, in the order they are to be made."""

    changes: tuple[Change, ...] = ()

    def counts(self) -> dict[str, int]:
        """How many changes of each kind, for the book."""
        return dict(Counter(_COUNTED[type(change)] for change in self.changes))

    def ids(self) -> list[str]:
        """The memories that the plan touches."""
        return [
            change.memory.id if isinstance(change, Add) else change.memory_id
            for change in self.changes
        ]
