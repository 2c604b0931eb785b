"""The tables that reads use are derived from texts and events: they are compared, repaired, and
extracted again.
"""

from collections.abc import Callable
from datetime import timedelta

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.episode import Span
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Fact, MemoryType
from recall_server.domain.permissions import OPERATOR
from recall_server.services.memory.rebuild import Reextracted
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories, remember
from tests.support.extractors import Scripted
from tests.support.index_walk import Walk
from tests.support.runtime import Clock

HOUR = timedelta(hours=1)


TEXT = "User: Hello there. I live in Porto."


def old_rules() -> Scripted:
    """Return the rules of an older release. They word the place badly, and make a memory of a
    greeting.
    """
    fact = Fact("user", "lives_in", "Porto")
    found = Scripted(
        Hello=Candidate("Hello is said.", MemoryType.FACT, Span(6, 11)),
        Porto=Candidate("User lives Porto", MemoryType.FACT, Span(19, 34), fact),
    )
    found.name = "rules/1"
    return found


def begins(application: Application) -> Callable[[], Context]:
    return lambda: context(application)


async def reextracted(application: Application) -> Reextracted:
    done = await application.services.rebuild.reextract(ALICE, begins(application), lambda _: None)
    await drained(application)
    return done


async def test_whatever_was_done_what_is_read_is_what_it_derives_from(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        walk = Walk(application, 4)
        for number in range(30):
            clock.pass_(HOUR)
            await walk.step()
            if number % 3 == 0:
                compared = await application.services.rebuild.compare(context(application))
                assert compared.same, (compared, walk.taken)
        again = await application.services.rebuild.compare(context(application))
        once_more = await application.services.rebuild.compare(context(application))

    assert again == once_more
    assert again.memories > 3


async def test_what_differs_is_named_and_mended(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "User: I live in Porto. I like figs.")
        await drained(application)
        rebuild, before = application.services.rebuild, await memories(application)
        whole = await rebuild.compare(context(application))
        broken = next(one.id for one in before if "figs" in one.text)
        async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch(
                f"UPDATE memories SET reinforcements = 7 WHERE id = '{broken}'",
                {},
            )
            await raw.fetch("UPDATE terms SET documents = documents + 1 WHERE term = 'fig'", {})

        compared = await rebuild.compare(context(application))
        assert (compared.same, compared.different, compared.words) == (False, (broken,), 1)
        mended = await rebuild.mend(context(application))
        assert mended == compared
        assert await rebuild.compare(context(application)) == whole
        assert await memories(application) == before


async def test_texts_are_extracted_anew_as_one_change_that_can_be_undone(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=old_rules()) as application:
        await enter(application)
        await remember(application, TEXT)
        await drained(application)
        old = {one.text for one in await memories(application)}
        assert old == {"User lives Porto", "Hello is said."}
    clock.pass_(HOUR)
    async with open_app() as application:
        done = await reextracted(application)
        assert (done.texts, done.added, done.superseded, done.deprecated) == (1, 1, 1, 1)
        assert [one.text for one in await memories(application)] == ["The user lives in Porto."]
        assert (await application.services.rebuild.compare(context(application))).same

        again = await reextracted(application)
        assert (again.added, again.superseded, again.deprecated) == (0, 0, 0)

        await application.services.changes.undo(
            context(application),
            done.change_id,
            rights=OPERATOR,
            dry_run=False,
            with_dependents=False,
        )
        assert {one.text for one in await memories(application)} == old


async def test_what_a_person_forgot_is_not_extracted_anew(open_app: Open, clock: Clock) -> None:
    async with open_app(extractor=old_rules()) as application:
        await enter(application)
        await remember(application, TEXT)
        await drained(application)
        place = next(one for one in await memories(application) if "Porto" in one.text)
        await application.services.recall.forget(context(application), place.id)
    async with open_app() as application:
        await reextracted(application)
        assert await memories(application) == []
