"""The hits of a search: their choice among the candidates, their second ranking by a re-ranker, and
what an answer shows beside them: the turns around them, further words of their texts, and items
that have expired.
"""

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import islice

import numpy as np

from recall_server.domain.episode import turn_id
from recall_server.domain.errors import RerankerUnavailable
from recall_server.domain.memory import Memory, chain
from recall_server.domain.query import (
    DEFAULT_ORDER,
    NEXT_CHARS_MAX,
    Hit,
    Item,
    ItemKind,
    Query,
    Said,
    Scores,
    SearchMode,
    Step,
    asks,
    exchanged,
    has_memory,
    hit_of,
    repeats,
    without_headings,
)
from recall_server.domain.search import calibration, currency, ranking
from recall_server.domain.search.ranking import Candidate, others, spread
from recall_server.domain.search.signals import FACT
from recall_server.domain.text.passages import HEADING_CHARS_MAX, may_name, started
from recall_server.domain.text.terms import terms
from recall_server.integrations.rerankers import Passage, Reranker, RerankQuery
from recall_server.services import search
from recall_server.services.search import Candidates, PreparedQuery
from recall_server.storage.index.documents import Documents
from recall_server.storage.store import Transaction

# How many of the best hits may come with the next message of their speaker.
GOES_ON_MAX = 3
# Of how many of the best candidates the evidence is found, however many are wanted: the score of a
# hit does not depend on how many others are shown.
EVIDENCE_OF = 10
# What is left of the scores of a title.
OF_TITLE = 0.1
# Within so many turns below its title a conversation begins.
BELOW_TITLE = 3
# How many expired memories, and passages, are read.
READ_MAX = 1_000
# Entries with the most words of the question; most of them have not expired.
SLOTS_MAX = 20_000


async def finalize(tx: Transaction, found: Candidates, query: Query) -> Candidates:
    """Compare the words of the candidates, choose the hits, and load their items. What was loaded
    before is loaded again, as it may have been erased since. An item that can no longer be read
    leaves its place to another.
    """
    found = await search.compare(tx, found._replace(items={}))
    only_current = query.mode is SearchMode.RECALL and query.past.as_of is None
    # Items without a vector are compared by their words.
    without = [one for one in found.best if one.slot not in found.vectors]
    found = await search.load_items(tx, found, without, only_current=only_current)
    found = await _without_titles(tx, found._replace(lead=_lead(found, query)), query)
    found = _worth_showing(found, query)
    fresh = found._replace(best=_in_order(found, query))
    chosen: Sequence[Candidate] = ()
    likely = max(currency.LOOKED_AT, query.limit + search.FURTHER_MAX)
    while True:
        expected = _spread(fresh.documents, fresh.best, query)
        wanted = [*fresh.best[:likely], *expected, *chosen]
        before = len(fresh.best)
        fresh = await search.load_items(tx, fresh, wanted, only_current=only_current)
        if len(fresh.best) < before:
            continue
        best = _without_repeats(fresh, _current_first(fresh, query), query)
        same = best is fresh.best
        chosen = expected if same else _spread(fresh.documents, best, query)
        if all(one.slot in fresh.items for one in chosen):
            others = fresh.items.keys() - {one.slot for one in chosen}
            return fresh._replace(best=chosen, further=[one for one in best if one.slot in others])


async def _without_titles(tx: Transaction, found: Candidates, query: Query) -> Candidates:
    """Return the candidates with the titles of conversations behind the others: a title has words
    of the question, but says nothing of what is below it. The first line of notes may be the
    answer.
    """
    opens = [one for one in found.best[: query.limit] if _may_be_title(found, one)]
    if query.mode not in DEFAULT_ORDER or not opens:
        return found
    below = [Candidate(one.slot + step, 0.0) for one in opens for step in range(1, BELOW_TITLE + 1)]
    found = await search.load_items(tx, found, [*opens, *below])
    cited = {slot: item.citation for slot, item in found.items.items()}
    talks = {one.episode_id for one in cited.values() if one.speaker}
    titles = {
        one.slot
        for one in opens
        if one.slot in cited
        and cited[one.slot].episode_id in talks
        and not cited[one.slot].speaker
        and may_name(found.items[one.slot].quote)
    }
    if not titles:
        return found
    lead = None if found.best[0].slot in titles else found.lead
    behind = [
        one._replace(score=one.score * OF_TITLE, final=one.final * OF_TITLE)
        if one.slot in titles
        else one
        for one in found.best
    ]
    return found._replace(best=sorted(behind, key=lambda one: -one.final), lead=lead)


def _may_be_title(found: Candidates, one: Candidate) -> bool:
    return not one.others and found.documents.opens(one.slot, HEADING_CHARS_MAX)


def _worth_showing(found: Candidates, query: Query) -> Candidates:
    """Drop the candidates below the threshold, or, if none was asked for, those that are noise
    beside the first. Scores of an embedder that was not calibrated, or of a re-ranker, do not tell
    noise.
    """
    if query.score_threshold is not None:
        found, least = _together(found, query), query.score_threshold
        return found._replace(best=[one for one in found.best if one.score >= least])
    if not found.weights.tells_noise or query.mode not in DEFAULT_ORDER:
        return _together(found, query)
    least = found.weights.noise(max((one.score for one in found.best), default=0.0))
    kept = [one for one in found.best if one.rerank is not None or one.score >= least]
    noise = max(0, min(query.limit, len(found.best)) - max(1, len(kept)))
    return _together(found._replace(best=kept or found.best[:1], left_out=noise), query)


def _together(found: Candidates, query: Query) -> Candidates:
    """Scale the scores, so that those of the best `EVIDENCE_OF` together are the evidence of these.
    Other scores than likelihoods stay as they are.
    """
    first = found.best[:EVIDENCE_OF]
    if query.mode not in DEFAULT_ORDER or any(one.rerank is not None for one in first):
        return found
    evidence = calibration.evidence(first, found.weights, found.lead)
    power = calibration.power([one.score for one in first], evidence)
    scale = calibration.scaled
    best = [one._replace(score=scale(one.score, power)) for one in found.best]
    return found._replace(best=best)


def _lead(found: Candidates, query: Query) -> calibration.Lead | None:
    """Return the lead of the best candidate, if relevance alone orders them."""
    prepared, order = found.prepared, found.fused.order[: 1 + calibration.FOLLOWING]
    is_stated = prepared.question.broad is not None or FACT in found.fused.signals
    if query.mode not in DEFAULT_ORDER or is_stated:
        return None
    cosines = found.fused.evidence.cosines
    return calibration.lead_of(found.coverage[order], cosines[order])


def _in_order(found: Candidates, query: Query) -> Sequence[Candidate]:
    """Return the candidates with those that repeat a better one moved behind others."""
    best = found.best
    if not search.is_diverse(query):
        return best
    words = {s: terms(one.searchable) for s, one in found.items.items() if s not in found.vectors}
    alike = ranking.likeness(best, found.vectors, words)
    if query.mode is not SearchMode.RECALL:
        slots = [slot for one in best for slot in (one.slot, *one.others)]
        columns = found.documents.columns(np.array(slots, np.int64), ranking.PLACED)
        alike = np.maximum(ranking.repetition(alike), ranking.quoted(best, columns))
    places = ranking.diversify([one.final for one in best], alike, query.mmr_lambda)
    return [best[at] for at in places]


def _spread(documents: Documents, best: Sequence[Candidate], query: Query) -> Sequence[Candidate]:
    """Return those of the best that become hits: as many as wanted, spread over sources."""
    if not search.is_diverse(query):
        return best[: query.limit]
    sources = documents.sources([one.slot for one in best])
    places = spread(range(len(best)), sources, query.limit, others(query.limit))
    return [best[at] for at in places]


def _current_first(found: Candidates, query: Query) -> Sequence[Candidate]:
    """Return the candidates, the best of them in the order of `currency.later_first`. Candidates
    that swap places swap their scores too.
    """
    first = found.best[: currency.LOOKED_AT]
    if query.mode not in DEFAULT_ORDER or Step.CURRENCY in query.without:
        return found.best
    items = [found.items[one.slot] for one in first]
    until = found.fused.evidence.until
    order, gave_way = currency.later_first(query.text, items, until)
    if not gave_way:
        return found.best
    best = list(found.best)
    for place, at in enumerate(order):
        later = gave_way.get(at)
        slot = None if later is None else first[later].slot
        better = first[place]
        best[place] = first[at]._replace(final=better.final, score=better.score, later=slot)
    return best


def _without_repeats(
    found: Candidates, best: Sequence[Candidate], query: Query
) -> Sequence[Candidate]:
    """Return the candidates without the loaded ones that only repeat a better one. A memory takes
    the place and the scores of a passage that says no more. With `neighbours` all stay.
    """
    if query.neighbours or query.mode not in DEFAULT_ORDER or not search.is_diverse(query):
        return best
    loaded = [at for at, one in enumerate(best) if one.slot in found.items]
    repeated = repeats([found.items_of(best[at]) for at in loaded])
    if not repeated:
        return best
    kept = dict(enumerate(best))
    for place, first in repeated.items():
        one, better = kept.pop(loaded[place]), kept[loaded[first]]
        slots = (*better.repeats, one.slot)
        if has_memory(found.items_of(one)) and not better.others:
            slots = (*better.repeats, better.slot)
            better = better._replace(slot=one.slot, others=one.others)
        kept[loaded[first]] = better._replace(repeats=slots)
    return list(kept.values())


async def current_first(
    tx: Transaction, hits: Sequence[Hit], query: Query, until: datetime | None
) -> list[Hit]:
    """Return the hits with each superseded one below the memory that holds now, or that held before
    `until`, which is added if it is not a hit itself. Hits that swap places swap their scores,
    except in modes whose score is a documented formula.
    """
    superseding = search.superseding(hit.item for hit in hits)
    if not superseding:
        return list(hits)
    later = await tx.memories.successors(superseding, before=until)
    chains = [[hit.item.id, *chain(hit.item.superseded_by, later)] for hit in hits]
    hit_by_id = {hit.item.id: hit for hit in hits}
    added = {chain[-1] for chain in chains} - hit_by_id.keys()
    current = {item.id: item for item in await tx.memories.items(sorted(added))} if added else {}
    found: dict[str, Hit] = {}
    for hit, ids in zip(hits, chains, strict=True):
        # Memories in between appear only if they are hits.
        line = [hit_by_id[one] for one in ids if one in hit_by_id]
        if ids[-1] in current:
            line.append(hit_of([current[ids[-1]]], hit.scores))
        new = [one for one in reversed(line) if one.item.id not in found]
        new = exchanged(new) if query.mode in DEFAULT_ORDER else new
        # A memory that gave way to an earlier report of the same says nothing more.
        last = line[-1].item.id, line[-1].text
        found |= {i.item.id: i for i in new if (i.item.superseded_by, i.text) != last}
    return list(found.values())[: query.limit]


async def with_turns(
    tx: Transaction, found: search.Candidates, hits: Sequence[Hit], query: Query
) -> list[Hit]:
    """Return each hit with the turns around it, if asked for; a memory also gets the turn that it
    rests on. If not, the best hit of a conversation gets the start of the next two turns, in which
    others often go on with it; another whose words end with a question that of the next turn, which
    often answers it, and a short message the next one of its speaker. The best that the same texts
    say beside the hits follows. Each turn appears once. The best hits come first, as far as the
    token budget goes.
    """
    slots = found.slots

    def turns(hit: Hit, steps: Iterable[int]) -> list[str]:
        slot = slots.get(hit.item.id)
        return [] if slot is None else [turn_id(*at) for at in found.documents.turns(slot, steps)]

    going_on = [hit for at, hit in enumerate(hits) if not query.neighbours and _goes_on(at, hit)]
    steps = range(-query.neighbours, query.neighbours + 1)
    wanted = {hit.item.id: turns(hit, steps) for hit in hits if query.neighbours}
    shown = {turn for hit in hits if going_on for turn in turns(hit, (0,))}
    for hit in going_on:
        following = (1, 2) if hit is hits[0] else (1,)
        wanted[hit.item.id] = [i for i in turns(hit, following) if i not in shown]
    ids = [turn for of_hit in wanted.values() for turn in of_hit]
    said = await tx.episodes.said(ids) if ids else {}
    if going_on:
        said = {i: t._replace(text=started(t.text, NEXT_CHARS_MAX)) for i, t in said.items()}
        for hit in going_on:
            may_follow = (i for i in wanted[hit.item.id] if i in said)
            is_best = hit is hits[0]
            wanted[hit.item.id] = [i for i in may_follow if is_best or hit.goes_on_in(said[i])]
    if not query.neighbours:
        further = _further(found, hits, [turn.text for turn in said.values()])
        for hit, one in islice(further, min(search.FURTHER_MAX, query.limit - 1)):
            wanted.setdefault(hit.item.id, []).append(one.id)
            said.setdefault(one.id, one)
    most = query.max_tokens
    left = None if most is None else most - sum(map(ranking.tokens, hits))
    with_turns = []
    for hit in hits:
        around = []
        for turn in filter(None, (said.pop(i, None) for i in wanted.get(hit.item.id, ()))):
            price = ranking.text_tokens(turn.text)
            if left is None or price <= left:
                around.append(turn)
                left = None if left is None else left - price
        with_turns.append(hit._replace(around=tuple(around)) if around else hit)
    return with_turns


def _goes_on(place: int, hit: Hit) -> bool:
    """Return whether the next turn may say more of what a hit at this place says."""
    is_best = not place and hit.item.citation.speaker is not None
    return is_best or hit.asks or (place < GOES_ON_MAX and hit.is_short)


def _further(
    found: search.Candidates, hits: Sequence[Hit], shown: Sequence[str]
) -> Iterator[tuple[Hit, Said]]:
    """Yield the best that the texts of the hits say beside these, each with the best hit of its
    text: nothing that no longer holds, that only asks, or that the hits or `shown` have.
    """
    slots = found.slots
    known = [hit for hit in hits if hit.item.id in slots]
    of_hits = [slots[hit.item.id] for hit in known]
    sources = found.documents.sources([*of_hits, *(one.slot for one in found.further)])
    best: dict[int, Hit] = {}
    for source, hit in zip(sources, known, strict=False):
        best.setdefault(source, hit)
    shown = [*shown, *(text for hit in hits for text in hit.texts)]
    for one, source in zip(found.further, sources[len(known) :], strict=True):
        item = found.items[one.slot]
        holds = one.later is None and not (item.superseded_by or item.disputed)
        words = item.citation.quote
        if source in best and holds and not asks(words) and not any(words in i for i in shown):
            shown.append(item.text)
            hit = best[source]
            yield hit, Said(item.id, started(without_headings(item, hit), NEXT_CHARS_MAX))


async def expired(tx: Transaction, query: Query) -> list[Hit]:
    """Return the expired memories and passages that share words with a question, best first. Their
    score is 0, as none of them is an answer now. The index keeps the words of passages; of memories
    the newest are read.
    """
    asked = terms(query.text)
    slots = list(await tx.words.shared(asked, SLOTS_MAX))
    newest = [_item(one) for one in await tx.memories.expired(READ_MAX)]
    newest += await tx.episodes.expired(slots, READ_MAX)
    # Finding the terms of 1,000 long memories takes a third of a second.
    scores = await asyncio.to_thread(_scores, asked, newest)
    found = [(score, one) for score, one in zip(scores, newest, strict=True) if score > 0]
    found.sort(key=lambda one: (-one[0], one[1].id))
    return [Hit(one, Scores(0.0, score), one.text) for score, one in found]


def _scores(asked: Sequence[str], items: Sequence[Item]) -> Sequence[float]:
    return ranking.bm25plus(asked, [terms(one.searchable) for one in items])


def _item(memory: Memory) -> Item:
    """Return the item of a memory, without the words that it cites: they have expired too."""
    return Item(
        id=memory.id,
        kind=ItemKind.MEMORY,
        text=memory.text,
        topic=memory.topic,
        recorded_at=memory.recorded_at,
        valid_from=memory.valid_from,
        citation=replace(memory.citation, quote=""),
        quote="",
        importance=memory.importance,
        type=memory.type,
        attribute=memory.fact.attribute if memory.fact else None,
        container=memory.container,
        tags=memory.source.tags,
        metadata=memory.source.metadata,
        superseded_by=memory.superseded_by,
        valid_until=memory.valid_until,
        expires_at=memory.expires_at,
        agent_id=memory.source.agent_id,
        expired=True,
    )


# How many hits are scored again, unless more are wanted. On LoCoMo, 30 to 100 find equally much
# among ten hits, and each costs time.
RERANKED_MIN = 30
# The turn that a hit comes from, and those before and after it.
STEPS = (0, -1, 1)


@dataclass(frozen=True)
class Reranking:
    """The second ranking of the best hits, if the operator has chosen a re-ranker."""

    reranker: Reranker
    min_score: float

    async def passages(self, tx: Transaction, found: Candidates) -> list[Passage]:
        """Return the texts of the best, each with the turn that it comes from and the turns around
        it. Turns in quarantine, and turns with a memory that is no longer believed, are left out.
        """
        texts = [found.items[one.slot].text for one in found.best]
        if self.reranker.judges:
            return list(map(Passage, texts))
        turns = [
            [turn_id(*turn) for turn in found.documents.turns(one.slot, STEPS)]
            for one in found.best
        ]
        said = await tx.episodes.said([turn for of_hit in turns for turn in of_hit])
        return [
            Passage(
                text,
                said[of_hit[0]].text if of_hit and of_hit[0] in said else None,
                tuple(said[turn].text for turn in of_hit[1:] if turn in said),
            )
            for text, of_hit in zip(texts, turns, strict=True)
        ]

    async def rank(
        self, prepared: PreparedQuery, hits: Sequence[Candidate], passages: Sequence[Passage]
    ) -> tuple[list[Candidate], str | None]:
        """Return the hits in the order of the re-ranker, or as they were with the reason why it did
        not answer. `passages` must be in the order of the hits.
        """
        query = RerankQuery(
            prepared.query.text,
            prepared.question.in_first_person(prepared.named),
            prepared.idf,
            prepared.namespace,
            prepared.statistics.erase_epoch,
        )
        try:
            scores = await self.reranker.scores(query, passages)
        except RerankerUnavailable as error:
            return list(hits), error.message
        ranked = ranking.reranked(
            hits, scores, judges=self.reranker.judges, min_score=self.min_score
        )
        return ranked, None
