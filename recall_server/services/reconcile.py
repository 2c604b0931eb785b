"""What an extractor proposes and what is known, made into a plan.

Under the policy *decide*: the claim stated later wins, nothing is asked (FEATURES C07, F01).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from recall_server.domain.attributes import canonical, normal_attribute, normal_entity
from recall_server.domain.contradiction import Verdict, compare, same_statement
from recall_server.domain.ids import derived_id
from recall_server.domain.model import Candidate, Citation, Episode, Memory, Status
from recall_server.domain.plan import Add, Change, Plan, Reinforce, Supersede
from recall_server.domain.ranking import bm25_weights
from recall_server.domain.words import terms
from recall_server.storage.store import Transaction

SIMILAR_LOOKED_AT = 8


async def plan(
    tx: Transaction,
    episode: Episode,
    candidates: Sequence[Candidate],
    *,
    extractor: str,
    now: datetime,
) -> Plan:
    """What to change so that `candidates` are remembered, given what `tx` sees.

    A candidate that was made into a memory before, whatever became of it, is passed over: working
    through an episode twice adds nothing, and brings nothing back.
    """
    proposals: dict[str, tuple[Candidate, Memory]] = {}
    for proposed in candidates:
        fact = proposed.fact
        candidate = replace(proposed, fact=canonical(fact) if fact else None)
        memory = _memory(episode, candidate, extractor, now)
        proposals.setdefault(memory.id, (candidate, memory))
    before = await tx.memories.get(list(proposals))
    known = _Known(tx)
    changes: list[Change] = []
    for memory_id, (candidate, memory) in proposals.items():
        if memory_id not in before:
            changes += await _settle(candidate, memory, known)
    return Plan(tuple(changes))


async def _settle(candidate: Candidate, memory: Memory, known: "_Known") -> list[Change]:
    clashing: list[Memory] = []
    for other in await known.related(candidate):
        verdict = compare(candidate, other)
        if verdict is Verdict.SAME:
            return [Reinforce(other.id, memory.citation)]
        if verdict is Verdict.CLASHES:
            clashing.append(other)
    if not clashing:
        for other in await known.similar(memory):
            if same_statement(memory.text, other.text):
                return [Reinforce(other.id, memory.citation)]
    newer = [other for other in clashing if other.said_at > memory.said_at]
    if newer:
        # Told late: it is history already, and the oldest of what came after it ended it.
        return [Add(_outdated(memory, min(newer, key=lambda other: other.said_at)))]
    known.add(memory)
    changes: list[Change] = [Add(memory)]
    for other in clashing:
        known.drop(other)
        changes.append(Supersede(other.id, memory.id, _end_of(other, memory)))
    return changes


def _outdated(memory: Memory, by: Memory) -> Memory:
    return replace(
        memory,
        status=Status.SUPERSEDED,
        superseded_by=by.id,
        retired_at=memory.recorded_at,
        valid_until=_end_of(memory, by),
    )


def _end_of(old: Memory, new: Memory) -> datetime:
    """When the older claim ceased to hold: when the newer began to, if that was after it."""
    return new.valid_from if new.valid_from > old.valid_from else new.said_at


def _memory(episode: Episode, candidate: Candidate, extractor: str, now: datetime) -> Memory:
    turn = next(
        (t for t in episode.turns if t.span.start <= candidate.span.start < t.span.end), None
    )
    said_at = (turn.said_at if turn else None) or episode.occurred_at
    fact = candidate.fact
    return Memory(
        id=derived_id(
            "mem", episode.id, candidate.span.start, candidate.span.end, candidate.text, fact or ""
        ),
        text=candidate.text,
        type=candidate.type,
        topic=episode.topic,
        citation=Citation(episode.id, candidate.span),
        said_at=said_at,
        valid_from=candidate.valid_from or said_at,
        recorded_at=now,
        fact=fact,
        importance=candidate.importance,
        confidence=candidate.confidence,
        session_id=episode.source.session_id,
        agent_id=episode.source.agent_id,
        extractor=extractor,
    )


@dataclass
class _Known:
    """What is believed, as the plan so far would leave it."""

    tx: Transaction
    _added: list[Memory] = field(default_factory=list)
    _dropped: set[str] = field(default_factory=set)

    def add(self, memory: Memory) -> None:
        self._added.append(memory)

    def drop(self, memory: Memory) -> None:
        self._dropped.add(memory.id)
        self._added = [other for other in self._added if other.id != memory.id]

    async def related(self, candidate: Candidate) -> list[Memory]:
        """Memories of the same entity that the candidate's fact may touch."""
        fact = candidate.fact
        if fact is None:
            return []
        # A stated correction may name a value that was kept under another attribute.
        anywhere = candidate.correction and candidate.replaces is not None
        stored = await (
            self.tx.memories.of_entity(fact.entity)
            if anywhere
            else self.tx.memories.about(fact.entity, fact.attribute)
        )
        planned = [
            memory
            for memory in self._added
            if memory.fact
            and normal_entity(memory.fact.entity) == normal_entity(fact.entity)
            and (
                anywhere
                or normal_attribute(memory.fact.attribute) == normal_attribute(fact.attribute)
            )
        ]
        return [memory for memory in [*stored, *planned] if memory.id not in self._dropped]

    async def similar(self, memory: Memory) -> list[Memory]:
        """Memories in nearly the same words."""
        statistics = await self.tx.words.statistics(terms(memory.text))
        weights = bm25_weights(statistics.frequencies, statistics.documents)
        pool = await self.tx.words.pool(weights, statistics, SIMILAR_LOOKED_AT)
        stored = await self.tx.memories.active(pool)
        return [other for other in [*stored, *self._added] if other.id not in self._dropped]
