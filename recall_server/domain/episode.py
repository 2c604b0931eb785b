"""Texts as callers submitted them: episodes, turns, citations."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
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
    """One message of a conversation, as it was given: `role` is what the speaker is
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
    """The session, agent and client that submitted an episode, and the tags and metadata that they
    gave it. `app` and `model` are where it comes from, `name` and `group_id` what it is called and
    counted to there, `trace_id` the request that it was a part of.
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
        """Return the labels that are set, without what may be words of a person."""
        labels = {**vars(self), "tags": ", ".join(self.tags)}
        words = {"metadata", "description", "name"}
        return {name: value for name, value in labels.items() if value and name not in words}

    def digested(self) -> list[Any]:
        """The parts that tell two submissions of the same text apart: of a repeated one the client
        and the trace may be others.
        """
        # Without tags, or any of the others, the digest stays as it was before there were any.
        names = ("metadata", "app", "model", "description", "name", "group_id")
        others = {name: getattr(self, name) for name in names if getattr(self, name)}
        parts = [part for part in (self.tags, others) if part]
        return [self.session_id, self.agent_id, *parts]

    def checked(self) -> Source:
        """Raise `Invalid` on labels and metadata that cannot be stored; empty ones are none."""
        names = ("session_id", "agent_id", "app", "model", "description", "name", "group_id")
        labels = {name: label_or_none(getattr(self, name), name) for name in names}
        return Source(
            client=self.client,
            tags=checked_tags(self.tags),
            metadata=checked_metadata(self.metadata),
            trace_id=label_or_none(self.trace_id, "trace_id"),
            **labels,
        )


@dataclass(frozen=True)
class Episode:
    """Raw text as submitted: the source of truth, from which everything else can be rebuilt.

    `kept_as` says what becomes of it: memories are extracted where it is None, none are made where
    it is `TEXT_ONLY`, or else it is kept word for word as a memory of this type. `forgotten` words
    stay in it, and are neither found nor shown; from `expires_at` on none of it is.
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


def checked_metadata(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Metadata as they are. Raises `Invalid` on too many bytes or levels, and `InvalidText`."""
    if _levels(value) > METADATA_LEVELS_MAX:
        raise Invalid(f"metadata has more than {METADATA_LEVELS_MAX} levels. Send less deep ones.")
    for text in texts_in(value):
        storable(text)
    written = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    if len(written.encode()) > METADATA_BYTES_MAX:
        raise Invalid(
            f"metadata has more than {METADATA_BYTES_MAX} bytes of JSON. Send less of it."
        )
    return value


def _levels(value: Any) -> int:
    """How deep objects and lists are nested."""
    inner = _inner(value)
    return 0 if inner is None else 1 + max(map(_levels, inner), default=0)


def texts_in(value: Any) -> Iterator[str]:
    """All texts of a JSON value, with the names in its objects."""
    if isinstance(value, str):
        yield value
    if isinstance(value, Mapping):
        yield from value
    for one in _inner(value) or ():
        yield from texts_in(one)


def _inner(value: Any) -> Iterable[Any] | None:
    if isinstance(value, Mapping):
        return value.values()
    return value if isinstance(value, list) else None


def checked_tags(tags: Iterable[str]) -> tuple[str, ...]:
    """Tags, each once and in order of their names. Raises `Invalid`."""
    checked = {clean_label(tag, "Each of tags", chars_max=TAG_CHARS_MAX) for tag in tags}
    if len(checked) > TAGS_MAX:
        raise Invalid(f"A text has at most {TAGS_MAX} tags.")
    return tuple(sorted(checked))


def label_or_none(text: str | None, name: str) -> str | None:
    """A label as `clean_label` returns it; None where it is empty. Raises `Invalid`."""
    return clean_label(text, name, chars_max=LABEL_CHARS_MAX) if text else None
