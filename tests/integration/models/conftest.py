"""Fixtures of the tests of extractors: the extractor with a scripted model and a clock that stands
still.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from recall_server.integrations import llm
from recall_server.integrations.llm.claude_api import ClaudeApi
from recall_server.integrations.llm.roles import ModelExtractor
from tests.support.models import Pauses


@pytest.fixture
def pauses() -> Pauses:
    return Pauses()


@pytest.fixture
async def extractor_at(pauses: Pauses) -> AsyncIterator[Callable[..., ModelExtractor]]:
    """Make extractors for a URL, with the real prompt, and close them afterwards."""
    made: list[ModelExtractor] = []

    def make(url: str, *, deadline_s: float = 60.0, model: str = "m") -> ModelExtractor:
        api = ClaudeApi(
            api_key="sk-secret",
            model=model,
            base_url=url,
            deadline_s=deadline_s,
            sleep=pauses.sleep,
            clock=pauses.now,
            jitter=lambda: 0.5,
        )
        extractor = ModelExtractor(
            api, prompt=llm.load_prompt("extract"), attributes="- lives_in: where it lives"
        )
        made.append(extractor)
        return extractor

    yield make
    for extractor in made:
        await extractor.close()
