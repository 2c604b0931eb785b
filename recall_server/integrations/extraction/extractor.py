"""The port of extraction: from a passage of an episode to the memories it states."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from recall_server.domain.episode import Turn
from recall_server.domain.extraction import Extraction


@dataclass(frozen=True)
class Passage:
    """A part of an episode. `text` is the whole episode's text, into which `turns` point."""

    text: str
    turns: tuple[Turn, ...]
    topic: str
    occurred_at: datetime


class Extractor(Protocol):
    """Proposes at most five memories per passage, each citing its exact words.

    Spans are positions in `passage.text`. Raises `ModelUnavailable` (try again later) or
    `ModelAnswerInvalid` (the answer was unusable); never returns a placeholder as a memory.
    """

    @property
    def name(self) -> str:
        """The provenance of its memories: "rules/1", "anthropic/<model>/<prompt version>"."""
        ...

    @property
    def passage_chars(self) -> int:
        """The usual length of a passage: longer episodes come in several."""
        ...

    @property
    def call_tokens_max(self) -> int:
        """Tokens of a language model, in and out, that one call may cost; 0: it asks none."""
        ...

    async def extract(self, passage: Passage) -> Extraction: ...

    async def close(self) -> None: ...
