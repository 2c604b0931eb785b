"""After any steps and with searches in between, a search with the cache finds what it finds with
the stored rows.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from itertools import product

import pytest

from recall_server.application import Application
from recall_server.domain.memory import MemoryType
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.query import Query, Scores
from recall_server.services.memory.indexing import RECIPE
from recall_server.storage.index import vector_cache, vectors, words
from recall_server.storage.store import Store
from tests.support.application import Open
from tests.support.conversation import enter
from tests.support.index_walk import STEPS, Walk
from tests.support.length import at_full_length, has_full_length, on_both_at_full_length
from tests.support.runtime import Clock
from tests.support.searches import MODES, looked

REACHES = (
    FULL_ACCESS,
    AccessScope(types=frozenset({MemoryType.PREFERENCE, MemoryType.FACT})),
    AccessScope(agent_id="nobody"),
)
SEED = 2
# The cache is compared after this many steps.
COMPARED_EVERY = at_full_length(1, otherwise=3)
QUESTIONS = ("Where does Ann live, in Lisbon or Faro?", "tea, piano, jam")


def holding(application: Application, cache_bytes_max: int) -> Application:
    """Return a replica: the same database with its own cache."""
    store = Store(application.store.driver, cache_bytes_max=cache_bytes_max, mac_key=bytes(32))
    return replace(application, store=store)


async def shown(
    application: Application, query: Query, access_scope: AccessScope
) -> dict[str, Scores]:
    return {
        hit.item.id: hit.scores
        for hit in await looked(application, query, access_scope=access_scope)
    }


async def asked_at_once(application: Application, question: str) -> Sequence[dict[str, Scores]]:
    """The hits include every item, so all are compared by their stored vectors."""
    queries = [Query(question, mode=mode, limit=50) for mode in MODES]
    return await asyncio.gather(
        *(
            shown(application, query, access_scope)
            for query, access_scope in product(queries, REACHES)
        )
    )


@on_both_at_full_length
@has_full_length
@pytest.mark.slow
async def test_whatever_is_done_what_is_held_finds_what_is_stored(
    open_app: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module, name, value in (
        (vector_cache, "WHOLE_UP_TO", 3),
        (vector_cache, "ROUNDED_UP_TO", 16),
        (vector_cache, "EXACT_UP_TO", 3),
        (vectors, "INLINE_UP_TO", 5),
        (vectors, "VECTORS_PAGE", 4),
        (vectors, "PAGE", 7),
        (words, "PAGE", 6),
    ):
        monkeypatch.setattr(module, name, value)
    kinds = set()
    async with open_app() as application:
        await enter(application)
        walk = Walk(application, SEED)
        replicas = [holding(application, room) for room in (10_000_000, 1)]
        for number in range(STEPS):
            clock.pass_(timedelta(minutes=number % 7))
            question = QUESTIONS[number % len(QUESTIONS)]
            await asyncio.gather(walk.step(), *(asked_at_once(one, question) for one in replicas))
            kinds |= {_kind(replicas[0])}
            if (number + 1) % COMPARED_EVERY:
                continue
            stored = await asked_at_once(holding(application, 10_000_000), question)
            for replica in replicas:
                assert await asked_at_once(replica, question) == stored, (number, walk.taken)

        assert any(stored)
    assert len(walk.taken) >= 7, walk.taken
    assert kinds == {"whole", "rounded", "codes"}


def _kind(application: Application) -> str:
    """Return the form in which the cache holds vectors."""
    (index,) = application.store._cache._indexes.values()
    vectors = index.vectors(f"hash/64+{RECIPE}", 64).vectors
    if vectors is None:
        return "codes"
    return "whole" if isinstance(vectors, vector_cache.WholeVectors) else "rounded"
