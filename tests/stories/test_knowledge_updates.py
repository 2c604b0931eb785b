"""When a fact of a life changes, search shows the current value first, and the old one with its
end.
"""

from dataclasses import dataclass
from datetime import UTC, datetime

from recall_server.domain.moments import PRESENT, Past
from recall_server.domain.query import Query
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import context, drained, enter, memories, remember


@dataclass(frozen=True)
class Update:
    """Statements of 2024 and 2025, and a question. One word tells the values apart."""

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


# A statement, and a later one that ends it.
ENDED = """
We use MySQL. | We use Postgres instead of MySQL now.
The team uses RabbitMQ. | We use NATS for events, not RabbitMQ.
I like trains. | I do not like trains any more.
Anna prefers window seats. | Anna does not prefer window seats any more.
Anna works at Acme. | Anna no longer works at Acme.
I drink coffee every morning. | I stopped drinking coffee.
The deadline is 1 March. | The deadline is now 3 March.
The launch date is 2 May. | The launch date moved to 5 May.
The Atlas budget is 30,000 euros. | We raised the Atlas budget from 30,000 to 40,000 euros.
The API listens on port 8080. | The API is now on port 9000 instead of 8080.
We are on Python 3.11. | We upgraded to Python 3.12.
The owner of billing is Priya. | Tom took over billing from Priya.
The meeting is on Tuesday. | We moved the meeting from Tuesday to Thursday.
Wir nutzen Redis. | Wir nutzen jetzt Valkey statt Redis.
Ich arbeite bei Bosch. | Ich arbeite nicht mehr bei Bosch.
Ich mag Züge. | Ich mag keine Züge mehr.
Die Frist für Pi ist der 1. Mai. | Wir haben die Frist für Pi vom 1. auf den 3. Mai verschoben.
Usamos Jenkins. | Ahora usamos Drone en lugar de Jenkins.
Trabajo en Seat. | Ya no trabajo en Seat.
El precio es de 49 euros. | El precio sube a 59 euros.
Nous utilisons Kafka. | Nous utilisons Pulsar au lieu de Kafka.
Je travaille chez Renault. | Je ne travaille plus chez Renault.
L'échéance est le 3 mars. | L'échéance a été repoussée au 5 mai.
我们使用Oracle。 | 我们不再用Oracle，改用SQLite。
我在阿里工作。 | 我不在阿里工作了。
上线日期是3月3日。 | 上线日期推迟到5月5日。
Subversionを使っています。 | Subversionの代わりにGitを使っています。
コーヒーを飲んでいます。 | もうコーヒーを飲みません。
家賃は9万円です。 | 家賃は10万円に変更になりました。
"""


async def test_what_a_later_sentence_ends_is_no_longer_current(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        for line in ENDED.strip().splitlines():
            current = []
            for said in line.split(" | "):
                await remember(application, said)
                await drained(application)
                active = await memories(application, limit=100)
                current.append([one.citation.quote for one in active])
            before, after = line.split(" | ")
            assert before in current[0], line
            assert after in current[1], line
            assert before not in current[1], line
