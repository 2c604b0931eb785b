"""Searches with the real services on both engines."""

import asyncio
import math
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.context import Context
from recall_server.domain.episode import Citation, Episode, Span, Turn
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import Memory, MemoryType
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.query import ItemKind, Query, SearchMode
from recall_server.domain.search.index_entry import words_in
from recall_server.domain.search.signals import PARTS
from recall_server.integrations.embeddings import StaticEmbedder, Vectors
from recall_server.services import search
from recall_server.services.memory import indexing
from recall_server.services.search.hits import finalize
from recall_server.services.search.recall import Found
from recall_server.storage.bound_connection import Autocommit
from recall_server.storage.driver import Connection, Params, Row, Statement
from recall_server.storage.index import vector_cache
from recall_server.storage.index.words import postings
from recall_server.storage.store import Store
from tests.support.application import Open, settings_for
from tests.support.conversation import ALICE, context, drained, enter, memories
from tests.support.engines import Postgres
from tests.support.erasure import select
from tests.support.length import at_full_length, has_full_length
from tests.support.lists import listed
from tests.support.models import HashEmbedder
from tests.support.processes import Database
from tests.support.runtime import NOON, Clock, RandomBytes
from tests.support.searches import (
    CONVERSATIONS,
    HERON,
    MODES,
    QUOKKA,
    asked,
    looked,
    scores,
    tell,
    texts,
)
from tests.support.transfer import BOB

FISH = "Cid: Fish and jam."
NAMESPACES = ("alic", "bob")  # The first name is stemmed.
READS = at_full_length(1_000, otherwise=150)
ALL_STOP_WORDS = "what is that and who was it"


async def answered(
    application: Application, query: Query, access_scope: AccessScope = FULL_ACCESS
) -> Found:
    return await application.services.recall.search(
        context(application, scope=access_scope), query, cite=True
    )


# --- both engines ---

QUESTIONS = (
    "Where does Caroline live?",
    "what did mel’s sister’s dog do",
    "What did Caroline say about the harbour in May 2023?",
    "Where do I work, and what do I prefer?",
    "Which tea does Mel like since 2023?",
    "What did Zoë and 小明 say of the café?",
    "green tea river dog harbour Lisbon Porto",
    "zyxgloop",
    ALL_STOP_WORDS,
    "@caroline",
)
SHAPES: tuple[Mapping[str, Any], ...] = (
    {"limit": 50},
    {"limit": 5, "mmr_lambda": 0.0},
    {"limit": 20, "recency_weight": 1.0, "mmr_lambda": 1.0, "score_threshold": 0.2},
)


@asynccontextmanager
async def alike(database: Database) -> AsyncIterator[Application]:
    """Open an application with all conversations, and the same ids and times on each engine."""
    clock = Clock()
    async with open_application(
        settings_for(database, extractor="rules"),
        embedder=HashEmbedder(),
        now=clock,
        random_bytes=RandomBytes(),
    ) as built:
        await enter(built)
        for number, text in enumerate(3 * CONVERSATIONS):
            clock.pass_(timedelta(hours=7 if number % 3 else 0))
            await tell(built, text, session=f"s{number % 4}" if number % 2 else None)
            # Two of three texts are extracted, so both memories and turns are found.
            if number % 3:
                await drained(built)
        yield built


@pytest.mark.slow
async def test_both_engines_give_the_same_hits_with_the_same_scores(
    tmp_path: Path, postgres: Postgres, migrated: str
) -> None:
    asked = [
        Query(text, mode=mode, **shape) for text in QUESTIONS for mode in MODES for shape in SHAPES
    ]
    kinds, parts = set(), set()
    with postgres.database(migrated) as url:
        async with alike(tmp_path / "recall.db") as ours, alike(url) as theirs:
            for query in asked:
                one, other = await looked(ours, query), await looked(theirs, query)
                assert [hit.item for hit in one] == [hit.item for hit in other], query
                for mine, its in zip(one, other, strict=True):
                    assert mine.scores.final == pytest.approx(its.scores.final, abs=1e-6), query
                    signals = pytest.approx(dict(its.scores.signals), abs=1e-6)
                    assert mine.scores.signals == signals, query
                kinds |= {hit.item.kind for hit in one}
                parts |= {
                    part for hit in one for part, value in hit.scores.signals.items() if value
                }

    assert kinds == set(ItemKind)
    assert {"keyword", "cosine", "speaker", "session", "time"} <= parts


# --- what a limited token learns ---


async def _far_and_near(
    application: Application, *, topic: str = "life", agent: str | None = None
) -> None:
    """Make two namespaces with the same words. In Alice's, the text beyond the scope is in the
    session of the heron; in Bob's it is not.
    """
    for namespace, session in ((ALICE, "shared"), (BOB, "other")):
        await enter(application, namespace)
        await tell(application, HERON, namespace, session="shared", agent="planner", topic="work")
        await tell(application, FISH, namespace, session="apart", agent="planner",
                   topic="work")  # fmt: skip
        await tell(application, QUOKKA, namespace, session=session, topic=topic, agent=agent)


LIMITS = {
    "topic": (AccessScope(topics=frozenset({"work"})), {"topic": "home", "agent": "planner"}),
    "agent": (AccessScope(agent_id="planner"), {"topic": "work", "agent": "painter"}),
}


@pytest.mark.parametrize("limit", LIMITS)
async def test_what_is_out_of_reach_lends_nothing_to_its_session(
    open_app: Open, limit: str
) -> None:
    access_scope, elsewhere = LIMITS[limit]
    async with open_app() as application:
        await _far_and_near(application, **elsewhere)
        await drained(application)
        for mode in MODES:
            query = Query("quokka jam heron fish", mode=mode)
            near, far = [
                await looked(application, query, one, access_scope) for one in (ALICE, BOB)
            ]
            assert scores(near) == scores(far)
            assert set(texts(near)) == {HERON, FISH}

        # The positive control: a token for the whole namespace gets other scores.
        query = Query("quokka jam heron fish")
        near, far = [await looked(application, query, one) for one in (ALICE, BOB)]
        assert scores(near) != scores(far)


async def test_what_is_out_of_reach_lends_nothing_to_the_turn_beside_it(open_app: Open) -> None:
    preference, residence = "Ann: I prefer oolong tea.", "Ann: I live in Lisbon."
    access_scope = AccessScope(types=frozenset({MemoryType.PREFERENCE}))
    without = frozenset({"session", "cosine"})
    query = Query("Lisbon oolong porcelain", without=without)
    async with open_app() as application:
        for namespace, told in (
            (ALICE, (f"{preference}\n{residence}",)),
            (BOB, (preference, residence)),
        ):
            await enter(application, namespace)
            for text in (*told, "Ann: I prefer porcelain."):
                await tell(application, text, namespace, session="s")
                await drained(application)

        near, far = [await looked(application, query, one, access_scope) for one in (ALICE, BOB)]
        assert scores(near) == scores(far)
        assert len(near) == 2
        near, far = [await looked(application, query, one) for one in (ALICE, BOB)]
        assert scores(near) != scores(far), "the positive control"


async def test_what_is_out_of_reach_is_no_measure_of_what_is_near(open_app: Open) -> None:
    """The scale of the vectors goes from the farthest to the nearest item in the scope."""
    access_scope = AccessScope(topics=frozenset({"work"}))
    others = frozenset(PARTS) - {"cosine"}
    async with open_app() as application:
        for namespace in (ALICE, BOB):
            await enter(application, namespace)
            await tell(application, HERON, namespace, topic="work")
            await tell(application, FISH, namespace, topic="work")
        await tell(application, QUOKKA, topic="home")
        await drained(application)

        for query in (
            Query("quokka jam", without=others),
            Query("quokka jam", mode=SearchMode.VECTOR),
        ):
            near, far = [
                await looked(application, query, one, access_scope) for one in (ALICE, BOB)
            ]
            assert [hit.scores.signals for hit in near] == [hit.scores.signals for hit in far]
            assert [hit.scores.final for hit in near] == [hit.scores.final for hit in far]
            assert {hit.scores.signals["cosine"] for hit in near} != {None}
            assert scores(await looked(application, query)) != scores(near)


@pytest.mark.parametrize("limit", ["topic", "agent", "type"])
async def test_nothing_out_of_reach_is_read_by_any_query_of_a_search(
    open_app: Open, limit: str
) -> None:
    access_scope = {
        "topic": AccessScope(topics=frozenset({"work"})),
        "agent": AccessScope(agent_id="planner"),
        "type": AccessScope(types=frozenset({MemoryType.PREFERENCE})),
    }[limit]
    async with open_app() as application:
        await enter(application)
        await tell(application, "Ann: I prefer oolong.", topic="work", agent="planner")
        await tell(
            application, "Ann: I live in Lisbon.\nBen: Oolong?", topic="home", agent="painter"
        )
        await drained(application)
        await tell(application, "Ben: The oolong of Lisbon.", topic="home", agent="painter")
        everything = await select(
            application.store,
            "SELECT id FROM memories WHERE namespace = 'alice'"
            " UNION ALL SELECT id FROM turns WHERE namespace = 'alice' AND state = 'open'",
        )
        ids = [row["id"] for row in everything]

        slots = [
            row["slot"] for row in await select(application.store, "SELECT slot FROM documents")
        ]
        async with application.store.transaction(
            ALICE, write=False, access_scope=access_scope
        ) as tx:
            placed = [row["id"] for row in await tx.bound.fetch("placed", slots=slots)]
        async with application.store.transaction(ALICE, write=False) as tx:
            all_placed = [row["id"] for row in await tx.bound.fetch("placed", slots=slots)]
        assert sorted(all_placed) == sorted(ids)
        # Passages have no type, so a limit of types includes the memory only.
        assert len(ids) > len(placed) == (1 if limit == "type" else 2)
        for mode in MODES:
            query = Query("Lisbon oolong Ben Ann", mode=mode, neighbours=5, limit=50)
            found = await answered(application, query, access_scope)
            assert found.hits
            assert {hit.item.id for hit in found.hits} <= set(placed)
            told = str(found.hits)
            assert "Lisbon" not in told
            assert "Ben" not in told


async def test_what_is_out_of_reach_takes_no_place_in_a_search(open_app: Open) -> None:
    """It matches better, and there is more of it than a search looks at."""
    access_scope = AccessScope(topics=frozenset({"work"}))
    async with open_app() as application:
        await enter(application)
        for number in range(4):
            turns = [f"Ann: Quokka, quokka {turn} of {number}!" for turn in range(50)]
            await tell(application, "\n".join(turns), topic="home")
        words = "The one about the quokka, of which there is a great deal more to be told."
        await tell(application, f"Cid: {words}", topic="work")
        await drained(application)

        for mode in MODES:
            query = Query("quokka quokka", mode=mode, limit=5)
            assert texts(await looked(application, query, access_scope=access_scope)) == [
                f"Cid: {words}"
            ], mode
            assert len(await looked(application, query)) == 5


@pytest.mark.parametrize("held", ["rounded", "codes"])
async def test_what_is_shown_was_compared_as_it_is_stored_however_little_of_it_is_held(
    open_app: Open, monkeypatch: pytest.MonkeyPatch, held: str
) -> None:
    async with open_app() as application:
        await enter(application)
        for text in CONVERSATIONS:
            await tell(application, text)
        await drained(application)
        for mode, question in product(MODES, QUESTIONS):
            query = Query(question, mode=mode, limit=5)
            monkeypatch.setattr(vector_cache, "WHOLE_UP_TO", 16_384)
            application.store.forget(ALICE)
            whole = {
                hit.item.id: hit.scores.signals["cosine"]
                for hit in await looked(application, query)
            }
            monkeypatch.setattr(vector_cache, "WHOLE_UP_TO", 3)
            if held == "codes":
                monkeypatch.setattr(vector_cache, "ROUNDED_UP_TO", 6)
            application.store.forget(ALICE)
            assert {
                hit.item.id: hit.scores.signals["cosine"]
                for hit in await looked(application, query)
            } == whole


@pytest.mark.parametrize("mode", MODES)
async def test_at_lambda_1_nothing_but_relevance_decides(open_app: Open, mode: SearchMode) -> None:
    """Neither similarity nor the limit for a source displaces a better hit."""
    async with open_app() as application:
        await enter(application)
        turns = [f"Ann: Does the quokka eat jam and figs, plate {number}?" for number in range(14)]
        await tell(application, "\n".join(turns), session="long")
        for number in range(6):
            await tell(application, f"Ben: Does quokka {number} sleep far away in the old harbour?")
        await drained(application)
        query = Query("quokka jam and figs", mode=mode, limit=10)

        relevant = await looked(application, replace(query, mmr_lambda=1.0))
        every = await looked(application, replace(query, mmr_lambda=1.0, limit=20))
        # Without a threshold, noise takes no place from them.
        limited = await looked(application, replace(query, score_threshold=0.0))

        assert relevant == every[:10]
        assert all("figs" in text for text in texts(relevant))
        assert sum("figs" in text for text in texts(limited)) < 10, "the positive control"


async def test_what_was_forgotten_takes_no_place_among_the_nearest(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await tell(application, "Ann: I prefer oolong tea.")
        await drained(application)
        await tell(application, QUOKKA)
        await drained(application)
        (memory,) = await memories(application)

        async def nearest() -> dict[str, float]:
            query = Query("oolong", mode=SearchMode.VECTOR)
            hits = await looked(application, query)
            return {hit.item.id: hit.scores.signals["cosine"] or 0.0 for hit in hits}

        async def placed(count: int) -> list[int]:
            """Return the numbers of the nearest items, before their rows are read."""
            query = Query("oolong", mode=SearchMode.VECTOR)
            asked = await search.prepare(
                application.store.autocommit(ALICE), application.embedder, ALICE, query
            )
            assert asked.vector is not None
            assert application.embedder is not None
            model, dimensions = application.embedder.model, application.embedder.dimensions
            async with application.store.transaction(ALICE, write=False) as tx:
                vectors = await tx.vectors.of_search(model, dimensions, asked.statistics)
                allowed = await tx.words.allowed(await tx.words.documents(asked.statistics))
                near = await vectors.nearest(asked.vector, allowed, count)
                return [int(slot) for slot in near]

        assert len(before := await nearest()) == 2
        *_, last = await placed(3)
        await application.services.recall.forget(context(application), memory.id)
        assert set(await nearest()) == set(before) - {memory.id}
        assert await placed(1) == [last]
        await application.services.recall.restore(context(application), memory.id)
        await drained(application)
        assert await nearest() == before
        assert await placed(1) != [last]


async def test_another_namespaces_speakers_and_words_change_no_question(open_app: Open) -> None:
    query = Query("What did Ana's son say about the quokka?")
    async with open_app() as application:
        for namespace in (ALICE, BOB):
            await enter(application, namespace)
        await tell(application, QUOKKA)

        async def asked(namespace: Namespace) -> search.PreparedQuery:
            return await search.prepare(
                application.store.autocommit(namespace), application.embedder, namespace, query
            )

        before, hits = await asked(ALICE), await looked(application, query)
        await tell(application, "Ana: The quokka is mine.\nAna: I said so.", BOB)
        after = await asked(ALICE)

        assert (await asked(BOB)).named == {"@ana"}
        assert before.named == after.named == frozenset()
        assert (after.idf, after.statistics) == (before.idf, before.statistics)
        assert np.array_equal(after.vector, before.vector)  # type: ignore[arg-type]
        assert await looked(application, query) == hits


async def test_no_query_of_a_search_reads_what_another_has_by_the_same_id(
    open_app: Open,
) -> None:
    asked = [*NAMESPACES, "quokka", "@ann"]
    async with open_app() as application:
        seen = {}
        # Bob's memory with the same id has the common word more often.
        for namespace, turns, words in ((ALICE, 2, "of alice"), (BOB, 5, "quokka of bob")):
            await enter(application, namespace)
            await _long(application.store, namespace, turns, words)
        for namespace in (ALICE, BOB):
            async with application.store.transaction(namespace, write=False) as tx:
                documents = await tx.words.documents(await tx.words.statistics(asked))
                (placed,) = await tx.bound.fetch("placed", slots=[1])
                of = await tx.findables.memories(["mem_1"])
                counted = words_in(np.array([1]), documents.postings(asked))
            seen[namespace] = (
                placed["position"],
                [found.text.split()[-1] for found in of.values()],
                sorted((term, int(n)) for term, (n,) in counted.times.items() if n),
            )

    assert seen == {
        ALICE: (1, ["alice."], [("@ann", 1), ("alic", 1), ("quokka", 1)]),
        BOB: (4, ["bob."], [("@ann", 1), ("bob", 1), ("quokka", 2)]),
    }


# --- an index of an older release ---


async def _stale(store: Store, namespace: Namespace) -> None:
    """Leave the state of an older release: the index has each memory's own words, and here none at
    all.
    """
    async with store.driver.transaction(namespace=namespace, write=True) as raw:
        for sql in (
            "UPDATE terms SET found = '' WHERE namespace = '{}'",
            "UPDATE namespaces SET words_stale = TRUE, documents = 7 WHERE namespace = '{}'",
        ):
            await raw.fetch(sql.format(namespace), {})
    store.forget(namespace)


async def _words(store: Store, namespace: Namespace) -> Sequence[Any]:
    return sorted(
        (one["term"], one["item_id"], one["occurrences"], one["length"])
        for one in await listed(store, namespace)
        if one["findable"]
    )


async def _index(store: Store) -> list[Sequence[Any]]:
    words: list[Sequence[Any]] = [await _words(store, one) for one in (ALICE, BOB)]
    counts = [
        await select(store, sql.format(namespace), namespace)
        for namespace in (ALICE, BOB)
        for sql in (
            "SELECT term, documents FROM terms WHERE namespace = '{}' ORDER BY term",
            "SELECT documents, words FROM namespaces WHERE namespace = '{}'",
        )
    ]
    return [*words, *counts]


async def test_an_older_index_is_made_anew_when_a_server_starts(open_app: Open) -> None:
    query = Query("Ana quokka", mode=SearchMode.KEYWORD, score_threshold=0.0)
    async with open_app() as application:
        for namespace in (ALICE, BOB):
            await enter(application, namespace)
            await tell(application, "Ana: I live in Lisbon with a quokka.\nBen: I see.", namespace)
            await drained(application)
            await tell(application, "Ben: Ana's quokka again.", namespace)
        whole, hits = await _index(application.store), await looked(application, query)
        assert len(hits) == 2
        for namespace in (ALICE, BOB):
            await _stale(application.store, namespace)
        assert await looked(application, query) == []

    async with open_app() as application:
        assert await _index(application.store) == whole
        assert await looked(application, query) == hits
        # A second renewal changes nothing.
        await indexing.renew(application.store)
        assert await _index(application.store) == whole


async def test_two_servers_that_start_at_once_make_an_index_once(open_app: Open) -> None:
    async with open_app() as application, open_app() as other:
        for namespace in (ALICE, BOB):
            await enter(application, namespace)
            for number in range(30):
                await tell(application, f"Ana: Quokka {number} eats jam.\nBen: I see.", namespace)
        whole = await _index(application.store)
        for namespace in (ALICE, BOB):
            await _stale(application.store, namespace)

        await asyncio.gather(
            *(
                indexing.renew(store)
                for store in (application.store, other.store, application.store)
            )
        )

        assert await _index(other.store) == whole


async def test_what_is_told_while_an_index_is_made_anew_is_in_it(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        for number in range(10):
            await tell(application, f"Ana: Quokka {number} eats jam.")
        await _stale(application.store, ALICE)

        await asyncio.gather(
            indexing.renew(application.store),
            *(tell(application, f"Ben: Heron {n}.") for n in range(10)),
        )

        found = await looked(application, Query("quokka heron", limit=50, mode=SearchMode.KEYWORD))
        assert len(found) == 20
        kept = await _index(application.store)
        await _stale(application.store, ALICE)
        await indexing.renew(application.store)
        assert await _index(application.store) == kept


# --- what may be lacking ---


class Silent(HashEmbedder):
    """An embedder that finds no direction in any text."""

    model = "silent/64"

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return np.zeros((len(texts), self.dimensions), dtype=np.float32)


async def test_with_the_embedder_down_the_words_decide_in_every_mode(open_app: Open) -> None:
    embedder = HashEmbedder()
    async with open_app(embedder=embedder) as application:
        await enter(application)
        await tell(application, f"{QUOKKA}\n{HERON}")
        embedder.failing = True

        by_words = await looked(application, Query("quokka", mode=SearchMode.KEYWORD))
        for mode in MODES:
            found = await answered(application, Query("quokka", mode=mode))
            assert texts(found.hits)[0] == QUOKKA
            assert bool(found.degraded) == (mode is not SearchMode.KEYWORD)
            assert {hit.scores.signals["cosine"] for hit in found.hits} == {None}
            if mode is not SearchMode.RECALL:
                assert scores(found.hits) == scores(by_words)


async def test_a_question_without_a_direction_is_answered_by_its_words(open_app: Open) -> None:
    async with open_app(embedder=Silent()) as application:
        await enter(application)
        await tell(application, f"{QUOKKA}\n{HERON}")
        await drained(application)

        by_words = await looked(application, Query("quokka", mode=SearchMode.KEYWORD))
        assert scores(await looked(application, Query("quokka"))) == scores(by_words)
        for mode in (SearchMode.HYBRID, SearchMode.RECALL, SearchMode.KEYWORD):
            assert texts(await looked(application, Query("quokka", mode=mode)))[0] == QUOKKA
        assert await looked(application, Query("quokka", mode=SearchMode.VECTOR)) == []


async def test_in_an_empty_namespace_nothing_is_found(open_app: Open) -> None:
    embedder = HashEmbedder()
    async with open_app(embedder=embedder) as application:
        await enter(application)
        for mode, failing in product(MODES, (False, True)):
            embedder.failing = failing
            for text in ("quokka", ALL_STOP_WORDS, "?!", "in May 2023", "What did I say to Ana?"):
                assert (await answered(application, Query(text, mode=mode))).hits == ()


async def test_a_question_of_stop_words_alone_is_answered_as_far_as_vectors_go(
    open_app: Open,
) -> None:
    async with open_app() as application:
        await enter(application)
        await tell(application, f"{QUOKKA}\n{HERON}")
        await drained(application)
        for mode in MODES:
            found = (await answered(application, Query(ALL_STOP_WORDS, mode=mode))).hits

            assert len(found) == (0 if mode is SearchMode.KEYWORD else 2)
            assert all(math.isfinite(hit.scores.final) for hit in found)


async def test_of_a_long_question_the_first_terms_count(open_app: Open) -> None:
    many = " ".join(f"word{number}" for number in range(300))
    async with open_app() as application:
        await enter(application)
        await tell(application, QUOKKA)
        await drained(application)
        for mode in MODES:
            first = await looked(application, Query(f"quokka {many}", mode=mode))
            last = await looked(application, Query(f"{many} quokka", mode=mode))

            by_words = [bool(hit.scores.signals["keyword"]) for hit in first]
            assert by_words == [mode is not SearchMode.VECTOR]
            assert not any(hit.scores.signals["keyword"] for hit in last)


@pytest.mark.parametrize("mode", MODES)
async def test_limits_thresholds_and_budgets_hold_in_every_mode(
    open_app: Open, mode: SearchMode
) -> None:
    async with open_app() as application:
        await _told_much(application)
        query = Query("quokka jam island", mode=mode, limit=50)
        every = await looked(application, query)

        assert len(every) == len({hit.item.id for hit in every}) == 50
        assert len(await looked(application, replace(query, limit=1))) == 1
        middle = sorted(hit.scores.score for hit in every)[25]
        on_it = await looked(application, replace(query, score_threshold=middle))
        above = await looked(application, replace(query, score_threshold=math.nextafter(middle, 1)))
        assert min(hit.scores.score for hit in on_it) == middle
        assert min((hit.scores.score for hit in above), default=1) > middle
        assert await looked(application, replace(query, max_tokens=0)) == []
        for tokens in (1, 8, 40, 10_000):
            within = await looked(application, replace(query, max_tokens=tokens))
            assert sum(-(-len(text) // 4) for text in texts(within)) <= tokens
            assert [hit for hit in every if hit in within] == within
        found = await answered(application, replace(query, max_tokens=40, neighbours=5))
        around = [said.text for hit in found.hits for said in hit.around]
        assert sum(-(-len(text) // 4) for text in (*texts(found.hits), *around)) <= 40


# --- what it costs ---


class _Counting:
    """A connection that counts its statements, and the texts that it reads."""

    def __init__(self, connection: Connection, statements: list[str], read: list[str]) -> None:
        self._connection = connection
        self._statements = statements
        self._read = read

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        self._statements.append(sql)
        rows = await self._connection.fetch(sql, params)
        self._read += [row["id"] for row in map(dict, rows) if "text" in row]
        return rows

    async def fetch_each(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        return [await self.fetch(*one) for one in statements]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class Counted:
    """A driver that counts statements, and the texts that they read."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver
        self.statements: list[str] = []
        self.read: list[str] = []
        self.trips = 0
        self.writing = 0

    @asynccontextmanager
    async def transaction(self, *, write: bool = True, **given: Any) -> AsyncIterator[Any]:
        async with self._driver.transaction(write=write, **given) as connection:
            yield _Counting(connection, self.statements, self.read)
        self.writing += write

    async def autocommit(
        self, statements: Sequence[Statement], *, namespace: str | None
    ) -> list[Sequence[Row]]:
        self.trips += 1
        connection = Autocommit(self._driver, namespace)
        return await _Counting(connection, self.statements, self.read).fetch_each(statements)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


async def _long(store: Store, namespace: Namespace, turns: int, words: str = "") -> None:
    """Store an episode with this many turns, a memory of the last one, and one of every twentieth
    before.
    """
    said = [f"Word {number} of the quokka {words}. " for number in range(turns)]
    spans, end = [], 0
    for turn in said:
        spans.append(Span(end, end + len(turn)))
        end += len(turn)
    episode = Episode(
        id="ep_long",
        text="".join(said),
        topic="life",
        occurred_at=NOON,
        recorded_at=NOON,
        content_hash="0" * 64,
        job_id="job_1",
        turns=tuple(Turn(i, span, "Ann", "s", NOON) for i, span in enumerate(spans)),
    )
    memory = Memory(
        id="mem_1",
        text=f"Ann counts quokkas {words}".strip() + ".",
        type=MemoryType.FACT,
        topic="life",
        citation=Citation("ep_long", spans[-1]),
        said_at=NOON,
        valid_from=NOON,
        recorded_at=NOON,
        extractor="test",
    )
    others = [
        replace(memory, id=f"mem_of_{place}", citation=Citation("ep_long", spans[place]))
        for place in range(0, turns - 1, 20)
    ]
    async with store.transaction(namespace) as tx:
        await tx.episodes.add(episode, "key", "digest")
        for one in (memory, *others):
            await tx.memories.add(one)
        await indexing.show(tx, [one.id for one in (memory, *others)])


async def test_a_memory_of_a_long_conversation_costs_no_more_statements_than_any(
    open_app: Open,
) -> None:
    """None of its statements reads more, either: Postgres would stop one that takes ten seconds."""
    query = Query("quokka", limit=50, mmr_lambda=1.0)
    async with open_app() as application:
        counts = {}
        for namespace, turns in ((ALICE, 2_000), (BOB, 1)):
            await enter(application, namespace)
            await _long(application.store, namespace, turns)
            counted = Counted(application.store.driver)
            store = Store(counted, cache_bytes_max=1_000_000, mac_key=bytes(32))
            tx = store.autocommit(namespace)
            asked = await search.prepare(tx, application.embedder, namespace, query)
            narrowed = await search.retrieve(tx, application.embedder, asked, NOON)
            found = await finalize(tx, narrowed, asked.query)
            counts[namespace] = len(counted.statements)
            slots = [one.slot for one in found.best]
            placed = await tx.bound.fetch("placed", slots=slots)
            places = {row["id"]: row["position"] for row in placed}
            assert places == {
                i: turns - 1 if i == "mem_1" else int(i.removeprefix("mem_of_")) for i in places
            }
            assert len(places) == min(50, 1 + len(range(0, turns - 1, 20)))

        assert counts[ALICE] == counts[BOB] <= 9


async def _told_much(application: Application) -> None:
    await enter(application)
    for number in range(6):
        # These are questions, so they make no memories.
        turns = [f"Ann: Does quokka {number} of island {turn} eat jam?" for turn in range(10)]
        await tell(application, "\n".join(turns))
    await drained(application)


async def test_a_search_reads_the_texts_of_what_it_may_show_and_no_others(open_app: Open) -> None:
    async with open_app() as application:
        await _told_much(application)
        counted = Counted(application.store.driver)
        store = Store(counted, cache_bytes_max=1_000_000, mac_key=bytes(32))
        recall = replace(application.services.recall, store=store)

        found = await recall.search(context(application), Query("quokka jam", limit=10))

        assert len(found.hits) == 10
        shown = {hit.item.id for hit in found.hits}
        shown |= {one.id for hit in found.hits for one in hit.around}
        assert shown <= set(counted.read)
        assert len(counted.read) <= len(shown) + search.FURTHER_MAX


async def test_a_search_of_what_is_in_memory_reads_what_it_shows_and_writes_nothing(
    open_app: Open,
) -> None:
    async with open_app() as application:
        await _told_much(application)
        counted = Counted(application.store.driver)
        store = Store(counted, cache_bytes_max=1_000_000, mac_key=bytes(32))
        recall = replace(application.services.recall, store=store)

        await recall.search(context(application), Query("quokka jam", limit=10))
        first, trips = len(counted.statements), counted.trips
        await recall.search(context(application), Query("quokka jam", limit=10))

        # These read the statistics, the passages with later statements about them, and the turns
        # after those that ask. No memory is shown.
        assert first > len(counted.statements) - first == 4
        assert counted.trips - trips == 3
        assert not counted.writing


async def test_a_search_that_compares_the_words_of_texts_reads_them_once(open_app: Open) -> None:
    query = Query("Does a quokka nibble marmalade?", limit=10, mmr_lambda=1.0)
    async with open_app(embedder=StaticEmbedder()) as application:
        await _told_much(application)
        counted = Counted(application.store.driver)
        store = Store(counted, cache_bytes_max=1_000_000, mac_key=bytes(32))
        recall = replace(application.services.recall, store=store)

        await recall.search(context(application), query)
        trips = counted.trips
        found = await recall.search(context(application), query, cite=True)

        assert found.hits[0].scores.signals["wording"] is not None
        # The statistics, the passages, and the turns after those that ask.
        assert counted.trips - trips == 3


@pytest.mark.parametrize("mode", MODES)
async def test_what_is_gone_before_it_is_read_leaves_its_place_to_another(
    open_app: Open, mode: SearchMode
) -> None:
    query = Query("quokka jam", limit=10, mode=mode)
    async with open_app() as application:
        await _told_much(application)
        before = await looked(application, query)
        gone = [hit.item.id for hit in before if hit.item.kind is ItemKind.PASSAGE][:3]
        asked = await search.prepare(
            application.store.autocommit(ALICE), application.embedder, ALICE, query
        )
        async with application.store.transaction(ALICE) as tx:
            narrowed = await search.retrieve(tx, application.embedder, asked, NOON)
            await tx.words.hide(postings(await indexing.read(tx, gone)))
            unread = narrowed._replace(items={})
            found = (await finalize(tx, unread, query)).hits()

        assert len(gone) == 3
        assert len(found) == 10
        assert not {hit.item.id for hit in found}.intersection(gone)


async def test_memories_and_turns_answer_together(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await tell(application, "Ann: I prefer oolong tea.")
        await drained(application)
        await tell(application, "Ben: Oolong is sold out.")

        found = await looked(application, Query("oolong"))

        assert {hit.item.kind for hit in found} == set(ItemKind)
        assert len(await memories(application)) == 1


@has_full_length
async def test_the_order_and_scores_of_an_answer_do_not_depend_on_what_was_read_before(
    open_app: Open,
) -> None:
    query = Query("what do quokkas eat", limit=10)
    async with open_app() as application:
        await _told_much(application)
        recall, audit = application.services.recall, application.services.audit

        async def ask(query: Query) -> list[tuple[str, Any]]:
            line = audit.begin(ALICE, "search_memories", "test", None, read_only=True)
            found = await recall.search(Context(line), query)
            await audit.note(line)
            return [(hit.item.id, hit.scores) for hit in found.hits]

        before = await ask(query)
        others = [Query(f"quokka {n % 6} of island {n % 10}", limit=3) for n in range(READS)]
        for other in others:
            await ask(other)
        await audit.reads.flush()
        after = await ask(query)
        counts = await select(
            application.store,
            "SELECT access_count AS n FROM turns UNION ALL SELECT access_count FROM memories",
        )

    assert len(before) == 10
    assert sum(row["n"] for row in counts) >= READS
    assert after == before


@pytest.mark.parametrize(
    ("above", "shown"),
    [
        ("Patient: Mr. Henrik Aas, born 3 May 1961", "Mr. Henrik Aas: Allergies: penicillin."),
        ("Written on a train.", "The user: Allergies: penicillin."),
    ],
)
async def test_an_allergy_in_the_note_about_a_patient_is_not_the_users(
    open_app: Open, above: str, shown: str
) -> None:
    async with open_app() as application:
        await enter(application)
        await tell(application, f"{above}\nSeen on 4 March.\nAllergies: penicillin.")
        await drained(application)
        hits = await asked(application, "Am I allergic to anything?")

    assert [text for text in texts(hits) if text.startswith("The user")] == (
        [shown] if shown.startswith("The user") else []
    )
    assert shown in texts(hits)
