"""What an extractor proposes and what is known, made into a plan (FEATURES C07, F01, F07).

A stated correction, an exact duplicate and a multi-valued attribute settle themselves. Any other
contradiction is settled by policy: *decide* lets the claim stated later win, *ask* makes a question
of it, the others always choose the same.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from recall_server.domain.attributes import canonical, normal_attribute, normal_entity
from recall_server.domain.contradiction import Verdict, compare, same_statement
from recall_server.domain.ids import derived_id
from recall_server.domain.model import (
    Candidate,
    Citation,
    Episode,
    Memory,
    Status,
)
from recall_server.domain.plan import (
    Add,
    Change,
    Choice,
    Decision,
    Plan,
    Policy,
    Question,
    Reinforce,
    Resolution,
    Settling,
    Supersede,
)
from recall_server.domain.ranking import bm25_weights
from recall_server.domain.words import terms
from recall_server.storage.store import Transaction

SIMILAR_LOOKED_AT = 8
# Who says the same says the same rare words: of the others no more are looked at than make as many
# postings, as each memory that is planned asks for them.
SIMILAR_POSTINGS = 500
# So much less confidence in the newer claim speaks for the older one.
SURE = 0.2


async def plan(
    tx: Transaction,
    episode: Episode,
    candidates: Sequence[Candidate],
    *,
    extractor: str,
    now: datetime,
    settling: Settling | None = None,
) -> Plan:
    """What to change so that `candidates` are remembered, given what `tx` sees; and what to ask
    before that, if `settling` (by default: decide) leaves a contradiction open.

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
    draft = _Draft(_Known(tx), settling or Settling(), now)
    for memory_id, (candidate, memory) in proposals.items():
        if memory_id not in before:
            draft.changes += await _settle(candidate, memory, draft)
    return Plan(tuple(draft.changes), await _quoted(tx, draft.questions), tuple(draft.decisions))


@dataclass
class _Draft:
    """The plan as far as it has come."""

    known: "_Known"
    settling: Settling
    now: datetime
    changes: list[Change] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


async def _settle(candidate: Candidate, memory: Memory, draft: _Draft) -> list[Change]:
    known = draft.known
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
    if not clashing:
        known.add(memory)
        return [Add(memory)]
    if draft.settling.policy is Policy.DECIDE or candidate.correction:
        newer = [other for other in clashing if other.said_at > memory.said_at]
        if newer:
            # Told late: it is history already, and the oldest of what came after it ended it.
            return [Add(_outdated(memory, min(newer, key=lambda other: other.said_at)))]
        return _replace(clashing, memory, known)
    return _resolve(memory, clashing, draft)


def _resolve(memory: Memory, clashing: list[Memory], draft: _Draft) -> list[Change]:
    """What the answer, or a policy that needs none, makes of a contradiction; a question where
    there is neither.
    """
    question_id = derived_id("q", memory.id, *sorted(other.id for other in clashing))
    by_policy = draft.settling.policy.choice
    resolution = draft.settling.resolutions.get(question_id)
    if resolution is None and by_policy is not None:
        resolution = Resolution(question_id, by_policy, "policy", draft.now)
    if resolution is None:
        reason, recommended = _weighed(memory, clashing)
        draft.questions.append(Question(question_id, memory, tuple(clashing), reason, recommended))
        return []
    changes, also = _chosen(resolution, memory, clashing, draft.known)
    touched = (memory.id, *(other.id for other in clashing), *also)
    draft.decisions.append(Decision(resolution, touched))
    return changes


def _chosen(
    resolution: Resolution, memory: Memory, clashing: list[Memory], known: "_Known"
) -> tuple[list[Change], tuple[str, ...]]:
    """The changes, and the ids of memories that only the choice brought about."""
    match resolution.choice:
        case Choice.KEEP_EXISTING:
            return [Add(_outdated(memory, clashing[0]))], ()
        case Choice.KEEP_NEW:
            return _replace(clashing, memory, known), ()
        case Choice.KEEP_BOTH:
            known.add(memory)
            return [Add(memory)], ()
        case Choice.MERGE:
            assert resolution.text is not None
            merged = replace(
                memory,
                id=derived_id("mem", memory.id, resolution.question_id, resolution.text),
                text=resolution.text,
                fact=None,
                extractor="person",
            )
            also = tuple(other.citation for other in clashing)
            given_way = _replace(clashing, merged, known, also=also)
            return [*given_way, Add(_outdated(memory, merged))], (merged.id,)


def _replace(
    old: list[Memory], new: Memory, known: "_Known", *, also: tuple[Citation, ...] = ()
) -> list[Change]:
    known.add(new)
    changes: list[Change] = [Add(new, also)]
    for other in old:
        known.drop(other)
        changes.append(Supersede(other.id, new.id, _end_of(other, new)))
    return changes


def _weighed(memory: Memory, clashing: list[Memory]) -> tuple[str, Choice]:
    """Why nobody can tell, and which side the evidence leans to: to what was said later, unless
    it is much less sure.
    """
    new, old = memory.fact, clashing[0].fact
    assert new is not None
    assert old is not None
    if new.negated != old.negated:
        reason = "One statement denies the other, and neither says since when."
    else:
        reason = (
            f"'{new.attribute}' has one value at a time, and the text does not say that the old "
            "one ended."
        )
    later = all(memory.said_at >= other.said_at for other in clashing)
    surer = all(memory.confidence >= other.confidence - SURE for other in clashing)
    return reason, Choice.KEEP_NEW if later and surer else Choice.KEEP_EXISTING


async def _quoted(tx: Transaction, questions: Sequence[Question]) -> tuple[Question, ...]:
    """The questions, with the exact words of what is stored, too."""
    ids = {other.id for question in questions for other in question.existing}
    stored = await tx.memories.get(sorted(ids)) if ids else {}
    return tuple(
        replace(
            question, existing=tuple(stored.get(other.id, other) for other in question.existing)
        )
        for question in questions
    )


def _outdated(memory: Memory, by: Memory) -> Memory:
    return replace(
        memory,
        status=Status.SUPERSEDED,
        superseded_by=by.id,
        retired_at=memory.recorded_at,
        valid_until=_end_of(memory, by),
    )


def _end_of(old: Memory, new: Memory) -> datetime:
    """When the older claim ceased to hold: when the newer began to, if that was after it. Never
    before it began itself.
    """
    ended = new.valid_from if new.valid_from > old.valid_from else new.said_at
    return max(ended, old.valid_from)


def _memory(episode: Episode, candidate: Candidate, extractor: str, now: datetime) -> Memory:
    span = candidate.span
    turn = next((t for t in episode.turns if t.span.start <= span.start < t.span.end), None)
    said_at = (turn.said_at if turn else None) or episode.occurred_at
    fact = candidate.fact
    return Memory(
        id=derived_id("mem", episode.id, span.start, span.end, candidate.text, fact or ""),
        text=candidate.text,
        type=candidate.type,
        topic=episode.topic,
        citation=Citation(
            episode.id,
            span,
            episode.text[span.start : span.end],
            turn.speaker if turn else None,
            said_at,
        ),
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
        often = statistics.frequencies
        weights = bm25_weights(
            {term: often[term] for term in _rarest(often, SIMILAR_POSTINGS)}, statistics.documents
        )
        pool = await self.tx.words.similar(weights, statistics.average_length, SIMILAR_LOOKED_AT)
        stored = await self.tx.memories.active(pool)
        return [other for other in [*stored, *self._added] if other.id not in self._dropped]


def _rarest(often: Mapping[str, int], postings: int) -> list[str]:
    """The rarest terms that make up so many postings together, and one at least."""
    chosen: list[str] = []
    for term in sorted(often, key=lambda term: (often[term], term)):
        postings -= often[term]
        if chosen and postings < 0:
            break
        chosen.append(term)
    return chosen
