"""If a model is not sure and the setting asks for a person, its statement waits as a proposal."""

from dataclasses import replace

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.episode import Span
from recall_server.domain.errors import NotWaiting
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Fact, MemoryType, Status
from recall_server.domain.plan import Policy
from recall_server.domain.query import Query
from recall_server.services.tasks.reviews import Review, ReviewKind, Verdict
from tests.support.application import Open
from tests.support.conversation import context, drained, enter, memories, remember
from tests.support.extractors import Scripted

SAID = "I may move to Porto. I like tea."
PORTO = Candidate(
    "Ana may move to Porto.",
    MemoryType.FACT,
    Span(0, 20),
    Fact("Ana", "plans", "Porto"),
    confidence=0.4,
)
TEA = Candidate("Ana likes tea.", MemoryType.PREFERENCE, Span(21, 32))


async def waiting(application: Application) -> list[Review]:
    asked: Context = context(application)
    return await application.services.reviews.waiting(asked, {ReviewKind.PROPOSAL}, limit=10)


@pytest.mark.parametrize(
    ("policy", "doubted", "believed"),
    [
        (Policy.ASK, PORTO, ["Ana likes tea."]),
        (Policy.ASK, replace(PORTO, confidence=0.9, needs_review=True), ["Ana likes tea."]),
        (Policy.ASK, replace(PORTO, confidence=0.9), ["Ana likes tea.", "Ana may move to Porto."]),
        (Policy.DECIDE, PORTO, ["Ana likes tea.", "Ana may move to Porto."]),
    ],
)
async def test_what_a_model_doubts_waits_only_where_somebody_is_to_be_asked(
    open_app: Open, policy: Policy, doubted: Candidate, believed: list[str]
) -> None:
    extractor = Scripted(**{"move to Porto": doubted, "like tea": TEA})
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await application.services.tasks.set_policy(context(application), policy)
        await remember(application, SAID)
        await drained(application)
        found = sorted(one.text for one in await memories(application))
        asked = await waiting(application)

    assert found == believed
    assert len(asked) == 2 - len(believed)


async def test_an_accepted_one_is_found_and_a_rejected_one_leaves_its_words(
    open_app: Open,
) -> None:
    other = replace(TEA, text="Ana likes green tea.", needs_review=True)
    extractor = Scripted(**{"move to Porto": PORTO, "like tea": other})
    async with open_app(extractor=extractor) as application:
        await enter(application)
        reviews, recall = application.services.reviews, application.services.recall
        await application.services.tasks.set_policy(context(application), Policy.ASK)
        await remember(application, SAID)
        await drained(application)
        by_text = {
            one.proposed.new[0].text: one for one in await waiting(application) if one.proposed
        }
        held = {one.proposed.new[0].status for one in by_text.values() if one.proposed}
        await reviews.answer(context(application), by_text[PORTO.text].id, Verdict.ACCEPT)
        await reviews.answer(context(application), by_text[other.text].id, Verdict.REJECT)
        believed = [one.text for one in await memories(application)]
        porto, tea = [
            [hit.text for hit in (await recall.search(context(application), Query(asked))).hits]
            for asked in ("Porto", "tea")
        ]
        # A second extraction does not propose it again.
        await remember(application, "Something else.")
        await drained(application)
        left = await waiting(application)

    assert held == {Status.QUARANTINED}
    assert believed == [PORTO.text]
    assert PORTO.text in porto
    assert other.text not in tea
    assert any("I like tea." in text for text in tea)
    assert left == []


async def test_what_waits_is_in_no_timeline_and_ends_with_its_text(open_app: Open) -> None:
    extractor = Scripted(**{"move to Porto": PORTO})
    async with open_app(extractor=extractor) as application:
        await enter(application)
        services = application.services
        await services.tasks.set_policy(context(application), Policy.ASK)
        stored = await remember(application, SAID)
        await drained(application)
        before = await services.recall.timeline(context(application), "Ana", "plans")
        asked = await waiting(application)
        await services.texts.forget(context(application), stored.episode_id)
        left = await waiting(application)
        with pytest.raises(NotWaiting):
            await services.reviews.answer(context(application), asked[0].id, Verdict.ACCEPT)

    assert before.memories == ()
    assert (len(asked), left) == (1, [])
