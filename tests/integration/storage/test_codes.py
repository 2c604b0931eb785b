"""A namespace whose vectors are cached as rounded values or only as codes, on both engines."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from recall_server import shipped
from recall_server.domain.ids import Namespace
from recall_server.domain.search.index_entry import Findable
from recall_server.domain.search.ranking import best
from recall_server.storage import driver_for
from recall_server.storage.driver import Row
from recall_server.storage.index import vector_cache, vectors
from recall_server.storage.index.vector_cache import Floats
from recall_server.storage.index.words import postings
from recall_server.storage.migrations import migrate
from recall_server.storage.store import Store, Transaction
from tests.support.rows import ALICE, enter
from tests.support.runtime import NOON

DIMENSIONS = 24
FEW, MANY = 40, 400


@pytest.fixture(autouse=True, params=["rounded", "codes"])
def held(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """Lower the limits, so that hundreds of vectors count as tens or hundreds of thousands."""
    monkeypatch.setattr(vector_cache, "WHOLE_UP_TO", FEW)
    monkeypatch.setattr(vector_cache, "EXACT_UP_TO", FEW)
    if request.param != "rounded":
        monkeypatch.setattr(vector_cache, "ROUNDED_UP_TO", 2 * FEW)
    monkeypatch.setattr(vectors, "PAGE", 150)
    monkeypatch.setattr(vectors, "VECTORS_PAGE", 150)
    return str(request.param)


def unit(count: int, seed: int) -> Floats:
    """Return vectors as they are read from the database, with half precision."""
    made = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    rows: Floats = made / np.linalg.norm(made, axis=1, keepdims=True)
    return vector_cache.unpacked([{"vector": vector_cache.packed(row)} for row in rows])


async def put(store: Store, rows: Floats, first: int = 0) -> None:
    vectors = {f"mem_{first + i:04}": row for i, row in enumerate(rows)}
    async with store.transaction(ALICE) as tx:
        await tx.words.add(postings(dict.fromkeys(vectors, Findable("a word"))))
        await tx.vectors.put("m", vectors)


async def nearest(
    store: Store, query: Floats, within: Sequence[int] | None = None
) -> dict[str, float]:
    """Return the nearest by their ids. The slots are in the order of the ids, from 1 on."""
    async with store.transaction(ALICE, write=False) as tx:
        known = await tx.words.statistics()
        allowed = (await tx.words.documents(known)).findable
        if within is not None:
            allowed = allowed & np.isin(np.arange(len(allowed)), within)
        vectors = await tx.vectors.of_search("m", DIMENSIONS, known)
        # A search takes more than it needs, since rounding may have changed the order.
        near = await vectors.nearest(query, allowed, 20)
        slots, cosines = best(near, await vectors.cosines(query, near), 10)
        ids = {row["slot"]: row["item_id"] for row in await _documents(tx)}
    return {
        ids[slot]: cosine for slot, cosine in zip(slots.tolist(), cosines.tolist(), strict=True)
    }


async def _documents(tx: Transaction) -> Sequence[Row]:
    return await tx.bound.connection.fetch("SELECT slot, item_id FROM documents", {})


def by_hand(rows: Floats, query: Floats) -> list[str]:
    return [f"mem_{i:04}" for i in np.argsort(-(rows @ query))[:10]]


async def test_of_many_vectors_the_nearest_are_found_by_their_codes(store: Store) -> None:
    await enter(store, ALICE)
    rows = unit(MANY, 1)
    await put(store, rows)

    for query in unit(20, 2):
        found = await nearest(store, query)
        assert list(found) == by_hand(rows, query)
        assert list(found.values()) == pytest.approx(sorted(rows @ query)[:-11:-1], abs=1e-6)


async def test_what_comes_later_is_found_among_what_was_read_before(store: Store) -> None:
    """The number grows from few to some, to many, and more."""
    await enter(store, ALICE)
    rows, (query,) = unit(MANY, 1), unit(1, 3)
    for first, last in ((0, 30), (30, 60), (60, 70), (70, 200), (200, MANY)):
        await put(store, rows[first:last], first)
        assert list(await nearest(store, query)) == by_hand(rows[:last], query)


async def test_a_vector_that_changes_keeps_its_place(store: Store) -> None:
    await enter(store, ALICE)
    rows, (query,) = unit(MANY, 1), unit(1, 3)
    await put(store, rows)
    await nearest(store, query)
    async with store.transaction(ALICE) as tx:
        await tx.vectors.put("m", {"mem_0007": query})

    assert next(iter(await nearest(store, query))) == "mem_0007"
    async with store.transaction(ALICE, write=False) as tx:
        assert (await tx.bound.fetch("last_slot", model="m"))[0]["slot"] == MANY


async def test_no_slot_is_given_again_while_a_model_is_dropped_bit_by_bit(store: Store) -> None:
    await enter(store, ALICE)
    rows = unit(FEW + 1, 1)
    for first in range(FEW, 0, -1):
        await put(store, rows[first:][:1], first)
    async with store.transaction(ALICE, erasing=True) as tx:
        assert await tx.vectors.drop("m", FEW // 2) == FEW // 2
    await put(store, rows[:1])

    async with store.transaction(ALICE, write=False) as tx:
        assert (await tx.bound.fetch("last_slot", model="m"))[0]["slot"] == FEW + 1


async def test_what_is_found_no_more_is_near_to_nothing_until_it_is_found_again(
    store: Store,
) -> None:
    await enter(store, ALICE)
    rows = unit(MANY, 1)
    await put(store, rows)
    assert next(iter(await nearest(store, rows[7]))) == "mem_0007"
    words = postings({"mem_0007": Findable("a word")})

    async with store.transaction(ALICE) as tx:
        await tx.words.hide(words)
    assert "mem_0007" not in await nearest(store, rows[7])
    async with store.transaction(ALICE) as tx:
        await tx.words.add(words)
        await tx.vectors.copy(["mem_0007"])
    assert next(iter(await nearest(store, rows[7]))) == "mem_0007"


async def test_a_search_within_a_part_finds_nothing_beyond_it(store: Store) -> None:
    await enter(store, ALICE)
    rows, (query,) = unit(MANY, 1), unit(1, 3)
    await put(store, rows)

    expected = [f"mem_{100 + i:04}" for i in np.argsort(-(rows[100:200] @ query))[:10]]
    assert list(await nearest(store, query, [*range(101, 201), 9_999])) == expected


async def test_the_vectors_that_a_search_has_looked_at_are_the_stored_ones(store: Store) -> None:
    await enter(store, ALICE)
    rows = unit(MANY, 1)
    await put(store, rows)
    async with store.transaction(ALICE, write=False) as tx:
        known = await tx.words.statistics()
        allowed = (await tx.words.documents(known)).findable
        vectors = await tx.vectors.of_search("m", DIMENSIONS, known)
        near = await vectors.nearest(rows[7], allowed, 10)
        given = await vectors.by_slot([*near.tolist(), 400, 10_000])
        cosines = await vectors.cosines(rows[7], np.array([8, 400, 10_000]))

    assert given.keys() == {*near.tolist(), 400}
    assert all((given[slot] == rows[slot - 1]).all() for slot in given)
    assert cosines.tolist() == pytest.approx(
        [1.0, float(rows[399] @ rows[7]), np.nan], abs=1e-6, nan_ok=True
    )


async def test_much_less_is_held_than_the_vectors_take(store: Store, held: str) -> None:
    await enter(store, ALICE)
    await put(store, unit(MANY, 1))
    await nearest(store, unit(1, 3)[0])

    (of_alice,) = store._cache._indexes.values()
    cache = of_alice.vectors("m", DIMENSIONS)
    code, rounded = 8 + 4 + 4 + 4, DIMENSIONS + 4
    each = {"rounded": code + rounded, "codes": code}[held]
    assert (cache.vectors is None) == (held == "codes")
    assert cache.bytes <= 1.25 * MANY * each + 8


async def test_a_vector_of_zeros_is_near_to_nothing(store: Store) -> None:
    await enter(store, ALICE)
    rows = unit(MANY, 1)
    rows[7] = 0.0
    await put(store, rows)

    assert list(await nearest(store, rows[8])) == by_hand(rows, rows[8])


async def test_the_cache_of_all_namespaces_keeps_to_its_budget(
    monkeypatch: pytest.MonkeyPatch, database: Path | str
) -> None:
    """The namespace that was searched last stays, and others are dropped."""
    monkeypatch.undo()
    driver = driver_for(database)
    await driver.open()
    await migrate(driver, shipped("migrations"), NOON)
    store = Store(driver, cache_bytes_max=30_000, mac_key=bytes(32))
    try:
        names = [Namespace(f"tenant-{number}") for number in range(4)]
        for name in names:
            await enter(store, name)
            vectors = {f"mem_{i}": row for i, row in enumerate(unit(200, 1))}
            async with store.transaction(name) as tx:
                await tx.words.add(postings(dict.fromkeys(vectors, Findable("a word"))))
                await tx.vectors.put("m", vectors)
            async with store.transaction(name, write=False) as tx:
                known = await tx.words.statistics(["word"])
                await tx.words.documents(known)
                await tx.vectors.of_search("m", DIMENSIONS, known)
                store._cache.trim(name)
        assert len(store._cache._indexes) < len(names)
        assert list(store._cache._indexes) == names[-len(store._cache._indexes) :]
        assert sum(held.bytes for held in store._cache._indexes.values()) <= 60_000
    finally:
        await store.close()
