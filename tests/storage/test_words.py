"""A search by words within its bounds, on both engines."""

import pytest

from recall_server.domain.findable import Findable
from recall_server.domain.ranking import bm25_weights
from recall_server.storage import index
from recall_server.storage.index import postings
from recall_server.storage.store import Store
from tests.storage.test_conformance import ALICE, enter

ITEMS = 200


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a hundred postings are as many as ten thousand."""
    monkeypatch.setattr(index, "POSTINGS_READ", 40)
    monkeypatch.setattr(index, "POSTINGS_ENOUGH", 10)
    monkeypatch.setattr(index, "LOOK_UPS", 120)


async def write(store: Store, texts: list[str]) -> None:
    await enter(store, ALICE)
    found = {f"mem_{number:03}": Findable(text) for number, text in enumerate(texts)}
    async with store.transaction(ALICE) as tx:
        await tx.words.add(postings(found))


async def pool(store: Store, *terms: str, limit: int = 10) -> list[str]:
    async with store.transaction(ALICE, write=False) as tx:
        known = await tx.words.statistics(terms)
        weights = bm25_weights(known.frequencies, known.documents)
        return await tx.words.pool(weights, known, limit)


async def test_few_postings_are_all_read(store: Store) -> None:
    await write(store, ["heron oslo", "heron", "oslo", "tea"])

    assert await pool(store, "heron", "oslo") == ["mem_000", "mem_001", "mem_002"]


async def test_a_frequent_word_is_looked_up_for_what_a_rare_one_finds(store: Store) -> None:
    """Although more of its items come later than are read."""
    texts = ["oslo filler" if number % 6 else "other filler" for number in range(ITEMS)]
    texts[3], texts[9], texts[12] = "heron oslo", "heron filler", "heron oslo"
    await write(store, texts)

    assert (await pool(store, "heron", "oslo"))[:3] == ["mem_003", "mem_012", "mem_009"]


async def test_where_all_words_are_frequent_the_best_of_a_part_are_found(store: Store) -> None:
    """The last by their ids: 41 of the 67 with tea."""
    asked = {"heron": 6, "tea": 9}
    texts = [
        " ".join(["team", *(word for word, each in asked.items() if number % each == 0)])
        for number in range(3 * ITEMS)
    ]
    await write(store, texts)

    found = await pool(store, "heron", "tea", "team", limit=3)
    assert found == ["mem_234", "mem_252", "mem_270"]


async def test_a_word_of_all_adds_nothing_where_rarer_ones_find_enough(store: Store) -> None:
    texts = ["filler team" if number > 11 else "heron team" for number in range(ITEMS)]
    await write(store, texts)

    assert await pool(store, "heron", "team", limit=50) == [f"mem_{n:03}" for n in range(12)]
    assert len(await pool(store, "team", limit=50)) == 41
