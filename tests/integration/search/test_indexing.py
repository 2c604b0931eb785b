"""Search by words finds each item by its own words and those around it, and nothing that was
removed.

Every change of memory changes the index in steps. It must equal an index that is built from the
stored rows.
"""

from typing import Any

from recall_server.domain.query import Hit, Query, SearchMode
from recall_server.domain.search import ranking
from tests.support.application import Open
from tests.support.conversation import context, drained, enter, memories, remember
from tests.support.index_walk import index, made_anew

TALK = (
    "Anna: I live in Lisbon near the river.\n"
    "Ben: I work at Initech. I am allergic to peanuts. The harbour was lovely.\n"
    "Anna: The weather was dreadful all summer.\n"
)


def found_now(rows: list[list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Return the postings of findable items."""
    return [one for one in rows[0] if one["findable"]]


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
        await verbs.forget(context(application), first.id)
        forgotten = await index(application)
        assert forgotten == await made_anew(application) != superseded
        await verbs.restore(context(application), first.id)
        restored = await index(application)
        assert restored == await made_anew(application)
        assert found_now(restored) == found_now(superseded)

        (ben, *_) = [memory for memory in await memories(application) if "Initech" in memory.text]
        await application.services.erase.memory(context(application), ben.id)
        erased = await index(application)
        assert erased == await made_anew(application) != superseded
        assert "initech" not in str(erased)


async def test_what_a_memory_cites_stays_found_by_its_own_words(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, TALK)
        await drained(application)

        query = Query("Was the harbour lovely?", mode=SearchMode.KEYWORD)
        answer = await application.services.recall.search(context(application), query)
        assert [hit.text for hit in answer.hits] == [TALK.splitlines()[1]]


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

        await application.services.erase.memory(context(application), ben["works_at"].id)
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
            answer = await application.services.recall.search(context(application), query)
            return list(answer.hits)

        (alone,) = await asked()
        (hit,) = await asked(neighbours=1)
        (tight,) = await asked(neighbours=1, max_tokens=ranking.tokens(alone))
        await application.services.recall.forget(
            context(application),
            next(m.id for m in await memories(application) if "Lisbon" in m.text),
        )
        (after,) = await asked(neighbours=1)

    assert [said.text for said in alone.around] == TALK.splitlines()[2:]
    assert tight.around == ()
    assert [said.text for said in hit.around] == TALK.splitlines()
    assert [said.text for said in after.around] == TALK.splitlines()[1:], "it was forgotten"
