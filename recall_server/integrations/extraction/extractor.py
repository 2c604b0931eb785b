"""The port of extraction: from a passage of an episode to the memories it states."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from recall_server.domain.episode import Turn
from recall_server.domain.extraction import Extraction


@dataclass(frozen=True)
class Passage:
    """A chunk of an episode. `text` is the whole episode's text, which `turns` point into."""

    text: str
    turns: tuple[Turn, ...]
    topic: str
    occurred_at: datetime


class Extractor(Protocol):
    """Proposes at most five memories per passage (FEATURES B04), each citing its exact words.

    Spans are positions in `passage.text`. Raises `ModelUnavailable` (try again later) or
    `ModelAnswerInvalid` (the answer was of no use); never returns a stub as a memory.
    """

    @property
    def name(self) -> str:
        """What stands in a memory's provenance: "rules/1", "anthropic/<model>/<prompt version>"."""
        ...

    @property
    def passage_chars(self) -> int:
        """How much text it takes at once, as a rule: longer episodes come in several passages."""
        ...

    @property
    def call_tokens_max(self) -> int:
        """Tokens of a language model, in and out, that one call may cost; 0: it asks none."""
        ...

    async def extract(self, passage: Passage) -> Extraction: ...

    async def close(self) -> None: ...
