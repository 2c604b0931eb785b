"""A namespace of which only codes are held in memory, on both engines."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from recall_server.domain.model import Namespace
from recall_server.files import shipped
from recall_server.storage import driver_for, matrix, vectors
from recall_server.storage.codes import Floats
from recall_server.storage.schema import migrate
from recall_server.storage.store import Store
from tests.conftest import NOON
from tests.storage.test_conformance import ALICE, enter

DIMENSIONS = 24
FEW, MANY = 40, 400


@pytest.fixture(autouse=True)
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that hundreds of vectors are as many as tens of thousands."""
    for module in (matrix, vectors):
        monkeypatch.setattr(module, "ROWS_UP_TO", FEW)
    monkeypatch.setattr(matrix, "EXACT_UP_TO", FEW)
    monkeypatch.setattr(vectors, "PAGE", 150)


def unit(count: int, seed: int) -> Floats:
    made = np.random.default_rng(seed).standard_normal((count, DIMENSIONS)).astype(np.float32)
    rows: Floats = made / np.linalg.norm(made, axis=1, keepdims=True)
    return rows


async def put(store: Store, rows: Floats, first: int = 0) -> None:
    async with store.transaction(ALICE) as tx:
        await tx.vectors.put("m", {f"mem_{first + i:04}": row for i, row in enumerate(rows)})


async def nearest(
    store: Store, query: Floats, within: Sequence[str] | None = None
) -> dict[str, float]:
    async with store.transaction(ALICE, write=False) as tx:
        known = await tx.words.statistics()
        return await tx.vectors.nearest("m", DIMENSIONS, known, query, limit=10, within=within)


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
    """From few to many, and on."""
    await enter(store, ALICE)
    rows, (query,) = unit(MANY, 1), unit(1, 3)
    for first, last in ((0, 30), (30, 60), (60, MANY)):
        await put(store, rows[first:last], first)
        assert list(await nearest(store, query)) == by_hand(rows[:last], query)


async def test_a_vector_that_changes_keeps_its_place(store: Store) -> None:
    await enter(store, ALICE)
    rows, (query,) = unit(MANY, 1), unit(1, 3)
    await put(store, rows)
    await nearest(store, query)
    await put(store, query[None], 7)

    assert next(iter(await nearest(store, query))) == "mem_0007"
    async with store.transaction(ALICE, write=False) as tx:
        assert (await tx.handle.fetch("last_slot", model="m"))[0]["slot"] == MANY


async def test_what_is_concealed_is_not_found_until_it_is_revealed(store: Store) -> None:
    await enter(store, ALICE)
    rows = unit(MANY, 1)
    await put(store, rows)
    assert next(iter(await nearest(store, rows[7]))) == "mem_0007"

    async with store.transaction(ALICE) as tx:
        await tx.vectors.conceal(["mem_0007"])
    assert "mem_0007" not in await nearest(store, rows[7])
    async with store.transaction(ALICE) as tx:
        await tx.vectors.reveal("mem_0007")
    assert next(iter(await nearest(store, rows[7]))) == "mem_0007"


async def test_a_search_within_a_part_finds_nothing_beyond_it(store: Store) -> None:
    await enter(store, ALICE)
    rows, (query,) = unit(MANY, 1), unit(1, 3)
    await put(store, rows)
    part = [f"mem_{i:04}" for i in range(100, 200)]

    expected = [f"mem_{100 + i:04}" for i in np.argsort(-(rows[100:200] @ query))[:10]]
    assert list(await nearest(store, query, [*part, "mem_9999"])) == expected


async def test_the_vectors_that_a_search_has_looked_at_are_the_stored_ones(store: Store) -> None:
    await enter(store, ALICE)
    rows = unit(MANY, 1)
    await put(store, rows)
    async with store.transaction(ALICE, write=False) as tx:
        known = await tx.words.statistics()
        found = await tx.vectors.nearest("m", DIMENSIONS, known, rows[7], limit=10)
        given = await tx.vectors.of("m", [*found, "mem_0399", "mem_9999"])

    assert given.keys() == {*found, "mem_0399"}
    assert all((given[i] == rows[int(i[4:])]).all() for i in given)


async def test_codes_take_a_hundredth_of_the_memory_of_vectors(store: Store) -> None:
    await enter(store, ALICE)
    await put(store, unit(MANY, 1))
    await nearest(store, unit(1, 3)[0])

    (held,) = store._cache._matrices.values()
    assert not held.holds_rows
    assert held.bytes == MANY * (8 + 4 + 1)


async def test_the_cache_of_all_namespaces_keeps_to_its_budget(
    monkeypatch: pytest.MonkeyPatch, database: Path | str
) -> None:
    """The one searched last stays; the others make room."""
    monkeypatch.undo()
    driver = driver_for(database)
    await driver.open()
    await migrate(driver, shipped("migrations"), NOON)
    store = Store(driver, cache_bytes_max=13_000, mac_key=bytes(32))
    try:
        names = [Namespace(f"tenant-{number}") for number in range(4)]
        for name in names:
            await enter(store, name)
            async with store.transaction(name) as tx:
                await tx.vectors.put("m", {f"mem_{i}": row for i, row in enumerate(unit(20, 1))})
            async with store.transaction(name, write=False) as tx:
                known = await tx.words.statistics()
                await tx.vectors.nearest("m", DIMENSIONS, known, unit(1, 2)[0], limit=5)
        assert [namespace for namespace, _ in store._cache._matrices] == names[-2:]
    finally:
        await store.close()
