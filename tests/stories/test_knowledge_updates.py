"""What changed in a life: the value that holds now stands first, and the old one as of then."""

from dataclasses import dataclass
from datetime import UTC, datetime

from recall_server.domain.moments import PRESENT, Past
from recall_server.domain.query import Query
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import context, drained, enter


@dataclass(frozen=True)
class Update:
    """What was said in 2024 and in 2025, and what somebody asks; a word tells the values apart."""

    before: str
    after: str
    question: str
    old: str
    new: str


UPDATES = (
    Update(
        "User: I live in Porto, two streets from the river.",
        "User: We have moved. I live in Lisbon now.",
        "Where do I live?",
        *("Porto", "Lisbon"),
    ),
    Update(
        "User: I work at Initech as an accountant.",
        "User: I left Initech in spring. I work at Globex now.",
        "Where do I work?",
        *("Initech as", "Globex"),
    ),
    Update(
        "User: My favourite tea is oolong.",
        "User: My favourite tea is sencha these days.",
        "What is my favourite tea?",
        *("oolong", "sencha"),
    ),
    Update(
        "User: The team meeting is on Tuesdays at nine.",
        "User: The team meeting is on Thursdays at ten now.",
        "When is the team meeting?",
        *("Tuesdays", "Thursdays"),
    ),
    Update(
        "User: We decided to use MySQL for the billing service.",
        "User: We decided to use Postgres for the billing service instead.",
        "Which database does the billing service use?",
        *("MySQL", "Postgres"),
    ),
    Update(
        "User: My doctor is Dr Alvarez, at the clinic by the park.",
        "User: My doctor is Dr Brandt now, since Dr Alvarez retired.",
        "Who is my doctor?",
        *("Alvarez, at", "Brandt"),
    ),
    Update(
        "User: I run three times a week, five kilometres each.",
        "User: I run five times a week now, ten kilometres each.",
        "How often do I run each week?",
        *("three times", "five times"),
    ),
    Update(
        "User: The spare key is in the blue flower pot.",
        "User: I took the spare key out of the flower pot; it is with Mrs Okafor next door.",
        "Where is the spare key?",
        *("blue", "Okafor"),
    ),
    Update(
        "User: The rent of the flat is 900 euros.",
        "User: The rent of the flat has gone up to 980 euros.",
        "How much is the rent of the flat?",
        *("900", "980"),
    ),
    Update(
        "User: My sister Eve is studying law in Ghent.",
        "User: My sister Eve has finished her studies; she is a judge in Bruges.",
        "What does my sister Eve do?",
        *("Ghent", "Bruges"),
    ),
)


async def test_ten_updates_are_answered_as_of_now_and_as_of_then(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        for text, year in ((one, at) for at in (2024, 2025) for one in UPDATES):
            said = text.before if year == 2024 else text.after
            submission = Submission(said, "life", occurred_at=datetime(year, 3, 1, tzinfo=UTC))
            await application.services.ingest.remember(context(application), submission)
            await drained(application)

        async def shown(question: str, past: Past) -> list[str]:
            asked = Query(question, past=past, limit=3)
            found = await application.services.recall.search(context(application), asked)
            return [f"{hit.text} {hit.quote}" for hit in found.hits]

        then = Past(as_of=datetime(2024, 9, 1, tzinfo=UTC))
        for one in UPDATES:
            assert one.new in (await shown(one.question, PRESENT))[0], one
            before = await shown(one.question, then)
            assert one.old in before[0], one
            assert not any(one.new in text for text in before), one
