"""What search finds by words: each item by its own and by those around it, and nothing that went.

The index is changed with every change of memory, bit by bit; made anew from what is kept, it must
be the same.
"""

from typing import Any

from recall_server.app import House
from recall_server.domain import ranking
from recall_server.domain.model import Hit, Query, SearchMode
from recall_server.services import finding
from tests.conftest import Open
from tests.security.erasing import select
from tests.services.conversation import ALICE, drained, enter, entry, memories, remember

TALK = (
    "Anna: I live in Lisbon near the river.\n"
    "Ben: I work at Initech. I am allergic to peanuts. The harbour was lovely.\n"
    "Anna: The weather was dreadful all summer.\n"
)


async def index(house: House) -> list[list[dict[str, Any]]]:
    """The word index of Alice, row by row."""
    return [
        await select(house.store, sql)
        for sql in (
            """SELECT p.term, d.item_id, d.findable, p.occurrences, p.length FROM postings p
               JOIN documents d USING (namespace, slot) ORDER BY p.term, d.item_id""",
            "SELECT item_id FROM documents WHERE findable ORDER BY item_id",
            "SELECT term, documents FROM terms ORDER BY term",
            "SELECT documents, words FROM namespaces WHERE namespace = 'alice'",
        )
    ]


async def made_anew(house: House) -> list[list[dict[str, Any]]]:
    async with house.store.driver.transaction(namespace=ALICE, write=True) as raw:
        await raw.fetch("UPDATE namespaces SET words_stale = TRUE WHERE namespace = 'alice'", {})
    await finding.renew(house.store)
    return await index(house)


async def test_an_index_made_anew_is_the_one_that_was_kept(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, TALK)
        assert await index(house) == await made_anew(house)
        await drained(house)
        extracted = await index(house)
        assert extracted == await made_anew(house)

        await remember(house, "Anna: I no longer live in Lisbon, I live in Porto now.")
        await drained(house)
        superseded = await index(house)
        assert superseded == await made_anew(house) != extracted

        verbs = house.services.recall
        (first, *_) = await memories(house)
        await verbs.forget(ALICE, first.id, entry=entry(house))
        forgotten = await index(house)
        assert forgotten == await made_anew(house) != superseded
        await verbs.restore(ALICE, first.id, entry=entry(house))
        assert await index(house) == superseded

        (ben, *_) = [memory for memory in await memories(house) if "Initech" in memory.text]
        await house.services.erase.memory(ALICE, ben.id, entry=entry(house))
        erased = await index(house)
        assert erased == await made_anew(house) != superseded
        assert "initech" not in str(erased)


async def test_a_memory_is_found_by_the_words_of_its_turn_too(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, TALK)
        await drained(house)

        query = Query("Was the harbour lovely?", mode=SearchMode.KEYWORD)
        answer = await house.services.recall.search(ALICE, query, entry=entry(house))
        assert {hit.item.text.split()[0] for hit in answer.hits} == {"Ben"}


async def test_what_was_erased_of_a_turn_finds_no_memory_that_stays(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, TALK)
        await drained(house)
        ben = {
            m.fact.attribute: m
            for m in await memories(house)
            if m.citation.speaker == "Ben"
            if m.fact
        }
        assert set(ben) == {"works_at", "allergic_to"}, "two memories rest on one turn"

        await house.services.erase.memory(ALICE, ben["works_at"].id, entry=entry(house))
        await drained(house)

        words = {row["term"] for row in (await index(house))[0]}
        assert "initech" not in words
        assert {"peanut", "harbour", "@ben"} <= words


async def test_a_hit_comes_with_the_turns_around_it_as_far_as_the_budget_goes(
    open_house: Open,
) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, TALK)
        await drained(house)

        async def asked(**given: int) -> list[Hit]:
            query = Query("allergic to peanuts", limit=1, mode=SearchMode.KEYWORD, **given)  # type: ignore[arg-type]
            answer = await house.services.recall.search(ALICE, query, entry=entry(house))
            return list(answer.hits)

        (alone,) = await asked()
        (hit,) = await asked(neighbours=1)
        (tight,) = await asked(neighbours=1, max_tokens=ranking.tokens(alone))
        await house.services.recall.forget(
            ALICE,
            next(m.id for m in await memories(house) if "Lisbon" in m.text),
            entry=entry(house),
        )
        (after,) = await asked(neighbours=1)

    assert alone.around == tight.around == ()
    assert [said.text for said in hit.around] == TALK.splitlines()
    assert [said.text for said in after.around] == TALK.splitlines()[1:], "it was forgotten"
