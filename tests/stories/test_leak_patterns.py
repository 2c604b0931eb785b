"""Each of many memories is found by its own words, at any age and among any others."""

import random

import pytest

from benchmarks.fill import fill
from benchmarks.texts import Texts
from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.ids import namespace
from recall_server.domain.query import Query
from recall_server.integrations.embeddings import StaticEmbedder
from tests.support.application import Open
from tests.support.length import at_full_length, has_full_length, on_both_at_full_length

SEED = 20260301
MEMORIES = at_full_length(10_000, otherwise=1_500)
PROBES = at_full_length(100, otherwise=50)
WITHIN = 10
ALICE = namespace("alice")


async def first_found(built: Application, words: str) -> list[str]:
    """Return the ids of the ten best hits with default arguments."""
    entry = built.services.audit.begin(ALICE, "search_memories", "test", None, read_only=True)
    found = await built.services.recall.search(Context(entry), Query(words))
    return [hit.item.id for hit in found.hits[:WITHIN]]


@on_both_at_full_length
@has_full_length
@pytest.mark.slow
async def test_each_needle_of_many_is_found_by_its_own_words(
    open_app: Open,
) -> None:
    print(f"seed {SEED}")
    texts = Texts(SEED)
    haystack = [texts.statement() for _ in range(MEMORIES)]
    needles = random.Random(SEED).sample(range(MEMORIES), PROBES)
    async with open_app(embedder=StaticEmbedder()) as built:
        entry = built.services.audit.begin(ALICE, "create_token", "test", None)
        await built.services.access.issue(Context(entry))
        ids = await fill(built, ALICE, haystack)

        found = [await first_found(built, haystack[needle]) for needle in needles]

    missed = [haystack[n] for n, best in zip(needles, found, strict=True) if ids[n] not in best]
    # The control: the words of one needle must not find the next, or a hit proves nothing.
    others = [*found[1:], found[0]]
    strays = [haystack[n] for n, best in zip(needles, others, strict=True) if ids[n] in best]
    assert not missed
    assert not strays
