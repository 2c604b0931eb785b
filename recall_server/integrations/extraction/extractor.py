"""The port of extraction: from a passage of an episode to the memories it states."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

from recall_server.domain.episode import Turn
from recall_server.domain.extraction import Extraction, Usage
from recall_server.domain.memory import Memory
from recall_server.domain.plan import Choice, Question


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


class Extractor(Protocol):
    """Proposes at most `candidates_max` memories per passage, each citing its exact words.

    Spans are positions in `passage.text`. Raises `ModelUnavailable` (try again later) or
    `ModelAnswerInvalid` (the answer was unusable); never returns a placeholder as a memory.
    """

    @property
    def name(self) -> str:
        """The provenance of its memories: "rules/2", "anthropic/<model>/<prompt version>"."""

    @property
    def passage_chars(self) -> int:
        """The usual length of a passage: longer episodes are split into several."""

    @property
    def call_tokens_max(self) -> int:
        """Tokens of a language model, in and out, that one call may cost; 0: it asks none."""

    async def extract(self, passage: Passage) -> Extraction: ...

    async def close(self) -> None: ...


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


class Merger(Protocol):
    """Makes one text of two or more similar memories that do not contradict each other.

    No fact, number, date or name is lost. If that takes more than `MERGED_CHARS_MAX` characters, it
    returns None, and the memories stay. Their order does not matter. Raises `ModelUnavailable` (try
    again later), nothing else.
    """

    @property
    def name(self) -> str:
        """The provenance of its memories: "rules/merge/1", "anthropic/<model>/merge/<prompt
        version>".
        """

    @property
    def call_tokens_max(self) -> int:
        """Tokens of a language model, in and out, that one call may cost; 0: it asks none."""

    async def merge(self, memories: Sequence[Memory]) -> Merged | None: ...

    async def preview(self, memories: Sequence[Memory]) -> Merged | None:
        """Return the text of `merge` if it needs no model, else a draft. This costs nothing and
        raises nothing.
        """

    async def close(self) -> None: ...


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


class Judge(Protocol):
    """Says which side of a contradiction holds that no rule settles: the new statement, the
    existing ones, or both; never a merged text.

    An answer of no use is no error: it is refused. Raises `ModelUnavailable` (try again later),
    nothing else.
    """

    @property
    def name(self) -> str:
        """The author of its choices: "anthropic/<model>/judge/<prompt version>"."""

    @property
    def call_tokens_max(self) -> int:
        """Tokens of a language model, in and out, that one call may cost."""

    async def judge(self, question: Question) -> Judgement: ...

    async def close(self) -> None: ...
