"""The same memories and the same question give the same answer on both engines."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from itertools import cycle, islice, product
from pathlib import Path

import pytest

from benchmarks.texts import Texts
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.context import Context
from recall_server.domain.episode import Source
from recall_server.domain.ids import namespace
from recall_server.domain.query import Query, SearchMode
from recall_server.integrations.embeddings import StaticEmbedder
from recall_server.services.memory.ingest import Submission
from tests.support.application import settings_for
from tests.support.engines import Postgres
from tests.support.length import at_full_length, has_full_length
from tests.support.processes import Database
from tests.support.runtime import Clock, RandomBytes

SEED = 20260301
EPISODES = at_full_length(300, otherwise=36)
QUERIES = at_full_length(40, otherwise=28)
ALICE = namespace("alice")
# The longest lists, and weights that leave no part of the score alone.
LIMITS = (50, 20, 5)

Answer = list[tuple[str, float]]


@asynccontextmanager
async def alike(database: Database) -> AsyncIterator[tuple[Application, Clock]]:
    """Open an application with the same ids and times on any engine."""
    clock = Clock()
    async with open_application(
        settings_for(database), embedder=StaticEmbedder(), now=clock, random_bytes=RandomBytes()
    ) as built:
        yield built, clock


def queries() -> list[Query]:
    """Return questions in all modes, with different limits, weights and spreads."""
    texts = Texts(SEED + 1)
    asked = [*(texts.question() for _ in range(QUERIES - 4)), "teal", "zyxgloop", "the", "1042"]
    shapes = islice(cycle(product(LIMITS, (0.3, 0.0, 1.0), (0.5, 1.0, 0.0))), QUERIES)
    return [
        Query(text, limit=limit, mode=mode, recency_weight=weight, mmr_lambda=spread)
        for text, (limit, weight, spread) in zip(asked, shapes, strict=True)
        for mode in SearchMode
    ]


async def answers(database: Database) -> list[Answer]:
    async with alike(database) as (built, clock):
        entry = built.services.audit.begin(ALICE, "create_token", "test", None)
        await built.services.access.issue(Context(entry))
        texts = Texts(SEED)
        for number in range(EPISODES):
            # Some texts are an hour apart, so that age counts. Others have the same time, so that
            # ties count.
            clock.pass_(timedelta(hours=1 if number % 3 else 0))
            submission = Submission(texts.conversation(), "general", None, Source())
            entry = built.services.audit.begin(ALICE, "store_memory", "test", None)
            await built.services.ingest.remember(Context(entry), submission)
            # Two of three texts are extracted, so the answers hold both memories and turns.
            if number % 3:
                while await built.worker.run_once():
                    pass
        return [await _answer(built, query) for query in queries()]


async def _answer(built: Application, query: Query) -> Answer:
    entry = built.services.audit.begin(ALICE, "search_memories", "test", None, read_only=True)
    found = await built.services.recall.search(Context(entry), query)
    assert found.degraded is None
    return [(hit.item.id, hit.scores.score) for hit in found.hits]


@has_full_length
@pytest.mark.slow
async def test_both_engines_give_the_same_ids_in_the_same_order_with_the_same_scores(
    tmp_path: Path, postgres: Postgres, migrated: str
) -> None:
    print(f"seed {SEED}")
    with postgres.database(migrated) as url:
        ours = await answers(tmp_path / "recall.db")
        theirs = await answers(url)

    for query, one, other in zip(queries(), ours, theirs, strict=True):
        assert [i for i, _ in one] == [i for i, _ in other], query
        assert [s for _, s in one] == pytest.approx([s for _, s in other], abs=1e-6), query
    kinds = {i.partition("_")[0] for answer in ours for i, _ in answer}
    assert kinds == {"mem", "ep"}
    assert len({tuple(i for i, _ in answer) for answer in ours}) > QUERIES
