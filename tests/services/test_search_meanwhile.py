"""What happens while a search is under way: it shows nothing that is gone, and misses nothing that
was there before.
"""

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from recall_server.app import House
from recall_server.domain.model import Hit, Query, SearchMode
from recall_server.domain.rights import EVERYTHING
from recall_server.providers.reranking import Look, Passage
from recall_server.services import search
from tests.conftest import NOON, Clock, Open
from tests.services.conversation import ALICE, drained, enter, entry
from tests.services.test_search import (
    HERON,
    MODES,
    QUOKKA,
    looked,
    tell,
    texts,
)
from tests.services.test_second_look import ANA, Scripted, opened

Do = Callable[[], Awaitable[object]]
TEA = "Ann: I prefer oolong tea."


async def narrowed_and_shown(house: House, query: Query, meanwhile: Do) -> list[Hit]:
    """What a search shows, where something happens between its two transactions."""
    asked = await search.ask(house.store, house.embedder, ALICE, query, EVERYTHING)
    async with house.store.transaction(ALICE, write=False) as tx:
        narrowed = await search.narrow(tx, house.embedder, asked, NOON)
    await meanwhile()
    async with house.store.transaction(ALICE, write=False) as tx:
        return (await search.shown(tx, narrowed, query)).hits


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("mode", MODES)
async def test_what_is_erased_while_a_search_is_under_way_is_not_shown(
    open_house: Open, mode: SearchMode, embedded: bool
) -> None:
    """Though it was read before: what has no vector is compared by its words."""
    query = Query("quokka jam heron fish", mode=mode, limit=5)
    async with open_house() as house:
        await enter(house)
        for text in (QUOKKA, HERON):
            await tell(house, text)
        if embedded:
            await drained(house)
        before = await looked(house, query)
        gone = [hit for hit in before if hit.item.text == QUOKKA]

        async def erase() -> None:
            for hit in gone:
                await house.services.erase.memory(ALICE, hit.item.id, entry=entry(house))

        after = await narrowed_and_shown(house, query, erase)

        assert len(gone) == (mode is not SearchMode.VECTOR or embedded)
        assert texts(after) == [text for text in texts(before) if text != QUOKKA]


class Erasing(Scripted):
    """A re-ranker at whose question something is erased."""

    meanwhile: Do | None = None

    async def scores(self, look: Look, passages: Sequence[Passage]) -> list[float]:
        found = await super().scores(look, passages)
        if self.meanwhile is not None:
            await self.meanwhile()
        return found


async def test_what_is_erased_while_a_re_ranker_looks_at_it_is_neither_shown_nor_noted(
    database: Path | str, clock: Clock
) -> None:
    reranker = Erasing("quokka")
    async with opened(database, clock, reranker) as house:
        query = Query("Where was Bo on holiday, and what of the printer?")
        asked = house.services.audit.begin(ANA, "search_memories", "test", None)
        before = await house.services.recall.search(ANA, query, entry=asked)

        async def erase() -> None:
            erased = house.services.audit.begin(ANA, "erase", "test", None)
            await house.services.erase.memory(ANA, before.hits[0].item.id, entry=erased)

        reranker.meanwhile = erase
        asked = house.services.audit.begin(ANA, "search_memories", "test", None)
        after = await house.services.recall.search(ANA, query, entry=asked)

        assert "quokka" in before.hits[0].item.text
        assert "quokka" not in str(after.hits)
        assert asked.ids == [hit.item.id for hit in after.hits]
        assert set(asked.ids) == {hit.item.id for hit in before.hits[1:]}
