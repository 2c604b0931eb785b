"""The words of the house: what is said (episodes, turns), what is remembered (memories, facts),
what is asked (queries, hits) and what is recorded (jobs, audit entries). Frozen values, no I/O.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, NamedTuple, NewType

from recall_server.domain.errors import Invalid

Namespace = NewType("Namespace", str)
"""The tenant. Learned from the bearer token, never from an argument (FEATURES C10, I02)."""

_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9._:-]{0,62}[a-z0-9])?", re.ASCII)


def namespace(text: str) -> Namespace:
    """Check a namespace: 1-64 of a-z 0-9 . _ : - with a letter or digit at both ends."""
    if not _NAMESPACE.fullmatch(text):
        raise Invalid(
            "A namespace is 1 to 64 characters of a-z, 0-9, '.', '_', ':' and '-', "
            "starting and ending with a letter or digit."
        )
    return Namespace(text)


class MemoryType(StrEnum):
    """What a memory is about (FEATURES C01)."""

    PREFERENCE = "preference"
    FACT = "fact"
    DECISION = "decision"
    PROCEDURE = "procedure"


class Status(StrEnum):
    """Where a memory stands in its life (FEATURES C08)."""

    ACTIVE = "active"
    SUPERSEDED = "superseded"
    FORGOTTEN = "forgotten"


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
    """One utterance of an episode; `span` leaves out the speaker's label and the date heading.

    A `hidden` one is kept, but neither found nor read: a caller forgot it, or `suspicions` say why
    it is held back.
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
    """Who handed an episode in, and from where (FEATURES B14, B22)."""

    session_id: str | None = None
    agent_id: str | None = None
    client: str | None = None

    def told(self) -> dict[str, str]:
        """What is known of it."""
        return {name: value for name, value in vars(self).items() if value}


@dataclass(frozen=True)
class Episode:
    """Raw text as it was handed in: the source of truth, from which all else can be rebuilt."""

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
class Fact:
    """(entity, attribute, value); `negated` says that the value does not hold (FEATURES C02)."""

    entity: str
    attribute: str
    value: str
    negated: bool = False


@dataclass(frozen=True)
class Candidate:
    """A memory that an extractor proposes; it has no authority until a plan is made of it.

    `span` cites the exact words in the episode. `correction` is true where the text itself says
    that something older no longer holds ("not X any more, Y now"); `replaces` is that older value
    where it is named. `valid_from` is when it became true, `None` for "when it was said".
    """

    text: str
    type: MemoryType
    span: Span
    fact: Fact | None = None
    confidence: float = 0.8
    importance: float = 0.5
    valid_from: datetime | None = None
    correction: bool = False
    replaces: str | None = None


@dataclass(frozen=True)
class Usage:
    """What a call to a model cost: tokens in and out, and US dollars where the price is known."""

    model: str | None = None
    input_tokens: int = 0
    output_tokens: int = 0
    cost_usd: float = 0.0

    def __add__(self, other: Usage) -> Usage:
        return Usage(
            model=other.model or self.model,
            input_tokens=self.input_tokens + other.input_tokens,
            output_tokens=self.output_tokens + other.output_tokens,
            cost_usd=self.cost_usd + other.cost_usd,
        )


@dataclass(frozen=True)
class Extraction:
    """What an extractor found in one chunk, who found it, and what was thrown away as unusable."""

    candidates: tuple[Candidate, ...]
    extractor: str
    rejected: int = 0
    usage: Usage = field(default_factory=Usage)


@dataclass(frozen=True)
class Citation:
    """The words a memory rests on: a span of an episode."""

    episode_id: str
    span: Span
    quote: str = ""
    speaker: str | None = None
    said_at: datetime | None = None


@dataclass(frozen=True)
class Memory:
    """One remembered statement, on two time axes (FEATURES H01-H03).

    `valid_from`/`valid_until`: when it was true in the world. `recorded_at`/`retired_at`: when it
    was believed here. Active means not retired. `said_at`: when its source stated it.
    """

    id: str
    text: str
    type: MemoryType
    topic: str
    citation: Citation
    said_at: datetime
    valid_from: datetime
    recorded_at: datetime
    fact: Fact | None = None
    status: Status = Status.ACTIVE
    valid_until: datetime | None = None
    retired_at: datetime | None = None
    superseded_by: str | None = None
    importance: float = 0.5
    confidence: float = 0.8
    reinforcements: int = 0
    access_count: int = 0
    last_accessed_at: datetime | None = None
    session_id: str | None = None
    agent_id: str | None = None
    extractor: str = ""
    container: str = ""

    @property
    def searchable(self) -> str:
        return searchable(self.text, self.fact.attribute if self.fact else None)


class ItemKind(StrEnum):
    """What a search can find: a memory, or a turn that no memory has been made of yet."""

    MEMORY = "memory"
    TURN = "turn"


class Place(NamedTuple):
    """Where an item comes from: the session, and the turn of an episode. `source` is the session
    or the text as whoever handed it in named it, whatever headings it has.
    """

    session: str
    episode_id: str
    position: int
    source: str = ""


class Item(NamedTuple):
    """One thing that a search can find; text, topic and citation are of those that are shown."""

    id: str
    kind: ItemKind
    text: str
    topic: str
    recorded_at: datetime
    valid_from: datetime
    citation: Citation | None
    importance: float
    access_count: int = 0
    type: MemoryType | None = None
    attribute: str | None = None
    place: Place | None = None
    container: str = ""

    @property
    def searchable(self) -> str:
        return searchable(self.text, self.attribute)


def searchable(text: str, attribute: str | None) -> str:
    """What an item is found by: its text, and the words of its attribute, so that "where does she
    live" finds "She moved to Lisbon" (lives_in).
    """
    return f"{text} {attribute.replace('_', ' ')}" if attribute else text


class SearchMode(StrEnum):
    """How a search ranks (FEATURES D22): by words and vectors and all that speaks for an item, by
    all but vectors, by vectors alone; `recall` is the backbone's four-part score (D06).
    """

    HYBRID = "hybrid"
    RECALL = "recall"
    KEYWORD = "keyword"
    VECTOR = "vector"


class Part(StrEnum):
    """What speaks for an item in a search; each can be left out, to measure what it brings."""

    KEYWORD = "keyword"
    COSINE = "cosine"
    NEIGHBOURS = "neighbours"
    FIRST_PERSON = "first-person"
    SPEAKER = "speaker"
    SESSION = "session"
    TIME = "time"
    EVENT = "event"
    RECENCY = "recency"
    RERANK = "rerank"
    DIVERSITY = "diversity"


@dataclass(frozen=True)
class Query:
    """What is asked of a search; limits and the other defaults are the backbone's (FEATURES D01).
    With `neighbours`, each hit comes with as many turns before and after it, as far as the budget
    goes. `without` names parts that have no say; `containers`, if given, where to look.
    """

    text: str
    limit: int = 20
    mode: SearchMode = SearchMode.HYBRID
    recency_weight: float = 0.3
    mmr_lambda: float = 0.5
    score_threshold: float = 0.0
    max_tokens: int | None = None
    neighbours: int = 0
    without: frozenset[Part] = frozenset()
    containers: frozenset[str] | None = None


class Scores(NamedTuple):
    """Why a hit ranks where it does (FEATURES D21): every part, and the rank in each list; None
    where a part had no say.
    """

    final: float
    rrf: float
    recency: float
    importance: float
    strength: float
    keyword: float | None = None
    keyword_rank: int | None = None
    cosine: float | None = None
    cosine_rank: int | None = None
    speaker: float | None = None
    session: float | None = None
    time: float | None = None
    rerank: float | None = None
    event: float | None = None


class Said(NamedTuple):
    """A turn as it was said."""

    turn_id: str
    text: str


class Hit(NamedTuple):
    """One answer of a search, with what was said around it where that was asked for."""

    item: Item
    scores: Scores
    around: tuple[Said, ...] = ()


class JobState(StrEnum):
    """The life of a job (FEATURES B08)."""

    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True)
class Job:
    """Durable work. `attempt` is the fence: only the holder of the newest one may finish it."""

    id: str
    namespace: Namespace
    kind: str
    payload: Mapping[str, Any]
    attempt: int = 0
    failures: int = 0
    created_at: datetime | None = None


class Outcome(StrEnum):
    """How an operation ended, for the book."""

    OK = "ok"
    ERROR = "error"


@dataclass
class AuditEntry:
    """One line of the book, filled in while the operation runs (FEATURES I10, J01).

    Holds ids, counts and codes, never text. `details` are what a reader would like to know besides
    and the book must not hold for ever: they are kept beside it, and can be erased. `written` is
    set by the transaction that wrote it, so that an operation writes exactly one. `ends_caller`:
    the operation itself may revoke the token that asks for it, and has seen to it that it stood.
    """

    id: str
    namespace: Namespace
    operation: str
    door: str
    accessor: str | None
    request_id: str
    started_at: datetime
    elapsed_ms: Callable[[], float]
    ids: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.OK
    code: str | None = None
    usage: Usage = field(default_factory=Usage)
    details: dict[str, str] = field(default_factory=dict)
    written: bool = False
    ends_caller: bool = False
