"""After any history: an undo is exact, what is read is what it derives from, and the past is as it
was.
"""

from datetime import timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.errors import NotUndoable
from recall_server.domain.moments import PRESENT, Past
from recall_server.domain.query import Query
from tests.support.application import Open
from tests.support.conversation import context, enter
from tests.support.runtime import Clock
from tests.support.transfer import BOB
from tests.support.whole_walk import WholeWalk, file_of, present

MINUTE = timedelta(minutes=1)
QUESTIONS = ("where do I live", "what does Ann prefer", "Kim and Lou in Oslo")


async def changes(application: Application) -> list[str]:
    page = await application.services.changes.page(context(application), None)
    return [one.id for one in page.changes]


async def undo(application: Application, change_id: str) -> str:
    undoing = context(application)
    await application.services.changes.undo(
        undoing, change_id, dry_run=False, with_dependents=False
    )
    return undoing.entry.change


async def undone_or_not(application: Application, change_id: str) -> str | None:
    """The undo of a change; None of an expiry, or where another has taken its turn in between."""
    try:
        return await undo(application, change_id)
    except NotUndoable as refused:
        if "expires_at" in refused.message or "rest on it" in refused.message:
            return None
        raise


async def found(application: Application, question: str, at: Past = PRESENT) -> list[str]:
    asked = Query(question, limit=8, past=at)
    answer = await application.services.recall.search(context(application), asked)
    return [hit.item.id for hit in answer.hits]


async def begun(application: Application, clock: Clock, seed: int, *, erases: bool) -> WholeWalk:
    await enter(application)
    await enter(application, BOB)
    return WholeWalk(application, seed, clock, await file_of(application), erases=erases)


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_happens_can_be_undone_rebuilt_and_asked_again(
    open_app: Open, clock: Clock, seed: int
) -> None:
    async with open_app() as application:
        walk = await begun(application, clock, seed, erases=False)
        seen, compared = {}, 0
        for _ in range(16):
            clock.pass_(MINUTE)
            before, known = await present(application), await changes(application)
            clock.pass_(MINUTE)
            await walk.step()
            after, now = await present(application), await changes(application)
            if len(now) == len(known) + 1:
                clock.pass_(MINUTE)
                if (undone := await undone_or_not(application, now[0])) is not None:
                    assert await present(application) == before, (walk.last, walk.taken)
                    clock.pass_(MINUTE)
                    await undo(application, undone)
                    assert await present(application) == after, (walk.last, walk.taken)
                    compared += 1
            derived = await application.services.rebuild.compare(context(application))
            assert derived.same, (walk.last, derived)
            clock.pass_(MINUTE)
            for question in QUESTIONS:
                seen[clock(), question] = await found(application, question)
        for (at, question), then in seen.items():
            again = await found(application, question, Past(known_at=at))
            assert again == then, (at, question, walk.taken)
    assert compared >= 3


@pytest.mark.parametrize("seed", [1, 2])
async def test_whatever_happens_nothing_that_was_erased_comes_back(
    open_app: Open, clock: Clock, seed: int
) -> None:
    async with open_app() as application:
        walk = await begun(application, clock, seed, erases=True)
        moments = []
        for _ in range(16):
            clock.pass_(MINUTE)
            await walk.step()
            await present(application)
            clock.pass_(MINUTE)
            moments.append(clock())
            derived = await application.services.rebuild.compare(context(application))
            assert derived.same, (walk.last, derived)
        for erased in walk.erased:
            for at in moments:
                for question in QUESTIONS:
                    again = await found(application, question, Past(known_at=at))
                    assert erased not in again, walk.taken


@pytest.mark.parametrize("step", ["purge_source", "take_in", "expire", "resolve", "correct"])
async def test_a_walk_takes_each_of_its_steps(open_app: Open, clock: Clock, step: str) -> None:
    async with open_app() as application:
        walk = await begun(application, clock, 1, erases=False)
        await walk.submit()
        assert await getattr(walk, step)() is not False
