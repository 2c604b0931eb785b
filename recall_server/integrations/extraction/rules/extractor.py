"""The extractor that needs no model: the port, and which of the statements found are proposed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import cache

from recall_server.domain.attributes import normal_attribute, normal_entity, normal_value
from recall_server.domain.extraction import Candidate, Extraction
from recall_server.integrations.extraction.extractor import Extractor, Passage

CANDIDATES_MAX = 5
PASSAGE_CHARS = 600  # so that at most five memories of a passage are enough even for dense talk
# Reading costs about 6 µs a character, a hop to another thread about 120 µs.
INLINE_CHARS_MAX = 300
NAME = "rules/1"


class RulesExtractor(Extractor):
    """Finds what is plainly stated, with patterns only: no network, no model, no state."""

    @property
    def name(self) -> str:
        return NAME

    @property
    def call_tokens_max(self) -> int:
        return 0

    @property
    def passage_chars(self) -> int:
        return PASSAGE_CHARS

    async def extract(self, passage: Passage) -> Extraction:
        chars = sum(turn.span.end - turn.span.start for turn in passage.turns)
        if chars <= INLINE_CHARS_MAX and _reader.cache_info().currsize:
            return _extraction(passage)
        return await asyncio.to_thread(_extraction, passage)

    async def close(self) -> None:
        """Nothing is held open."""


def _extraction(passage: Passage) -> Extraction:
    return Extraction(candidates=_chosen(list(_reader()(passage))), extractor=NAME)


@cache
def _reader() -> Callable[[Passage], Iterator[Candidate]]:
    # Imported on use: its patterns take 0.1 s to compile, and most commands extract nothing.
    from recall_server.integrations.extraction.rules.passages import stated  # noqa: PLC0415

    return stated


def _chosen(found: list[Candidate]) -> tuple[Candidate, ...]:
    """The surest of what was found, each fact once, in the order of the text."""
    unique: dict[tuple[str, ...], int] = {}
    for at, candidate in enumerate(found):
        fact = candidate.fact
        assert fact is not None
        key = (normal_entity(fact.entity), normal_attribute(fact.attribute),
               normal_value(fact.value), str(fact.negated))  # fmt: skip
        if key not in unique or candidate.confidence > found[unique[key]].confidence:
            unique[key] = at
    ranked = sorted(
        unique.values(), key=lambda at: (-found[at].confidence, -found[at].importance, at)
    )
    return tuple(found[at] for at in sorted(ranked[:CANDIDATES_MAX]))
