"""A score is the likelihood that the hit answers the question. The tests use the product's default
vectors, for which this was measured.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.query import Query, SearchMode
from recall_server.services.search.recall import Found
from tests.support.application import Open, settings_for
from tests.support.conversation import context, drained, enter, remember
from tests.support.runtime import Clock, RandomBytes
from tests.support.searches import asked

MANUAL = """# House manual

The boiler is in the cellar behind the wine rack. Bleed the radiators in October.
- Vet: 0171 2233
- Plumber: ask at the bakery
The blue bin goes out on Tuesdays. Nobody may feed the heron."""
MARCUS = "Marcus: I teach Latin at the grammar school in Bonn. Hazelnuts make me ill."
THRESHOLD = 0.2
ANSWERED = {
    "Where is the boiler?": "cellar",
    "What is the number of the vet?": "0171 2233",
    "When does the blue bin go out?": "Tuesdays",
    "What does Marcus teach?": "Latin",
}
NOT_STORED = (
    "How many moons has Jupiter?",
    "Who won the chess tournament in Baku?",
    "What is the refund policy for season tickets?",
)


@pytest.fixture
async def application(database: Path | str, clock: Clock) -> AsyncIterator[Application]:
    async with open_application(
        settings_for(database), now=clock, random_bytes=RandomBytes()
    ) as built:
        await enter(built)
        for text in (MANUAL, MARCUS):
            await remember(built, text)
        await drained(built)
        yield built


async def answer(application: Application, question: str, **given: object) -> Found:
    query = Query(question, **given)  # type: ignore[arg-type]
    return await application.services.recall.search(context(application), query, cite=True)


async def test_a_threshold_tells_an_answer_from_a_question_about_nothing_stored(
    application: Application,
) -> None:
    for question, words in ANSWERED.items():
        (first, *_) = (await answer(application, question, score_threshold=THRESHOLD)).hits
        assert words in f"{first.text} {first.quote}", question
    for question in NOT_STORED:
        assert (await answer(application, question)).hits, question
        assert (await answer(application, question, score_threshold=THRESHOLD)).hits == ()


async def test_a_broad_question_is_answered_by_what_is_known_and_weak_without_it(
    application: Application,
) -> None:
    about_marcus = await answer(application, "What do you know about Marcus?")
    about_greta = await answer(application, "What do you know about Greta?")
    without = await answer(application, "What are Marcus' preferences?")
    await remember(application, "Marcus: I prefer the window seat on trains.")
    await drained(application)
    preferred = await answer(application, "What are Marcus' preferences?")
    day = await answer(application, "What did we talk about in March 1999?")

    assert not about_marcus.weak_evidence
    assert all("Marcus" in hit.text for hit in about_marcus.hits)
    assert about_greta.weak_evidence
    assert without.weak_evidence
    assert not preferred.weak_evidence
    assert "window seat" in preferred.hits[0].text
    assert day.weak_evidence


async def test_what_is_noise_beside_the_first_hit_is_left_out_unless_all_is_asked_for(
    application: Application,
) -> None:
    question = "What is the number of the vet?"
    found = await answer(application, question)
    padded = await answer(application, question, score_threshold=0.0)

    assert 0 < found.left_out == len(padded.hits) - len(found.hits)
    assert padded.left_out == 0
    kept = [hit.item.id for hit in found.hits]
    assert [hit.item.id for hit in padded.hits if hit.item.id in kept] == kept
    least = min(hit.scores.score for hit in found.hits[1:] or found.hits)
    assert all(hit.scores.score < least for hit in padded.hits[1:] if hit.item.id not in kept)


async def test_a_text_answers_alone_where_the_others_say_nothing_of_it(
    application: Application,
) -> None:
    steps = ("Drain the node", "Wait for the queue to be empty", "Start the gateway again")
    runbook = "\n".join(["# Restart of the payment gateway", *(f"- {one}." for one in steps)])
    await remember(application, runbook)
    await drained(application)

    found = await answer(application, "How do I restart the payment gateway?", limit=3)

    assert sorted(one for hit in found.hits for one in steps if one in hit.text) == sorted(steps)


async def test_evidence_goes_by_the_hits_that_are_shown(application: Application) -> None:
    question = "What is the number of the vet?"
    shown = await answer(application, question)
    nothing = await answer(application, question, max_tokens=0)

    assert not shown.weak_evidence
    assert (nothing.hits, nothing.evidence, nothing.weak_evidence) == ((), 0.0, True)


async def test_the_score_of_a_hit_is_the_same_however_many_are_wanted_and_alone_the_evidence(
    application: Application,
) -> None:
    few = await answer(application, "Where are the boiler and the vet?", limit=1)
    many = await answer(application, "Where are the boiler and the vet?")
    alone = await answer(application, "What does Marcus teach?")

    assert few.hits[0].scores.score == many.hits[0].scores.score
    assert len(many.hits) > len(alone.hits) == 1
    assert alone.hits[0].scores.score == pytest.approx(alone.evidence)


async def test_weak_evidence_quotes_no_more_than_the_cited_words_after_three_hits(
    application: Application,
) -> None:
    paragraphs = (
        "Tilda keeps the bees. They are behind the orchard.",
        "Desh mends the gate. He needs new hinges for it.",
        "Olwen chairs the club. She has done it since 2019.",
        "Rafe paints the benches. Two of them are green.",
    )
    await remember(application, "\n\n".join(paragraphs))
    await drained(application)
    weak = await answer(application, NOT_STORED[1], score_threshold=0.0)
    strong = await answer(application, "Who mends the gate, and who chairs?", score_threshold=0.0)

    def in_full(found: Found) -> list[bool]:
        return [hit.quote != hit.item.citation.quote for hit in found.hits if hit.quote]

    assert weak.weak_evidence
    assert not strong.weak_evidence
    assert len(weak.hits) > 5
    assert not any(in_full(weak)[3:])
    assert any(in_full(strong)[3:])
    assert all(hit.item.citation.quote in hit.quote for hit in weak.hits if hit.quote)


@pytest.mark.parametrize("mode", list(SearchMode))
async def test_the_weights_tell_how_the_order_came_about(
    application: Application, mode: SearchMode
) -> None:
    found = await answer(application, "Where is the boiler?", mode=mode)

    for hit in found.hits if mode is not SearchMode.VECTOR else ():
        assert {name for name in found.weights if name in hit.scores.signals} == set(found.weights)
    if mode in (SearchMode.RECALL, SearchMode.VECTOR):
        assert all(hit.scores.score == hit.scores.final for hit in found.hits)
    if mode is SearchMode.RECALL:
        signals = found.hits[0].scores.signals
        total = sum(weight * (signals[name] or 0.0) for name, weight in found.weights.items())
        assert found.hits[0].scores.final == pytest.approx(total)


@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.KEYWORD])
async def test_no_hit_has_a_better_score_than_one_above_it(
    application: Application, mode: SearchMode
) -> None:
    await remember(application, "I live in Rome and I like the river there.")
    await drained(application)
    await remember(application, "I moved from Rome to Bern.")
    await drained(application)
    for question in ("Where do I live, in Rome?", "Rome", *ANSWERED, *NOT_STORED):
        found = await answer(application, question, mode=mode, score_threshold=0.0)
        scores = [hit.scores.score for hit in found.hits]

        assert scores == sorted(scores, reverse=True), question


async def test_what_took_the_place_of_a_better_hit_takes_its_score(
    application: Application,
) -> None:
    await remember(application, "I live in Rome.")
    await drained(application)
    (old,) = (await answer(application, "Do I live in Rome?", limit=1)).hits
    await remember(application, "I moved from Rome to Bern.")
    await drained(application)
    new, gone = (await answer(application, "Do I live in Rome?", limit=2)).hits

    assert gone.item.superseded_by == new.item.id
    assert new.scores.score >= gone.scores.score
    assert new.scores.score == pytest.approx(old.scores.score, abs=0.2)


async def test_a_memory_shown_for_the_one_that_it_superseded_is_no_weak_evidence(
    application: Application,
) -> None:
    for said in ("I live in Porto.", "I moved to Lisbon."):
        await remember(application, f"Ana: {said}")
        await drained(application)
    found = await answer(application, "Where does Ana live?", limit=1)
    assert [hit.text for hit in found.hits] == ["Ana moved to Lisbon."]
    assert not found.weak_evidence


async def test_a_title_with_the_words_of_the_question_is_no_answer(open_app: Open) -> None:
    title = "Payroll migration weekly"
    call = "Priya: Can we move this call to Wednesdays?\nHenrik: At nine, then.\nPriya: Good."
    async with open_app() as application:
        await enter(application)
        await remember(application, f"{title}\n\n{call}")
        hits = await asked(application, "When is the weekly payroll migration call?")
        await remember(application, "Payroll cutover checklist")
        alone = await asked(application, "Where is the payroll cutover checklist?")

    assert "Wednesdays" in hits[0].text
    assert title in [hit.text for hit in hits]
    assert alone[0].text == "Payroll cutover checklist"


async def test_the_first_line_of_notes_may_be_the_answer(open_app: Open) -> None:
    notes = "the blood test results are not there yet\n\ncall the plumber about the sink"
    async with open_app() as application:
        await enter(application)
        await remember(application, f"blood group A negative\n\n{notes}")
        hits = await asked(application, "What is my blood group?")

    assert hits[0].text == "blood group A negative"
