"""A text may set when it expires. Its memories expire with it."""

from datetime import datetime, timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.errors import Invalid, MemoryNotFound, NotRestorable
from recall_server.domain.memory import Status
from recall_server.domain.query import Query
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories, remember
from tests.support.runtime import NOON, Clock
from tests.support.transfer import BOB, exported, taken_in

WEEK = timedelta(days=7)
BADGE = "The door code of the annex is 4711."
PORTO = "User: I live in Porto."
LISBON = "User: I live in Lisbon."


async def stored(application: Application, text: str, until: datetime | None = NOON + WEEK) -> str:
    submission = Submission(text, "life", expires_at=until)
    accepted = await application.services.ingest.remember(context(application), submission)
    await drained(application)
    return accepted.episode_id


async def shown(application: Application, question: str) -> list[str]:
    found = await application.services.recall.search(context(application), Query(question))
    return [hit.text for hit in found.hits]


async def test_a_text_is_found_up_to_its_moment_and_not_from_then_on(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, BADGE)
        clock.pass_(WEEK - timedelta(seconds=1))
        before = await shown(application, "door code of the annex")
        clock.pass_(timedelta(seconds=1))
        # No job has run yet.
        at_once = await shown(application, "door code of the annex")
        await drained(application)
        after = await shown(application, "door code of the annex")

    assert before == [BADGE]
    assert at_once == after == []


async def test_what_was_made_of_it_is_counted_no_more_and_stays_in_its_history(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, LISBON)
        (memory,) = await memories(application)
        counted = (await application.services.recall.stats(context(application))).total
        clock.pass_(WEEK)
        await drained(application)
        left = (await application.services.recall.stats(context(application))).total
        history = await application.services.recall.history(context(application), memory.id)

    assert (counted, left) == (1, 0)
    assert [(one.status, one.retired_at) for one in history.chain] == [
        (Status.EXPIRED, NOON + WEEK)
    ]


async def test_the_same_statement_of_a_text_that_lasts_keeps_it(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, LISBON)
        await remember(application, f"{LISBON}\nUser: And I like it.")
        await drained(application)
        clock.pass_(WEEK)
        await drained(application)
        kept = [one.text for one in await memories(application)]

    assert any("Lisbon" in text for text in kept)


async def test_what_expires_replaces_nothing_that_lasts(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, LISBON, until=None)
        clock.pass_(timedelta(hours=1))
        await stored(application, PORTO)
        meanwhile = await shown(application, "Where do I live?")
        clock.pass_(WEEK)
        await drained(application)
        afterwards = await shown(application, "Where do I live?")

    assert ["Porto" in text for text in meanwhile] == [True, False]
    assert ["Lisbon" in text for text in afterwards] == [True]


async def test_what_lasts_replaces_what_expires(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, PORTO)
        clock.pass_(timedelta(hours=1))
        await stored(application, LISBON, until=None)
        (active,) = await memories(application)

    assert "Lisbon" in active.text


async def test_what_has_expired_is_neither_forgotten_nor_restored(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, LISBON)
        (memory,) = await memories(application)
        recall = application.services.recall
        await recall.forget(context(application), memory.id)
        clock.pass_(WEEK)
        await drained(application)
        with pytest.raises(NotRestorable):
            await recall.restore(context(application), memory.id)
        with pytest.raises(MemoryNotFound):
            await recall.forget(context(application), memory.id)


async def test_a_moment_that_has_passed_is_refused(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        with pytest.raises(Invalid, match="expires_at has passed"):
            await stored(application, BADGE, until=NOON)


async def test_it_expires_also_where_it_was_imported(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, LISBON)
        file = await exported(application, ALICE)
        await enter(application, BOB)
        await taken_in(application, file, BOB)
        clock.pass_(WEEK)
        await drained(application)
        stats = await application.services.recall.stats(context(application, BOB))

    assert stats.total == 0
