"""Events: each change of a memory or a passage, by whom and why, and the state that it left."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recall_server.domain.episode import Citation
from recall_server.domain.memory import Status


class EventKind(StrEnum):
    """What happened to a text, a turn, a passage or a memory."""

    ADDED = "added"
    IMPORTED = "imported"
    REINFORCED = "reinforced"
    SUPERSEDED = "superseded"
    DISPUTED = "disputed"
    DEPRECATED = "deprecated"
    CONSOLIDATED = "consolidated"
    FORGOTTEN = "forgotten"
    RESTORED = "restored"
    EXPIRED = "expired"
    QUARANTINED = "quarantined"
    RELEASED = "released"
    REJECTED = "rejected"
    UNCITED = "uncited"
    """Words that it rested on were taken back."""


@dataclass(frozen=True)
class MemoryState:
    """What changes of a memory; `citations` is the position that its next citation gets."""

    status: Status
    superseded_by: str | None
    valid_until: datetime | None
    retired_at: datetime | None
    expires_at: datetime | None
    confidence: float
    reinforcements: int
    citations: int


@dataclass(frozen=True)
class MemoryEvent:
    """One change. `seq` orders those of a namespace, and `change_id` names the job, task, import or
    call that it is a part of. `state` is that of a memory after the change: before it was that of
    the event before. A text, turn or passage has none, but `episode_id`. `dropped` are the
    citations that a memory lost, by their positions.
    """

    seq: int
    change_id: str
    at: datetime
    kind: EventKind
    item_id: str
    reason: str = ""
    operation: str = ""
    accessor: str | None = None
    episode_id: str | None = None
    state: MemoryState | None = None
    dropped: tuple[tuple[int, Citation], ...] = ()
