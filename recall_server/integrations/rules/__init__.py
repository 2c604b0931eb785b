"""The offline extractor: keeps what a text states, without a model or the network.

`reader` goes from turn to turn. `layout` cuts the text into pieces, and finds who speaks under
which heading; `judging` decides which pieces are worth keeping, `facts` finds their facts, and
`wording` makes each stand alone. `language` loads the cues of each language from `tables/`.
`merger` joins memories in their own words.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache

from recall_server.domain.context import Compute, in_thread
from recall_server.domain.extraction import Candidate, Extraction, Extractor, Passage

NAME = "rules/2"
PASSAGE_CHARS = 4_000
# Reading takes about 10 µs a character, sending a passage to another process about 300 µs.
INLINE_CHARS_MAX = 300


class RulesExtractor(Extractor):
    """Keeps what is plainly stated, by tables of cues: no network, no model, no state."""

    def __init__(self, compute: Compute = in_thread) -> None:
        self._compute = compute

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
        if chars > INLINE_CHARS_MAX:
            return await self._compute(extraction, passage)
        if not _reader.cache_info().currsize:
            await asyncio.to_thread(_reader)
        return extraction(passage)

    async def close(self) -> None:
        """Nothing is held open."""


def extraction(passage: Passage) -> Extraction:
    """Return what the rules keep of a passage. The first call loads the tables."""
    candidates, language = _reader()(passage)
    return Extraction(candidates, NAME, language=language)


@cache
def _reader() -> Callable[[Passage], tuple[tuple[Candidate, ...], str | None]]:
    # Imported on use: most commands extract nothing, and compiling the patterns takes time.
    from recall_server.integrations.rules import facts, language  # noqa: PLC0415
    from recall_server.integrations.rules.reader import read  # noqa: PLC0415

    # All of them now, beside the event loop: later, each language would hold it up once.
    for key in language.table("common").data["patterns"]:
        language.shape(key)
    for name in language.LANGUAGES:
        assert language.table(name).cues
        assert language.table(name).patterns
        facts.patterns(name)
    return read
