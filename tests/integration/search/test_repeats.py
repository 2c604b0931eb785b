"""Hits with the same words are one hit, which names the others."""

from datetime import timedelta
from typing import Any

import pytest

from recall_server.application import Application
from recall_server.domain.episode import Span
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import MemoryType
from recall_server.domain.moments import Past
from recall_server.domain.plan import Choice, Policy
from recall_server.domain.query import ItemKind, SearchMode
from recall_server.services.memory.ingest import Submission
from recall_server.services.tasks.reviews import ReviewKind
from tests.support.application import Open
from tests.support.conversation import context, drained, enter, remember
from tests.support.extractors import Scripted
from tests.support.runtime import Clock
from tests.support.searches import asked

SAID = "The office printer has the address 10.0.0.7."
OTHER = "The office printer was bought in spring."
QUESTION = "Which address has the office printer?"


async def stored(application: Application, clock: Clock, *texts: str) -> None:
    """Store the texts, a day after another, and read them."""
    for text in texts:
        clock.pass_(timedelta(days=1))
        await application.services.ingest.remember(context(application), Submission(text, "office"))
        await drained(application)


async def test_what_was_said_again_is_one_hit_and_leaves_its_place_to_another(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, f"Ana: {SAID}", f"Ana: {SAID}", f"Ana: {SAID}")
        await stored(application, clock, f"Ana: {OTHER}")
        hits = await asked(application, QUESTION, limit=2)

    assert [hit.item.citation.quote for hit in hits] == [SAID, OTHER]
    first = hits[0]
    moments = [one.said_at for one in first.said_again]
    assert len({first.item.id, *(one.id for one in first.said_again)}) == 3
    assert moments == sorted(moments, reverse=True)
    assert hits[1].said_again == ()


async def test_a_memory_and_the_same_words_in_a_later_text_are_one_hit(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, "I live in Lisbon now.", "I live in Lisbon now!")
        hits = await asked(application, "Where do I live?")

    assert [hit.item.kind for hit in hits] == [ItemKind.MEMORY]
    assert hits[0].quote == "I live in Lisbon now."
    assert [one.said_at - hits[0].item.valid_from for one in hits[0].said_again] == [
        timedelta(days=1)
    ]


async def test_a_memory_does_not_replace_several_passages_of_which_it_says_one(
    open_app: Open, clock: Clock
) -> None:
    again = SAID.upper()
    kept = Candidate(SAID, MemoryType.FACT, Span(0, len(again)))
    async with open_app(extractor=Scripted(PRINTER=kept)) as application:
        await enter(application)
        await stored(application, clock, f"- {OTHER}\n- {SAID}", again)
        [hit] = await asked(application, "Which address has the printer bought in spring?")

    assert OTHER in hit.text
    assert SAID in hit.text
    assert len(hit.said_again) == 1


@pytest.mark.parametrize(
    ("texts", "query"),
    [
        ([f"Ana: {SAID}", f"Ben: {SAID}"], {}),
        # The answer may have changed.
        ([f"Ana: {QUESTION}\nBen: It is .7.", f"Ana: {QUESTION}\nBen: It is .9."], {}),
        ([f"Ana: {SAID}", f"Ana: {SAID}"], {"mmr_lambda": 1.0}),
        ([f"Ana: {SAID}", f"Ana: {SAID}"], {"mode": SearchMode.RECALL}),
        ([f"Ana: {SAID}", f"Ana: {SAID}"], {"neighbours": 1}),
    ],
    ids=["of two speakers", "questions", "lambda 1", "mode recall", "with neighbours"],
)
async def test_other_hits_that_are_alike_stay(
    open_app: Open, clock: Clock, texts: list[str], query: dict[str, Any]
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, *texts)
        hits = await asked(application, QUESTION, **query)

    said = [hit for hit in hits if hit.item.citation.quote in {SAID, QUESTION}]
    assert len(said) == 2
    assert [hit.said_again for hit in hits] == [()] * len(hits)


async def test_a_memory_that_gave_way_to_an_earlier_report_of_the_same_is_not_shown_beside_it(
    open_app: Open, clock: Clock
) -> None:
    """Texts may be read in another order than they were said."""
    said = "My dog Biscuit is allergic to chicken."
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, f"User: As I said, {said[0].lower()}{said[1:]}")
        earlier = Submission(f"User: {said}", "office", occurred_at=clock() - timedelta(hours=1))
        await application.services.ingest.remember(context(application), earlier)
        await drained(application)
        hits = await asked(application, "What is Biscuit allergic to?")

    assert [hit.text for hit in hits] == ["The user's dog Biscuit is allergic to chicken."]
    assert hits[0].item.superseded_by is None


async def test_words_that_no_longer_hold_are_no_repetition_of_those_that_do(
    open_app: Open, clock: Clock
) -> None:
    """A value that returns holds again, by another memory."""
    async with open_app() as application:
        await enter(application)
        await stored(
            application, clock, "I live in Porto.", "I live in Lisbon.", "I live in Porto."
        )
        hits = await asked(application, "Where do I live?")

    porto = [hit for hit in hits if "Porto" in hit.text]
    assert {hit.item.superseded_by is None for hit in porto} == {True, False}


@pytest.mark.parametrize("known_then", [False, True], ids=["now", "as was known then"])
async def test_a_repetition_of_the_side_that_an_answer_dropped_is_superseded_with_it(
    open_app: Open, clock: Clock, *, known_then: bool
) -> None:
    async with open_app() as application:
        await enter(application)
        services = application.services
        await services.tasks.set_policy(context(application), Policy.ASK)
        await stored(
            application, clock, "Kim: I live in Oslo.", "Pat: Kim lives in Bergen.",
            "Kim: I live in Bergen.",
        )  # fmt: skip
        before = await asked(application, "Where does Kim live?")
        reviews, kinds = services.reviews, {ReviewKind.DISPUTE}
        [dispute] = await reviews.waiting(context(application), kinds, limit=10)
        await reviews.answer(context(application), dispute.id, Choice.KEEP_EXISTING)
        past = Past(known_at=clock()) if known_then else Past()
        clock.pass_(timedelta(days=1))
        hits = await asked(application, "Where does Kim live?", past=past)

    assert [hit.item.superseded_by for hit in before] == [None] * len(before)
    assert hits[0].text == "Kim lives in Oslo."
    assert len(hits) == 3
    assert {hit.item.superseded_by for hit in hits[1:]} == {hits[0].item.id}


async def test_what_is_said_a_hundred_times_leaves_room_for_what_was_said_once(
    open_app: Open,
) -> None:
    once = "The disk was full, so the deploy to staging failed."
    async with open_app() as application:
        await enter(application)
        await remember(application, once)
        for _ in range(120):
            await remember(application, "The deploy to staging failed.")
        while await application.worker.run_once():
            pass
        hits = await asked(application, "Why did the deploy to staging fail?", limit=5)

    assert [hit.text for hit in hits] == ["The deploy to staging failed.", once]
    assert len(hits[0].said_again) == 5
