"""A question for one fact finds the memory that states it, whatever its words."""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.permissions import AccessScope
from recall_server.domain.query import Query, SearchMode
from recall_server.domain.search.fact_question import FactQuestion, fact_question
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import context, enter
from tests.support.searches import asked

HOMES = {
    "I live on Park Row in Bath.": 2021,
    "Nora lives in Lyon.": 2022,
    "Nora lives in Oslo.": 2024,
    "I moved to Bristol.": 2024,
    "Nora moved to Madrid.": 2025,
}


async def stored(application: Application, texts: Mapping[str, int]) -> None:
    """Store texts that were said in these years, and make memories of them."""
    for text, year in texts.items():
        said = datetime(year, 1, 10, tzinfo=UTC)
        await application.services.ingest.remember(
            context(application), Submission(text, "homes", occurred_at=said)
        )
        while await application.worker.run_once():
            pass


@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.KEYWORD])
@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("Where do I live?", "The user moved to Bristol."),
        ("Where does Nora live now?", "Nora moved to Madrid."),
        ("Where did Nora live in 2022?", "Nora lives in Lyon."),
        ("Where did Nora live in November 2024?", "Nora lives in Oslo."),
        ("Where did I live in 2022?", "The user lives on Park Row in Bath."),
    ],
)
async def test_what_held_at_the_time_of_the_question_stands_first(
    open_app: Open, question: str, first: str, mode: SearchMode
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, HOMES)
        found = await asked(application, question, mode=mode)

    assert found[0].text == first


async def test_where_several_moved_stands_above_an_earlier_home_but_supersedes_none(
    open_app: Open,
) -> None:
    moved, home = "The user: We moved to York in spring.", "The user lives in Bristol."
    async with open_app() as application:
        await enter(application)
        await stored(application, {"I live in Bristol.": 2024, "We moved to York in spring.": 2025})
        now = await asked(application, "Where do I live?")
        then = await asked(application, "Where did I live in 2024?")
        await stored(application, {"I moved to Hull.": 2026})
        later = await asked(application, "Where do I live?")

    assert [hit.text for hit in now] == [moved, home]
    assert [hit.item.superseded_by for hit in now] == [None, None]
    assert then[0].text == home
    assert later[0].text == "The user moved to Hull."


async def test_a_fact_is_found_by_another_name_of_its_subject(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, HOMES)
        before = await asked(application, "Where does Honey live?")
        await application.services.aliases.set(context(application), "Nora", ["Honey"])
        hits = await asked(application, "Where does Honey live?")

    assert before[0].text != hits[0].text
    assert hits[0].text == "Nora moved to Madrid."


async def test_a_limited_token_does_not_learn_of_another_name(open_app: Open) -> None:
    query = Query("Where does Honey live?")
    async with open_app() as application:
        await enter(application)
        await stored(application, HOMES)
        limited = context(application, scope=AccessScope(topics=frozenset({"homes"})))
        before = await application.services.recall.search(limited, query)
        await application.services.aliases.set(context(application), "Nora", ["Honey"])
        found = await application.services.recall.search(limited, query)
        unlimited = await application.services.recall.search(context(application), query)

    assert [hit.item.id for hit in found.hits] == [hit.item.id for hit in before.hits]
    assert unlimited.hits[0].text == "Nora moved to Madrid."
    assert before.weak_evidence
    assert not unlimited.weak_evidence


@pytest.mark.parametrize(
    ("question", "weak"), [("Where do I live?", True), ("Where does my mum live?", False)]
)
async def test_the_same_fact_of_somebody_else_is_no_evidence(
    open_app: Open, question: str, weak: bool
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, {"My mum Leela lives in Pune.": 2022, "I run a bakery.": 2023})
        found = await application.services.recall.search(context(application), Query(question))

    assert found.hits[0].text == "The user's mum Leela lives in Pune."
    assert found.weak_evidence == weak


async def test_a_first_name_is_enough_if_one_subject_has_it(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, {"Nora Keller moved to Rome.": 2024, "I live in Bath.": 2025})
        hits = await asked(application, "Where does Nora live?")

    assert hits[0].text == "Nora Keller moved to Rome."


LIVES = ("lives_in", "moved_to")


@pytest.mark.parametrize(
    ("question", "fact"),
    [
        ("Where do I live?", FactQuestion("user", LIVES)),
        ("And where does Dr. Chen live?", FactQuestion("Dr. Chen", LIVES)),
        ("where did nora live in 2024", FactQuestion("nora", LIVES, timed=True)),
        ("What’s my sister’s job?", FactQuestion("user's sister", ("job_title", "works_at"))),
        ("Who am I?", FactQuestion("user", ("name",))),
        ("What is my wife's name?", FactQuestion("user", ("partner",))),
        ("What is Simon's number?", FactQuestion("Simon", ("phone",))),
        ("Wo wohnt Tobi?", FactQuestion("Tobi", LIVES)),
        ("¿Dónde vivo?", FactQuestion("user", LIVES)),
        ("Où habite Marie ?", FactQuestion("Marie", LIVES)),
        ("我住在哪里？", FactQuestion("user", LIVES)),
        ("私はどこに住んでいますか？", FactQuestion("user", LIVES)),
        ("Where do you live?", None),
        ("Where does she live?", None),
        ("Where does Nora live when she is in Paris?", None),
        ("What do I do if the router fails?", None),
        ("Where do I live? " * 20, None),
    ],
)
def test_only_a_question_for_one_fact_and_nothing_else_is_one(
    question: str, fact: FactQuestion | None
) -> None:
    assert fact_question(question) == fact


async def test_the_value_that_holds_stands_first_after_a_hundred_others(open_app: Open) -> None:
    towns = [f"Town{number}" for number in range(105)]
    async with open_app() as application:
        await enter(application)
        for day, town in enumerate(towns):
            said = datetime(2021, 1, 10, tzinfo=UTC) + timedelta(days=day)
            text = Submission(f"Nora lives in {town}.", "homes", occurred_at=said)
            await application.services.ingest.remember(context(application), text)
        while await application.worker.run_once():
            pass
        hits = await asked(application, "Town0", mode=SearchMode.KEYWORD)

    assert [hit.text for hit in hits] == ["Nora lives in Town104.", "Nora lives in Town0."]
