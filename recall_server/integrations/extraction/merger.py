"""The port of merging: from memories that are alike to the one text that takes their place."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recall_server.domain.extraction import Usage
from recall_server.domain.memory import Memory

MERGED_CHARS_MAX = 2_000
"""The longest text of a merged memory, in characters: as long as one that is extracted may be."""


@dataclass(frozen=True)
class Merged:
    """One text for several memories, whose it is in the end, and what was paid for it.

    `by` is the name of a merger. Where a model was asked and its text not taken, it is that of the
    rules, and `refused` says why, each reason as the end of a sentence about the model's text. A
    `draft` says what a model will be asked for; no model was asked yet.
    """

    text: str
    by: str
    usage: Usage = field(default_factory=Usage)
    refused: tuple[str, ...] = ()
    draft: bool = False


class Merger(Protocol):
    """Makes one text of two or more memories that are alike and do not contradict each other.

    No fact, number, date or name is lost. Where that cannot be done in `MERGED_CHARS_MAX`
    characters there is no text (None), and the memories stay as they are. In what order they come
    does not matter. Raises `ModelUnavailable` (try again later), nothing else.
    """

    @property
    def name(self) -> str:
        """What stands in a merged memory's provenance: "rules/merge/1",
        "anthropic/<model>/merge/<prompt version>".
        """
        ...

    @property
    def call_tokens_max(self) -> int:
        """Tokens of a language model, in and out, that one call may cost; 0: it asks none."""
        ...

    async def merge(self, memories: Sequence[Memory]) -> Merged | None: ...

    async def preview(self, memories: Sequence[Memory]) -> Merged | None:
        """What can be said of `merge` without asking a model: its text, or else a draft. Nothing is
        paid, and nothing raised.
        """
        ...

    async def close(self) -> None: ...
