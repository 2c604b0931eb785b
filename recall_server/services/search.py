"""How a search goes: narrow by words and vectors, weigh what speaks for each, show the best."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

from recall_server.domain import abstention, fusion, ranking
from recall_server.domain.errors import EmbedderUnavailable
from recall_server.domain.findable import Occurrence
from recall_server.domain.fusion import Evidence
from recall_server.domain.model import Hit, Item, Namespace, Part, Query, SearchMode
from recall_server.domain.periods import Period
from recall_server.domain.question import Question
from recall_server.domain.rights import Reach
from recall_server.domain.when import when
from recall_server.domain.words import terms
from recall_server.providers.embedding import Embedder
from recall_server.services.events import resolved
from recall_server.storage.codes import Floats
from recall_server.storage.episodes import turn_id
from recall_server.storage.index import Statistics
from recall_server.storage.matrix import cosines_to
from recall_server.storage.store import Store, Transaction

# Of each list. Measured on LoCoMo, recall@10: 20 find 76.3, 60 77.7, 100 78.7, 200 79.1; those of
# the backbone's formula find most among few.
POOL_MIN = 100
POOL_PER_HIT = 3
# Of both together, to be read and weighed: on LoCoMo 120 of some 170 find as much among ten hits,
# and half a point less among twenty.
READ_MIN = 120
READ_PER_HIT = 6
RECALL_POOL_MIN = 25
RECALL_POOL_PER_HIT = 1.5
# Of the best, those among which the answer is made diverse, for each hit wanted.
DIVERSE_PER_HIT = 2


@dataclass(frozen=True)
class Asked:
    """A question, with what the namespace told of it and the vector it is compared by."""

    namespace: Namespace
    query: Query
    question: Question
    statistics: Statistics
    vector: Floats | None
    degraded: str | None

    @cached_property
    def idf(self) -> Mapping[str, float]:
        """The weights of the terms asked for, in their order."""
        known = self.statistics.frequencies
        frequencies = {term: known[term] for term in self.question.asked if term in known}
        return ranking.bm25_weights(frequencies, self.statistics.documents)

    @cached_property
    def named(self) -> frozenset[str]:
        """The terms of the speakers of the namespace that the question names."""
        return frozenset(self.question.names).intersection(self.statistics.frequencies)


@dataclass(frozen=True)
class _Pool:
    """What a search has to choose from."""

    items: Sequence[Item]
    occurrences: Sequence[Occurrence]
    cosines: Mapping[str, float]


async def ask(
    store: Store, embedder: Embedder | None, namespace: Namespace, query: Query, reach: Reach
) -> Asked:
    """Look up what the namespace knows of the words asked for, and make the vector to compare.

    Without an embedder, or one that answers, the words alone decide, and `degraded` says so
    (FEATURES D23).
    """
    question = Question.of(query.text)
    words = store.alone(namespace, reach=reach).words
    statistics = await words.statistics([*question.asked, *question.names])
    asked = Asked(namespace, query, question, statistics, None, None)
    if query.mode is SearchMode.KEYWORD:
        return asked
    text = query.text
    if query.mode is not SearchMode.RECALL and Part.FIRST_PERSON not in query.without:
        text = question.in_first_person(asked.named)
    degraded = "No embedder is configured; the words alone decided."
    if embedder is not None:
        try:
            (vector,) = await embedder.embed([text])
            # One without a direction is near to nothing: the words alone decide.
            return replace(asked, vector=vector if vector.any() else None)
        except EmbedderUnavailable as error:
            degraded = f"{error.message} The words alone decided."
    if query.mode is not SearchMode.RECALL:
        query = replace(query, mode=SearchMode.KEYWORD)
    return replace(asked, query=query, degraded=degraded)


@dataclass(frozen=True)
class Narrowed:
    """The best hits, with the texts that are shown of them and their vectors, by id."""

    hits: Sequence[Hit]
    vectors: Mapping[str, Floats]
    evidence: float


async def narrow(
    tx: Transaction, embedder: Embedder | None, asked: Asked, now: datetime, *, least: int = 0
) -> Narrowed:
    """The best of all that is findable here: a few more than wanted, and `least` of them."""
    pool = await _pool(tx, embedder, asked)
    count = max(least, DIVERSE_PER_HIT * asked.query.limit)
    events = await _events(tx, asked, now)
    hits = await _shown(tx, _scored(pool, asked, now, count, events))
    evidence = _evidence(pool, asked, embedder)
    if asked.vector is None or embedder is None:
        return Narrowed(hits, {}, evidence)
    vectors = await tx.vectors.of(embedder.model, [hit.item.id for hit in hits])
    return Narrowed(hits, vectors, evidence)


def choose(narrowed: Narrowed, query: Query) -> list[Hit]:
    """Of the best hits those that are shown: diverse, as many as wanted, and within the budget."""
    hits = narrowed.hits
    if Part.DIVERSITY not in query.without:
        vectors = narrowed.vectors
        words = {
            hit.item.id: terms(hit.item.searchable) for hit in hits if hit.item.id not in vectors
        }
        alike = ranking.likeness(hits, vectors, words)
        if query.mode is not SearchMode.RECALL:
            alike = ranking.repetition(alike)
        hits = ranking.diversify(hits, alike, query.mmr_lambda, query.limit)
    return ranking.fit_budget(hits[: query.limit], query.max_tokens)


async def _pool(tx: Transaction, embedder: Embedder | None, asked: Asked) -> _Pool:
    query, statistics = asked.query, asked.statistics
    recalling = query.mode is SearchMode.RECALL
    size = max(POOL_MIN, POOL_PER_HIT * query.limit)
    if recalling:
        size = max(RECALL_POOL_MIN, int(RECALL_POOL_PER_HIT * query.limit))
    within = await tx.reachable()
    wanted = {} if query.mode is SearchMode.VECTOR else asked.idf
    if asked.vector is None or embedder is None:
        ids = await tx.words.pool(wanted, statistics, size, within)
        return await _read(tx, asked, ids, {})
    async with asyncio.TaskGroup() as group:
        # The database looks up the words while the vectors are compared here.
        looked_up = group.create_task(tx.words.pool(wanted, statistics, size, within))
        await asyncio.sleep(0)
        nearest = await tx.vectors.nearest(
            embedder.model,
            embedder.dimensions,
            statistics,
            asked.vector,
            limit=size,
            within=within,
        )
    # What stands low in both lists cannot become an answer: it need not be read.
    read = size if recalling else max(READ_MIN, READ_PER_HIT * query.limit)
    ids = list(ranking.rrf([_order(looked_up.result()), _order(nearest)]))[:read]
    vectors = await tx.vectors.of(embedder.model, [i for i in ids if i not in nearest])
    cosines = dict(zip(vectors, cosines_to(asked.vector, list(vectors.values())), strict=True))
    cosines |= {i: nearest[i] for i in ids if i in nearest}
    return await _read(tx, asked, ids, cosines)


async def _read(
    tx: Transaction, asked: Asked, ids: Sequence[str], cosines: Mapping[str, float]
) -> _Pool:
    items = {item.id: item for item in await tx.findables.placed(ids)}
    found = [i for i in ids if i in items]
    wanted = [*asked.idf, *sorted(asked.named)]
    occurrences = await tx.words.occurrences(wanted, found)
    return _Pool(
        [items[i] for i in found], occurrences, {i: cosines[i] for i in found if i in cosines}
    )


async def _events(tx: Transaction, asked: Asked, now: datetime) -> tuple[Period, ...]:
    """When the events were that the question names, where they have a say."""
    query = asked.query
    if Part.EVENT in query.without or query.mode in (SearchMode.RECALL, SearchMode.VECTOR):
        return ()
    named = when(query.text, now).events
    return await resolved(tx, named, asked.statistics, idf=asked.idf, named=asked.named)


def _scored(
    pool: _Pool, asked: Asked, now: datetime, limit: int, events: tuple[Period, ...]
) -> list[Hit]:
    query = asked.query
    if query.mode is SearchMode.RECALL:
        keyword = ranking.bm25plus_of(
            pool.occurrences,
            idf=asked.idf,
            average_length=asked.statistics.average_length,
        )
        return ranking.score(pool.items, keyword, pool.cosines, query, now)[:limit]
    evidence = Evidence(
        pool.occurrences,
        asked.idf,
        asked.statistics.average_length,
        pool.cosines,
        asked.named,
        when(query.text, now).periods,
        events,
    )
    return fusion.fuse(pool.items, evidence, query, now, limit=limit)


def _evidence(pool: _Pool, asked: Asked, embedder: Embedder | None) -> float:
    if not pool.items:
        return 0.0
    coverage = abstention.coverage(
        asked.question.asked,
        pool.occurrences,
        idf=asked.idf,
        documents=asked.statistics.documents,
        named=asked.named,
    )
    nearest = max(pool.cosines.values(), default=None)
    return abstention.evidence(coverage, nearest, embedder.model if embedder else None)


async def _shown(tx: Transaction, hits: Sequence[Hit]) -> list[Hit]:
    """The hits with the texts that are shown of them."""
    items = {item.id: item for item in await read(tx, [hit.item.id for hit in hits])}
    return [
        hit._replace(item=items[hit.item.id]._replace(place=hit.item.place))
        for hit in hits
        if hit.item.id in items
    ]


async def with_neighbours(tx: Transaction, hits: Sequence[Hit], query: Query) -> list[Hit]:
    """Each hit with the turns around it, a memory also with the one that it rests on: each turn
    once, and those of the best hits first, as far as the budget goes.
    """
    places = {hit.item.id: hit.item.place for hit in hits if hit.item.place is not None}
    reach = range(-query.neighbours, query.neighbours + 1)
    wanted = {
        item_id: [turn_id(place.episode_id, place.position + step) for step in reach]
        for item_id, place in places.items()
    }
    said = await tx.episodes.said([turn for ids in wanted.values() for turn in ids])
    for item_id in places:
        said.pop(item_id, None)
    left = None
    if query.max_tokens is not None:
        left = query.max_tokens - sum(map(ranking.tokens, hits))
    found = []
    for hit in hits:
        around = [said[i] for i in wanted.get(hit.item.id, ()) if i in said]
        price = sum(ranking.text_tokens(one.text) for one in around)
        if left is not None and price > left:
            around = []
        elif left is not None:
            left -= price
        for one in around:
            del said[one.turn_id]
        found.append(hit._replace(around=tuple(around)))
    return found


async def read(tx: Transaction, ids: Sequence[str]) -> list[Item]:
    """The findable ones among `ids`, in their order, with their texts."""
    found = {item.id: item for item in await tx.memories.items(ids)}
    turns = [i for i in ids if i not in found]
    if turns:
        found |= {item.id: item for item in await tx.episodes.items(turns)}
    return [found[i] for i in ids if i in found]


def _order(ids: Iterable[str]) -> dict[str, float]:
    return {item_id: float(rank) for rank, item_id in enumerate(ids, 1)}
