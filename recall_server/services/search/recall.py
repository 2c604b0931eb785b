"""Recall: searches, lists and counts what is remembered, shows its origin, and forgets it."""

from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from recall_server.domain.attributes import Timeline, without_taken_over
from recall_server.domain.context import Context, Runtime
from recall_server.domain.episode import episode_of, turn_of
from recall_server.domain.errors import MemoryNotFound, NotRestorable
from recall_server.domain.memory import EXTRACTED_TYPES, UNSEEN, Memory, MemoryType, Place, Status
from recall_server.domain.memory_event import EventKind, Histories, MemoryEvent
from recall_server.domain.moments import PRESENT, Past, passed
from recall_server.domain.plan import Plan, Reason, Relation, RelationKind, Resolution
from recall_server.domain.query import (
    Hit,
    ItemKind,
    Query,
    Step,
    falling,
    said_once,
)
from recall_server.domain.search import calibration, ranking
from recall_server.domain.search.calibration import WEAK_BELOW
from recall_server.domain.text.cleaning import clean_label, clean_text, storable
from recall_server.integrations.embeddings import Embedder
from recall_server.services import search
from recall_server.services.memory import commit, indexing, reconcile
from recall_server.services.memory.commit import Judgements
from recall_server.services.memory.indexing import promise_vectors
from recall_server.services.metrics import Backlog
from recall_server.services.search.hits import (
    RERANKED_MIN,
    Reranking,
    current_first,
    expired,
    finalize,
    with_turns,
)
from recall_server.storage.store import Store, Transaction
from recall_server.telemetry import tracer

# How many values of one attribute are shown.
TIMELINE_MAX = 200
# How many relations of a memory and its history are shown.
RELATIONS_MAX = 200
# How many events of a memory and its history are shown: a repeated statement may have many.
EVENTS_MAX = 500
NAME_CHARS_MAX = 200
# How many hits of weak evidence quote more than the words that they cite. With 2, 3 of 578 answers
# of everyday texts are not shown.
QUOTED_IN_FULL = 3


@dataclass(frozen=True)
class Found:
    """The answer to a search.

    `degraded`: why it is less than was asked for, if it is.
    `evidence`: how likely it is that the answer is among the hits
    (`domain/search/calibration.py`).
    `left_out`: how many hits were dropped as noise beside the first.
    `weights`: the weights of the signals, if the search was asked to explain.
    """

    hits: tuple[Hit, ...]
    degraded: str | None
    evidence: float = 0.0
    left_out: int = 0
    weights: Mapping[str, float] = field(default_factory=dict)

    @property
    def weak_evidence(self) -> bool:
        """True if the caller should say that it does not know."""
        return self.evidence < WEAK_BELOW


@dataclass(frozen=True)
class Page:
    """One page of memories; `disputed` names what contradicts each disputed one."""

    memories: tuple[Memory, ...]
    total: int
    next_offset: int | None
    has_more: bool
    next_place: Place | None
    disputed: Mapping[str, Sequence[str]] = field(default_factory=dict)


@dataclass(frozen=True)
class History:
    """A chain of supersession, with the decisions, open contradictions, relations and events of its
    memories. `judged`: what a language model decided about both ends of a relation.
    """

    chain: tuple[Memory, ...]
    decisions: Mapping[str, Sequence[Resolution]]
    disputed: Mapping[str, Sequence[str]] = field(default_factory=dict)
    relations: tuple[Relation, ...] = ()
    events: Sequence[MemoryEvent] = ()
    judged: Mapping[Relation, Resolution] = field(default_factory=dict)


@dataclass(frozen=True)
class Counts:
    """The counts of a namespace: each type that extraction tells apart, and any other type that
    occurs.
    """

    by_type: Mapping[MemoryType, int]
    backlog: Backlog
    by_status: Mapping[Status, int] | None = None

    @property
    def total(self) -> int:
        return sum(self.by_type.values())


@dataclass(frozen=True)
class Recall:
    """Reads memory, and makes two small changes: forgetting, and restoring what was forgotten."""

    store: Store
    embedder: Embedder | None
    runtime: Runtime
    query_chars_max: int
    forget_window: timedelta
    judgements: Judgements
    reranking: Reranking | None = None

    async def search(
        self,
        context: Context,
        query: Query,
        *,
        cite: bool = False,
    ) -> Found:
        """Return the memories and passages that answer `query` best. Passages of one message are
        one hit; a memory comes with the passage that it cites. With `cite` the hits have their
        signals.

        Every findable item in the access scope is a candidate, whatever its age. Without an
        embedder the words alone decide, and the answer says so.
        """
        clean_text(query.text, chars_max=self.query_chars_max)
        # No transaction is needed: versions tell the index in memory what it lacks, and the texts
        # are read last, so that only what can still be read is shown.
        tx = self.store.autocommit(context.namespace, access_scope=context.scope, past=query.past)
        limited = not context.caller_scope.everything
        prepared = await search.prepare(
            tx, self.embedder, context.namespace, query, limited=limited
        )
        now = query.past.known_at or self.runtime.now()
        reranking = None if Step.RERANK in query.without else self.reranking
        degraded = prepared.degraded
        await self.store.turns.yield_to_others(context.namespace)
        least = RERANKED_MIN if reranking else 0
        with tracer.part("rank"):
            found = await search.retrieve(tx, self.embedder, prepared, now, least=least)
        if reranking is not None:
            # Only these can be shown: the scores of the others are on another scale.
            found = await search.compare(tx, found)
            best = found.best[: max(RERANKED_MIN, query.limit)]
            found = await search.load_items(tx, found._replace(best=best), best)
            passages = await reranking.passages(tx, found)
            best, failed = await reranking.rank(prepared, found.best, passages)
            found = found._replace(best=best)
            degraded = degraded or failed
        await self.store.turns.yield_to_others(context.namespace)
        answer = await _finalized(tx, found, prepared.query, cite=cite)
        if limited:
            answer = replace(answer, hits=await self._successors_in_scope(context, answer.hits))
        if query.include_expired:
            answer = replace(answer, hits=await self._with_expired(context, query, answer.hits))
        if any(hit.item.disputed for hit in answer.hits):
            answer = replace(answer, hits=await self._disputed(context, query.past, answer.hits))
        items = [hit.item for hit in answer.hits]
        context.entry.ids += [one.id for one in items]
        context.entry.ids += [one.id for hit in answer.hits for one in hit.around]
        if query.counts:
            context.entry.memories_shown += [one.id for one in items if one.kind is ItemKind.MEMORY]
            context.entry.turns_shown += [
                turn_of(one.id) for one in items if one.kind is ItemKind.PASSAGE
            ]
        context.entry.counts["hits"] = len(answer.hits)
        context.entry.details["mode"] = prepared.query.mode
        return replace(answer, degraded=degraded)

    async def _with_expired(
        self, context: Context, query: Query, hits: tuple[Hit, ...]
    ) -> tuple[Hit, ...]:
        """Return the hits, and below them expired memories as far as limits go."""
        if query.past != PRESENT or query.score_threshold:
            return hits
        async with self.store.view(context) as tx:
            found = await expired(tx, query)
        if not context.caller_scope.everything:
            found = list(await self._successors_in_scope(context, found))
        all_ = (*hits, *found)[: max(query.limit, len(hits))]
        return tuple(ranking.fit_budget(all_, query.max_tokens, ranking.tokens))

    async def _disputed(self, context: Context, past: Past, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """Return the hits, each with what contradicts it within the caller's access scope."""
        tx = self.store.autocommit(context.namespace, access_scope=context.caller_scope, past=past)
        found = await _disputes(tx, [hit.item.id for hit in hits if hit.item.disputed])
        return tuple(hit._replace(disputed_with=found.get(hit.item.id, ())) for hit in hits)

    async def _successors_in_scope(self, context: Context, hits: Sequence[Hit]) -> tuple[Hit, ...]:
        """Return the hits, without the id and time of any successor outside of the caller's access
        scope.
        """
        visible = await self._visible_ids(context, (hit.item.superseded_by for hit in hits))
        return tuple(
            hit
            if hit.item.superseded_by in visible
            else hit._replace(item=hit.item._replace(superseded_by=None, valid_until=None))
            for hit in hits
        )

    async def _visible_ids(
        self, context: Context, named: Iterable[str | None]
    ) -> Collection[str | None]:
        """Return the ids of these memories within the caller's access scope, and None."""
        ids = sorted({one for one in named if one is not None})
        tx = self.store.autocommit(context.namespace, access_scope=context.caller_scope)
        return {None, *(await tx.memories.get(ids) if ids else ())}

    async def inspect(
        self,
        context: Context,
        *,
        limit: int,
        offset: int,
        type_: str,
        topic: str,
        after: Place | None = None,
        status: Status | None = None,
        unreconciled: bool = False,
        include_expired: bool = False,
        past: Past = PRESENT,
    ) -> Page:
        """Return one page of the memories with a status, newest first: without a status the active
        ones, with `unreconciled` only those of them; `after` a place, those that follow it. With
        `include_expired` the expired ones follow these. A `past` moment selects what was known or
        true then.
        """
        storable(topic)
        only: dict[str, Any] = {"type_": type_, "topic": topic}
        among = {"status": status, "unreconciled": unreconciled, "include_expired": include_expired}
        async with self.store.view(context, past) as tx:
            page: Callable[..., Awaitable[list[Memory]]] = tx.memories.page
            counts: Callable[..., Awaitable[Mapping[MemoryType, int]]] = tx.memories.counts
            if past != PRESENT or any(among.values()):
                page, counts = tx.memories.page_then, tx.memories.counts_then
                only |= among
            memories = await page(limit=limit + 1, offset=offset, after=after, **only)
            total = sum((await counts(**only)).values())
            has_more, memories = len(memories) > limit, memories[:limit]
            disputed = await _disputes(tx, _disputed_ids(memories))
            context.entry.counts["memories"] = len(memories)
        if not context.caller_scope.everything:
            visible = await self._visible_ids(context, (one.superseded_by for one in memories))
            memories = _without_hidden_successors(memories, visible)
        last = Place(memories[-1].recorded_at, memories[-1].id) if has_more else None
        # Expired memories follow the others, whatever their place.
        return Page(
            tuple(memories),
            total,
            has_more=has_more,
            next_offset=offset + limit if has_more and after is None else None,
            next_place=None if include_expired else last,
            disputed=disputed,
        )

    async def history(
        self,
        context: Context,
        memory_id: str,
        past: Past = PRESENT,
    ) -> History:
        """Return a memory with those that it replaced and that replaced it, oldest truth first,
        each with its citation, its events, and the decisions that no rule could make. A successor
        outside of the access scope is not named, nor the time when it took over. Raises
        `MemoryNotFound`.
        """
        storable(memory_id)
        async with self.store.view(context, past) as tx:
            chain = await tx.memories.lineage(memory_id)
            ids = [memory.id for memory in chain]
            disputed = await _disputes(tx, _disputed_ids(chain))
            relations = await relations_of(tx, chain)
            ends = {end for one in relations for end in (one.from_id, one.to_id)}
            decisions = await tx.decisions.of_memories(sorted({*ids, *ends}))
            events = await tx.events.latest(ids, EVENTS_MAX)
        if not chain:
            raise MemoryNotFound
        context.entry.ids.append(memory_id)
        if past.as_of:
            chain = [one for one in chain if one.true_at(past.as_of)]
        if not context.scope.everything:
            named = {None, *ids}
            chain = _without_hidden_successors(chain, named)
            events = [one for one in events if not one.state or one.state.superseded_by in named]
        if past.known_at:
            decisions = {
                memory_id: [one for one in some if one.decided_at <= past.known_at]
                for memory_id, some in decisions.items()
            }
        gone = Histories(events).taken_back
        withdrawn = {
            (one.item_id, one.reason, one.at)
            for one in events
            if one.kind is EventKind.SETTLED and one.change_id in gone
        }
        decisions = {
            memory_id: [
                one for one in some if (memory_id, one.question_id, one.decided_at) not in withdrawn
            ]
            for memory_id, some in decisions.items()
        }
        judged = _judged(relations, decisions)
        decisions = {one: decisions[one] for one in ids if one in decisions}
        return History(tuple(chain), decisions, disputed, relations, tuple(events), judged)

    async def timeline(
        self, context: Context, entity: str, attribute: str, past: Past = PRESENT
    ) -> Timeline:
        """Return what was said of an attribute of an entity, by all of its names, in the order in
        which it became true: the newest `TIMELINE_MAX` values. `past` selects what was known, or
        true, at a moment. Raises `Invalid` if a name cannot be stored.
        """
        entity = clean_label(entity, "entity", chars_max=NAME_CHARS_MAX)
        attribute = clean_label(attribute, "attribute", chars_max=NAME_CHARS_MAX)
        async with self.store.view(context, past) as tx:
            limited = not context.caller_scope.everything
            names = await tx.aliases.names(entity, limited=limited)
            found, cut = await tx.memories.of_fact(names, attribute, TIMELINE_MAX)
        memories = without_taken_over(
            sorted(found, key=lambda one: (one.valid_from, one.recorded_at, one.id))
        )
        if past.as_of:
            memories = [one for one in memories if one.true_at(past.as_of)]
        context.entry.ids += [one.id for one in memories]
        context.entry.counts["memories"] = len(memories)
        if not context.scope.everything:
            visible = {None, *(one.id for one in memories)}
            memories = _without_hidden_successors(memories, visible)
        return Timeline(entity, attribute, tuple(memories), cut=cut)

    async def stats(
        self, context: Context, past: Past = PRESENT, *, by_status: bool = False
    ) -> Counts:
        """Count the active memories by type, in the `past` those known or true then, and the jobs
        that wait. `by_status` also counts the memories of each status then, by reading them all.
        """
        async with self.store.view(context, past) as tx:
            counting = tx.memories.counts if past == PRESENT else tx.memories.counts_then
            by_type = await counting()
            jobs = await tx.jobs.counts()
            statuses = await tx.memories.by_status() if by_status else None
        by_type = {**dict.fromkeys(EXTRACTED_TYPES, 0), **by_type}
        counts = Counts(by_type, Backlog.count(jobs), statuses)
        context.entry.counts["memories"] = counts.total
        return counts

    async def forget(
        self,
        context: Context,
        item_id: str,
    ) -> None:
        """Hide this memory with the words that it cites, or this passage, from search and reading.
        The record of it stays.

        Raises `MemoryNotFound` if search finds nothing with this id in the namespace.
        """
        storable(item_id)

        async def plan(tx: Transaction) -> commit.Forgotten:
            found = await tx.memories.items([item_id])
            if not found:
                raise MemoryNotFound
            if found[0].kind is ItemKind.MEMORY:
                return await commit.forgotten(tx, item_id)
            return await commit.forgotten(tx, item_id, [found[0].citation])

        async def write(tx: Transaction, made: commit.Forgotten) -> None:
            await made.write(tx, await tx.moment())
            await self._embed_again(tx, {one.episode_id for one in made.words})
            context.entry.ids[:] = [item_id]
            context.entry.counts["forgotten"] = 1

        await commit.apply_planned(self.store, context, plan, write)
        self.runtime.wake()

    async def restore(
        self,
        context: Context,
        item_id: str,
    ) -> None:
        """Undo `forget` within the `forget_window`. A memory that no longer holds, because of what
        was stated since, comes back as superseded.

        Raises `MemoryNotFound` if nothing has this id, and `NotRestorable`.
        """
        storable(item_id)
        async with self.store.view(context) as tx:
            memory = (await tx.memories.get([item_id])).get(item_id)
        if memory is None:
            await self._restore_words(context, item_id)
        else:
            await self._restore_memory(context, item_id)
        self.runtime.wake()

    async def _restore_memory(self, context: Context, memory_id: str) -> None:
        async def plan(tx: Transaction) -> tuple[Plan, commit.Restored, datetime]:
            memory = (await tx.memories.get([memory_id])).get(memory_id)
            now = await tx.moment()
            if memory is None or passed(memory.expires_at, now):
                raise NotRestorable
            if self._too_late(memory.retired_at) or memory.status is not Status.FORGOTTEN:
                raise NotRestorable
            if await tx.proposals.unaccepted(memory_id):
                raise NotRestorable("It was proposed, and nobody has accepted it.")
            settling = await reconcile.settling(tx)
            made = await reconcile.restored(tx, memory, now, settling)
            return made, await commit.restored(tx, memory_id), now

        async def write(tx: Transaction, planned: tuple[Plan, commit.Restored, datetime]) -> None:
            made, index, planned_at = planned
            now = await tx.moment()
            made = made.dated(planned_at, now)
            await commit.apply(tx, made, now, restored=index)
            await self.judgements.promise(tx, made, context.entry.began_by)
            await self._embed_again(tx, {one.episode_id for one in index.words})
            context.entry.ids[:] = [memory_id]
            context.entry.counts["restored"] = 1

        await commit.apply_planned(self.store, context, plan, write)

    async def _restore_words(self, context: Context, item_id: str) -> None:
        """Restore a forgotten passage or text. Raises what `restore` raises if that is not
        possible.
        """
        async with self.store.view(context) as tx:
            forgotten_at = await tx.episodes.forgotten_at(item_id)
        if forgotten_at is None:
            # No search or list shows forgotten items, so the message says where to look.
            raise MemoryNotFound(
                "No memory has this id. The audit log names those that were forgotten: `recall "
                "audit tail --json`, or GET /v1/audit?operation=delete_memory."
            )
        if self._too_late(forgotten_at):
            raise NotRestorable
        texts = [episode_of(item_id)]

        async def plan(tx: Transaction) -> indexing.Prepared:
            return await commit.remembered(tx, item_id, texts)

        async def write(tx: Transaction, index: indexing.Prepared) -> None:
            await index.write(tx)
            await tx.episodes.remember(item_id, await tx.moment())
            await self._embed_again(tx, texts)
            context.entry.ids[:] = [item_id]
            context.entry.counts["restored"] = 1

        made = await commit.planned(self.store, context.namespace, plan)
        await commit.written(self.store, context, made, plan, write)

    def _too_late(self, forgotten_at: datetime | None) -> bool:
        return forgotten_at is None or forgotten_at < self.runtime.now() - self.forget_window

    async def _embed_again(self, tx: Transaction, episode_ids: Collection[str]) -> None:
        """Add the jobs that make vectors for what has changed in these texts."""
        if self.embedder:
            await promise_vectors(tx, self.runtime, episode_ids)


async def _finalized(
    tx: Transaction, candidates: search.Candidates, query: Query, *, cite: bool
) -> Found:
    candidates = await finalize(tx, candidates, query)
    ranked = candidates.hits(explain=cite)
    hits = falling(
        await current_first(tx, ranked, query, candidates.fused.evidence.until), query.mode
    )
    hits = ranking.fit_budget(said_once(hits), query.max_tokens, ranking.tokens)
    if query.counts:
        slots, ids = candidates.slots, [hit.item.id for hit in hits]
        candidates.documents.count_accesses([slots[one] for one in ids if one in slots])
    scores = [hit.scores for hit in hits]
    evidence = calibration.evidence(scores, candidates.weights, candidates.lead)
    hits = await with_turns(tx, candidates, hits, query)
    if evidence < WEAK_BELOW:
        hits = [*hits[:QUOTED_IN_FULL], *map(Hit.with_cited_words, hits[QUOTED_IN_FULL:])]
    weights = candidates.fused.weights if cite else {}
    return Found(tuple(hits), None, evidence, candidates.left_out, weights)


def _disputed_ids(memories: Sequence[Memory]) -> list[str]:
    return [one.id for one in memories if one.status is Status.DISPUTED]


async def _disputes(tx: Transaction, ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Return what contradicts each of these memories, within the access scope of `tx`."""
    others = await tx.disputes.others(ids) if ids else {}
    seen = await tx.memories.get(sorted({one for some in others.values() for one in some}))
    return {i: tuple(one for one in some if one in seen) for i, some in others.items()}


async def relations_of(tx: Transaction, chain: Sequence[Memory]) -> tuple[Relation, ...]:
    """Return the relations of these memories with those in the access scope of `tx`, unless an end
    is forgotten or undone. Supersession within the chain is included.
    """
    stored = await tx.relations.of_memories([one.id for one in chain], limit=RELATIONS_MAX)
    ids = {one.id for one in chain if one.status not in UNSEEN}
    ends = {end for one in stored for end in (one.from_id, one.to_id)} - {one.id for one in chain}
    seen = ids | {one.id for one in await tx.memories.found(sorted(ends))}
    superseding = [
        Relation(
            one.superseded_by,
            one.id,
            RelationKind.SUPERSEDES,
            Reason.RULE,
            one.retired_at or one.recorded_at,
        )
        for one in chain
        if one.superseded_by in ids
    ]
    found = [one for one in (*superseding, *stored) if {one.from_id, one.to_id} <= seen]
    return tuple(sorted(found, key=lambda one: (one.made_at, one.from_id, one.to_id, one.kind)))


def _judged(
    relations: Sequence[Relation], decisions: Mapping[str, Sequence[Resolution]]
) -> dict[Relation, Resolution]:
    """Return the last judgement about both ends of each contradiction, and the one that each
    supersession followed from.
    """
    found = {}
    for one in relations:
        of_from = {made.question_id for made in decisions.get(one.from_id, ())}
        for made in decisions.get(one.to_id, ()):
            if made.confidence is None or made.question_id not in of_from:
                continue
            follows = one.kind is RelationKind.SUPERSEDES and made.decided_at == one.made_at
            if follows or one.kind is RelationKind.CONTRADICTS:
                found[one] = made
    return found


def _without_hidden_successors(
    memories: Sequence[Memory], visible: Collection[str | None]
) -> list[Memory]:
    """Return the memories, without the id and time of any successor that is not `visible`: it may
    be outside of the access scope.
    """
    return [
        one
        if one.superseded_by in visible
        else replace(one, superseded_by=None, valid_until=None, retired_at=None)
        for one in memories
    ]
