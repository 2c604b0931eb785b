"""Changes during a search: it shows nothing that is erased, and misses nothing that was stored
before.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.permissions import AccessScope
from recall_server.domain.query import Hit, Query, SearchMode
from recall_server.integrations.rerankers import Passage, RerankQuery
from recall_server.services import search
from recall_server.services.search.hits import finalize
from recall_server.storage.bound_connection import Autocommit
from recall_server.storage.driver import Connection, Params, Row, Statement
from recall_server.storage.index import vector_cache
from recall_server.storage.store import Store
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories
from tests.support.reembedding import Other, lines
from tests.support.reranking import ANA, Scripted, opened
from tests.support.runtime import NOON, Clock
from tests.support.searches import CONVERSATIONS, HERON, MODES, QUOKKA, looked, scores, tell, texts

Do = Callable[[], Awaitable[object]]
# Not enough for a word between two searches.
NO_ROOM = 1
TEA = "Ann: I prefer oolong tea."
TALKS = (
    "--- 8 January 2023 ---\nAnn: I painted the boat blue.\nBen: Good colour.",
    "--- 8 May 2023 ---\nAnn: The regatta was today, we came second.\nBen: Well done!",
    "--- 8 September 2023 ---\nAnn: I painted the boat red.\nBen: I like that.",
)


async def narrowed_and_shown(application: Application, query: Query, meanwhile: Do) -> list[Hit]:
    """Return the hits of a search. `meanwhile` runs before it reads the texts."""
    tx = application.store.autocommit(ALICE)
    asked = await search.prepare(tx, application.embedder, ALICE, query)
    narrowed = await search.retrieve(tx, application.embedder, asked, NOON)
    await meanwhile()
    return (await finalize(tx, narrowed, query)).hits()


@pytest.mark.parametrize("embedded", [True, False])
@pytest.mark.parametrize("mode", MODES)
async def test_what_is_erased_while_a_search_is_under_way_is_not_shown(
    open_app: Open, mode: SearchMode, embedded: bool
) -> None:
    """The search has read it before. An item without a vector is compared by its words."""
    query = Query("quokka jam heron fish", mode=mode, limit=5)
    async with open_app() as application:
        await enter(application)
        for text in (QUOKKA, HERON):
            await tell(application, text)
        if embedded:
            await drained(application)
        before = await looked(application, query)
        gone = [hit for hit in before if hit.item.text == QUOKKA]

        async def erase() -> None:
            for hit in gone:
                await application.services.erase.memory(context(application), hit.item.id)

        after = await narrowed_and_shown(application, query, erase)

        assert len(gone) == (mode is not SearchMode.VECTOR or embedded)
        assert texts(after) == [text for text in texts(before) if text != QUOKKA]


class Erasing(Scripted):
    """A re-ranker that erases something while it is asked."""

    meanwhile: Do | None = None

    async def scores(self, look: RerankQuery, passages: Sequence[Passage]) -> list[float]:
        found = await super().scores(look, passages)
        if self.meanwhile is not None:
            await self.meanwhile()
        return found


async def test_what_is_erased_while_a_re_ranker_looks_at_it_is_neither_shown_nor_noted(
    database: Path | str, clock: Clock
) -> None:
    reranker = Erasing("quokka")
    async with opened(database, clock, reranker) as application:
        query = Query("Where was Bo on holiday, and what of the printer?")
        asked = application.services.audit.begin(
            ANA, "search_memories", "test", None, read_only=True
        )
        before = await application.services.recall.search(Context(asked), query)

        async def erase() -> None:
            erased = application.services.audit.begin(ANA, "erase", "test", None)
            await application.services.erase.memory(Context(erased), before.hits[0].item.id)

        reranker.meanwhile = erase
        asked = application.services.audit.begin(
            ANA, "search_memories", "test", None, read_only=True
        )
        after = await application.services.recall.search(Context(asked), query)

        assert "quokka" in before.hits[0].item.text
        assert "quokka" not in str(after.hits)
        assert asked.ids == [hit.item.id for hit in after.hits]
        assert set(asked.ids) == {hit.item.id for hit in before.hits[1:]}


class _Interrupted:
    """A connection that lets something happen before it fetches."""

    def __init__(self, connection: Connection, driver: "Interrupted") -> None:
        self._connection = connection
        self._driver = driver

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        await self._driver.happen(sql)
        return await self._connection.fetch(sql, params)

    async def fetch_each(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        return [await self.fetch(*one) for one in statements]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Interrupted:
    """A driver that calls back once, before a query with certain words, or before the one after
    this many of them.
    """

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.at = ""
        self.after = 0
        self.meanwhile: Do | None = None
        self.happened = 0

    def before(self, words: str, meanwhile: Do, *, after: int = 0) -> None:
        self.at, self.meanwhile, self.after = words, meanwhile, after

    async def happen(self, sql: str) -> None:
        if self.meanwhile is not None and self.at in sql:
            self.after -= 1
        if self.meanwhile is not None and self.after < 0:
            happening, self.meanwhile = self.meanwhile, None
            await happening()
            self.happened += 1

    @asynccontextmanager
    async def transaction(self, **given: Any) -> AsyncIterator[Any]:
        async with self._driver.transaction(**given) as connection:
            yield _Interrupted(connection, self)

    async def autocommit(
        self, statements: Sequence[Statement], *, namespace: str | None
    ) -> list[Sequence[Row]]:
        connection = Autocommit(self._driver, namespace)
        return await _Interrupted(connection, self).fetch_each(statements)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


def holding(application: Application, room: int = 10_000_000) -> tuple[Application, Interrupted]:
    """Return the application with an empty cache of this size, and its driver."""
    driver = Interrupted(application.store.driver)
    return replace(
        application, store=Store(driver, cache_bytes_max=room, mac_key=bytes(32))
    ), driver


async def test_two_that_search_at_once_find_all_where_there_is_no_room_to_hold_it(
    open_app: Open,
) -> None:
    """A search does not drop from the cache what another is about to read."""
    query = Query("quokka", mode=SearchMode.KEYWORD)
    access_scope = AccessScope(topics=frozenset({"work"}))
    async with open_app() as built:
        await enter(built)
        await tell(built, QUOKKA, topic="work")
        application, driver = holding(built, NO_ROOM)
        driver.before("slots, (", lambda: looked(application, query))

        found = await looked(application, query, access_scope=access_scope)

        assert driver.happened == 1
        assert texts(found) == [QUOKKA]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("held", ["whole", "rounded", "codes"])
async def test_what_is_found_again_under_another_number_meanwhile_breaks_no_search(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, held: str, mode: SearchMode
) -> None:
    if held != "whole":
        monkeypatch.setattr(vector_cache, "WHOLE_UP_TO", 1)
    if held == "codes":
        monkeypatch.setattr(vector_cache, "ROUNDED_UP_TO", 1)
    query = Query("oolong quokka", mode=mode)
    async with open_app() as application:
        await enter(application)
        for text in (TEA, QUOKKA, HERON):
            await tell(application, text)
        await drained(application)
        (memory,) = await memories(application)
        before = await looked(application, query)
        asked = await search.prepare(
            application.store.autocommit(ALICE), application.embedder, ALICE, query
        )

        await application.services.recall.forget(context(application), memory.id)
        await application.services.recall.restore(context(application), memory.id)
        async with application.store.transaction(ALICE, write=False) as tx:
            narrowed = await search.retrieve(tx, application.embedder, asked, NOON)
            meanwhile = (await finalize(tx, narrowed, query)).hits()

        # A search need not find what was stored after its own state.
        others = set(texts(before)) - {memory.text}
        assert others <= set(texts(meanwhile)) <= {*others, memory.text}
        assert len(meanwhile) == len(set(texts(meanwhile)))
        await drained(application)
        assert await looked(application, query) == before


@pytest.mark.parametrize("held", ["whole", "codes"])
async def test_whatever_another_server_does_between_two_of_its_queries_a_search_goes_on(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    if held == "codes":
        monkeypatch.setattr(vector_cache, "WHOLE_UP_TO", 1)
        monkeypatch.setattr(vector_cache, "ROUNDED_UP_TO", 1)
    query = Query("Which colour did Ann paint the boat? And the quokka, and oolong?", limit=50)
    access_scope = AccessScope(topics=frozenset({"life"}))
    async with open_app() as built, open_app() as other:
        await enter(built)
        for number, talk in enumerate(TALKS):
            await tell(built, talk, session=f"s{number}")
        await drained(built)
        for number in range(20):
            await tell(other, f"Ann: I prefer oolong of {number}.\nBen: I like quokka {number}.")
        await drained(other)

        async def again() -> None:
            (chosen, *_) = await memories(other)
            await other.services.recall.forget(context(other), chosen.id)
            await other.services.recall.restore(context(other), chosen.id)

        async def erase() -> None:
            (chosen, *_) = await memories(other)
            await other.services.erase.memory(context(other), chosen.id)

        for meanwhile in (again, erase):
            application, happened, after = built, 1, 0
            while happened:
                application, driver = holding(built)
                tx = application.store.autocommit(ALICE, access_scope=access_scope)
                asked = await search.prepare(tx, application.embedder, ALICE, query)
                driver.before("", meanwhile, after=after)
                narrowed = await search.retrieve(tx, application.embedder, asked, NOON)
                happened, after, driver.meanwhile = driver.happened, after + 1, None
                hits = (await finalize(tx, narrowed, query)).hits()
                anew, _ = holding(built)
                found = scores(await looked(anew, query, access_scope=access_scope))
                assert set(texts(hits)) <= found.keys()
                assert scores(await looked(application, query, access_scope=access_scope)) == found
            assert after > 5, meanwhile


async def test_who_serves_with_a_model_whose_vectors_are_deleted_compares_no_others_in_their_place(
    open_app: Open,
) -> None:
    query = Query("quokka heron fish jam oolong", limit=50)
    async with open_app() as old, open_app(embedder=Other()) as new:
        await enter(old)
        for text in CONVERSATIONS:
            await tell(old, text)
        await drained(old)
        assert any(hit.scores.signals["cosine"] for hit in await looked(old, query))
        await new.services.embedding.reembed(ALICE, entry=lines(new))
        await new.services.embedding.drop_others(ALICE, entry=lines(new))
        for text in (QUOKKA, HERON, TEA):
            await tell(old, text)
        await drained(old)

        with_what_was_held = scores(await looked(old, query))
        old.store.forget(ALICE)
        assert with_what_was_held == scores(await looked(old, query))
