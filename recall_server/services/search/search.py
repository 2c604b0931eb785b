"""The steps of a search: prepare the query, retrieve candidates, load and choose the hits."""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property

import numpy as np

from recall_server.domain.external_errors import EmbedderUnavailable
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import AccessScope
from recall_server.domain.query import Hit, Item, Query, Scores, SearchMode, Step
from recall_server.domain.search import abstention, candidates, ranking
from recall_server.domain.search.fusion import Fused, fuse
from recall_server.domain.search.index_entry import TermPostings, words_in
from recall_server.domain.search.question import Question
from recall_server.domain.search.ranking import Candidate
from recall_server.domain.search.signals import Evidence
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

# Candidates of each list, by words and by vectors. On LoCoMo 20 find a recall@10 of 76.3, 60 77.7,
# 100 78.7 and 200 79.1; the mode `recall` finds most among few.
POOL_MIN = 100
POOL_PER_HIT = 3
# Candidates of both lists that are ranked: on LoCoMo 120 of some 170 find as much among ten hits,
# and half a point less among twenty.
RANKED_MIN = 120
RANKED_PER_HIT = 6
RECALL_POOL_MIN = 25
RECALL_POOL_PER_HIT = 1.5
# The best candidates, for each hit wanted, of which a diverse answer is chosen.
DIVERSE_PER_HIT = 2


@dataclass(frozen=True)
class PreparedQuery:
    """A query with the statistics of its terms in the namespace and the vector to compare.

    `degraded` says why the words alone decide, where they do.
    """

    namespace: Namespace
    query: Query
    question: Question
    statistics: Statistics
    vector: Floats | None
    degraded: str | None

    @cached_property
    def idf(self) -> Mapping[str, float]:
        """The weights of the query terms that the namespace has, in their order."""
        found = self.statistics.frequencies
        frequencies = {term: found[term] for term in self.question.asked if term in found}
        return ranking.bm25_weights(frequencies, self.statistics.documents)

    @cached_property
    def named(self) -> frozenset[str]:
        """The terms of the speakers of the namespace that the question names."""
        return frozenset(self.question.names).intersection(self.statistics.frequencies)


@dataclass(frozen=True)
class Candidates:
    """The best items of a search, with what is loaded of them by slot: vectors, and items with
    their texts. `evidence` is how likely it is that the answer is among them; `ranked` are the
    slots in the order of `fused`.
    """

    best: Sequence[Candidate]
    ranked: Slots
    fused: Fused
    documents: Documents
    vectors: Mapping[int, Floats]
    items: Mapping[int, Item]
    evidence: float

    @cached_property
    def slots(self) -> Mapping[str, int]:
        """The slots of the loaded items, by their ids."""
        return {item.id: slot for slot, item in self.items.items()}

    def hits(self, *, explain: bool = True) -> list[Hit]:
        """The best, once their items are loaded; their signals only where they are shown."""
        signals: Sequence[Mapping[str, float | None]] = [{}] * len(self.best)
        if explain:
            places = {slot: place for place, slot in enumerate(self.ranked.tolist())}
            signals = self.fused.explain([places[one.slot] for one in self.best])
        return [
            Hit(self.items[one.slot], Scores(one.final, of_one, one.rerank))
            for one, of_one in zip(self.best, signals, strict=True)
        ]

    def count_accesses(self, hits: Iterable[Hit]) -> None:
        """Count one access of each in memory."""
        self.documents.count_accesses([self.slots[hit.item.id] for hit in hits])


async def prepare(
    store: Store,
    embedder: Embedder | None,
    namespace: Namespace,
    query: Query,
    access_scope: AccessScope,
) -> PreparedQuery:
    """Read the statistics of the query's terms, and embed it.

    Without an embedder, or one that answers, the words alone decide, and `degraded` says so.
    """
    question = Question.of(query.text)
    words = store.autocommit(namespace, access_scope=access_scope).words
    statistics = await words.statistics([*question.asked, *question.names])
    prepared = PreparedQuery(namespace, query, question, statistics, None, None)
    if query.mode is SearchMode.KEYWORD:
        return prepared
    text = query.text
    if query.mode is not SearchMode.RECALL and Step.FIRST_PERSON not in query.without:
        text = question.in_first_person(prepared.named)
    degraded = "No embedder is configured; the words alone decided."
    if embedder is not None:
        try:
            (vector,) = await embedder.embed([text])
            # The zero vector is near to nothing: the words alone decide.
            return replace(prepared, vector=vector if vector.any() else None)
        except EmbedderUnavailable as error:
            degraded = f"{error.message} The words alone decided."
    if query.mode is not SearchMode.RECALL:
        query = replace(query, mode=SearchMode.KEYWORD)
    return replace(prepared, query=query, degraded=degraded)


async def retrieve(
    tx: Transaction,
    embedder: Embedder | None,
    prepared: PreparedQuery,
    now: datetime,
    *,
    least: int = 0,
) -> Candidates:
    """The best of all findable items in the access scope, ranked: a few more than the query wants,
    and at least `least`. Texts are loaded only of those without a vector, which are compared by
    their words.
    """
    query, statistics = prepared.query, prepared.statistics
    vectors = None
    if embedder is not None and prepared.vector is not None:
        vectors = await tx.vectors.of_search(embedder.model, embedder.dimensions, statistics)
    documents = await tx.words.documents(statistics)
    # At once, and kept: a search beside this one may evict them.
    postings = documents.postings([*prepared.idf, *sorted(prepared.named)])
    slots = await _pool(tx, vectors, prepared, documents, postings)
    await tx.words.load(documents, slots)
    # Ties stand in the order of the ids: that of the slots differs once an index is made anew.
    slots = slots[documents.by_id(slots)]
    cosines = np.full(len(slots), np.nan)
    if vectors is not None and prepared.vector is not None:
        cosines = await vectors.estimates(prepared.vector, slots)
    words = words_in(slots, postings)
    columns = documents.columns(slots)
    bm25 = ranking.bm25plus_of if query.mode is SearchMode.RECALL else ranking.bm25
    evidence = Evidence(
        query,
        now,
        columns,
        words,
        prepared.idf,
        bm25(words, idf=prepared.idf, average_length=statistics.average_length),
        cosines,
        prepared.named,
        periods(query.text, now),
    )
    fused = fuse(evidence)
    count = max(least, DIVERSE_PER_HIT * query.limit)
    places = _best(fused, query, count)
    if vectors is not None and prepared.vector is not None and vectors.estimated:
        # A hit is compared by its stored vector: others of the pool cannot become one any more.
        cosines[places] = await vectors.cosines(prepared.vector, slots[places])
        fused = fuse(evidence)
        compared = set(places)
        places = [place for place in fused.order.tolist() if place in compared]
    best = [
        Candidate(slot, final)
        for slot, final in zip(slots[places].tolist(), fused.finals[places].tolist(), strict=True)
    ]
    rows = await vectors.at([one.slot for one in best]) if vectors else {}
    tx.cache.trim(prepared.namespace)
    likely = _evidence(prepared, evidence, embedder)
    found = Candidates(best, slots, fused, documents, rows, {}, likely)
    return await load_items(tx, found, [one for one in best if one.slot not in rows])


def _best(fused: Fused, query: Query, count: int) -> list[int]:
    """The places of the best, so many; no source has all of them."""
    places: list[int] = fused.order.tolist()
    if _is_diverse(query):
        sources = fused.evidence.columns["source"].tolist()
        return spread(places, sources, count, others(query.limit))
    return places[:count]


async def _pool(
    tx: Transaction,
    vectors: Searched | None,
    prepared: PreparedQuery,
    documents: Documents,
    postings: Mapping[str, TermPostings],
) -> Slots:
    """The slots worth ranking: those that stand highest by words and by vectors."""
    query = prepared.query
    size = max(POOL_MIN, POOL_PER_HIT * query.limit)
    ranked = max(RANKED_MIN, RANKED_PER_HIT * query.limit)
    if query.mode is SearchMode.RECALL:
        size = ranked = max(RECALL_POOL_MIN, int(RECALL_POOL_PER_HIT * query.limit))
    allowed = await tx.words.allowed(documents)
    idf = {} if query.mode is SearchMode.VECTOR else prepared.idf
    by_words = await _by_words(postings, idf, prepared.statistics.average_length, allowed, size)
    if vectors is None or prepared.vector is None:
        return candidates.joined([by_words], size)
    nearest = await vectors.nearest(prepared.vector, allowed, size)
    return candidates.joined([by_words, nearest], ranked)


async def _by_words(
    postings: Mapping[str, TermPostings],
    idf: Mapping[str, float],
    average_length: float,
    allowed: Flags,
    size: int,
) -> Slots:
    """`candidates.by_words`, in a thread where it takes long."""
    given = (postings, idf, average_length, allowed, size)
    if len(allowed) <= INLINE_UP_TO:
        return candidates.by_words(*given)
    return await asyncio.to_thread(candidates.by_words, *given)


def _is_diverse(query: Query) -> bool:
    """Whether likeness or a common source may displace a hit: at lambda 1 only relevance counts."""
    return query.mmr_lambda < 1.0 and Step.DIVERSITY not in query.without


def _evidence(prepared: PreparedQuery, evidence: Evidence, embedder: Embedder | None) -> float:
    if not len(evidence.cosines):
        return 0.0
    coverage = abstention.coverage(
        prepared.question.asked,
        evidence.words.times,
        idf=prepared.idf,
        documents=prepared.statistics.documents,
        named=prepared.named,
    )
    compared = evidence.cosines[~np.isnan(evidence.cosines)]
    nearest = float(compared.max()) if len(compared) else None
    return abstention.evidence(coverage, nearest, embedder.model if embedder else None)


async def load_items(tx: Transaction, found: Candidates, wanted: Sequence[Candidate]) -> Candidates:
    """The same with the items of those wanted loaded; without those that cannot be read any
    more.
    """
    ids = found.documents.ids
    missing = [one.slot for one in wanted if one.slot not in found.items]
    if not missing:
        return found
    slots = {ids[slot]: slot for slot in missing if slot in ids}
    items = {slots[item.id]: item for item in await read_items(tx, list(slots))}
    gone = set(missing) - items.keys()
    best = [one for one in found.best if one.slot not in gone]
    return replace(found, best=best, items={**found.items, **items})


async def finalize(tx: Transaction, found: Candidates, query: Query) -> Candidates:
    """The hits, with their items loaded here: what was loaded before may have been erased since.
    An item that cannot be read any more leaves its place to another.
    """
    while True:
        best = _chosen(found, query)
        loaded = await load_items(tx, replace(found, best=best, items={}), best)
        if len(loaded.best) == len(best):
            return loaded
        gone = {one.slot for one in best} - loaded.items.keys()
        found = replace(found, best=[one for one in found.best if one.slot not in gone])


def _chosen(found: Candidates, query: Query) -> Sequence[Candidate]:
    """The candidates that become hits: diverse, and as many as wanted."""
    best = found.best
    if not _is_diverse(query):
        return best[: query.limit]
    words = {
        slot: terms(item.searchable)
        for slot, item in found.items.items()
        if slot not in found.vectors
    }
    alike = ranking.likeness(best, found.vectors, words)
    if query.mode is not SearchMode.RECALL:
        alike = ranking.repetition(alike)
    places = ranking.diversify([one.final for one in best], alike, query.mmr_lambda)
    sources = found.documents.sources([one.slot for one in best])
    return [best[at] for at in spread(places, sources, query.limit, others(query.limit))]


async def with_neighbours(
    tx: Transaction, found: Candidates, hits: Sequence[Hit], query: Query
) -> list[Hit]:
    """Each hit with the turns around it, a memory also with the one that it rests on: each turn
    once, and those of the best hits first, as far as the budget goes.
    """
    steps = range(-query.neighbours, query.neighbours + 1)
    wanted = {
        hit.item.id: [
            turn_id(episode, position)
            for episode, position in found.documents.turns(found.slots[hit.item.id], steps)
        ]
        for hit in hits
    }
    said = await tx.episodes.said([turn for ids in wanted.values() for turn in ids])
    for item_id in wanted:
        said.pop(item_id, None)
    left = None
    if query.max_tokens is not None:
        left = query.max_tokens - sum(map(ranking.tokens, hits))
    with_turns = []
    for hit in hits:
        around = [said[i] for i in wanted[hit.item.id] if i in said]
        price = sum(ranking.text_tokens(one.text) for one in around)
        if left is not None and price > left:
            around = []
        elif left is not None:
            left -= price
        for one in around:
            del said[one.turn_id]
        with_turns.append(hit._replace(around=tuple(around)))
    return with_turns


async def read_items(tx: Transaction, ids: Sequence[str]) -> list[Item]:
    """The findable ones among `ids`, in their order, with their texts."""
    found = {item.id: item for item in await tx.memories.items(ids)}
    turns = [i for i in ids if i not in found]
    if turns:
        found |= {item.id: item for item in await tx.episodes.items(turns)}
    return [found[i] for i in ids if i in found]
