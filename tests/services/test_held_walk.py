"""Whatever happens to a namespace, and whoever searches meanwhile: by what is held in memory a
search finds what it would find by what is stored.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from recall_server.app import House
from recall_server.domain.model import MemoryType, Query, Scores
from recall_server.domain.rights import EVERYTHING, Reach
from recall_server.storage import index, matrix, vectors
from recall_server.storage.store import Store
from tests.conftest import Clock, Open
from tests.services.conversation import enter
from tests.services.test_index_walk import STEPS, Walk
from tests.services.test_search import MODES, looked

REACHES = (
    EVERYTHING,
    Reach(types=frozenset({MemoryType.PREFERENCE, MemoryType.FACT})),
    Reach(agent_id="nobody"),
)
SEED = 2
QUESTIONS = ("Where does Ann live, in Lisbon or Faro?", "tea, piano, jam")


def holding(house: House, cache_bytes_max: int) -> House:
    """A replica: the same database, and a memory of its own."""
    store = Store(house.store.driver, cache_bytes_max=cache_bytes_max, mac_key=bytes(32))
    return replace(house, store=store)


async def shown(house: House, query: Query, reach: Reach) -> dict[str, Scores]:
    return {hit.item.id: hit.scores for hit in await looked(house, query, reach=reach)}


async def asked_at_once(house: House, question: str) -> Sequence[dict[str, Scores]]:
    """All that there is is among the hits, so all of it is compared by its stored vector."""
    queries = [Query(question, mode=mode, limit=50) for mode in MODES]
    return await asyncio.gather(
        *(shown(house, query, reach) for query, reach in product(queries, REACHES))
    )


@pytest.mark.slow
async def test_whatever_is_done_what_is_held_finds_what_is_stored(
    open_house: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (matrix, "ROWS_UP_TO", 3),
        (matrix, "ROUNDED_UP_TO", 8),
        (matrix, "EXACT_UP_TO", 3),
        (matrix, "CELLS_AFTER", 1),
        (vectors, "INLINE_UP_TO", 5),
        (vectors, "VECTORS_PAGE", 4),
        (vectors, "PAGE", 7),
        (index, "PAGE", 6),
    ):
        monkeypatch.setattr(module, name, value)
    kinds = set()
    async with open_house() as house:
        await enter(house)
        walk = Walk(house, SEED)
        replicas = [holding(house, room) for room in (10_000_000, 1)]
        for number in range(STEPS):
            clock.pass_(timedelta(minutes=number % 7))
            question = QUESTIONS[number % len(QUESTIONS)]
            await asyncio.gather(walk.step(), *(asked_at_once(one, question) for one in replicas))
            stored = await asked_at_once(holding(house, 10_000_000), question)
            for replica in replicas:
                assert await asked_at_once(replica, question) == stored, (number, walk.taken)
            kinds |= {await _kind(replicas[0])}

        assert any(stored)
    assert len(walk.taken) >= 7, walk.taken
    assert kinds == {"whole", "rounded", "cells"}


async def _kind(house: House) -> str:
    """As what vectors are held."""
    (held,) = house.store._cache._held.values()
    of = held.matrix("hash/64+2", 64)
    if of.making is not None:
        await of.making
    if of.holds_codes_only:
        assert of._cells is not None
        return "cells"
    return "whole" if of.holds_rows else "rounded"
