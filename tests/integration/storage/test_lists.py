"""The lists of the word index: a long list is closed, and a list stays complete after removals."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from recall_server import shipped
from recall_server.domain.search.index_entry import Findable
from recall_server.storage.index.documents import numbers_of
from recall_server.storage.index.words import postings
from recall_server.storage.migrations import migrate
from recall_server.storage.store import Store
from tests.support.erasure import select
from tests.support.lists import listed
from tests.support.migrations import empty, released
from tests.support.rows import ALICE, BOB, enter
from tests.support.runtime import NOON

__all__ = ["empty"]

BATCH = 60
BATCHES = 5
CLOSED = "SELECT slot, found FROM postings WHERE term = 'heron' ORDER BY slot"


async def fill(store: Store) -> None:
    """Add entries of one word in batches, and each entry for Bob too."""
    await enter(store, ALICE, BOB)
    for batch in range(BATCHES):
        for namespace in (ALICE, BOB):
            async with store.transaction(namespace) as tx:
                first = batch * BATCH
                ids = [f"mem_{number}" for number in range(first, first + BATCH)]
                await tx.words.add(postings(dict.fromkeys(ids, Findable("heron"))))


async def erase(store: Store, *ids: str) -> None:
    async with store.transaction(ALICE) as tx:
        await tx.words.erase(ids, postings(dict.fromkeys(ids, Findable("heron"))))


async def slots(store: Store) -> Sequence[int]:
    found = [one["slot"] for one in await listed(store) if one["term"] == "heron"]
    assert len(found) == len(set(found))
    return sorted(found)


async def test_a_list_that_is_long_is_closed_and_a_reader_lacks_nothing(store: Store) -> None:
    await enter(store, ALICE)
    other = Store(store.driver, cache_bytes_max=1_000_000)
    for batch in range(BATCHES):
        async with store.transaction(ALICE) as tx:
            ids = [f"mem_{batch}_{number}" for number in range(BATCH)]
            await tx.words.add(postings(dict.fromkeys(ids, Findable("heron"))))
        # One store has read some of it and continues. Another reads all of it.
        for reader in (other, Store(store.driver, cache_bytes_max=1_000_000)):
            async with reader.transaction(ALICE, write=False) as tx:
                documents = await tx.words.documents(await tx.words.statistics(["heron"]))
                held = documents.postings(["heron"])["heron"].slots
            assert held.tolist() == list(range(1, (batch + 1) * BATCH + 1))

    closed = await select(store, CLOSED)
    assert len(closed) >= 2
    assert [numbers_of(row["found"])[-1, 0] for row in closed] == [row["slot"] for row in closed]


async def test_an_erasure_takes_an_entry_out_of_every_list(store: Store) -> None:
    """The control: Bob's entries with the same ids stay."""
    await fill(store)
    last = BATCH * BATCHES
    before = await listed(store, BOB)
    await erase(store, "mem_0", f"mem_{BATCH}", f"mem_{last - 1}")
    assert await slots(store) == [*range(2, BATCH + 1), *range(BATCH + 2, last)]

    async with store.transaction(ALICE) as tx:
        await tx.words.hide(postings({"mem_1": Findable("heron")}))
        await tx.words.erase(["mem_1"], postings({}))
    assert await slots(store) == [*range(3, BATCH + 1), *range(BATCH + 2, last)]

    await erase(store, *(f"mem_{number}" for number in range(last)))
    assert await slots(store) == []
    for table in ("terms", "postings"):
        assert await select(store, f"SELECT term FROM {table} WHERE namespace = 'alice'") == []
    assert await listed(store, BOB) == before


async def test_an_index_that_is_made_anew_keeps_the_hidden_entries_of_every_list(
    store: Store,
) -> None:
    await fill(store)
    hidden = {"mem_0", f"mem_{BATCH}", f"mem_{BATCH * BATCHES - 1}"}
    async with store.transaction(ALICE) as tx:
        await tx.words.hide(postings(dict.fromkeys(hidden, Findable("heron"))))
    async with store.driver.transaction(namespace=ALICE, write=True) as raw:
        await raw.fetch("UPDATE namespaces SET words_stale = TRUE WHERE namespace = 'alice'", {})
    async with store.transaction(ALICE) as tx:
        assert await tx.words.begin_anew()

    assert {one["item_id"] for one in await listed(store)} == hidden
    assert await select(store, "SELECT term, documents FROM terms WHERE namespace = 'alice'") == [
        {"term": "heron", "documents": 0}
    ]


async def test_the_items_that_share_the_rarest_words_come_first(store: Store) -> None:
    """This includes closed lists. Hidden items are left out, however many there are."""
    await fill(store)
    weights = {"heron": 1.0, "oslo": 2.0}
    async with store.transaction(ALICE) as tx:
        await tx.words.add(postings({"mem_x": Findable("oslo heron"), "mem_y": Findable("oslo")}))
        gone = {f"mem_{number}": Findable("heron") for number in range(200)}
        await tx.words.hide(postings(gone))
        found = await tx.words.similar(weights, 1.5, 4)
        assert await tx.words.similar({"tea": 1.0}, 1.5, 4) == []

    assert found == ["mem_x", "mem_y", "mem_200", "mem_201"]


async def test_rows_of_an_older_release_become_lists(empty: Path | str, tmp_path: Path) -> None:
    rows = [
        (owner, term, slot, 1 + slot % 3, 9)
        for owner in ("a", "b")
        for term, last in (("heron", 200), ("oslo", 64), ("tea", 1))
        for slot in range(1, last + 1)
    ]
    async with released(empty, tmp_path, before="0045") as driver:
        async with driver.migration() as connection:
            for row in rows:
                await connection.script(f"INSERT INTO postings VALUES {row}")
            for owner in ("a", "b"):
                for term, count in (("heron", 150), ("oslo", 64), ("tea", 0)):
                    await connection.script(
                        f"INSERT INTO terms VALUES ('{owner}', '{term}', {count}, 200)"
                    )
        await migrate(driver, shipped("migrations"), NOON)
        found, counts = [], []
        for owner in ("a", "b"):
            async with driver.transaction(namespace=owner, write=False) as connection:
                read = "SELECT * FROM {} WHERE namespace = '{}'"
                terms = await connection.fetch(read.format("terms", owner), {})
                closed = await connection.fetch(read.format("postings", owner), {})
            counts += [(r["namespace"], r["term"], r["documents"], r["last_slot"]) for r in terms]
            for one in (*closed, *terms):
                numbers = numbers_of(one["found"]).tolist()
                found += [(one["namespace"], one["term"], *said) for said in numbers]
            assert [numbers_of(r["found"])[:, 0].max() for r in closed] == [
                r["slot"] for r in closed
            ]

    assert sorted(found) == sorted(rows)
    assert sorted(counts) == sorted(
        (owner, term, count, 200)
        for owner in ("a", "b")
        for term, count in (("heron", 150), ("oslo", 64), ("tea", 0))
    )


def test_a_list_is_read_as_numbers() -> None:
    assert numbers_of("").tolist() == []
    assert numbers_of(";3 1 9;12 2 20").tolist() == [[3, 1, 9], [12, 2, 20]]


@pytest.mark.parametrize("term", ["50%", "a_b", "x;y", "c 1 2"])
async def test_a_term_of_any_signs_is_only_a_key(store: Store, term: str) -> None:
    await enter(store, ALICE)
    made = postings({"mem_1": Findable("heron")})
    odd = made.__class__(made.ids, made.places, ((term, "mem_1", 1, 1),), made.lengths)
    async with store.transaction(ALICE) as tx:
        await tx.words.add(odd)
    assert [one["term"] for one in await listed(store)] == [term]
    async with store.transaction(ALICE) as tx:
        await tx.words.erase(["mem_1"], odd)
    assert await listed(store) == []
