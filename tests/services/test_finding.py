"""What search finds by words: each item by its own and by those around it, and nothing that went.

The index is changed with every change of memory, bit by bit; made anew from what is kept, it must
be the same.
"""

from typing import Any

from recall_server.application import Application
from recall_server.domain.query import Hit, Query, SearchMode
from recall_server.domain.search import ranking
from recall_server.services.memory import indexing
from tests.conftest import Open
from tests.security.erasing import select
from tests.services.conversation import ALICE, drained, enter, entry, memories, remember

TALK = (
    "Anna: I live in Lisbon near the river.\n"
    "Ben: I work at Initech. I am allergic to peanuts. The harbour was lovely.\n"
    "Anna: The weather was dreadful all summer.\n"
)


async def index(application: Application) -> list[list[dict[str, Any]]]:
    """The word index of Alice, row by row."""
    return [
        await select(application.store, sql)
        for sql in (
            """SELECT p.term, d.item_id, d.findable, p.occurrences, p.length FROM postings p
               JOIN documents d USING (namespace, slot) ORDER BY p.term, d.item_id""",
            "SELECT item_id FROM documents WHERE findable ORDER BY item_id",
            "SELECT term, documents FROM terms ORDER BY term",
            "SELECT documents, words FROM namespaces WHERE namespace = 'alice'",
        )
    ]


async def made_anew(application: Application) -> list[list[dict[str, Any]]]:
    async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
        await raw.fetch("UPDATE namespaces SET words_stale = TRUE WHERE namespace = 'alice'", {})
    await indexing.renew(application.store)
    return await index(application)


async def test_an_index_made_anew_is_the_one_that_was_kept(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, TALK)
        assert await index(application) == await made_anew(application)
        await drained(application)
        extracted = await index(application)
        assert extracted == await made_anew(application)

        await remember(application, "Anna: I no longer live in Lisbon, I live in Porto now.")
        await drained(application)
        superseded = await index(application)
        assert superseded == await made_anew(application) != extracted

        verbs = application.services.recall
        (first, *_) = await memories(application)
        await verbs.forget(ALICE, first.id, entry=entry(application))
        forgotten = await index(application)
        assert forgotten == await made_anew(application) != superseded
        await verbs.restore(ALICE, first.id, entry=entry(application))
        assert await index(application) == superseded

        (ben, *_) = [memory for memory in await memories(application) if "Initech" in memory.text]
        await application.services.erase.memory(ALICE, ben.id, entry=entry(application))
        erased = await index(application)
        assert erased == await made_anew(application) != superseded
        assert "initech" not in str(erased)


async def test_a_memory_is_found_by_the_words_of_its_turn_too(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, TALK)
        await drained(application)

        query = Query("Was the harbour lovely?", mode=SearchMode.KEYWORD)
        answer = await application.services.recall.search(ALICE, query, entry=entry(application))
        assert {hit.item.text.split()[0] for hit in answer.hits} == {"Ben"}


async def test_what_was_erased_of_a_turn_finds_no_memory_that_stays(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, TALK)
        await drained(application)
        ben = {
            m.fact.attribute: m
            for m in await memories(application)
            if m.citation.speaker == "Ben"
            if m.fact
        }
        assert set(ben) == {"works_at", "allergic_to"}, "two memories rest on one turn"

        await application.services.erase.memory(ALICE, ben["works_at"].id, entry=entry(application))
        await drained(application)

        words = {row["term"] for row in (await index(application))[0]}
        assert "initech" not in words
        assert {"peanut", "harbour", "@ben"} <= words


async def test_a_hit_comes_with_the_turns_around_it_as_far_as_the_budget_goes(
    open_app: Open,
) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, TALK)
        await drained(application)

        async def asked(**given: int) -> list[Hit]:
            query = Query("allergic to peanuts", limit=1, mode=SearchMode.KEYWORD, **given)  # type: ignore[arg-type]
            answer = await application.services.recall.search(
                ALICE, query, entry=entry(application)
            )
            return list(answer.hits)

        (alone,) = await asked()
        (hit,) = await asked(neighbours=1)
        (tight,) = await asked(neighbours=1, max_tokens=ranking.tokens(alone))
        await application.services.recall.forget(
            ALICE,
            next(m.id for m in await memories(application) if "Lisbon" in m.text),
            entry=entry(application),
        )
        (after,) = await asked(neighbours=1)

    assert alone.around == tight.around == ()
    assert [said.text for said in hit.around] == TALK.splitlines()
    assert [said.text for said in after.around] == TALK.splitlines()[1:], "it was forgotten"
