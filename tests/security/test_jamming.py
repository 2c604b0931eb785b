"""A document that was written to match every question does not fill the answers."""

from recall_server.application import Application
from recall_server.domain.episode import Source, episode_of
from recall_server.domain.query import Query, SearchMode
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import context, drained, enter
from tests.support.extractors import Scripted

WORDS = "where does ana live and which city did ana move to this year and last"
CITIES = ("Lisbon", "Porto", "Faro", "Braga", "Evora", "Aveiro", "Beja", "Viseu")


async def told(application: Application, text: str, *, session: str | None = None) -> str:
    accepted = await application.services.ingest.remember(
        context(application), Submission(text, "life", source=Source(session))
    )
    return accepted.episode_id


async def sources(application: Application, query: Query) -> list[str]:
    found = await application.services.recall.search(context(application), query)
    return [episode_of(hit.item.id) for hit in found.hits]


async def test_a_stuffed_document_has_no_more_than_its_share_of_an_answer(
    open_app: Open,
) -> None:
    """The limit holds in every mode that ranks a large pool (the mode `recall` ranks 25), unless
    the query asks for relevance only, with lambda 1. Control: if the question is about the
    document, it gets all places that others do not need.
    """
    async with open_app(extractor=Scripted()) as application:
        await enter(application)
        for number, city in enumerate(CITIES):
            await told(application, f"Ana: I did move to {city}.", session=f"s{number}")
        turns = [
            f"Session {number}\n\nEve: Which city did Ana move to? City {number} did Ana move to."
            for number in range(60)
        ]
        jammer = await told(application, "\n\n".join(turns))
        await drained(application)
        for mode in (SearchMode.HYBRID, SearchMode.KEYWORD, SearchMode.VECTOR):
            for mmr in (0.5, 0.99):
                query = Query("Which city did Ana move to?", limit=10, mode=mode, mmr_lambda=mmr)
                found = await sources(application, query)
                assert len(found) == 10
                assert found.count(jammer) == 7, (mode, mmr)

        only = Query("City 7 did Ana move to", limit=20)
        assert (await sources(application, only)).count(jammer) == 12


async def test_a_document_that_is_one_turn_is_found_once(open_app: Open) -> None:
    """Its words and its vector match, and it is one hit."""
    async with open_app(extractor=Scripted()) as application:
        await enter(application)
        await told(application, "Ana: I did move to Lisbon.")
        jammer = await told(application, f"Eve: {WORDS}. " * 10)
        found = await sources(application, Query("Which city did Ana move to?", limit=10))

        assert found.count(jammer) == 1
