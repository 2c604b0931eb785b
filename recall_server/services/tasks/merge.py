"""Merges similar memories of a topic and container into one that states all of them. A dry run asks
no model: it shows drafts, and a model writes the final texts when the plan is applied.
"""

import asyncio
import pickle
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import NamedTuple

import numpy as np

from recall_server.domain.attributes import SubjectAliases, is_single_valued
from recall_server.domain.context import Compute
from recall_server.domain.episode import shared_metadata
from recall_server.domain.errors import PlanOutdated
from recall_server.domain.extraction import Merged, Merger
from recall_server.domain.ids import Namespace, derived_id
from recall_server.domain.memory import Fact, Layer, Memory, MemoryType, Status
from recall_server.domain.plan import Add, Change, Plan, Reason, Relation, RelationKind, Supersede
from recall_server.domain.screening import orders, suspicions
from recall_server.domain.similarity import Floats, clusters
from recall_server.domain.task import Proposal, Request, Work
from recall_server.domain.trust import Trust, Witness, corroborations, trust
from recall_server.services.limits import Budget
from recall_server.services.memory.indexing import ItemEmbedder
from recall_server.storage.driver import batches
from recall_server.storage.store import Store, Transaction

# Clustering is quadratic: in a larger topic, only the oldest memories are merged.
MEMORIES_MAX = 5_000
PAGE = 250
# One task merges so many memories, as others wait while all give way; the next one goes on.
MERGED_MAX = 1_000
# As many statements that are alike make a pattern: the layer `schema`.
PATTERN_MIN = 3
# The rule that is named in memory events.
MERGED = "merged"


@dataclass(frozen=True)
class Merging:
    """Finds the groups and asks for their texts; `plan` makes the changes."""

    store: Store
    merger: Merger
    embedder: ItemEmbedder | None
    budget: Budget
    compute: Compute

    async def steps(
        self, namespace: Namespace, request: Request, work: Work
    ) -> AsyncIterator[Work]:
        """Yield `work` as it grows: the merger is asked once per group, in a dry run only for a
        preview without a model.
        """
        if work.groups is None:
            work = replace(work, groups=await self._groups(namespace, request))
            yield work
        assert work.groups is not None
        for number in range(work.next, len(work.groups)):
            ids = work.groups[number]
            sources = await self._sources(namespace, request, ids)
            if request.dry_run:
                merged = await self.merger.preview(sources)
            else:
                merged = await self._merged(namespace, sources)
            work = replace(_with_proposal(work, ids, merged), next=number + 1)
            yield work

    async def write(
        self, namespace: Namespace, request: Request, work: Work
    ) -> AsyncIterator[Work]:
        """Yield `work` as it grows: the drafts of the applied plan are written one by one. Raises
        `PlanOutdated`, before a model is asked, if a memory of a group is no longer active.
        """
        for draft in work.drafts[work.next :]:
            merged: Merged | None = Merged(draft.text, draft.by)
            if draft.draft:
                sources = await self._sources(namespace, request, draft.source_ids)
                if not _all_active(sources, draft.source_ids):
                    raise PlanOutdated
                merged = await self._merged(namespace, sources)
            work = replace(_with_proposal(work, draft.source_ids, merged), next=work.next + 1)
            yield work

    async def _sources(
        self, namespace: Namespace, request: Request, ids: Sequence[str]
    ) -> list[Memory]:
        tables = self.store.autocommit(namespace, access_scope=request.effective_scope)
        found = await tables.memories.get(ids)
        return [found[i] for i in ids if i in found]

    async def _merged(self, namespace: Namespace, sources: Sequence[Memory]) -> Merged | None:
        merge, most = partial(self.merger.merge, sources), self.merger.call_tokens_max
        return await self.budget.ask(namespace, most, merge)

    async def _groups(self, namespace: Namespace, request: Request) -> tuple[tuple[str, ...], ...]:
        threshold, scope = request.similarity_threshold, request.effective_scope
        tables = self.store.autocommit(namespace, access_scope=scope)
        ids = await tables.memories.of_topic(request.topic, MEMORIES_MAX)
        pages: list[bytes] = []
        # Short reads, so that others go first in between.
        for some in batches(ids, PAGE):
            async with self.store.transaction(namespace, write=False, access_scope=scope) as tx:
                memories = await tx.memories.active(some)
                vectors = await tx.vectors.get(self.embedder.model, some) if self.embedder else {}
                witnesses = await tx.memories.witnesses(some)
                aliases = await tx.aliases.all()
            pages.append(await asyncio.to_thread(_page, memories, vectors, witnesses, aliases))
        if len(pages) <= 1:
            return await asyncio.to_thread(_grouped, pages, threshold)
        return await self.compute(_grouped, pages, threshold, owner=namespace)


class _Compared(NamedTuple):
    """The parts of a memory that `clusters` compares. `vector` is one of `Floats`, as bytes."""

    id: str
    type: MemoryType
    container: str
    trust: Trust
    text: str
    fact: Fact | None
    vector: bytes | None


def _page(
    memories: Sequence[Memory],
    vectors: Mapping[str, Floats],
    witnesses: Mapping[str, Sequence[Witness]],
    aliases: SubjectAliases,
) -> bytes:
    """Return what is compared of these memories, pickled: all of them at once would take long."""
    return pickle.dumps(
        [
            _Compared(
                one.id,
                one.type,
                one.container,
                trust(witnesses.get(one.id, ())),
                one.text,
                one.fact and replace(one.fact, entity=aliases.subject(one.fact.entity)),
                vectors[one.id].tobytes() if one.id in vectors else None,
            )
            for one in memories
            if one.status is Status.ACTIVE
        ]
    )


def _grouped(pages: Sequence[bytes], threshold: float) -> tuple[tuple[str, ...], ...]:
    # Same container and same trust: fetched content must not become a person's statement.
    alike: dict[tuple[str, Trust], list[_Compared]] = {}
    vectors: dict[str, Floats] = {}
    for page in pages:
        for one in pickle.loads(page):  # noqa: S301  # `_page` has written it
            alike.setdefault((one.container, one.trust), []).append(one)
            if one.vector is not None:
                vectors[one.id] = np.frombuffer(one.vector, dtype=np.float32)
    found, left = [], MERGED_MAX
    for some in alike.values():
        for group in clusters(some, vectors, threshold):
            ids = tuple(memory.id for memory in group[:left])
            if len(ids) > 1:
                found.append(ids)
                left -= len(ids)
    return tuple(found)


async def plan(tx: Transaction, proposals: Sequence[Proposal], now: datetime) -> Plan:
    """Plan one canonical memory for each group that is still active; it supersedes the others."""
    changes: list[Change] = []
    relations: list[Relation] = []
    for proposal in proposals:
        found = await tx.memories.get(proposal.source_ids)
        sources = [found[i] for i in proposal.source_ids if i in found]
        if not _all_active(sources, proposal.source_ids):
            continue
        citations = await tx.memories.citations(proposal.source_ids)
        by_memory = await tx.memories.witnesses(proposal.source_ids)
        witnesses = [one for source in sources for one in by_memory[source.id]]
        merged = _canonical(sources, proposal, corroborations(witnesses), now)
        also = tuple(
            citation
            for citation in citations
            if (citation.episode_id, citation.span)
            != (merged.citation.episode_id, merged.citation.span)
        )
        changes.append(Add(merged, also, MERGED))
        changes += [Supersede(source.id, merged.id, now, MERGED) for source in sources]
        relations += [
            Relation(merged.id, source.id, RelationKind.CONSOLIDATES, Reason.MERGE, now)
            for source in sources
        ]
    return Plan(tuple(changes), relations=tuple(relations))


def _with_proposal(work: Work, ids: tuple[str, ...], merged: Merged | None) -> Work:
    """`work` with the text of one more group, unless it looks like instructions to a model."""
    if merged is None:
        return work
    work = replace(work, usage=work.usage + merged.usage)
    if not merged.draft and (orders(merged.text) or suspicions(merged.text)):
        return replace(work, rejected=work.rejected + 1)
    proposal = Proposal(ids, merged.text, merged.by, draft=merged.draft)
    return replace(work, proposals=(*work.proposals, proposal))


def _all_active(sources: Sequence[Memory], ids: Sequence[str]) -> bool:
    """True if all memories of a group exist and are active."""
    return len(sources) == len(ids) and all(one.status is Status.ACTIVE for one in sources)


def _canonical(
    sources: Sequence[Memory], proposal: Proposal, corroborated: int, now: datetime
) -> Memory:
    newest = max(sources, key=lambda memory: (memory.said_at, memory.id))
    tags = frozenset[str]().union(*(source.source.tags for source in sources))
    shared = shared_metadata(source.source for source in sources)
    return replace(
        newest,
        id=derived_id("mem", "merge", *proposal.source_ids, proposal.text),
        text=proposal.text,
        valid_from=min(source.valid_from for source in sources),
        recorded_at=now,
        fact=_leading_fact(sources),
        layer=_layer(sources),
        importance=max(source.importance for source in sources),
        confidence=max(source.confidence for source in sources),
        reinforcements=corroborated,
        source=replace(newest.source, tags=tuple(sorted(tags)), metadata=shared),
        extractor=proposal.by,
    )


def _layer(sources: Sequence[Memory]) -> Layer:
    """Three statements that are alike make a pattern, and a pattern stays one."""
    layers = [source.layer for source in sources]
    if Layer.SCHEMA in layers or layers.count(Layer.SEMANTIC) >= PATTERN_MIN:
        return Layer.SCHEMA
    return layers[0] if len(set(layers)) == 1 else Layer.SEMANTIC


def _leading_fact(sources: Sequence[Memory]) -> Fact | None:
    """Return the fact that a later contradiction must find: a single-valued one (a cluster has one
    at most), else the newest.
    """
    newest_first = sorted(sources, key=lambda memory: (memory.said_at, memory.id), reverse=True)
    facts = [source.fact for source in newest_first if source.fact is not None]
    single = [fact for fact in facts if is_single_valued(fact.attribute) and not fact.negated]
    return next(iter([*single, *facts]), None)
