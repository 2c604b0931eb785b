"""Of two statements about one thing, the later ranks higher, if no typed fact has decided."""

from collections.abc import Sequence
from datetime import timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.episode import Source
from recall_server.domain.query import Hit, SearchMode, Step
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import context, enter
from tests.support.runtime import Clock
from tests.support.searches import asked

EARLIER = "The office printer is associated with the address 10.0.0.7."
# This is longer, and so less like the question.
LATER = "The office printer is now associated, after the move, with the address 10.0.0.9."
QUESTION = "Which address is the office printer associated with?"
LONG = (
    " The lift was repaired in spring after the tenants had complained, the bill went to the "
    "landlord, and nobody has heard of the promised second entrance or of bicycle stands since."
)


async def stored(application: Application, clock: Clock, *texts: str, **given: str) -> None:
    for text in texts:
        clock.pass_(timedelta(minutes=1))
        submission = Submission(
            text,
            "office",
            source=Source(None, given.get("agent")),
            container=given.get("container", ""),
        )
        await application.services.ingest.remember(context(application), submission)


def texts(hits: Sequence[Hit]) -> list[str]:
    return [hit.text for hit in hits]


@pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.KEYWORD])
async def test_the_later_of_two_statements_stands_first_and_the_earlier_names_it(
    open_app: Open, clock: Clock, mode: SearchMode
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, EARLIER, LATER)
        without = await asked(application, QUESTION, mode=mode, without=frozenset({Step.CURRENCY}))
        hits = await asked(application, QUESTION, mode=mode)

    assert texts(without) == [EARLIER, LATER]
    assert texts(hits) == [LATER, EARLIER]
    assert [hit.gave_way_to for hit in hits] == [None, hits[0].item.id]
    assert hits[0].scores.final == without[0].scores.final


async def test_what_gave_way_names_a_hit_and_not_a_passage_that_a_memory_stands_for(
    open_app: Open, clock: Clock
) -> None:
    said = ["We meet on Tuesdays at 10 in Heron.", "From now on we meet on Wednesdays at 10."]
    async with open_app() as application:
        await enter(application)
        for text in (said[0], "I want to run the Berlin marathon in September.", said[1]):
            await stored(application, clock, text)
            while await application.worker.run_once():
                pass
        hits = await asked(application, "When do we meet?", mode=SearchMode.KEYWORD)

    assert [hit.quote for hit in hits[:2]] == said[::-1]
    assert [hit.gave_way_to for hit in hits[:2]] == [None, hits[0].item.id]


async def test_items_below_one_heading_are_not_about_one_thing(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(
            application, clock,
            "Wedding of Rosa and Tim, food\n\n- Uncle Pavel: no fish\n- Cake with three tiers",
        )  # fmt: skip
        while await application.worker.run_once():
            pass
        hits = await asked(application, "What food may uncle Pavel have?")

    assert "Pavel" in hits[0].text
    assert [hit.gave_way_to for hit in hits] == [None] * len(hits)


async def test_the_latest_of_three_stands_first_and_also_where_only_one_is_wanted(
    open_app: Open, clock: Clock
) -> None:
    middle = LATER.replace("10.0.0.9", "10.0.0.8")
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, EARLIER, middle, LATER)
        hits = await asked(application, QUESTION)
        (best,) = await asked(application, QUESTION, limit=1)

    assert hits[0].text == best.text == LATER
    assert [hit.gave_way_to for hit in hits[1:]] == [hits[0].item.id] * 2


@pytest.mark.parametrize(
    "other",
    [
        "The office printer was bought from a shop in Leeds.",
        "The garden gate is associated with the address 10.0.0.9.",
        LATER + LONG,
    ],
    ids=["about something else", "about another thing", "with more in it"],
)
async def test_a_later_statement_that_is_not_about_the_same_thing_moves_nothing(
    open_app: Open, clock: Clock, other: str
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, EARLIER, other)
        hits = await asked(application, QUESTION)

    assert hits[0].text == EARLIER
    assert {hit.gave_way_to for hit in hits} == {None}


CHANGED = [
    (
        "We get our butter from Dales Dairy.",
        "Butter is now from Acorn Dairy.",
        "Who supplies our butter?",
    ),
    (
        "Dinner for mum is on the 14th, a small one somewhere in Hackney.",
        "Dinner for mum moved to the 15th because the Fofó is closed.",
        "When is the dinner for mum?",
    ),
    (
        "Backups run at 2 am every night.",
        "Backups no longer run so early but at 4 am, to leave room for the import.",
        "When do backups run?",
    ),
    (
        "The cabin by the lake is for 6 guests.",
        "In the cabin by the lake we put up only 4 guests now, as the fire brigade wants.",
        "How many guests is the cabin for?",
    ),
    (
        "Das Training ist in der Halle Nord, montags um 19 Uhr.",
        "Wegen der Heizung wurde das Training auf Mittwoch verschoben.",
        "Wann ist das Training?",
    ),
    (
        "La profesora de piano se llama Marta.",
        "Desde que Marta se fue, la nueva profesora de piano es Lucía.",
        "¿Quién es la profesora de piano?",
    ),
    (
        "Le cours de danse a lieu le mardi à 18 h.",
        "Le cours de danse est désormais le jeudi, dans la petite salle.",
        "Quand est le cours de danse ?",
    ),
    (
        "The kitchen is green.",
        "Actually, the kitchen is white, with a slate floor that came out of the old school.",
        "What colour is the kitchen?",
    ),
    ("停车位是十四号，在电梯旁边。", "停车位现在是二十二号。", "停车位是几号？"),
    ("駐車場は入口の近くの14番です。", "駐車場は今22番です。", "駐車場は何番ですか？"),
]


@pytest.mark.parametrize(("earlier", "later", "question"), CHANGED)
async def test_a_later_statement_that_something_changed_stands_first_if_it_has_an_answer(
    open_app: Open, clock: Clock, earlier: str, later: str, question: str
) -> None:
    """They have few words in common."""
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, earlier, later)
        hits = await asked(application, question)

    assert texts(hits) == [later, earlier]


@pytest.mark.parametrize(
    ("earlier", "later", "question"),
    [
        (
            "The launch is on 3 May.",
            "The launch now has a sponsor who pays for the party in the Old Mill.",
            "When is the launch?",
        ),
        (
            "The boiler was fixed by Dervish.",
            "The boiler has got a new thermostat, which is to be read every evening.",
            "Who fixed the boiler?",
        ),
        (
            "Le cours de danse est le mardi.",
            "Le cours de danse a une nouvelle salle, avec des miroirs et un grand parquet.",
            "Quand est le cours de danse ?",
        ),
    ],
)
async def test_a_later_statement_that_something_else_changed_moves_nothing(
    open_app: Open, clock: Clock, earlier: str, later: str, question: str
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, earlier, later)
        hits = await asked(application, question)

    assert hits[0].text == earlier
    assert {hit.gave_way_to for hit in hits} == {None}


async def test_a_change_with_the_words_and_the_number_of_a_heading_alone_moves_nothing(
    open_app: Open, clock: Clock
) -> None:
    report = (
        "# Checkout latency, 3 November 2026\n\nAbout 11 % of checkouts took too long.\n\n"
        "## Actions\n- The platform team owns the cart service from now on."
    )
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, report)
        hits = await asked(application, "How many checkouts were slow?")

    assert len(hits) == 2
    assert {hit.gave_way_to for hit in hits} == {None}


async def test_what_stands_in_another_container_moves_nothing(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, EARLIER, container="first")
        await stored(application, clock, LATER, container="second")
        hits = await asked(application, QUESTION)

    assert texts(hits) == [EARLIER, LATER]


async def test_what_a_tool_fetched_never_goes_above_what_a_person_said(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, EARLIER)
        await stored(application, clock, LATER, agent="web:shop.example")
        hits = await asked(application, QUESTION)
        await stored(application, clock, LATER.replace("10.0.0.9", "10.0.0.8"))
        again = await asked(application, QUESTION)

    assert texts(hits) == [EARLIER, LATER]
    assert "10.0.0.8" in again[0].text


async def test_two_people_who_say_the_same_of_themselves_do_not_give_way(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(
            application,
            clock,
            "Ann: I take the number 7 bus to the harbour.",
            "Ben: I take the number 9 bus to the harbour.",
        )
        hits = await asked(application, "Who takes the number 7 bus to the harbour?")

    assert hits[0].text.startswith("Ann")
    assert {hit.gave_way_to for hit in hits} == {None}


@pytest.mark.parametrize(
    ("later", "gives_way"),
    [
        ("Dana of the sales team works in Perth.", False),
        ("Carl of the sales team works in Perth.", True),
    ],
)
async def test_what_is_said_of_another_at_its_beginning_takes_the_place_of_nothing(
    open_app: Open, clock: Clock, later: str, gives_way: bool
) -> None:
    """The control: it is said of the same one."""
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, "Carl of the sales team works in Ghent.", later)
        hits = await asked(application, "Where does the sales team work?")

    assert any(hit.gave_way_to for hit in hits) is gives_way


async def test_the_formula_of_mode_recall_is_not_changed(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, EARLIER, LATER)
        hits = await asked(application, QUESTION, mode=SearchMode.VECTOR)
        recalled = await asked(application, QUESTION, mode=SearchMode.RECALL)

    assert {hit.gave_way_to for hit in (*hits, *recalled)} == {None}


async def first_of_two(open_app: Open, clock: Clock, said: str) -> tuple[str, str, str]:
    """Return two statements, "earlier | later | question", and what stands first."""
    earlier, later, question = said.split(" | ")
    async with open_app() as application:
        await enter(application)
        await stored(application, clock, earlier, later)
        hits = await asked(application, question)
    return earlier, later, hits[0].text


@pytest.mark.parametrize(
    "said",
    [
        (
            "I take 5 mg of ramipril. | The doctor put me up to 10 mg of ramipril."
            " | How much ramipril do I take?"
        ),
        "I run 20 km a week. | I'm up to 35 km a week now. | How far do I run each week?",
        (
            "API keys are rotated every 90 days. | Key rotation is every 30 days now."
            " | How often are API keys rotated?"
        ),
        "My flight leaves at 7:10. | The flight was moved to 9:45. | When does my flight leave?",
        (
            "The server runs Ubuntu 22.04. | We upgraded the server to Ubuntu 24.04."
            " | Which Ubuntu does the server run?"
        ),
        "My cat weighs 6.2 kg. | The cat is down to 5.8 kg. | How much does my cat weigh?",
        "The door code is oak. | I changed the door code to elm. | What is the door code?",
    ],
)
async def test_a_later_value_of_the_same_kind_stands_first(
    open_app: Open, clock: Clock, said: str
) -> None:
    _, later, first = await first_of_two(open_app, clock, said)

    assert first == later


@pytest.mark.parametrize(
    "said",
    [
        (
            "I take 5 mg of ramipril. | Dad takes 10 mg of ramipril now."
            " | How much ramipril do I take?"
        ),
        "My flight leaves at 7:10. | Ben's flight was moved to 9:45. | When does my flight leave?",
        "My cat weighs 6.2 kg. | The new bag of cat food is 5 kg. | How much does my cat weigh?",
        "My cat weighs 6.2 kg. | My cat now sleeps 9 hours. | How much does my cat weigh?",
    ],
)
async def test_a_later_value_of_somebody_else_or_of_another_kind_does_not(
    open_app: Open, clock: Clock, said: str
) -> None:
    earlier, _, first = await first_of_two(open_app, clock, said)

    assert first == earlier
