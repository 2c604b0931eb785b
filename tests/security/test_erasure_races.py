"""Nothing comes back if an erasure meets a job, a store or a search at any moment."""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from recall_server.domain.errors import (
    ChangeNotFound,
    DatabaseUnavailable,
    ErasedContent,
    NotUndoable,
)
from recall_server.domain.extraction import Candidate, Extraction, Passage
from recall_server.domain.memory import MemoryType
from recall_server.domain.permissions import OPERATOR
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, remember
from tests.support.erasure import NOTHING, erase_all, rows, select
from tests.support.length import at_full_length, has_full_length

SEED = 20260301
ROUNDS = at_full_length(200, otherwise=40)
ATTEMPTS = at_full_length(80, otherwise=30)


class Slow:
    """An extractor that takes a random moment and makes a memory of each turn."""

    name = "slow/1"
    passage_chars = 40
    call_tokens_max = 0

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    async def extract(self, passage: Passage) -> Extraction:
        for _ in range(self._rng.randrange(40)):
            await asyncio.sleep(0)
        found = [
            Candidate(passage.text[t.span.start : t.span.end], MemoryType.FACT, t.span)
            for t in passage.turns
        ]
        return Extraction(tuple(found), self.name)

    async def close(self) -> None:
        """Do nothing: nothing is open."""


def said(number: int) -> str:
    return f"Ann: heron number {number} stood by the pond.\nBen: otter number {number} swam off."


@has_full_length
@pytest.mark.slow
async def test_erasures_during_extraction_bring_nothing_back(open_app: Open) -> None:
    """The purge of files does not run here, since the test is about rows."""
    print(f"seed {SEED}")
    rng = random.Random(SEED)
    resurrected, made, fenced = 0, 0, 0
    async with open_app(extractor=Slow(rng), worker_jobs=1) as application:
        await enter(application)

        async def purge_nothing() -> str:
            return ""

        application.store.purge = purge_nothing  # type: ignore[method-assign]
        for number in range(ROUNDS):
            await remember(application, said(number))
            work = asyncio.create_task(drained(application))
            if number % 8 == 0:
                await work
            for _ in range(rng.randrange(60)):
                await asyncio.sleep(0 if rng.random() < 0.8 else 0.001)
            before = await rows(application.store)
            await erase_all(application)
            made += before["memories"]
            fenced += not work.done()
            await work
            left = await rows(application.store)
            resurrected += {**left, "operations": 0} != NOTHING
        stats = await select(application.store, "SELECT documents, words FROM namespaces")
    print(f"{fenced} of {ROUNDS} erasures met work under way; {made} memories were there by then")
    assert resurrected == 0
    assert [dict(row) for row in stats] == [{"documents": 0, "words": 0}]
    # The control: the erasures did meet running jobs, and memories that jobs had made.
    assert fenced > ROUNDS // 4
    assert made > 0


@has_full_length
@pytest.mark.slow
async def test_a_store_and_an_erasure_at_once_leave_the_text_whole_or_not_at_all(
    open_app: Open,
) -> None:
    """A store of the same text is refused after the erasure, and erased if it came before. Another
    text is either stored as a whole or was erased.
    """
    rng = random.Random(SEED)
    async with open_app(extractor=Slow(rng)) as application:
        await enter(application)
        for number in range(ATTEMPTS):
            await remember(application, said(number))

            async def again(number: int = number) -> None:
                for _ in range(rng.randrange(20)):
                    await asyncio.sleep(0)
                try:
                    await remember(application, said(number))
                except (ErasedContent, DatabaseUnavailable):
                    return

            async def other(number: int = number) -> None:
                for _ in range(rng.randrange(20)):
                    await asyncio.sleep(0)
                await remember(application, f"Cleo: kite number {number} flew over the old mill.")

            await asyncio.gather(again(), other(), erase_all(application))
            texts = [
                r["text"] for r in await select(application.store, "SELECT text FROM episodes")
            ]
            left = await rows(application.store)
            (stats,) = await select(application.store, "SELECT documents FROM namespaces")
            assert texts in ([], [f"Cleo: kite number {number} flew over the old mill."])
            assert left["turns"] == len(texts) == stats["documents"]
            await application.services.erase.namespace(context(application), "DELETE MY DATA")


@pytest.mark.parametrize("seed", range(at_full_length(12, otherwise=2)))
async def test_rebuilds_erasures_and_undos_at_once_leave_what_derives_and_nothing_erased(
    open_app: Open, seed: int
) -> None:
    rng = random.Random(seed)
    async with open_app() as application:
        await enter(application)
        services, jobs = application.services, []
        for number in range(5):
            said = f"Zebedee{number} lives in Oslo. I like figs. Canary{number} is my boss."
            jobs.append((await remember(application, f"User: {said}")).job_id)
            await drained(application)
        async with application.store.driver.transaction(
            namespace=ALICE, write=True, erasing=True
        ) as raw:
            await raw.fetch("UPDATE memories SET text = 'broken ' || text", {})

        async def later(work: Coroutine[Any, Any, object]) -> object:
            for _ in range(rng.randrange(60)):
                await asyncio.sleep(0)
            return await work

        def undo(job_id: str) -> Coroutine[Any, Any, object]:
            return services.changes.undo(
                context(application), job_id, rights=OPERATOR, dry_run=False, with_dependents=True
            )

        answers = await asyncio.gather(
            services.rebuild.mend(context(application)),
            later(services.erase.subject(context(application), "Canary0")),
            later(services.erase.subject(context(application), "Canary1")),
            *(later(undo(one)) for one in jobs[1:4]),
            later(services.rebuild.mend(context(application))),
            return_exceptions=True,
        )
        # An undo may find its change erased, or taken back with another.
        failed = [one for one in answers if isinstance(one, BaseException)]
        assert [one for one in failed if not isinstance(one, NotUndoable | ChangeNotFound)] == []
        await drained(application)
        await services.rebuild.mend(context(application))
        compared = await services.rebuild.compare(context(application))
        kept = [
            str(row)
            for table in ("memories", "episodes", "memory_events", "turns")
            for row in await select(application.store, f"SELECT * FROM {table}")
        ]

    assert compared.same
    assert not [row for row in kept if "Canary0" in row or "Canary1" in row]
