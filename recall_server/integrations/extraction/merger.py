"""The port of merging: from similar memories to the one text that replaces them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from recall_server.domain.extraction import Usage
from recall_server.domain.memory import Memory

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
