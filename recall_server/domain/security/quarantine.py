"""What is held back of what was said, and what was decided about it."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recall_server.domain.episode import Citation


class Held(StrEnum):
    """Where a suspect stands: only what is held waits for a decision, and it gets one."""

    HELD = "held"
    RELEASED = "released"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Decided:
    """A decision about one suspect; by whom (an accessor, or the operator), and when."""

    state: Held
    by: str | None = None
    at: datetime | None = None


@dataclass(frozen=True)
class Suspect:
    """A turn that is kept out of recall, with its words and why it is suspected."""

    item_id: str
    topic: str
    citation: Citation
    reasons: tuple[str, ...]
    held_at: datetime
    decided: Decided
    agent_id: str | None = None
    client: str | None = None


@dataclass(frozen=True)
class Place:
    """Where a suspect stands in its episode, and what was decided: enough to decide."""

    item_id: str
    episode_id: str
    position: int
    decided: Decided
