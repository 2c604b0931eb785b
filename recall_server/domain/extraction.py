"""The candidates of an extractor, their cost, and the roles and keys of language models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from recall_server.domain.episode import Span
from recall_server.domain.memory import Fact, MemoryType


@dataclass(frozen=True)
class Candidate:
    """A memory that an extractor proposes; it has no authority until a plan contains it.

    `span` cites the exact words in the episode. `correction`: the text itself says that something
    older no longer holds ("not X any more, Y now"); `replaces` is that older value if it is named.
    `valid_from` is when it became true, `None` for "when it was said". `needs_review`: its source
    doubts it.
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
    needs_review: bool = False

    def capped(self, doubted_max: float) -> Candidate:
        """Return the candidate, its confidence capped if it needs a review."""
        if not self.needs_review:
            return self
        return replace(self, confidence=min(self.confidence, doubted_max))


@dataclass(frozen=True)
class Usage:
    """The cost of a call to a model: tokens in and out, and US dollars if the price is known."""

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


class Refusal(StrEnum):
    """Why a candidate does not become a memory."""

    UNREADABLE = "unreadable"
    """It does not have the form that was asked for, or quotes no words of the text."""
    NO_CITATION = "no_citation"
    """The words that it cites are not those of turns that can be read, one after the other."""
    BAD_NUMBER = "bad_number"
    TOO_LONG = "too_long"
    NOT_STORABLE = "not_storable"
    GIVES_ORDERS = "gives_orders"
    TOO_MANY = "too_many"


@dataclass(frozen=True)
class Refused:
    """A candidate that does not become a memory, without its own words. One that cannot be read has
    no `type` and no `span`.
    """

    reason: Refusal
    type: MemoryType | None = None
    span: Span | None = None


@dataclass(frozen=True)
class Extraction:
    """The candidates of one passage, the extractor's name, the number of rejected candidates, and
    the language of the passage if the extractor knows it. `refused` are those rejected candidates
    that could be read. `fault` is the code of the error because
    of which another extractor than the configured one made it.
    """

    candidates: tuple[Candidate, ...]
    extractor: str
    rejected: int = 0
    usage: Usage = field(default_factory=Usage)
    language: str | None = None
    fault: str | None = None
    refused: tuple[Refused, ...] = ()

    def capped(self, doubted_max: float) -> Extraction:
        """Return the extraction with its candidates capped."""
        capped = tuple(one.capped(doubted_max) for one in self.candidates)
        return replace(self, candidates=capped)


class Role(StrEnum):
    """The work of a language model; each role may have a model of its own."""

    EXTRACT = "extract"
    MERGE = "merge"
    JUDGE = "judge"


@dataclass(frozen=True)
class RejectedKey:
    """A key that the service of a model rejects, with the HTTP status, `since` a time."""

    role: Role
    status: int
    since: datetime

    def __str__(self) -> str:
        return f"{self.role} (HTTP {self.status}) since {self.since:%Y-%m-%d %H:%M} UTC"
