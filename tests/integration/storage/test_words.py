"""The cache of the word index reads what changed, and is complete."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pytest

from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.search.index_entry import Findable, words_in
from recall_server.storage.index import words
from recall_server.storage.index.words import postings
from recall_server.storage.store import Store
from tests.support.rows import ALICE, a_memory, an_episode, enter

Told = Mapping[str, dict[int, int]]


async def write(store: Store, texts: Mapping[str, str]) -> None:
    async with store.transaction(ALICE) as tx:
        await tx.words.add(postings({i: Findable(text) for i, text in texts.items()}))


async def remove(store: Store, item_id: str, text: str) -> None:
    async with store.transaction(ALICE) as tx:
        await tx.words.hide(postings({item_id: Findable(text)}))


async def told(store: Store, *terms: str) -> Told:
    """Return how often each term is in the findable items, by their slots."""
    async with store.transaction(ALICE, write=False) as tx:
        documents = await tx.words.documents(await tx.words.statistics(terms))
    slots = np.flatnonzero(documents.findable)
    words = words_in(slots, documents.postings(terms))
    return {
        term: {slot: n for slot, n in zip(slots.tolist(), of.tolist(), strict=True) if n}
        for term, of in words.times.items()
    }


async def test_what_comes_later_is_read_behind_what_is_held(store: Store) -> None:
    await enter(store, ALICE)
    await write(store, {"mem_1": "heron oslo heron", "mem_2": "oslo"})
    assert await told(store, "heron", "tea") == {"heron": {1: 2}, "tea": {}}

    await write(store, {"mem_3": "tea", "mem_4": "heron tea"})
    assert await told(store, "heron", "tea") == {"heron": {1: 2, 4: 1}, "tea": {3: 1, 4: 1}}
    assert await told(store, "oslo") == {"oslo": {1: 1, 2: 1}}


async def test_what_was_taken_out_is_found_no_more_and_again_when_it_is_put_back(
    store: Store,
) -> None:
    """A store that has it in its cache and a store without a cache both follow."""
    await enter(store, ALICE)
    await write(store, {"mem_1": "heron", "mem_2": "heron"})
    assert await told(store, "heron") == {"heron": {1: 1, 2: 1}}

    await remove(store, "mem_1", "heron")
    other = Store(store.driver, cache_bytes_max=1_000_000)
    assert await told(store, "heron") == await told(other, "heron") == {"heron": {2: 1}}
    await write(store, {"mem_1": "heron"})
    assert await told(store, "heron") == await told(other, "heron") == {"heron": {2: 1, 3: 1}}


async def test_more_documents_than_a_page_are_all_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "PAGE", 3)
    await enter(store, ALICE)
    await write(store, {f"mem_{number}": "heron" for number in range(10)})
    await remove(store, "mem_4", "heron")

    assert list((await told(store, "heron"))["heron"]) == [1, 2, 3, 4, 6, 7, 8, 9, 10]


async def test_what_is_held_is_not_read_again(store: Store) -> None:
    await enter(store, ALICE)
    await write(store, {"mem_1": "heron", "mem_2": "tea"})
    async with store.transaction(ALICE, write=False) as tx:
        first = await tx.words.documents(await tx.words.statistics(["heron"]))
        held = first.postings(["heron"])["heron"]
        again = await tx.words.documents(await tx.words.statistics(["heron"]))

    assert again is first
    assert again.postings(["heron"])["heron"].slots is held.slots


async def test_terms_make_room_in_the_order_in_which_they_were_asked_for(store: Store) -> None:
    await enter(store, ALICE)
    await write(store, {f"mem_{number}": "heron tea oslo" for number in range(10)})
    await told(store, "heron", "oslo", "tea")
    await told(store, "heron")
    async with store.transaction(ALICE, write=False) as tx:
        documents = tx.words.cached(await tx.words.statistics())
    documents.forget_terms(1)

    lacking = documents.lacking({"heron": 10, "oslo": 10, "tea": 10})
    assert lacking == {"oslo": 0}
    assert (await told(store, "oslo"))["oslo"].keys() == set(range(1, 11))


async def allowed(store: Store, access_scope: AccessScope) -> Sequence[int]:
    async with store.transaction(ALICE, write=False, access_scope=access_scope) as tx:
        documents = await tx.words.documents(await tx.words.statistics())
        return [int(slot) for slot in np.flatnonzero(await tx.words.allowed(documents))]


async def test_what_is_in_reach_is_told_of_what_comes_later_too(
    store: Store,
) -> None:
    """The control: without a limit, every item is in the scope."""
    await enter(store, ALICE)
    limited = AccessScope(topics=frozenset({"work"}))

    async def remember(number: int, topic: str) -> None:
        async with store.transaction(ALICE) as tx:
            memory = replace(a_memory(f"mem_{number}"), topic=topic)
            await tx.memories.add(memory)
            await tx.words.add(postings({memory.id: Findable("heron")}))

    async with store.transaction(ALICE) as tx:
        await tx.episodes.add(an_episode(), "key", "digest")
    await remember(1, "work")
    await remember(2, "home")
    assert await allowed(store, limited) == [1]
    await remember(3, "home")
    await remember(4, "work")
    assert await allowed(store, limited) == [1, 4]
    assert await allowed(store, FULL_ACCESS) == [1, 2, 3, 4]
