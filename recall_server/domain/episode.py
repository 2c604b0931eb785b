"""Texts as callers submitted them: episodes, turns, citations."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True)
class Span:
    """Characters `start` (inclusive) to `end` (exclusive) of an episode's text."""

    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"not a span: {self.start}..{self.end}")

    def overlaps(self, other: Span) -> bool:
        return self.start < other.end and self.end > other.start


@dataclass(frozen=True)
class Turn:
    """One utterance of an episode. `span` excludes the speaker's label and the date heading.

    A `hidden` turn is stored but neither found nor read: a caller forgot it, or it is quarantined
    for the reasons in `suspicions`.
    """

    index: int
    span: Span
    speaker: str | None = None
    session: str | None = None
    said_at: datetime | None = None
    hidden: bool = False
    suspicions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """The session, agent and client that submitted an episode."""

    session_id: str | None = None
    agent_id: str | None = None
    client: str | None = None

    def details(self) -> dict[str, str]:
        """Return the fields that are set."""
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class Episode:
    """Raw text as submitted: the source of truth, from which everything else can be rebuilt."""

    id: str
    text: str
    topic: str
    occurred_at: datetime
    recorded_at: datetime
    content_hash: str
    job_id: str
    source: Source = field(default_factory=Source)
    turns: tuple[Turn, ...] = ()
    container: str = ""


@dataclass(frozen=True)
class Citation:
    """The words that support a memory: a span of an episode."""

    episode_id: str
    span: Span
    quote: str = ""
    speaker: str | None = None
    said_at: datetime | None = None
