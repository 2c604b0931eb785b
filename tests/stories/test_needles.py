"""Each of many memories is found by its own words, whatever its age and its neighbours."""

import random

import pytest

from recall_server.app import House
from recall_server.bench.fill import fill
from recall_server.bench.texts import Texts
from recall_server.domain.model import Query, namespace
from recall_server.providers.static_vectors import StaticEmbedder
from tests.conftest import Open

SEED = 20260301
MEMORIES = 10_000
PROBES = 100
WITHIN = 10
ALICE = namespace("alice")


async def asked(built: House, words: str) -> list[str]:
    """The ids of what is found, best first, with default arguments."""
    entry = built.services.audit.begin(ALICE, "search_memories", "test", None)
    found = await built.services.recall.search(ALICE, Query(words), entry=entry)
    return [hit.item.id for hit in found.hits]


@pytest.mark.slow
async def test_each_of_a_hundred_needles_in_ten_thousand_is_found_by_its_own_words(
    open_house: Open,
) -> None:
    print(f"seed {SEED}")
    texts = Texts(SEED)
    haystack = [texts.statement() for _ in range(MEMORIES)]
    async with open_house(embedder=StaticEmbedder()) as built:
        entry = built.services.audit.begin(ALICE, "create_token", "test", None)
        await built.services.access.issue(ALICE, entry=entry)
        ids = await fill(built, ALICE, haystack)

        missed = []
        for needle in random.Random(SEED).sample(range(MEMORIES), PROBES):
            if ids[needle] not in (await asked(built, haystack[needle]))[:WITHIN]:
                missed.append(haystack[needle])
        # What was never stored is not found, so the count above can fail: its words are shared
        # with thousands, its number with none.
        strange = [texts.statement() for _ in range(PROBES)]
        found = [words for words in strange if words in await _texts(built, words)]
        without_words = await asked(built, "zyxgloop quandibber")

    assert not missed
    assert not found
    assert not set(without_words) & set(ids[:1])
