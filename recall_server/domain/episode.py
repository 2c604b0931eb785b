"""Texts as callers submitted them: episodes, turns, citations."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime

from recall_server.domain.errors import EmptyText, Invalid
from recall_server.domain.text.cleaning import clean_label, storable

LABEL_CHARS_MAX = 256
SPEAKER_CHARS_MAX = 64
TAG_CHARS_MAX = 64
TAGS_MAX = 32
# Roles of people: what they say is known by their names.
_PEOPLE = frozenset({"user", "human", "customer", "client"})


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

    A `hidden` turn is stored but neither found nor read: it is quarantined for the reasons in
    `suspicions`.
    """

    index: int
    span: Span
    speaker: str | None = None
    session: str | None = None
    said_at: datetime | None = None
    hidden: bool = False
    suspicions: tuple[str, ...] = ()


@dataclass(frozen=True)
class Utterance:
    """What one said in a conversation, as its messages give it: `role` is what the speaker is
    there, such as user, assistant or tool.
    """

    role: str
    words: str
    name: str | None = None
    said_at: datetime | None = None

    @property
    def speaker(self) -> str:
        """The label of the speaker, whose last word is the role of one who is no person."""
        role = self.role.capitalize() if self.role.islower() else self.role
        if self.name is None or self.role.lower() in _PEOPLE:
            return self.name or role
        return f"{self.name}, {self.role}"

    def checked(self) -> Utterance:
        """Raise `EmptyText` without words, `InvalidText`, and `Invalid` on a role or a name that is
        no label.
        """
        storable(self.words)
        if not self.words.strip():
            raise EmptyText("A message has no content. Leave it out, or send what was said.")
        role = clean_label(self.role, "role of a message", chars_max=SPEAKER_CHARS_MAX)
        name = self.name and clean_label(
            self.name, "name of a message", chars_max=SPEAKER_CHARS_MAX
        )
        return replace(self, role=role, name=name or None)

    def digested(self) -> list[str | None]:
        """The parts that tell two utterances apart."""
        at = self.said_at.isoformat() if self.said_at else None
        return [self.role, self.words, self.name, at]


@dataclass(frozen=True)
class Source:
    """The session, agent and client that submitted an episode, and the tags that they gave it."""

    session_id: str | None = None
    agent_id: str | None = None
    client: str | None = None
    tags: tuple[str, ...] = ()

    def details(self) -> dict[str, str]:
        """Return the fields that are set."""
        labels = {**vars(self), "tags": ", ".join(self.tags)}
        return {name: value for name, value in labels.items() if value}

    def digested(self) -> list[str | tuple[str, ...] | None]:
        """The parts that tell two submissions of the same text apart."""
        # Without tags the digest stays as it was before there were any.
        return [self.session_id, self.agent_id, *([self.tags] if self.tags else [])]

    def checked(self) -> Source:
        """Raise `Invalid` on labels that cannot be stored; empty ones are not given."""
        return Source(
            label_or_none(self.session_id, "session_id"),
            label_or_none(self.agent_id, "agent_id"),
            self.client,
            checked_tags(self.tags),
        )


@dataclass(frozen=True)
class Episode:
    """Raw text as submitted: the source of truth, from which everything else can be rebuilt.

    `forgotten` words stay in it, and are neither found nor shown.
    """

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
    forgotten: tuple[Span, ...] = ()


def turn_id(episode_id: str, position: int) -> str:
    return f"{episode_id}.{position}"


def passage_id(episode_id: str, position: int, number: int) -> str:
    """The id of a passage of a turn; the first one has that of the turn."""
    turn = turn_id(episode_id, position)
    return f"{turn}.{number}" if number else turn


def turn_of(passage_id: str) -> str:
    """The id of the turn that a passage is of."""
    return ".".join(passage_id.split(".")[:2])


def episode_of(item_id: str) -> str:
    """The id of the episode that a turn or passage is of."""
    return item_id.partition(".")[0]


@dataclass(frozen=True)
class Citation:
    """The words that support a memory: a span of an episode."""

    episode_id: str
    span: Span
    quote: str = ""
    speaker: str | None = None
    said_at: datetime | None = None


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags, each once and in order of their names. Raises `Invalid`."""
    checked = {clean_label(tag, "Each of tags", chars_max=TAG_CHARS_MAX) for tag in tags}
    if len(checked) > TAGS_MAX:
        raise Invalid(f"A text has at most {TAGS_MAX} tags.")
    return tuple(sorted(checked))


def label_or_none(text: str | None, name: str) -> str | None:
    """A label as `clean_label` returns it; None where it is empty. Raises `Invalid`."""
    return clean_label(text, name, chars_max=LABEL_CHARS_MAX) if text else None
