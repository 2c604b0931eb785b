"""Turns in quarantine, and the decisions about them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from recall_server.domain.episode import Citation


class Held(StrEnum):
    """The state of a suspect. Only a held one waits for a decision; there is one decision at
    most.
    """

    HELD = "held"
    RELEASED = "released"
    REJECTED = "rejected"


@dataclass(frozen=True)
class Decided:
    """A decision about one suspect: by an accessor or the operator, and when."""

    state: Held
    by: str | None = None
    at: datetime | None = None


@dataclass(frozen=True)
class Suspect:
    """A turn that recall does not find, with its words and the reasons."""

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
    """The position of a suspect in its episode, and the decision about it."""

    item_id: str
    episode_id: str
    position: int
    decided: Decided
