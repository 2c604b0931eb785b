"""The offline extractor: keeps what a text states, without a model or the network.

`reader` goes from turn to turn. `cutting` cuts the text into pieces, and `wording` makes each stand
alone. `speakers` and `headings` find who speaks and under which heading, `judging` decides which
pieces are worth keeping, and `facts` finds their facts. The cues of each language are in `tables/`,
which `language` loads.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import cache

from recall_server.domain.extraction import Candidate, Extraction
from recall_server.integrations.extraction.extractor import Extractor, Passage

NAME = "rules/2"
PASSAGE_CHARS = 4_000
# Reading takes about 10 µs a character, a switch to another thread about 120 µs.
INLINE_CHARS_MAX = 300

_Read = Callable[[Passage], tuple[tuple[Candidate, ...], str | None]]


class RulesExtractor(Extractor):
    """Keeps what is plainly stated, by tables of cues: no network, no model, no state."""

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
    candidates, language = _reader()(passage)
    return Extraction(candidates, NAME, language=language)


@cache
def _reader() -> _Read:
    # Imported on use: most commands extract nothing, and compiling the patterns takes time.
    from recall_server.integrations.extraction.rules.reader import read  # noqa: PLC0415

    return read
