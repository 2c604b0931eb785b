"""Grounding: what is known well enough about a message to rest an answer on, or why nothing is."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum

from recall_server.domain.context import Context
from recall_server.domain.ids import NONE
from recall_server.domain.memory import Memory, Status
from recall_server.domain.moments import PRESENT, Past
from recall_server.domain.plan import Relation
from recall_server.domain.query import Hit, ItemKind, Query
from recall_server.domain.search.ranking import fit_budget
from recall_server.services.search.recall import Recall, relations_of

# A hit that is less likely to answer the question is not shown: the evidence of all hits together
# may be good, and such a hit is still noise in a prompt.
RELEVANT_FROM = 0.15
# A snapshot is made of the most important of so many of the newest memories.
SNAPSHOT_READ_MAX = 50
SNAPSHOT_MEMORIES_MAX = 10


class Abstained(StrEnum):
    """Why there is no answer."""

    NOTHING = "no_relevant_memory"
    WEAK = "weak_evidence"
    CONFLICT = "conflicting_evidence"
    BUDGET = "budget_too_small"


@dataclass(frozen=True)
class Grounding:
    """What is known about a message.

    `relevant`: the hits that may be shown, best first; `used`: those that fit the budget. Both are
    empty if `abstained` says why there is no answer.
    `memories`: the memories among `used`, by their ids, and `relations` between what they state.
    `missing`: the containers that were named and hold nothing that the caller may see.
    """

    evidence: float
    relevant: tuple[Hit, ...] = ()
    used: tuple[Hit, ...] = ()
    abstained: Abstained | None = None
    degraded: str | None = None
    missing: tuple[str, ...] = ()
    memories: Mapping[str, Memory] = field(default_factory=dict)
    relations: tuple[Relation, ...] = ()


@dataclass(frozen=True)
class Snapshot:
    """The most important of the newest memories that are in no container, as of a moment."""

    memories: tuple[Memory, ...]
    disputed: int
    at: datetime


async def ground(
    recall: Recall,
    context: Context,
    message: str,
    *,
    containers: Collection[str],
    candidates: int,
    budget: int,
    price: Callable[[Hit], int],
    past: Past = PRESENT,
) -> Grounding:
    """Return what is known about a message in these containers, of at most `candidates` hits. Those
    are used whose `price` fits into the `budget` of tokens, the best first.

    Superseded memories are left out. There is no answer if the evidence is weak, or if the best
    memory is disputed. A `past` moment selects what was known or true then.
    """
    inside = context.narrowed(context.scope.inside(containers))
    missing = await _missing(recall, context, containers)
    query = Query(message, limit=candidates, score_threshold=RELEVANT_FROM, past=past)
    found = await recall.search(inside, query, cite=True)
    grounding = Grounding(found.evidence, degraded=found.degraded, missing=missing)
    relevant = tuple(hit for hit in found.hits if not hit.item.superseded_by)
    if not relevant:
        return replace(grounding, abstained=Abstained.NOTHING)
    if found.weak_evidence:
        return replace(grounding, abstained=Abstained.WEAK)
    if relevant[0].item.disputed:
        return replace(grounding, abstained=Abstained.CONFLICT)
    used = tuple(fit_budget(relevant, budget, price))
    if not used:
        return replace(grounding, relevant=relevant, abstained=Abstained.BUDGET)
    ids = [hit.item.id for hit in used if hit.item.kind is ItemKind.MEMORY]
    async with recall.store.view(context, past) as tx:
        memories = await tx.memories.get(ids) if ids else {}
        relations = await relations_of(tx, tuple(memories.values())) if memories else ()
    return replace(grounding, relevant=relevant, used=used, memories=memories, relations=relations)


async def _missing(
    recall: Recall, context: Context, containers: Collection[str]
) -> tuple[str, ...]:
    missing = []
    for container in sorted(set(containers) - {NONE}):
        inside = context.narrowed(context.scope.inside({container}))
        async with recall.store.view(inside) as tx:
            if not await tx.episodes.page(limit=1):
                missing.append(container)
    return tuple(missing)


async def snapshot(recall: Recall, context: Context, past: Past = PRESENT) -> Snapshot:
    """Return a snapshot of now, or of a moment of the past."""
    inside = context.narrowed(context.scope.inside({NONE}))
    page = await recall.inspect(
        inside, limit=SNAPSHOT_READ_MAX, offset=0, type_="", topic="", past=past
    )
    # The order is stable: of equally important memories the newest comes first.
    best = sorted(page.memories, key=lambda one: -one.importance)[:SNAPSHOT_MEMORIES_MAX]
    disputed = sum(one.status is Status.DISPUTED for one in best)
    at = past.known_at or past.as_of or recall.runtime.now()
    return Snapshot(tuple(best), disputed, at)
