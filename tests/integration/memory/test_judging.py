"""A language model settles a dispute that no rule settles, where it may and is sure."""

from dataclasses import replace

import pytest

from recall_server.application import Application
from recall_server.domain.intents import Intent
from recall_server.domain.plan import Choice, Policy
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from recall_server.services.tasks.reviews import Review, ReviewKind
from tests.support.application import Open
from tests.support.conversation import context, contradicted, drained, enter, memories
from tests.support.judges import BY, ScriptedJudge
from tests.support.whole_walk import present


async def waiting(application: Application) -> list[Review]:
    asked = context(application)
    return await application.services.reviews.waiting(asked, {ReviewKind.DISPUTE}, limit=10)


async def texts(application: Application) -> list[str]:
    return sorted(one.text for one in await memories(application))


@pytest.mark.parametrize(
    ("judge", "sure", "left"),
    [
        (ScriptedJudge(Choice.KEEP_NEW), 0.8, ["Zoe lives in Bergen."]),
        (ScriptedJudge(Choice.KEEP_EXISTING), 0.8, ["Zoe lives in Oslo."]),
        (ScriptedJudge(Choice.KEEP_BOTH), 0.8, ["Zoe lives in Bergen.", "Zoe lives in Oslo."]),
    ],
)
async def test_a_sure_judgement_is_a_decision_that_can_be_undone(
    open_app: Open, judge: ScriptedJudge, sure: float, left: list[str]
) -> None:
    judge = replace(judge, asked=[])
    async with open_app(judge=judge, judge_confidence=sure) as application:
        await enter(application)
        await contradicted(application)
        (open_,) = await waiting(application)
        before = await texts(application)
        await drained(application)
        assert [one.id for one in judge.asked] == [open_.id]
        assert await texts(application) == left
        assert await waiting(application) == []
        believed, *_ = await memories(application)
        found = await application.services.recall.history(context(application), believed.id)
        assert {one.decided_by for some in found.decisions.values() for one in some} == {BY}
        settled = await present(application)
        change, *_ = (await application.services.changes.page(context(application), None)).changes
        assert change.operation == "judge"
        undo = application.services.changes.undo
        done = await undo(context(application), change.id, dry_run=False, with_dependents=False)
        assert await texts(application) == before
        assert [one.id for one in await waiting(application)] == [open_.id]
        assert done.change_id is not None
        await undo(context(application), done.change_id, dry_run=False, with_dependents=False)
        assert await present(application) == settled


@pytest.mark.parametrize(
    ("judge", "sure"),
    [
        (ScriptedJudge(Choice.KEEP_NEW, 0.7), 0.8),
        (ScriptedJudge(None), 0.8),
        (ScriptedJudge(Choice.KEEP_NEW), None),
        (None, 0.8),
    ],
    ids=["unsure", "cannot tell", "not set", "no model"],
)
async def test_a_dispute_waits_where_the_model_is_not_sure_or_may_not(
    open_app: Open, judge: ScriptedJudge | None, sure: float | None
) -> None:
    judge = None if judge is None else replace(judge, asked=[])
    async with open_app(judge=judge, judge_confidence=sure) as application:
        await enter(application)
        await contradicted(application)
        await drained(application)
        assert len(await waiting(application)) == 1
        assert len(judge.asked if judge else ()) == (sure is not None and judge is not None)


async def test_a_judgement_puts_nothing_above_what_is_trusted_more(open_app: Open) -> None:
    judge = ScriptedJudge(Choice.KEEP_EXISTING)
    async with open_app(judge=judge, judge_confidence=0.5) as application:
        await enter(application)
        services = application.services
        await services.tasks.set_policy(context(application), Policy.ASK)
        for text, agent in (("Zoe lives in Oslo.", "web:crawler"), ("Zoe lives in Bergen.", "")):
            submission = Submission(text, "life")
            source = submission.source.__class__(agent_id=agent or None)
            wish = Wish(Intent.REMEMBER, Submission(text, "life", source=source))
            await services.intents.submit(context(application), wish)
        await drained(application)
        left = await texts(application)

    assert "Zoe lives in Bergen." in left


async def test_an_answer_given_meanwhile_stands(open_app: Open) -> None:
    judge = ScriptedJudge(Choice.KEEP_NEW)
    async with open_app(judge=judge, judge_confidence=0.5) as application:
        await enter(application)
        dispute = await contradicted(application)
        await application.services.reviews.answer(
            context(application), dispute, Choice.KEEP_EXISTING
        )
        await drained(application)
        assert judge.asked == []
        assert await texts(application) == ["Zoe lives in Oslo."]


async def test_a_spent_budget_leaves_the_dispute_to_somebody(open_app: Open) -> None:
    judge = ScriptedJudge(Choice.KEEP_NEW)
    async with open_app(judge=judge, judge_confidence=0.5, model_tokens_per_day=1) as application:
        await enter(application)
        await contradicted(application)
        await drained(application)
        assert judge.asked == []
        assert len(await waiting(application)) == 1
