"""Extractors with scripted answers."""

from collections.abc import Awaitable, Callable

from recall_server.domain.extraction import Candidate, Extraction, Passage


class Scripted:
    """Finds the candidate of each phrase that it reads; first raises the errors in `fails`."""

    name = "scripted/1"
    passage_chars = 1_000
    call_tokens_max = 0

    def __init__(self, **found: Candidate) -> None:
        self.found = found
        self.fails: list[BaseException] = []
        self.asked = 0
        self.meanwhile: Callable[[], Awaitable[None]] | None = None

    async def extract(self, passage: Passage) -> Extraction:
        self.asked += 1
        if self.meanwhile is not None:
            await self.meanwhile()
        if self.fails:
            raise self.fails.pop(0)
        candidates = []
        for turn in passage.turns:
            said = passage.text[turn.span.start : turn.span.end]
            candidates += [c for phrase, c in self.found.items() if phrase in said]
        return Extraction(tuple(candidates), self.name)

    async def close(self) -> None:
        """Do nothing: nothing is open."""
