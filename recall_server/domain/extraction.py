"""Extraction: candidates and their cost, the roles and keys of language models, and the ports of
extractor, merger and judge.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

from recall_server.domain.episode import Span, Turn
from recall_server.domain.memory import Fact, Memory, MemoryType

if TYPE_CHECKING:  # a plan has candidates
    from recall_server.domain.plan import Choice, Question


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


@dataclass(frozen=True)
class Passage:
    """A part of an episode. `text` is the whole episode's text, into which `turns` point."""

    text: str
    turns: tuple[Turn, ...]
    topic: str
    occurred_at: datetime


def candidates_max(passage: Passage) -> int:
    """Return how many memories a passage may give: one per 30 bytes of UTF-8, but at least five,
    and up to 20 of as many lines, as the items of a list are short.

    A Chinese sentence of 20 characters says as much as an English one of 60.
    """
    said = [passage.text[turn.span.start : turn.span.end] for turn in passage.turns]
    lines = sum(words.count("\n") + 1 for words in said)
    size = sum(len(words.encode("utf-8", "replace")) for words in said)
    return max(5, min(20, lines), size // 30)


class Author(Protocol):
    """The common part of an extractor, a merger and a judge."""

    @property
    def name(self) -> str:
        """The provenance of what it makes: "rules/2", "rules/merge/1", "anthropic/<model>/<prompt
        version>", "anthropic/<model>/judge/<prompt version>".
        """

    @property
    def call_tokens_max(self) -> int:
        """Tokens of a language model, in and out, that one call may cost; 0: it asks none."""

    async def close(self) -> None: ...


class Extractor(Author, Protocol):
    """Proposes at most `candidates_max` memories per passage, each citing its exact words.

    Spans are positions in `passage.text`. Raises `ModelUnavailable` (try again later) or
    `ModelAnswerInvalid` (the answer was unusable); never returns a placeholder as a memory.
    """

    @property
    def passage_chars(self) -> int:
        """The usual length of a passage: longer episodes are split into several."""

    async def extract(self, passage: Passage) -> Extraction: ...


MERGED_CHARS_MAX = 2_000
"""The longest text of a merged memory, in characters: as long as an extracted one may be."""


@dataclass(frozen=True)
class Merged:
    """One text for several memories, the name of its author, and its cost.

    `by` is the name of a merger. If a model's text was refused, it is that of the rules, and
    `refused` gives the reasons, each as the end of a sentence about the model's text. A
    `draft` is still to be written: no model was asked yet.
    """

    text: str
    by: str
    usage: Usage = field(default_factory=Usage)
    refused: tuple[str, ...] = ()
    draft: bool = False


class Merger(Author, Protocol):
    """Makes one text of two or more similar memories that do not contradict each other.

    No fact, number, date or name is lost. If that takes more than `MERGED_CHARS_MAX` characters, it
    returns None, and the memories stay. Their order does not matter. Raises `ModelUnavailable` (try
    again later), nothing else.
    """

    async def merge(self, memories: Sequence[Memory]) -> Merged | None: ...

    async def preview(self, memories: Sequence[Memory]) -> Merged | None:
        """Return the text of `merge` if it needs no model, else a draft. This costs nothing and
        raises nothing.
        """


REASON_CHARS_MAX = 300
"""The longest reason of a judge, in characters."""


@dataclass(frozen=True)
class Judgement:
    """The answer of the judge `by` about a contradiction; without a `choice` it cannot tell.

    `refused` says why an answer was of no use, in a sentence: then there is no choice and no
    reason, and nothing may change for it.
    """

    choice: Choice | None
    by: str
    reason: str = ""
    confidence: float = 0.0
    usage: Usage = field(default_factory=Usage)
    refused: str = ""


class Judge(Author, Protocol):
    """Says which side of a contradiction holds that no rule settles: the new statement, the
    existing ones, or both; never a merged text.

    An answer of no use is no error: it is refused. Raises `ModelUnavailable` (try again later),
    nothing else.
    """

    async def judge(self, question: Question) -> Judgement: ...
