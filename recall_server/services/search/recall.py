"""Recall: search what is remembered, list it, count it, show where it comes from; and forget."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from recall_server.domain.containers import container
from recall_server.domain.context import Context
from recall_server.domain.errors import MemoryNotFound, NotRestorable
from recall_server.domain.memory import Memory, MemoryType
from recall_server.domain.plan import Forget, Plan, Resolution
from recall_server.domain.query import Hit, ItemKind, Query, Step
from recall_server.domain.search import ranking
from recall_server.domain.search.abstention import WEAK_BELOW
from recall_server.domain.text.cleaning import clean_text, storable
from recall_server.integrations.embeddings.embedder import Embedder
from recall_server.services.memory import commit, indexing
from recall_server.services.search import search
from recall_server.services.search.rerank import RERANKED_MIN, Reranking
from recall_server.services.stats import Backlog
from recall_server.storage.store import Store, Transaction


@dataclass(frozen=True)
class Found:
    """The answer to a search; `degraded` says why it is less than was asked for. `evidence` is how
    likely it is that the answer is among what was found (`domain/search/abstention.py`).
    """

    hits: tuple[Hit, ...]
    degraded: str | None
    evidence: float = 0.0

    @property
    def weak_evidence(self) -> bool:
        """Whether who asks had better say that they do not know."""
        return self.evidence < WEAK_BELOW


@dataclass(frozen=True)
class Page:
    """One page of memories."""

    memories: tuple[Memory, ...]
    total: int
    next_offset: int | None


@dataclass(frozen=True)
class History:
    """A chain of supersession, and what was decided about each of its memories."""

    chain: tuple[Memory, ...]
    decisions: Mapping[str, Sequence[Resolution]]


@dataclass(frozen=True)
class Counts:
    """What a namespace holds."""

    by_type: Mapping[MemoryType, int]
    backlog: Backlog

    @property
    def total(self) -> int:
        return sum(self.by_type.values())


@dataclass(frozen=True)
class Recall:
    """Reading, and two small changes: forgetting, and taking that back."""

    store: Store
    embedder: Embedder | None
    now: Callable[[], datetime]
    query_chars_max: int
    forget_window: timedelta
    reranking: Reranking | None = None

    async def search(
        self,
        context: Context,
        query: Query,
        *,
        cite: bool = False,
    ) -> Found:
        """The memories, and turns that no memory cites yet, that answer `query` best; with `cite`,
        each with the exact words it rests on, and its scores.

        Every findable item in the access scope is a candidate, whatever its age. Without an
        embedder the words alone decide, and the answer says so.
        """
        clean_text(query.text, chars_max=self.query_chars_max)
        scope = context.scope.inside(_checked(query.containers))
        prepared = await search.prepare(self.store, self.embedder, context.namespace, query, scope)
        now = self.now()
        reranking = None if Step.RERANK in query.without else self.reranking
        degraded = prepared.degraded
        async with self.store.transaction(context.namespace, write=False, access_scope=scope) as tx:
            least = RERANKED_MIN if reranking else 0
            found = await search.retrieve(tx, self.embedder, prepared, now, least=least)
            if reranking is None:
                hits = await _finalized(tx, found, query, cite=cite)
            else:
                # What is not ranked again has a score on another scale: none of that is shown.
                best = found.best[: max(RERANKED_MIN, query.limit)]
                found = await search.load_items(tx, replace(found, best=best), best)
                passages = await reranking.passages(tx, found)
        if reranking is not None:
            best, failed = await reranking.rank(prepared, found.best, passages)
            found = replace(found, best=best)
            degraded = degraded or failed
            async with self.store.transaction(
                context.namespace, write=False, access_scope=scope
            ) as tx:
                hits = await _finalized(tx, found, query, cite=cite)
        context.entry.ids += [hit.item.id for hit in hits]
        context.entry.memories_shown += _of_kind(hits, ItemKind.MEMORY)
        context.entry.turns_shown += _of_kind(hits, ItemKind.TURN)
        context.entry.counts["hits"] = len(hits)
        context.entry.details["mode"] = prepared.query.mode
        return Found(tuple(hits), degraded, found.evidence)

    async def inspect(
        self,
        context: Context,
        *,
        limit: int,
        offset: int,
        type_: str,
        topic: str,
        containers: Collection[str] | None = None,
    ) -> Page:
        """One page of the active memories, newest first."""
        storable(topic)
        scope = context.scope.inside(_checked(containers))
        async with self.store.transaction(context.namespace, write=False, access_scope=scope) as tx:
            memories = await tx.memories.page(limit=limit, offset=offset, type_=type_, topic=topic)
            total = sum((await tx.memories.counts(type_=type_, topic=topic)).values())
            context.entry.counts["memories"] = len(memories)
        reached = offset + len(memories)
        return Page(tuple(memories), total, reached if reached < total else None)

    async def history(
        self,
        context: Context,
        memory_id: str,
    ) -> History:
        """A memory with what it replaced and what replaced it, oldest truth first, each with the
        words it cites, and who decided what no rule could. Raises `MemoryNotFound`.
        """
        storable(memory_id)
        async with self.store.transaction(
            context.namespace, write=False, access_scope=context.scope
        ) as tx:
            chain = await tx.memories.lineage(memory_id)
            decisions = await tx.memories.decisions([memory.id for memory in chain])
        if not chain:
            raise MemoryNotFound
        context.entry.ids.append(memory_id)
        return History(tuple(chain), decisions)

    async def stats(
        self,
        context: Context,
    ) -> Counts:
        """Active memories by type, and what is still to be extracted."""
        async with self.store.transaction(
            context.namespace, write=False, access_scope=context.scope
        ) as tx:
            by_type = await tx.memories.counts()
            jobs = await tx.jobs.counts()
        counts = Counts({kind: by_type.get(kind, 0) for kind in MemoryType}, Backlog.of(jobs))
        context.entry.counts["memories"] = counts.total
        return counts

    async def forget(
        self,
        context: Context,
        item_id: str,
    ) -> None:
        """Never recall this memory (or turn) again; the record of it stays.

        Raises `MemoryNotFound` where this namespace has no active one of that id.
        """
        storable(item_id)
        async with self.store.transaction(
            context.namespace, access_scope=context.scope, entry=context.entry
        ) as tx:
            await tx.lock()
            found = await search.read_items(tx, [item_id])
            if not found:
                raise MemoryNotFound
            if found[0].kind is ItemKind.MEMORY:
                await commit.apply(tx, Plan((Forget(item_id),)), self.now())
            else:
                await commit.close_turns(tx, found, "hidden")
            context.entry.ids.append(item_id)
            context.entry.counts["forgotten"] = 1

    async def restore(
        self,
        context: Context,
        memory_id: str,
    ) -> None:
        """Undo `forget` of a memory, as long as the window lasts.

        Raises `MemoryNotFound` where there is no memory of that id, and `NotRestorable`.
        """
        storable(memory_id)
        async with self.store.transaction(
            context.namespace, access_scope=context.scope, entry=context.entry
        ) as tx:
            await tx.lock()
            if not await tx.memories.get([memory_id]):
                # Neither a search nor a list shows what was forgotten.
                raise MemoryNotFound(
                    "No memory has this id. The audit log names those that were forgotten: `recall "
                    "audit tail --json`, or GET /v1/audit?operation=delete_memory."
                )
            if not await tx.memories.restore(memory_id, self.now() - self.forget_window):
                raise NotRestorable
            await indexing.show_again(tx, [memory_id])
            context.entry.ids.append(memory_id)
            context.entry.counts["restored"] = 1


def _checked(containers: Collection[str] | None) -> Collection[str] | None:
    """Raises `Invalid` on a name that no container can have."""
    return None if containers is None else frozenset(map(container, containers))


async def _finalized(
    tx: Transaction, found: search.Candidates, query: Query, *, cite: bool
) -> list[Hit]:
    found = await search.finalize(tx, found, query)
    hits = ranking.fit_budget(found.hits(explain=cite), query.max_tokens)
    found.count_accesses(hits)
    if query.neighbours:
        hits = await search.with_neighbours(tx, found, hits, query)
    return await _cited(tx, hits) if cite else hits


async def _cited(tx: Transaction, hits: list[Hit]) -> list[Hit]:
    memories = await tx.memories.get([hit.item.id for hit in hits])
    return [
        hit._replace(item=hit.item._replace(citation=memories[hit.item.id].citation))
        if hit.item.id in memories
        else hit
        for hit in hits
    ]


def _of_kind(hits: Sequence[Hit], kind: ItemKind) -> list[str]:
    return [hit.item.id for hit in hits if hit.item.kind is kind]
