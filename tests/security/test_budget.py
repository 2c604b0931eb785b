"""A namespace may use the language model up to a daily budget, and does not affect others."""

import asyncio
from datetime import timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.errors import BudgetSpent, ModelAnswerInvalid, ModelUnavailable
from recall_server.domain.extraction import Judgement, Usage
from recall_server.domain.ids import Namespace
from recall_server.domain.query import Query
from recall_server.domain.task import Mode, Request
from recall_server.integrations import llm
from recall_server.integrations.llm import CALL_TOKENS_MAX
from recall_server.integrations.llm.claude_api import ClaudeApi
from recall_server.integrations.llm.roles import ModelExtractor
from recall_server.services.limits import Budget
from recall_server.services.memory.ingest import Submission
from recall_server.storage.store import Store
from tests.support import models, stored
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories
from tests.support.rows import enter as entered
from tests.support.runtime import NOON, Clock

BOB = Namespace("bob")
DAY = int(NOON.timestamp() // 86_400)
# The script reports this cost for a call.
CALL = 120


# The tokens that one call may cost.
MOST = 100
OF_NO_USE = Judgement(None, "m", refused="It is no answer.")


async def answered(budget: Budget, answer: Judgement | Exception, most: int = MOST) -> Judgement:
    """Ask a model that gives this answer, or raises it."""

    async def asked() -> Judgement:
        if isinstance(answer, Exception):
            raise answer
        return answer

    return await budget.ask(ALICE, most, asked)


def costs(tokens_in: int, tokens_out: int) -> Judgement:
    return Judgement(None, "m", usage=Usage("m", tokens_in, tokens_out))


LIMIT = CALL_TOKENS_MAX + 2 * CALL - 1
ANSWER = models.memories([{"text": "Ana lives in Lisbon.", "quote": "I live in Lisbon"}])


def claude(model: models.ScriptedModel) -> ModelExtractor:
    return ModelExtractor(
        ClaudeApi(api_key="sk-secret", model="m", base_url=model.url),
        prompt=llm.load_prompt("extract"),
        attributes="- lives_in: where it lives",
    )


async def hand_in(application: Application, namespace: Namespace, text: str) -> None:
    await application.services.ingest.remember(
        context(application, namespace), Submission(text, "life")
    )


async def spent(store: Store, namespace: Namespace, day: int = DAY) -> int:
    return await stored.spent(store, day, namespace)


async def test_who_has_used_up_a_day_waits_for_the_next_and_others_do_not(
    open_app: Open, clock: Clock
) -> None:
    """The budget allows two calls, and four texts came. Search finds all of them by their words,
    and no call exceeds the budget.
    """
    async with (
        models.ScriptedModel([ANSWER] * 3) as model,
        open_app(extractor=claude(model), model_tokens_per_day=LIMIT) as application,
    ):
        await enter(application)
        await enter(application, BOB)
        for number in range(4):
            await hand_in(application, ALICE, f"Ana: I live in Lisbon, house {number}.")
        await hand_in(application, BOB, "Ana: I live in Lisbon.")
        await drained(application)
        found = await application.services.recall.search(context(application), Query("house 3"))
        stats = await application.services.recall.stats(context(application))

        assert len(model.requests) == 3
        assert await spent(application.store, ALICE) == 2 * CALL
        assert await spent(application.store, BOB) == CALL
        assert stats.backlog.pending_extractions == 2
        assert stats.backlog.failed_extractions == 0
        assert any("house 3" in hit.item.text for hit in found.hits)

        clock.pass_(timedelta(hours=2))
        await drained(application)
        assert len(model.requests) == 3

        model.script += [ANSWER] * 2
        clock.pass_(timedelta(days=1))
        await drained(application)
        stats = await application.services.recall.stats(context(application))
        assert stats.backlog.pending_extractions == 0
        assert await memories(application)


async def test_a_task_waits_for_the_next_day_too(open_app: Open, clock: Clock) -> None:
    async with (
        models.ScriptedModel() as model,
        open_app(extractor=claude(model), model_tokens_per_day=1) as application,
    ):
        await enter(application)
        request = Request(Mode.INGEST, "life", text="Ana: I live in Lisbon.")
        task = await application.services.consolidate.start(context(application), request)
        await drained(application)
        now = await application.services.tasks.get(context(application), task.id)

        assert not now.status.state.idle
        assert model.requests == []


async def test_calls_at_once_reserve_before_they_are_made(store: Store, clock: Clock) -> None:
    """Control: without a limit, all calls are made at once, and nothing is counted."""
    await entered(store, ALICE)
    under_way, over = 0, asyncio.Event()

    async def call(budget: Budget) -> None:
        async def asked() -> Judgement:
            nonlocal under_way
            under_way += 1
            await over.wait()
            return costs(10, 5)

        await budget.ask(ALICE, MOST, asked)

    async def at_once(tokens_a_day: int, expected: int) -> int:
        nonlocal under_way
        under_way = 0
        over.clear()
        budget = Budget(store, clock, tokens_a_day)
        calls = [asyncio.create_task(call(budget)) for _ in range(8)]
        done = 0
        while under_way < expected or done < 8 - expected:
            await asyncio.wait(calls, timeout=0.05)
            done = sum(one.done() for one in calls)
        over.set()
        results = await asyncio.gather(*calls, return_exceptions=True)
        return sum(isinstance(one, BudgetSpent) for one in results)

    assert await at_once(350, 3) == 5
    assert await spent(store, ALICE) == 45
    assert await at_once(0, 8) == 0
    assert await spent(store, ALICE) == 45


async def test_what_was_not_answered_costs_nothing_and_what_was_of_no_use_all(
    store: Store, clock: Clock
) -> None:
    await entered(store, ALICE)
    budget = Budget(store, clock, 250)
    with pytest.raises(ModelUnavailable):
        await answered(budget, ModelUnavailable())
    assert await spent(store, ALICE) == 0
    with pytest.raises(ModelAnswerInvalid):
        await answered(budget, ModelAnswerInvalid())
    assert await spent(store, ALICE) == 100
    await answered(budget, costs(0, 0), most=0)
    assert await spent(store, ALICE) == 100
    await answered(budget, costs(120, 60))
    assert await spent(store, ALICE) == 280
    with pytest.raises(BudgetSpent) as refused:
        await answered(budget, AssertionError())
    assert refused.value.retry_after_s == 43_200


async def test_another_day_is_counted_by_itself_and_forgotten_after_a_month(
    store: Store, clock: Clock
) -> None:
    await entered(store, ALICE)
    budget = Budget(store, clock, 100)
    for _ in range(2):
        await answered(budget, OF_NO_USE)
        with pytest.raises(BudgetSpent):
            await answered(budget, AssertionError())
        clock.pass_(timedelta(days=32))

    assert await spent(store, ALICE) == 0
    assert await spent(store, ALICE, DAY + 32) == 100


async def test_what_was_spent_is_erased_with_the_namespace(open_app: Open) -> None:
    async with open_app(model_tokens_per_day=100) as application:
        await enter(application)
        await answered(application.services.ingest.budget, OF_NO_USE)
        erased = await application.services.erase.namespace(context(application), "DELETE MY DATA")

        assert erased.counts["model_spend"] == 1
        assert await spent(application.store, ALICE) == 0
