"""What a re-ranker gets of the best hits, and that an erasure drops what it holds."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.query import Hit, Query, Step
from recall_server.services.memory.ingest import Submission
from tests.support.reranking import ANA, Scripted, opened
from tests.support.runtime import Clock


async def found(built: Application, query: Query) -> Sequence[Hit]:
    entry = built.services.audit.begin(ANA, "search_memories", "test", None, read_only=True)
    return (await built.services.recall.search(Context(entry), query)).hits


async def search(built: Application, query: Query) -> list[str]:
    return [hit.item.text for hit in await found(built, query)]


async def scored(built: Application, query: Query) -> list[float]:
    return [hit.scores.score for hit in await found(built, query)]


async def test_it_is_shown_what_was_said_and_the_turns_around_it(
    database: Path | str, clock: Clock
) -> None:
    reranker = Scripted("quokka")
    async with opened(database, clock, reranker) as built:
        texts = await search(built, Query("Where was Bo on holiday?"))
        ((look, passages),) = reranker.asked

    (shown,) = [passage for passage in passages if "quokka" in passage.text]
    assert "quokka" in texts[0]
    assert shown.said == "Bo: We went to the quokka island with my sister."
    assert set(shown.around) == {
        "Ana: Where did you go for the holidays?",
        "Ana: How lovely!",
    }
    assert look.text == "Where was Bo on holiday?"
    assert look.in_first_person == "Where was I on holiday?"
    assert look.namespace == ANA


async def test_a_judge_is_shown_what_the_hits_show(database: Path | str, clock: Clock) -> None:
    reranker = Scripted("printer", judges=True)
    async with opened(database, clock, reranker) as built:
        texts = await search(built, Query("Where was Bo on holiday?"))
        ((_, passages),) = reranker.asked

    assert "printer" in texts[0]
    assert all(passage.said is None and not passage.around for passage in passages)


@pytest.mark.parametrize("judges", [True, False])
async def test_what_it_puts_below_the_threshold_is_not_shown(
    database: Path | str, clock: Clock, judges: bool
) -> None:
    reranker = Scripted("printer", judges=judges)
    async with opened(database, clock, reranker) as built:
        query = Query("Where was Bo on holiday?")
        before = sorted(await scored(built, replace(query, without=frozenset({Step.RERANK}))))
        answers = [await scored(built, replace(query, score_threshold=one)) for one in before]

    assert len(before) == 5
    assert all(
        min(scores) >= least for scores, least in zip(answers, before, strict=True) if scores
    )
    assert answers[0]


@pytest.mark.parametrize("judges", [True, False])
@pytest.mark.parametrize(("limit", "looked_at"), [(20, 30), (45, 45)])
async def test_nothing_is_shown_that_was_not_looked_at(
    database: Path | str, clock: Clock, judges: bool, limit: int, looked_at: int
) -> None:
    """Its score would be on another scale."""
    reranker = Scripted("printer", judges=judges)
    async with opened(database, clock, reranker) as built:
        talk = "\n".join(f"Bo: The printer {number} is broken." for number in range(60))
        entry = built.services.audit.begin(ANA, "store_memory", "test", None)
        await built.services.ingest.remember(Context(entry), Submission(talk, "general"))
        while await built.worker.run_once():
            pass
        hits = await found(built, Query("Which printer is broken?", limit=limit))
        ((_, passages),) = reranker.asked

    assert len(passages) == looked_at
    assert len(hits) == limit
    assert all(hit.scores.rerank is not None for hit in hits)


async def test_without_the_part_it_is_not_asked(database: Path | str, clock: Clock) -> None:
    reranker = Scripted("printer")
    async with opened(database, clock, reranker) as built:
        await search(built, Query("Where was Bo?", without=frozenset({Step.RERANK})))
        assert not reranker.asked
        await search(built, Query("Where was Bo?"))
        assert reranker.asked, "the positive control"


async def test_what_it_holds_goes_with_the_namespace(database: Path | str, clock: Clock) -> None:
    reranker = Scripted("printer")
    async with opened(database, clock, reranker) as built:
        built.store.forget(ANA)

    assert reranker.forgotten == [ANA]
