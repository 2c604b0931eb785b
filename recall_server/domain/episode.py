"""Texts as callers submitted them: episodes, turns, citations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import Any

from recall_server.domain.errors import EmptyText, Invalid
from recall_server.domain.text.cleaning import clean_label, storable

LABEL_CHARS_MAX = 256
SPEAKER_CHARS_MAX = 64
TAG_CHARS_MAX = 64
TAGS_MAX = 32
TEXT_ONLY = "text"
METADATA_BYTES_MAX = 4_096
METADATA_LEVELS_MAX = 3
# Roles of people: their label is their name alone.
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

    A `hidden` turn is stored but neither found nor read: it is in quarantine, for the reasons in
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
    """One message of a conversation, as it was given; `role` is that of its speaker, such as user,
    assistant or tool.
    """

    role: str
    words: str
    name: str | None = None
    said_at: datetime | None = None

    @property
    def speaker(self) -> str:
        """The label of the speaker: the name or role, or for a speaker that is no person both, the
        role last.
        """
        role = self.role.capitalize() if self.role.islower() else self.role
        if self.name is None or self.role.lower() in _PEOPLE:
            return self.name or role
        return f"{self.name}, {self.role}"

    def checked(self) -> Utterance:
        """Return the utterance with clean labels. Raises `EmptyText` if it has no words,
        `InvalidText`, and `Invalid` if the role or the name is not a valid label.
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
        """Return the parts that distinguish utterances."""
        at = self.said_at.isoformat() if self.said_at else None
        return [self.role, self.words, self.name, at]


@dataclass(frozen=True)
class Source:
    """The session, agent and client that submitted an episode, and the tags and metadata that they
    gave it. `app` and `model`: where it comes from; `name` and `group_id`: its name and group
    there; `trace_id`: the request that it was a part of.
    """

    session_id: str | None = None
    agent_id: str | None = None
    client: str | None = None
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    app: str | None = None
    model: str | None = None
    description: str | None = None
    name: str | None = None
    group_id: str | None = None
    trace_id: str | None = None

    def details(self) -> dict[str, str]:
        """Return the labels that are set, without those that may hold a person's words."""
        labels = {**vars(self), "tags": ", ".join(self.tags)}
        words = {"metadata", "description", "name"}
        return {name: value for name, value in labels.items() if value and name not in words}

    def digested(self) -> list[Any]:
        """Return the parts that distinguish two submissions of the same text. The client and the
        trace are left out: a retry may have others.
        """
        # A source without these labels keeps the digest that it had before they existed.
        names = ("metadata", "app", "model", "description", "name", "group_id")
        others = {name: getattr(self, name) for name in names if getattr(self, name)}
        parts = [part for part in (self.tags, others) if part]
        return [self.session_id, self.agent_id, *parts]

    def checked(self) -> Source:
        """Return the source with clean labels, empty ones as None. Raises `Invalid` if a label or
        the metadata cannot be stored.
        """
        labels = {
            name: label_or_none(label, name)
            for name, label in vars(self).items()
            if name not in ("client", "tags", "metadata")
        }
        metadata = checked_metadata(self.metadata)
        return replace(self, tags=checked_tags(self.tags), metadata=metadata, **labels)


@dataclass(frozen=True)
class Episode:
    """Raw text as submitted: the source of truth, from which everything else can be rebuilt.

    `kept_as`: None: memories are extracted from it; `TEXT_ONLY`: none are made; a memory type: it
    is kept word for word as a memory of this type.
    `forgotten`: words that stay in the text, but are neither found nor shown.
    `expires_at`: when all of it stops being found and shown.
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
    kept_as: str | None = None
    forgotten: tuple[Span, ...] = ()
    expires_at: datetime | None = None


def turn_id(episode_id: str, position: int) -> str:
    return f"{episode_id}.{position}"


def passage_id(episode_id: str, position: int, number: int) -> str:
    """Return the id of a passage of a turn; the first passage has the id of the turn."""
    turn = turn_id(episode_id, position)
    return f"{turn}.{number}" if number else turn


def turn_of(passage_id: str) -> str:
    return ".".join(passage_id.split(".")[:2])


def episode_of(item_id: str) -> str:
    """Return the id of the episode that a turn or passage belongs to."""
    return item_id.partition(".")[0]


@dataclass(frozen=True)
class Citation:
    """The words that support a memory: a span of an episode."""

    episode_id: str
    span: Span
    quote: str = ""
    speaker: str | None = None
    said_at: datetime | None = None


def checked_metadata(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return metadata unchanged. Raises `Invalid` if they have too many bytes, with numbers written
    out, or levels, and `InvalidText`.
    """
    if not value:
        return value
    if _levels(value) > METADATA_LEVELS_MAX:
        raise Invalid(f"metadata has more than {METADATA_LEVELS_MAX} levels. Send less deep ones.")
    for text in texts_in(value):
        storable(text)
    written, floats = json.dumps(value, ensure_ascii=False, separators=(",", ":")), list[str]()
    json.loads(written, parse_float=floats.append)
    # Postgres writes all digits of a number such as 1e300 whenever it is read.
    longer = sum(len(f"{Decimal(one):f}") - len(one) for one in floats)
    if len(written.encode()) + longer > METADATA_BYTES_MAX:
        raise Invalid(
            f"metadata has more than {METADATA_BYTES_MAX} bytes of JSON. Send less of it."
        )
    return value


def shared_metadata(sources: Iterable[Source]) -> dict[str, Any]:
    """Return the metadata that all of these sources have in common."""
    first, *others = (one.metadata for one in sources)
    return {
        name: value
        for name, value in first.items()
        if all(name in other and other[name] == value for other in others)
    }


def _levels(value: Any) -> int:
    """Return how deep objects and lists are nested."""
    inner = value.values() if isinstance(value, Mapping) else value
    return 1 + max(map(_levels, inner), default=0) if isinstance(value, Mapping | list) else 0


def texts_in(value: Any) -> Iterator[str]:
    """Yield all texts of a JSON value, including the names in its objects."""
    if isinstance(value, str):
        yield value
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for one in value:
            yield from texts_in(one)


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Return tags without repetitions, sorted. Raises `Invalid`."""
    checked = {clean_label(tag, "Each of tags", chars_max=TAG_CHARS_MAX) for tag in tags}
    if len(checked) > TAGS_MAX:
        raise Invalid(f"A text has at most {TAGS_MAX} tags.")
    return tuple(sorted(checked))


def label_or_none(text: str | None, name: str) -> str | None:
    """Return a label as `clean_label` does; None if it is empty. Raises `Invalid`."""
    return clean_label(text, name, chars_max=LABEL_CHARS_MAX) if text else None
