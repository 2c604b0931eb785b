"""The steps of a search: prepare the query, retrieve candidates, compare and load them."""

import asyncio
import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from recall_server.domain.errors import EmbedderUnavailable
from recall_server.domain.ids import Namespace
from recall_server.domain.query import (
    DEFAULT_ORDER,
    REPEATS_MAX,
    Hit,
    Item,
    Query,
    Scores,
    SearchMode,
    Step,
    hit_of,
    said_again,
)
from recall_server.domain.search import calibration, ranking
from recall_server.domain.search.fact_question import FactQuestion, stated
from recall_server.domain.search.index_entry import TermPostings, words_in
from recall_server.domain.search.question import SAID_MIN, Question, alike
from recall_server.domain.search.ranking import Candidate, others, spread
from recall_server.domain.search.signals import (
    BROAD,
    FACT,
    WORDING,
    Evidence,
    Fused,
    Values,
    fuse,
    without_cosines,
)
from recall_server.domain.text.dates import Period, periods
from recall_server.integrations.embeddings import Embedder, WordVectors, word_vectors
from recall_server.storage.index.documents import Documents, Slots
from recall_server.storage.index.vector_cache import Flags, Floats
from recall_server.storage.index.vectors import INLINE_UP_TO, Searched
from recall_server.storage.index.words import Statistics
from recall_server.storage.store import Transaction

# How many candidates each list has, by words and by vectors. On LoCoMo the recall@10 is 76.3 with
# 20, 77.7 with 60, 78.7 with 100 and 79.1 with 200; the mode `recall` needs few.
POOL_MIN = 100
POOL_PER_HIT = 3
# How many candidates of both lists are ranked. On LoCoMo, 120 of about 170 find as much among ten
# hits, and half a point less among twenty.
RANKED_MIN = 120
RANKED_PER_HIT = 6
RECALL_POOL_MIN = 25
RECALL_POOL_PER_HIT = 1.5
# How often the pool is made again without what is said too often.
REPEATED_MAX = 4
# How many of the best candidates, per wanted hit, a diverse answer is chosen from.
DIVERSE_PER_HIT = 2
# Of how many of the best candidates, per wanted hit, the passages of one message are joined.
JOINED_PER_HIT = 4
# How many hits are compared word by word. With 10, LoCoMo's R@10 is .2 lower, with 40 .1 higher.
COMPARED_MAX = 20
# How many of the candidates that follow the hits are shown beside them.
FURTHER_MAX = 3
# How many texts more than are shown are read to compare them: the order then changes. With these,
# 97 % of LoCoMo's searches read no further ones.
LIKELY_MORE = 4
# The least cosine that counts for the score of a memory that states the fact asked for: its words
# may be others.
STATED_COSINE = 0.6
# Longer texts are compared in a thread.
COMPARED_INLINE_CHARS_MAX = 4_000
# Longer questions are read in a thread: hundreds of dates or names take milliseconds.
QUESTION_INLINE_CHARS_MAX = 200

T = TypeVar("T")


class PreparedQuery(NamedTuple):
    """A query with the statistics of its terms, and the vector to compare.

    `idf`: the weights of the query terms that occur in the namespace, in the order of the query;
    `asked`: those of all query terms.
    `named`: the terms of the speakers of the namespace that the question names; `values`: those of
    the kinds of value that it asks for and the namespace has.
    `subjects`: the normal names of whom it asks a fact of.
    `degraded` says why the words alone decide, if they do.
    """

    namespace: Namespace
    query: Query
    question: Question
    statistics: Statistics
    idf: Mapping[str, float]
    asked: Mapping[str, float]
    named: frozenset[str]
    values: frozenset[str]
    subjects: Collection[str] = ()
    vector: Floats | None = None
    degraded: str | None = None


class Candidates(NamedTuple):
    """The best items of a search, and what is loaded of them.

    `places`: for each hit that is not scored yet, its places in `ranked`; `wanted`: how many were
    wanted. `best` are the scored ones (`compare`).
    `ranked`: the slots in the order of `fused`.
    `vectors`, `items`: the loaded vectors, and the loaded items with their texts, by slot.
    `weights`: the calibration that says how likely a hit is to answer the query.
    `coverage`: how much of the question each of the ranked contains.
    `by_word`: the vectors of single words, if words are compared.
    `left_out`: how many were dropped as noise. `further`: loaded ones that follow the best.
    `lead`: that of the best candidate, if relevance alone orders them.
    """

    prepared: PreparedQuery
    best: Sequence[Candidate]
    places: Sequence[list[int]]
    wanted: int
    ranked: Slots
    fused: Fused
    documents: Documents
    vectors: Mapping[int, Floats]
    items: Mapping[int, Item]
    weights: calibration.Calibration
    coverage: Values
    by_word: WordVectors | None = None
    left_out: int = 0
    further: Sequence[Candidate] = ()
    lead: calibration.Lead | None = None

    @property
    def slots(self) -> dict[str, int]:
        """The slots of the loaded items, by their ids."""
        return {item.id: slot for slot, item in self.items.items()}

    def hits(self, *, explain: bool = True) -> list[Hit]:
        """Return the best as hits, with their signals if `explain`. Their items must be loaded."""
        signals: Sequence[Mapping[str, float | None]] = [{}] * len(self.best)
        if explain:
            places = {slot: place for place, slot in enumerate(self.ranked.tolist())}
            signals = self.fused.explain([places[one.slot] for one in self.best])
        found = [
            hit_of(
                self.items_of(one),
                Scores(one.score, one.final, one.coverage, of_one, one.rerank, one.cosine),
                said_again([self.items[slot] for slot in one.repeats]) if one.repeats else (),
            )
            for one, of_one in zip(self.best, signals, strict=True)
        ]
        # A passage that is part of a hit, or that it repeats, has the id of the hit.
        ids = {slot: item.id for slot, item in self.items.items()}
        for one, hit in zip(self.best, found, strict=True):
            ids |= dict.fromkeys((one.slot, *one.others, *one.repeats), hit.item.id)
        return [
            hit if one.later is None else hit._replace(gave_way_to=ids[one.later])
            for one, hit in zip(self.best, found, strict=True)
        ]

    def items_of(self, one: Candidate) -> list[Item]:
        """Return the loaded items of a candidate, the best first."""
        return [self.items[slot] for slot in (one.slot, *one.others) if slot in self.items]


async def read(text: str, function: Callable[[str], T]) -> T:
    """Return what a function makes of the text of a question, without delaying other callers."""
    if len(text) > QUESTION_INLINE_CHARS_MAX:
        return await asyncio.to_thread(function, text)
    return function(text)


async def prepare(
    tx: Transaction,
    embedder: Embedder | None,
    namespace: Namespace,
    query: Query,
    *,
    limited: bool = False,
) -> PreparedQuery:
    """Read the statistics of the query's terms, and embed the query; `tx` must be no transaction
    that stays open meanwhile. A `limited` token gets the statistics of its access scope: others
    would reveal words and speakers outside of it.

    If there is no embedder, or it does not answer, the words alone decide, and `degraded` says so.
    """
    parse = partial(Question.parse, may_be_broad=query.mode in DEFAULT_ORDER)
    question = await read(query.text, parse)
    statistics = await tx.words.statistics(question.terms)
    if limited or query.past.known_at is not None:
        statistics = await tx.words.of_allowed(statistics, limited=limited)
    found, documents = statistics.frequencies, statistics.documents
    question = question.as_written(found)
    idf = ranking.bm25_weights(
        {term: found[term] for term in question.asked if term in found}, documents
    )
    named = frozenset(question.names).intersection(found)
    asked = calibration.asked_weights(question.asked, idf, documents, named)
    values = question.values.intersection(found)
    fact = question.fact
    subjects = await tx.aliases.names(fact.subject, limited=limited) if fact else ()
    prepared = PreparedQuery(
        namespace, query, question, statistics, idf, asked, named, values, subjects
    )
    if query.mode is SearchMode.KEYWORD:
        return prepared
    text = query.text
    if query.mode is not SearchMode.RECALL and Step.FIRST_PERSON not in query.without:
        text = question.in_first_person(prepared.named, question.common_names(found, documents))
    degraded = "No embedder is configured; the words alone decided."
    if embedder is not None:
        try:
            (vector,) = await embedder.embed([text])
            # The zero vector is near to nothing.
            return prepared._replace(vector=vector if vector.any() else None)
        except EmbedderUnavailable as error:
            degraded = f"{error.message} The words alone decided."
    if query.mode is not SearchMode.RECALL:
        query = replace(query, mode=SearchMode.KEYWORD)
    return prepared._replace(query=query, degraded=degraded)


async def retrieve(
    tx: Transaction,
    embedder: Embedder | None,
    prepared: PreparedQuery,
    now: datetime,
    *,
    least: int = 0,
) -> Candidates:
    """Return the best of all findable items in the access scope, ranked: a few more than the query
    wants, and at least `least`. No texts are loaded.
    """
    query, statistics = prepared.query, prepared.statistics
    vectors = None
    if embedder is not None and prepared.vector is not None:
        vectors = await tx.vectors.of_search(embedder.model, embedder.dimensions, statistics)
    documents = await tx.words.documents(statistics)
    # Fetch them all now and keep them: a concurrent search may evict them.
    labels = prepared.named | prepared.values
    postings = documents.postings([*prepared.idf, *sorted(labels)])
    named = await read(query.text, partial(periods, now=now))
    fact = _fact_question(prepared, named)
    facts = await tx.words.of_facts(prepared.subjects, fact.attributes) if fact else ()
    allowed = await _allowed(tx, prepared, documents)
    slots = await _pool_without_repeats(vectors, prepared, postings, allowed)
    if own := [slot for slot in facts if slot < len(allowed) and allowed[slot]]:
        slots = np.union1d(slots, own)
    await tx.words.load(documents, slots)
    # Ties are in the order of the ids: the order of slots changes when an index is rebuilt.
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
        named,
        prepared.values,
        # The answer to a question for one fact need not have any of its words.
        1.0 if own else calibration.known(prepared.asked, prepared.idf),
        broad=prepared.question.broad,
        stated=fact and stated(fact, prepared.subjects, documents.facts(slots)),
    )
    fused = fuse(evidence)
    compared = COMPARED_MAX if query.mode in DEFAULT_ORDER else 0
    count = max(least, compared, DIVERSE_PER_HIT * query.limit)
    hits = _best(fused, query, count)
    if vectors is not None and prepared.vector is not None and vectors.estimated:
        # Estimates only chose these; the stored vectors now rank them.
        places = sorted({place for hit in hits for place in hit})
        cosines[places] = await vectors.cosines(prepared.vector, slots[places])
        fused = fuse(evidence, without_cosines(fused.signals))
        hits = _best(fused, query, count, among=set(places))
    model = embedder.model if embedder and vectors else None
    weights = calibration.calibration(model, query.text, statistics.documents)
    firsts = slots[[hit[0] for hit in hits]].tolist()
    rows = await vectors.by_slot(firsts) if vectors else {}
    tx.bound.cache.trim(prepared.namespace)
    covers = calibration.coverage(prepared.asked, words, prepared.named)
    by_word = word_vectors(embedder) if _compares_words(prepared) else None
    return Candidates(
        prepared, (), hits, count, slots, fused, documents, rows, {}, weights, covers, by_word
    )


def _compares_words(prepared: PreparedQuery) -> bool:
    """True if the words of the best hits are compared with those of the question."""
    query, question = prepared.query, prepared.question
    if query.mode is not SearchMode.HYBRID or prepared.vector is None or WORDING in query.without:
        return False
    named = question.broad is None and not question.people.isdisjoint(prepared.asked)
    return named or bool(prepared.asked.keys() - prepared.idf.keys())


async def compare(tx: Transaction, found: Candidates) -> Candidates:
    """Return the candidates with their scores, once: in the order that the words of the best give
    them, and with the texts that are likely to be shown, if words are compared.
    """
    if not found.places:
        return found
    by_word, prepared, evidence = found.by_word, found.prepared, found.fused.evidence
    fused, hits, beside_names = found.fused, found.places, None
    if by_word is not None and (compared := _compared(found)):
        numbers = found.ranked.tolist()
        firsts = [numbers[hits[at][0]] for at in compared]
        likely = hits[: prepared.query.limit + LIKELY_MORE]
        slots = dict.fromkeys([*firsts, *(numbers[place] for hit in likely for place in hit)])
        found = found._replace(items=await _read(tx, found, slots))
        items = [found.items.get(slot) for slot in firsts]
        said = ["" if item is None else item.searchable for item in items]
        question = prepared.question
        given = (question.text, prepared.asked, question.people, said, by_word)
        if sum(map(len, said)) <= COMPARED_INLINE_CHARS_MAX:
            near = alike(*given)
        else:
            # The vectors of 200 new words in each of 20 texts take a tenth of a second; meanwhile
            # these may be erased.
            near = await asyncio.to_thread(alike, *given)
            found = found._replace(items={})
        if near is not None:
            # Items that are not compared must not overtake any that is.
            whole = np.full(len(numbers), near.whole.min(initial=1.0))
            beside_names = np.ones(len(numbers))
            for at, *values in zip(compared, *near, strict=True):
                whole[hits[at]], beside_names[hits[at]] = values
            if evidence.known < 1.0:
                fused = fuse(evidence._replace(wording=whole), fused.signals)
                among = {place for hit in hits for place in hit}
                hits = _best(fused, prepared.query, found.wanted, among=among)
    found = found._replace(fused=fused, places=())
    return found._replace(best=_candidates(found, hits, beside_names))


def _compared(found: Candidates) -> Sequence[int]:
    """Return which of the hits are compared word by word. If all words of the question are known,
    their order stays, and only those are compared that have little but its names.
    """
    prepared, evidence, hits = found.prepared, found.fused.evidence, found.places
    if evidence.known < 1.0:
        return range(min(COMPARED_MAX, len(hits)))
    rest = {t: one for t, one in prepared.asked.items() if t not in prepared.question.people}
    says = calibration.coverage(rest, evidence.words, frozenset())
    shown = enumerate(hits[: prepared.query.limit])
    return [at for at, hit in shown if says[hit[0]] < SAID_MIN and found.coverage[hit].any()]


def _best(
    fused: Fused, query: Query, count: int, *, among: Collection[int] | None = None
) -> list[list[int]]:
    """Return the places of the best `count` hits, spread over sources. `among`: only of these."""
    order: list[int] = fused.order.tolist()
    if among is not None:
        order = [place for place in order if place in among]
    columns = fused.evidence.columns
    near = count if query.mode is SearchMode.RECALL else max(count, JOINED_PER_HIT * query.limit)
    hits = ranking.by_message(order, columns, near)
    if not is_diverse(query):
        return list(islice(hits, count))
    sources = columns["source"].tolist()
    found: dict[int, list[int]] = {}
    firsts = (found.setdefault(hit[0], hit)[0] for hit in hits)
    return [found[first] for first in spread(firsts, sources, count, others(query.limit))]


async def _allowed(tx: Transaction, prepared: PreparedQuery, documents: Documents) -> Flags:
    """Return for each slot whether it may be a hit: found, in the access scope, and true then."""
    allowed = await tx.words.allowed(documents)
    if prepared.query.past.as_of:
        true = await tx.words.true_then(documents, prepared.statistics)
        allowed = allowed & true[: len(allowed)]
    return allowed


async def _pool_without_repeats(
    vectors: Searched | None,
    prepared: PreparedQuery,
    postings: Mapping[str, TermPostings],
    allowed: Flags,
) -> Slots:
    """Return the pool, with no more than a hit names of what is said again and again, the latest:
    it must not take the place of all else.
    """
    slots = await _pool(vectors, prepared, postings, allowed)
    if vectors is None or prepared.query.mode not in DEFAULT_ORDER:
        return slots
    for _ in range(REPEATED_MAX):
        repeated = vectors.repeated(slots, allowed, 1 + REPEATS_MAX)
        if not len(repeated):
            break
        allowed = allowed.copy()
        allowed[repeated] = False
        slots = await _pool(vectors, prepared, postings, allowed)
    return slots


async def _pool(
    vectors: Searched | None,
    prepared: PreparedQuery,
    postings: Mapping[str, TermPostings],
    allowed: Flags,
) -> Slots:
    """Return the allowed slots worth ranking: the best by words (the newest if all is asked for)
    and by vectors.
    """
    query, broad = prepared.query, prepared.question.broad
    size = max(POOL_MIN, POOL_PER_HIT * query.limit)
    ranked = max(RANKED_MIN, RANKED_PER_HIT * query.limit)
    if query.mode is SearchMode.RECALL:
        size = ranked = max(RECALL_POOL_MIN, int(RECALL_POOL_PER_HIT * query.limit))
    idf = {} if query.mode is SearchMode.VECTOR else prepared.idf
    by_words = np.flatnonzero(allowed)[: -size - 1 : -1]
    if broad is None or broad.topic:
        average_length = prepared.statistics.average_length
        choose = partial(ranking.by_words, postings, idf, average_length, allowed, size)
        by_words = choose() if len(allowed) <= INLINE_UP_TO else await asyncio.to_thread(choose)
    if vectors is None or prepared.vector is None:
        return ranking.joined([by_words], size)
    nearest = await vectors.nearest(prepared.vector, allowed, size)
    return ranking.joined([by_words, nearest], ranked)


def _fact_question(prepared: PreparedQuery, named: Sequence[Period]) -> FactQuestion | None:
    """Return the question for one fact, if it is one. `named`: the times that it names."""
    fact = prepared.question.fact
    if fact is None or FACT in prepared.query.without or (fact.timed and not named):
        return None
    return fact


def is_diverse(query: Query) -> bool:
    """True if likeness or a common source may displace a hit. At lambda 1 only relevance counts."""
    return query.mmr_lambda < 1.0 and Step.DIVERSITY not in query.without


def _candidates(
    found: Candidates, hits: Iterable[Sequence[int]], beside_names: Values | None
) -> list[Candidate]:
    """Return the hits at these places with their scores. One that has only the names of the
    question, by what its words are like `beside_names`, covers nothing of it.
    """
    fused, query, weights = found.fused, found.prepared.query, found.weights
    evidence, coverage = fused.evidence, found.coverage
    if beside_names is not None:
        coverage = np.where(beside_names < SAID_MIN, 0.0, coverage)
    if evidence.stated is not None:
        coverage = np.where(evidence.about_others, 0.0, coverage)
    for name in (BROAD, FACT):
        if (about := fused.signals.get(name)) is not None:
            coverage = np.maximum(coverage, about)
    nearness = evidence.cosines
    if (states := fused.signals.get(FACT)) is not None:
        nearness = np.where(states == 1.0, np.maximum(nearness, STATED_COSINE), nearness)
    finals, covered, numbers = fused.finals.tolist(), coverage.tolist(), found.ranked.tolist()
    cosines, by_formula = nearness.tolist(), query.mode not in DEFAULT_ORDER

    def score_of(at: int) -> float:
        near = calibration.nearness(covered[at], None if math.isnan(cosines[at]) else cosines[at])
        return weights.hit.probability(covered[at], near, finals[at])

    scored = []
    tells_noise = weights.tells_noise and not by_formula
    for joined in hits:
        hit = joined
        if tells_noise and len(joined) > 1:
            hit = ranking.without_noise(joined, list(map(score_of, joined)), evidence.columns)
        final, says = finals[hit[0]], max([covered[at] for at in hit])
        near = [cosines[at] for at in hit if not math.isnan(cosines[at])]
        cosine = max(near) if near else None
        score = final
        if not by_formula:
            score = weights.hit.probability(says, calibration.nearness(says, cosine), final)
        slot, *others = [numbers[at] for at in hit]
        scored.append(Candidate(slot, final, score, says, cosine, None, tuple(others)))
    return scored


async def load_items(
    tx: Transaction, found: Candidates, wanted: Sequence[Candidate], *, only_current: bool = False
) -> Candidates:
    """Return the candidates with the items of those `wanted` loaded, and without those that can no
    longer be read, or that are not current.
    """
    slots_of = (slot for one in wanted for slot in (one.slot, *one.others))
    missing = [slot for slot in slots_of if slot not in found.items]
    if not missing:
        return found
    items = await _read(tx, found, missing)
    if only_current:
        later = await tx.memories.successors(superseding(items.values()))
        items = {slot: one for slot, one in items.items() if one.superseded_by not in later}
    gone = set(missing) - items.keys()
    best = [one for one in found.best if one.slot not in gone]
    return found._replace(best=best, items={**found.items, **items})


async def _read(tx: Transaction, found: Candidates, slots: Iterable[int]) -> dict[int, Item]:
    """Return the items at these slots that can be read, by slot."""
    ids = found.documents.ids
    slot_of = {ids[slot]: slot for slot in slots if slot in ids}
    return {slot_of[item.id]: item for item in await tx.memories.items(list(slot_of))}


def superseding(items: Iterable[Item]) -> set[str]:
    """Return the ids of the memories that superseded these items."""
    return {item.superseded_by for item in items if item.superseded_by}
