"""A memory may be in several disputes or have rivals. Settling one dispute leaves the others, and
an undo and a redo restore exactly what was open.
"""

from datetime import timedelta
from itertools import product

import pytest

from recall_server.application import Application
from recall_server.domain.errors import NotUndoable
from recall_server.domain.ids import Namespace
from recall_server.domain.intents import Intent
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.plan import Choice, Policy
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from recall_server.services.tasks.reviews import ReviewKind
from tests.support.application import Open
from tests.support.conversation import ALICE, context, enter
from tests.support.runtime import Clock
from tests.support.transfer import BOB, exported, taken_in
from tests.support.whole_walk import present

SECOND = timedelta(seconds=1)
PLACES = ("Oslo", "Bergen", "Faro")
SIDES = (Choice.KEEP_NEW, Choice.KEEP_EXISTING, Choice.KEEP_BOTH)


async def disputed(
    application: Application, clock: Clock, namespace: Namespace = ALICE
) -> list[str]:
    """Make two disputes. The first has only sides that the second has too. Return their ids."""
    await enter(application, namespace)
    services = application.services
    await services.tasks.set_policy(context(application, namespace), Policy.ASK)
    for place in PLACES:
        clock.pass_(SECOND)
        wish = Wish(Intent.REMEMBER, Submission(f"Zoe lives in {place}.", "life"))
        await services.intents.submit(context(application, namespace), wish)
    return await waiting(application, namespace)


async def waiting(application: Application, namespace: Namespace = ALICE) -> list[str]:
    asked = context(application, namespace)
    found = await application.services.reviews.waiting(asked, {ReviewKind.DISPUTE}, limit=10)
    return [one.id for one in found]


async def answered(application: Application, clock: Clock, dispute: str, choice: Choice) -> str:
    """Answer a dispute, and return the id of the change."""
    clock.pass_(SECOND)
    answering = context(application)
    await application.services.reviews.answer(answering, dispute, choice)
    return answering.entry.change


async def undone(application: Application, clock: Clock, change: str) -> str:
    clock.pass_(SECOND)
    undoing = context(application)
    await application.services.changes.undo(
        undoing, change, rights=OPERATOR, dry_run=False, with_dependents=False
    )
    return undoing.entry.change


@pytest.mark.parametrize("choice", SIDES)
@pytest.mark.parametrize("place", [0, 1])
async def test_an_answer_to_one_of_two_disputes_is_undone_and_redone_exactly(
    open_app: Open, clock: Clock, place: int, choice: Choice
) -> None:
    async with open_app() as application:
        disputes = await disputed(application, clock)
        assert len(disputes) == 2
        before = await present(application)
        change = await answered(application, clock, disputes[place], choice)
        after = await present(application)
        assert disputes[place] not in await waiting(application)
        for _ in range(2):
            change = await undone(application, clock, change)
            assert await present(application) == before
            assert await waiting(application) == disputes
            change = await undone(application, clock, change)
            assert await present(application) == after


@pytest.mark.parametrize(("first", "second"), [*product(SIDES, SIDES)])
async def test_two_answers_are_undone_in_turn(
    open_app: Open, clock: Clock, first: Choice, second: Choice
) -> None:
    async with open_app() as application:
        disputes = await disputed(application, clock)
        states, changes = [await present(application)], list[str]()
        for choice in (first, second):
            if left := await waiting(application):
                changes.append(await answered(application, clock, left[0], choice))
                states.append(await present(application))
        undos = []
        while changes:
            undos.append(await undone(application, clock, changes.pop()))
            assert await present(application) == states[len(changes)]
        assert await waiting(application) == disputes
        for number, undo in enumerate(reversed(undos), 1):
            await undone(application, clock, undo)
            assert await present(application) == states[number]


async def test_what_opened_one_of_two_disputes_is_undone_and_redone_exactly(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        disputes = await disputed(application, clock)
        after = await present(application)
        page = await application.services.changes.page(context(application), None)
        undo = await undone(application, clock, page.changes[0].id)
        assert await waiting(application) == disputes[:1]
        with pytest.raises(NotUndoable):
            await undone(application, clock, page.changes[0].id)
        await undone(application, clock, undo)
        assert await present(application) == after


async def test_an_answer_to_a_dispute_that_was_imported_is_undone_exactly(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        disputes = await disputed(application, clock, BOB)
        await taken_in(application, await exported(application, BOB))
        before = await present(application)
        assert await waiting(application) == disputes
        change = await answered(application, clock, disputes[0], Choice.KEEP_BOTH)
        after = await present(application)
        undo = await undone(application, clock, change)
        assert await present(application) == before
        await undone(application, clock, undo)
        assert await present(application) == after


async def test_an_undo_is_refused_where_another_undo_has_brought_back_a_rival(
    open_app: Open, clock: Clock
) -> None:
    """The other undo reverted an older change than this one does."""
    async with open_app() as application:
        await enter(application)
        forgotten = []
        for place in PLACES[:2]:
            clock.pass_(SECOND)
            wish = Wish(Intent.REMEMBER, Submission(f"Zoe lives in {place}.", "life"))
            report = await application.services.intents.submit(context(application), wish)
            (memory_id,) = report.plan.ids()
            clock.pass_(SECOND)
            forgetting = context(application)
            await application.services.recall.forget(forgetting, memory_id)
            forgotten.append(forgetting.entry.change)
        back = await undone(application, clock, forgotten[0])
        with pytest.raises(NotUndoable, match="would hold again"):
            await undone(application, clock, forgotten[1])
        await undone(application, clock, back)
        await undone(application, clock, forgotten[1])
