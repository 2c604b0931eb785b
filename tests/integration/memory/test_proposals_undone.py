"""The answer to a proposal can be undone, and the undo of it too, any number of times."""

from datetime import timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.intents import Intent
from recall_server.domain.permissions import OPERATOR
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from recall_server.services.tasks.reviews import ReviewKind, Verdict
from tests.support.application import Open
from tests.support.conversation import context, drained, enter, memories, remember
from tests.support.runtime import Clock
from tests.support.whole_walk import ALL_RIGHTS, present


async def undone(application: Application, change_id: str) -> str:
    undoing = context(application)
    await application.services.changes.undo(
        undoing, change_id, rights=OPERATOR, dry_run=False, with_dependents=False
    )
    await drained(application)
    return undoing.entry.change


async def proposed(application: Application, intent: Intent) -> str:
    """Let a change of what Ann said wait. Return the id of the proposal."""
    await enter(application)
    await remember(application, "Ann: I live in Lisbon.")
    await drained(application)
    (lisbon,) = await memories(application)
    target = "" if intent is Intent.REMEMBER else lisbon.id
    text = "" if intent is Intent.FORGET else "Ann lives in Porto."
    wish = Wish(intent, Submission(text, "life"), target, review=True)
    await application.services.intents.submit(context(application), wish)
    await drained(application)
    (waiting,) = await application.services.reviews.waiting(
        context(application), [ReviewKind.PROPOSAL], limit=2
    )
    return waiting.id


@pytest.mark.parametrize(
    ("intent", "verdict"),
    [
        (Intent.REMEMBER, Verdict.ACCEPT),
        (Intent.CORRECT, Verdict.ACCEPT),
        (Intent.FORGET, Verdict.ACCEPT),
        (Intent.REMEMBER, Verdict.EDIT),
        (Intent.CORRECT, Verdict.EDIT),
    ],
)
async def test_an_answer_is_undone_and_made_again(
    open_app: Open, clock: Clock, intent: Intent, verdict: Verdict
) -> None:
    async with open_app() as application:
        proposal_id, reviews = await proposed(application, intent), application.services.reviews
        before = await present(application)
        clock.pass_(timedelta(minutes=1))
        text = "Ann lives in Faro." if verdict is Verdict.EDIT else None
        answer = await reviews.answer(
            context(application), proposal_id, verdict, text, rights=ALL_RIGHTS
        )
        after = await present(application)
        assert answer.change_id is not None
        change_id, left = answer.change_id, []
        for _ in range(4):
            clock.pass_(timedelta(minutes=1))
            change_id = await undone(application, change_id)
            waiting = await reviews.waiting(context(application), [ReviewKind.PROPOSAL], limit=2)
            left.append(([one.id for one in waiting], await present(application)))

    assert left == [([proposal_id], before), ([], after)] * 2


@pytest.mark.parametrize("intent", [Intent.REMEMBER, Intent.CORRECT])
async def test_a_proposal_is_withdrawn_and_waits_again(
    open_app: Open, clock: Clock, intent: Intent
) -> None:
    async with open_app() as application:
        proposal_id, reviews = await proposed(application, intent), application.services.reviews
        page = await application.services.changes.page(context(application), None)
        change_id, waits = page.changes[0].id, []
        for _ in range(4):
            clock.pass_(timedelta(minutes=1))
            change_id = await undone(application, change_id)
            waiting = await reviews.waiting(context(application), [ReviewKind.PROPOSAL], limit=2)
            waits.append([one.id for one in waiting])

    assert waits == [[], [proposal_id]] * 2
