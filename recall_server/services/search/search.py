"""How a search goes: narrow by words and vectors, weigh what speaks for each, show the best."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np

from recall_server.domain.external_errors import EmbedderUnavailable
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import AccessScope
from recall_server.domain.query import Hit, Item, Part, Query, SearchMode
from recall_server.domain.search import abstention, candidates, fusion, ranking
from recall_server.domain.search.fusion import Column, Evidence
from recall_server.domain.search.index_entry import TermPostings, Words, words_in
from recall_server.domain.search.question import Question
from recall_server.domain.search.ranking import Candidate
from recall_server.domain.search.source_limit import others, spread
from recall_server.domain.text.periods import periods
from recall_server.domain.text.terms import terms
from recall_server.integrations.embeddings.embedder import Embedder
from recall_server.storage.index.codes import Flags, Floats
from recall_server.storage.index.documents import Documents, Slots
from recall_server.storage.index.vectors import INLINE_UP_TO, Searched
from recall_server.storage.index.words import Statistics
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.episodes import turn_id

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
class PreparedQuery:
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
    """What a search has to choose from: the slots, and what is known of what is found there. Where
    it says `nearly`, a cosine is not yet that of the stored vector.
    """

    documents: Documents
    slots: Slots
    words: Words
    cosines: Column
    nearly: Flags
    vectors: Searched | None

    async def compare(self, asked: PreparedQuery, places: Sequence[int]) -> bool:
        """Take the cosines at these places from the stored vectors; whether any was not."""
        rough = [place for place in places if self.nearly[place]]
        if self.vectors is None or asked.vector is None or not rough:
            return False
        self.cosines[rough] = await self.vectors.cosines(asked.vector, self.slots[rough])
        self.nearly[rough] = False
        return True


async def ask(
    store: Store, embedder: Embedder | None, namespace: Namespace, query: Query, reach: AccessScope
) -> PreparedQuery:
    """Look up what the namespace knows of the words asked for, and make the vector to compare.

    Without an embedder, or one that answers, the words alone decide, and `degraded` says so
    (FEATURES D23).
    """
    question = Question.of(query.text)
    words = store.autocommit(namespace, reach=reach).words
    statistics = await words.statistics([*question.asked, *question.names])
    asked = PreparedQuery(namespace, query, question, statistics, None, None)
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
class Candidates:
    """The best that was found, with what is held of it by slot: the vectors, and the items that
    were read.
    """

    best: Sequence[Candidate]
    documents: Documents
    vectors: Mapping[int, Floats]
    items: Mapping[int, Item]
    evidence: float

    @cached_property
    def slots(self) -> Mapping[str, int]:
        """Where the items that were read stand, by their ids."""
        return {item.id: slot for slot, item in self.items.items()}

    @property
    def hits(self) -> list[Hit]:
        """The best as they are shown, once they were read."""
        return [Hit(self.items[one.slot], one.scores) for one in self.best]

    def count_accesses(self, hits: Iterable[Hit]) -> None:
        """That these were shown."""
        self.documents.count_accesses([self.slots[hit.item.id] for hit in hits])


async def narrow(
    tx: Transaction,
    embedder: Embedder | None,
    asked: PreparedQuery,
    now: datetime,
    *,
    least: int = 0,
) -> Candidates:
    """The best of all that is findable here: a few more than wanted, and `least` of them. Of these
    only those are read that are compared by their words, having no vector.
    """
    if embedder is None or asked.vector is None:
        vectors = None
    else:
        vectors = await tx.vectors.of_search(embedder.model, embedder.dimensions, asked.statistics)
    pool = await _pool(tx, vectors, asked)
    count = max(least, DIVERSE_PER_HIT * asked.query.limit)
    best = await _scored(tx, pool, asked, now, count)
    rows = await vectors.at([one.slot for one in best]) if vectors else {}
    tx.cache.weigh(asked.namespace)
    found = Candidates(best, pool.documents, rows, {}, _evidence(pool, asked, embedder))
    return await readable(tx, found, [one for one in best if one.slot not in rows])


async def readable(
    tx: Transaction, narrowed: Candidates, wanted: Sequence[Candidate]
) -> Candidates:
    """The same with the items of those wanted, read; without what cannot be read any more."""
    ids = narrowed.documents.ids
    unread = [one.slot for one in wanted if one.slot not in narrowed.items]
    if not unread:
        return narrowed
    slots = {ids[slot]: slot for slot in unread if slot in ids}
    items = {slots[item.id]: item for item in await read(tx, list(slots))}
    gone = set(unread) - items.keys()
    best = [one for one in narrowed.best if one.slot not in gone]
    return replace(narrowed, best=best, items={**narrowed.items, **items})


async def shown(tx: Transaction, narrowed: Candidates, query: Query) -> Candidates:
    """Those that are shown, read here: what was read before may have been erased since. What cannot
    be read any more leaves its place to another.
    """
    while True:
        best = _chosen(narrowed, query)
        found = await readable(tx, replace(narrowed, best=best, items={}), best)
        if len(found.best) == len(best):
            return found
        gone = {one.slot for one in best} - found.items.keys()
        narrowed = replace(narrowed, best=[one for one in narrowed.best if one.slot not in gone])


def _chosen(narrowed: Candidates, query: Query) -> Sequence[Candidate]:
    """Of the best those that are shown: diverse, and as many as wanted."""
    best, vectors = narrowed.best, narrowed.vectors
    if Part.DIVERSITY not in query.without:
        words = {
            slot: terms(item.searchable)
            for slot, item in narrowed.items.items()
            if slot not in vectors
        }
        alike = ranking.likeness(best, vectors, words)
        if query.mode is not SearchMode.RECALL:
            alike = ranking.repetition(alike)
        best = spread(
            ranking.diversify(best, alike, query.mmr_lambda),
            lambda one: narrowed.documents.source(one.slot),
            query.limit,
            others(query.limit),
        )
    return best[: query.limit]


async def _pool(tx: Transaction, vectors: Searched | None, asked: PreparedQuery) -> _Pool:
    query, statistics = asked.query, asked.statistics
    recalling = query.mode is SearchMode.RECALL
    size = max(POOL_MIN, POOL_PER_HIT * query.limit)
    if recalling:
        size = max(RECALL_POOL_MIN, int(RECALL_POOL_PER_HIT * query.limit))
    documents = await tx.words.documents(statistics)
    # At once, and kept: who searches beside this one may make room.
    postings = documents.postings([*asked.idf, *sorted(asked.named)])
    allowed = await tx.words.allowed(documents)
    idf = {} if query.mode is SearchMode.VECTOR else asked.idf
    by_words = await _by_words(postings, idf, statistics.average_length, allowed, size)
    if vectors is None or asked.vector is None:
        slots = candidates.joined([by_words], size)
        cosines, nearly = np.full(len(slots), np.nan), np.zeros(len(slots), np.bool_)
    else:
        nearest = await vectors.nearest(asked.vector, allowed, size)
        # What stands low in both lists cannot become an answer: it need not be looked at.
        most = size if recalling else max(READ_MIN, READ_PER_HIT * query.limit)
        slots = candidates.joined([by_words, nearest], most)
        cosines, nearly = await vectors.nearly(asked.vector, slots)
    await tx.words.know(documents, slots)
    # In the order of the ids, which is that of ties: slots are others where it was taken in anew.
    order = documents.by_id(slots)
    slots = slots[order]
    words = words_in(slots, postings)
    return _Pool(documents, slots, words, cosines[order], nearly[order], vectors)


async def _by_words(
    postings: Mapping[str, TermPostings],
    idf: Mapping[str, float],
    average_length: float,
    allowed: Flags,
    size: int,
) -> Slots:
    """`narrowing.by_words`, in a thread where it takes long."""
    given = (postings, idf, average_length, allowed, size)
    if len(allowed) <= INLINE_UP_TO:
        return candidates.by_words(*given)
    return await asyncio.to_thread(candidates.by_words, *given)


async def _scored(
    tx: Transaction, pool: _Pool, asked: PreparedQuery, now: datetime, limit: int
) -> list[Candidate]:
    """The best of the pool, with what spoke for each; no source has all of them."""
    query = asked.query
    reserved = others(query.limit)
    if query.mode is SearchMode.RECALL:
        await pool.compare(asked, range(len(pool.slots)))
        found = await _as_the_backbone(tx, pool, asked, now)
        return spread(found, lambda one: pool.documents.source(one.slot), limit, reserved)
    evidence = Evidence(
        pool.words,
        asked.idf,
        asked.statistics.average_length,
        pool.cosines,
        asked.named,
        periods(query.text, now),
    )
    columns = fusion.Pool(*pool.documents.columns(pool.slots))
    slots = pool.slots.tolist()
    # Until all that are chosen are weighed by their stored vectors: others cannot be shown.
    weighing = True
    while weighing:
        fused = fusion.fuse(columns, evidence, query, now)
        places = spread(
            fused.order.tolist(), lambda place: pool.documents.source(slots[place]), limit, reserved
        )
        weighing = await pool.compare(asked, places)
    return [
        Candidate(slots[place], scores)
        for place, scores in zip(places, fused.scores(places), strict=True)
    ]


async def _as_the_backbone(
    tx: Transaction, pool: _Pool, asked: PreparedQuery, now: datetime
) -> list[Candidate]:
    slots = pool.slots.tolist()
    items = await tx.findables.placed(slots)
    ids = [items[slot].id if slot in items else "" for slot in slots]
    keyword = ranking.bm25plus_of(
        pool.words, idf=asked.idf, average_length=asked.statistics.average_length
    )
    hits = ranking.score(
        list(items.values()),
        dict(zip(ids, keyword, strict=True)),
        dict(zip(ids, pool.cosines.tolist(), strict=True)),
        asked.query,
        now,
    )
    slot_of = {item.id: slot for slot, item in items.items()}
    return [Candidate(slot_of[hit.item.id], hit.scores) for hit in hits]


def _evidence(pool: _Pool, asked: PreparedQuery, embedder: Embedder | None) -> float:
    if not len(pool.slots):
        return 0.0
    coverage = abstention.coverage(
        asked.question.asked,
        pool.words.times,
        idf=asked.idf,
        documents=asked.statistics.documents,
        named=asked.named,
    )
    compared = pool.cosines[~np.isnan(pool.cosines)]
    nearest = float(compared.max()) if len(compared) else None
    return abstention.evidence(coverage, nearest, embedder.model if embedder else None)


async def with_neighbours(
    tx: Transaction, narrowed: Candidates, hits: Sequence[Hit], query: Query
) -> list[Hit]:
    """Each hit with the turns around it, a memory also with the one that it rests on: each turn
    once, and those of the best hits first, as far as the budget goes.
    """
    placed = await tx.findables.placed([narrowed.slots[hit.item.id] for hit in hits])
    places = {item.id: item.place for item in placed.values() if item.place is not None}
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
