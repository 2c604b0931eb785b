"""Questions that name an event: what lies to it as they say stands higher, nothing is left out."""

from dataclasses import replace

import pytest

from recall_server.application import Application
from recall_server.domain.query import Hit, Part, Query, SearchMode
from tests.conftest import Open
from tests.services.conversation import ALICE, drained, enter
from tests.services.test_search import looked, tell
from tests.services.travelling import BOB

TALKS = (
    "--- 8 January 2023 ---\nAnn: I painted the boat blue.\nBen: Good colour.",
    "--- 8 May 2023 ---\nAnn: The regatta was today, we came second.\nBen: Well done!",
    "--- 8 September 2023 ---\nAnn: I painted the boat red.\nBen: I like that.",
)
BEFORE = Query("Which colour did Ann paint the boat before the regatta?", limit=10)
AFTER = replace(BEFORE, text=BEFORE.text.replace("before", "after"))


async def told(application: Application) -> None:
    await enter(application)
    for number, talk in enumerate(TALKS):
        await tell(application, talk, session=f"s{number}")
    await drained(application)


def first(hits: list[Hit], *words: str) -> str:
    """Which of these words is in the hit that stands first of those that have any."""
    return next(word for hit in hits for word in words if word in hit.item.text)


def event(hits: list[Hit], word: str) -> float | None:
    return next(hit.scores.event for hit in hits if word in hit.item.text)


async def test_what_was_before_or_after_an_event_stands_higher(open_app: Open) -> None:
    async with open_app() as application:
        await told(application)
        before, after = await looked(application, BEFORE), await looked(application, AFTER)

        assert first(before, "blue", "red") == "blue"
        assert first(after, "blue", "red") == "red"
        assert event(before, "blue") == event(after, "red") == 1.0
        assert event(before, "red") == pytest.approx(0.0, abs=0.01)
        assert {hit.item.id for hit in before} == {hit.item.id for hit in after}


async def test_it_can_be_left_out_and_has_no_say_where_no_event_is_known(open_app: Open) -> None:
    async with open_app() as application:
        await told(application)
        left_out = replace(BEFORE, without=frozenset({Part.EVENT}))
        unknown = replace(BEFORE, text="Which colour did Ann paint the boat before the earthquake?")

        for query in (left_out, unknown, replace(BEFORE, mode=SearchMode.RECALL)):
            assert {hit.scores.event for hit in await looked(application, query)} == {None}


async def test_what_another_namespace_remembers_of_it_does_not_count(open_app: Open) -> None:
    """ISO-03: the time of an event is that of this namespace's memories."""
    async with open_app() as application:
        await enter(application)
        await enter(application, BOB)
        for talk in (TALKS[0], TALKS[2]):
            await tell(application, talk)
        await tell(application, TALKS[1], BOB)
        await drained(application)
        assert {hit.scores.event for hit in await looked(application, BEFORE)} == {None}
        await tell(application, TALKS[1], ALICE)
        await drained(application)
        assert event(await looked(application, BEFORE), "blue") == 1.0, "the positive control"
