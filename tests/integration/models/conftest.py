"""What the tests of the extractor share: the extractor, pointed at a script, on a still clock."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from recall_server.integrations.extraction.claude import ClaudeExtractor
from recall_server.integrations.llm import prompts
from tests.support.models import Pauses


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def extractor_at(pauses: Pauses) -> AsyncIterator[Callable[..., ClaudeExtractor]]:
    """Make extractors for a URL, with the real prompt; they are closed afterwards."""
    made: list[ClaudeExtractor] = []

    def make(url: str, *, deadline_s: float = 60.0, model: str = "m") -> ClaudeExtractor:
        extractor = ClaudeExtractor(
            api_key="sk-secret",
            prompt=prompts.load("extract"),
            attributes="- lives_in: where it lives",
            model=model,
            base_url=url,
            deadline_s=deadline_s,
            sleep=pauses.sleep,
            clock=pauses.now,
            jitter=lambda: 0.5,
        )
        made.append(extractor)
        return extractor

    yield make
    for extractor in made:
        await extractor.close()
