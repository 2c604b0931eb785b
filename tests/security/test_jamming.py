"""A document that is stuffed to match every question does not take the answers over (LLM-09)."""

from recall_server.app import House
from recall_server.domain.model import Query, SearchMode, Source
from recall_server.services.ingest import Submission
from recall_server.storage.episodes import episode_of
from tests.conftest import Open
from tests.services.conversation import ALICE, drained, enter, entry
from tests.services.extractors import Scripted

WORDS = "where does ana live and which city did ana move to this year and last"
CITIES = ("Lisbon", "Porto", "Faro", "Braga", "Evora", "Aveiro", "Beja", "Viseu")


async def told(house: House, text: str, *, session: str | None = None) -> str:
    accepted = await house.services.ingest.remember(
        ALICE, Submission(text, "life", source=Source(session)), entry=entry(house)
    )
    return accepted.episode_id


async def sources(house: House, query: Query) -> list[str]:
    found = await house.services.recall.search(ALICE, query, entry=entry(house))
    return [episode_of(hit.item.id) for hit in found.hits]


async def test_a_stuffed_document_has_no_more_than_its_share_of_an_answer(
    open_house: Open,
) -> None:
    """LLM-09, in every mode that weighs a pool of some size (the backbone's formula weighs 25).
    Control: asked about by itself it has all the places that others do not need.
    """
    async with open_house(extractor=Scripted()) as house:
        await enter(house)
        for number, city in enumerate(CITIES):
            await told(house, f"Ana: I did move to {city}.", session=f"s{number}")
        turns = [
            f"Session {number}\n\nEve: Which city did Ana move to? City {number} did Ana move to."
            for number in range(60)
        ]
        jammer = await told(house, "\n\n".join(turns))
        await drained(house)
        for mode in (SearchMode.HYBRID, SearchMode.KEYWORD, SearchMode.VECTOR):
            for mmr in (0.5, 1.0):
                query = Query("Which city did Ana move to?", limit=10, mode=mode, mmr_lambda=mmr)
                found = await sources(house, query)
                assert len(found) == 10
                assert found.count(jammer) == 7, (mode, mmr)

        only = Query("City 7 did Ana move to", limit=20)
        assert (await sources(house, only)).count(jammer) == 12


async def test_a_document_that_is_one_turn_is_found_once(open_house: Open) -> None:
    """LLM-09: by its words and by its vector, it is one hit."""
    async with open_house(extractor=Scripted()) as house:
        await enter(house)
        await told(house, "Ana: I did move to Lisbon.")
        jammer = await told(house, f"Eve: {WORDS}. " * 10)
        found = await sources(house, Query("Which city did Ana move to?", limit=10))

        assert found.count(jammer) == 1
