"""Makes a plan from an extractor's candidates and the stored memories.

A stated correction, an exact duplicate and a multi-valued attribute settle themselves. Any other
contradiction is settled by policy: *decide* lets the later claim win, *ask* makes a question of it,
the others always choose the same side. A less trusted claim replaces no more trusted one unless a
person says so: both stay, and the contradiction is recorded.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import islice

from recall_server.domain.attributes import (
    canonical,
    is_single_valued,
    normal_attribute,
    normal_entity,
    normal_value,
)
from recall_server.domain.episode import Citation, Episode, Span
from recall_server.domain.extraction import Candidate
from recall_server.domain.ids import derived_id
from recall_server.domain.memory import Memory, Status, layer_of
from recall_server.domain.plan import (
    EXPIRY,
    PERSON,
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
from recall_server.domain.search.ranking import bm25_weights
from recall_server.domain.security.trust import Trust, Witness, corroborates, least_trusted, trust
from recall_server.domain.similarity import Verdict, compare, same_statement
from recall_server.domain.text.terms import terms
from recall_server.domain.text.transcript import turn_at, turns_at
from recall_server.storage.store import Transaction
from recall_server.storage.tables.memories import RELATED_MAX

SIMILAR_LOOKED_AT = 8
# The same statement uses the same rare words. Terms with more postings are skipped, as each planned
# memory asks for them.
SIMILAR_POSTINGS = 500
# Shorter statements say the same with the same terms only. Longer ones are compared with the last
# that are planned.
FUZZY_TERMS_MIN = 9
FUZZY_MAX = 20


@dataclass
class Beliefs:
    """The active memories as the plan so far would leave them."""

    tx: Transaction
    _added: dict[str, Memory] = field(default_factory=dict)
    # The same by words, and by entity with attribute or value: a long text plans thousands.
    _by_words: dict[frozenset[str], list[Memory]] = field(default_factory=dict)
    _by_fact: dict[tuple[str, str, str], list[Memory]] = field(default_factory=dict)
    _dropped: set[str] = field(default_factory=set)
    _witnesses: dict[str, list[Witness]] = field(default_factory=dict)
    _read: dict[tuple[str, str, str], list[Memory]] = field(default_factory=dict)

    def add(self, memory: Memory) -> None:
        self._added[memory.id] = memory
        self._by_words.setdefault(frozenset(terms(memory.text)), []).append(memory)
        if fact := memory.fact:
            entity = normal_entity(fact.entity)
            for key in (
                (entity, normal_attribute(fact.attribute), ""),
                (entity, "", normal_value(fact.value)),
            ):
                self._by_fact.setdefault(key, []).append(memory)

    def drop(self, memory: Memory) -> None:
        self._dropped.add(memory.id)
        self._added.pop(memory.id, None)

    def add_witness(self, memory: Memory, witness: Witness) -> None:
        """Set the witness of a proposed memory."""
        self._witnesses[memory.id] = [witness]

    def inherit_witnesses(self, memory: Memory, on: Sequence[Memory]) -> None:
        """Give a planned memory all witnesses of these."""
        self._witnesses[memory.id] = [one for other in on for one in self._witnesses[other.id]]

    async def load_witnesses(self, memories: Sequence[Memory]) -> None:
        """Load the witnesses of these memories, for `trust` and `reinforce`."""
        wanted = [one.id for one in memories if one.id not in self._witnesses]
        if wanted:
            self._witnesses |= await self.tx.memories.witnesses(wanted)

    def trust(self, memory: Memory) -> Trust:
        return trust(self._witnesses[memory.id])

    def reinforce(self, other: Memory, said: Memory) -> list[Change]:
        """Return the change when `other` was `said` again; none if it already cites these words."""
        (new,) = self._witnesses[said.id]
        before = self._witnesses[other.id]
        if any((one.episode_id, one.span) == (new.episode_id, new.span) for one in before):
            return []
        self._witnesses[other.id] = [*before, new]
        counts = corroborates(new, before)
        return [Reinforce(other.id, said.citation, counts, said.expires_at)]

    async def related(self, candidate: Candidate) -> list[Memory]:
        """Return memories of the same entity that the candidate's fact may affect."""
        fact = candidate.fact
        if fact is None:
            return []
        # Of an attribute with many values only the same one matters: another one agrees with it.
        single = is_single_valued(fact.attribute) and not fact.negated
        keys = [(fact.attribute, "") if single else ("", fact.value)]
        if candidate.correction and candidate.replaces is not None:
            # It may name a value that is stored under another attribute.
            keys.append(("", candidate.replaces))
        stored: dict[str, Memory] = {}
        planned: dict[str, Memory] = {}
        for attribute, value in keys:
            found = await self._stored(fact.entity, attribute, value)
            stored |= {memory.id: memory for memory in found}
            key = normal_entity(fact.entity), normal_attribute(attribute), normal_value(value)
            found = self._by_fact.get(key, [])[-RELATED_MAX:]
            planned |= {memory.id: memory for memory in found if memory.id in self._added}
        before = sorted(stored.values(), key=lambda one: (one.recorded_at, one.id))
        return [one for one in (*before, *planned.values()) if one.id not in self._dropped]

    async def _stored(self, entity: str, attribute: str, value: str) -> list[Memory]:
        """The stored memories of an entity with this attribute, or this value; read once."""
        key = entity, attribute, value
        if key not in self._read:
            tables = self.tx.memories
            self._read[key] = await (
                tables.about(entity, attribute) if attribute else tables.of_value(entity, value)
            )
        return self._read[key]

    async def similar_statement(self, memory: Memory) -> list[Memory]:
        """Return a memory that says the same in nearly the same words, if there is one."""
        statistics = await self.tx.words.statistics(terms(memory.text))
        frequencies = statistics.frequencies
        weights = bm25_weights(
            {term: frequencies[term] for term in _rarest(frequencies, SIMILAR_POSTINGS)},
            statistics.documents,
        )
        pool = await self.tx.words.similar(weights, statistics.average_length, SIMILAR_LOOKED_AT)
        texts = await self.tx.memories.texts(pool) if pool else {}
        for item_id in pool:
            active = item_id in texts and item_id not in self._dropped
            if active and same_statement(memory.text, texts[item_id]):
                return list(await self.tx.memories.active([item_id]))
        words = frozenset(terms(memory.text))
        planned = self._by_words.get(words, [])[-RELATED_MAX:]
        if len(words) >= FUZZY_TERMS_MIN:
            planned = [*planned, *islice(reversed(self._added.values()), FUZZY_MAX)]
        same = (one for one in planned if same_statement(memory.text, one.text))
        return [one for one in same if one.id in self._added][:1]


def _rarest(frequencies: Mapping[str, int], postings: int) -> list[str]:
    """Return the rarest terms with at most so many postings together, and at least one term."""
    chosen: list[str] = []
    for term in sorted(frequencies, key=lambda term: (frequencies[term], term)):
        postings -= frequencies[term]
        if chosen and postings < 0:
            break
        chosen.append(term)
    return chosen


# Memories that a question shows; the answer is about all that are contradicted.
SIDES_MAX = 10
# A newer claim with so much less confidence does not win.
SURE = 0.2
# `decided_by` of a decision to keep both because the later claim is trusted less.
TRUST = "trust"
# Rules that events of memories name; where a question was answered, the choice is the rule.
LATER = "later"
LATE_REPORT = "late_report"
RESTATED = "restated"


async def plan(
    tx: Transaction,
    episode: Episode,
    candidates: Sequence[Candidate],
    *,
    extractor: str,
    now: datetime,
    settling: Settling | None = None,
    new: bool = False,
    without: Sequence[Memory] = (),
) -> Plan:
    """Return the changes that make `candidates` memories, given what `tx` sees, and the questions
    that `settling` (by default: decide) leaves open.

    A candidate that was made into a memory before is skipped, whatever became of it: a repetition
    adds nothing and restores nothing. `new`: the episode is not stored yet, so there can be no such
    memory. Active memories `without` which it is made are passed over.
    """
    proposals = _proposals(episode, candidates, extractor, now)
    before = {} if new else await tx.memories.get(list(proposals))
    draft = _Draft(Beliefs(tx), settling or Settling(), now)
    for one in without:
        draft.beliefs.drop(one)
    for memory_id, (candidate, memory) in proposals.items():
        if memory_id not in before:
            draft.beliefs.add_witness(memory, _witness(episode, candidate.span))
            draft.changes += await _settle(candidate, memory, draft)
    return Plan(
        tuple(draft.changes), await _with_stored_text(tx, draft.questions), tuple(draft.decisions)
    )


async def restored(tx: Transaction, forgotten: Memory, now: datetime) -> tuple[Memory, Plan]:
    """Return a forgotten memory as it is to be from now on, and the changes of others: what was
    stated since settles it as if it were stated only now.
    """
    memory = replace(forgotten, status=Status.ACTIVE, retired_at=None, superseded_by=None)
    candidate = Candidate(memory.text, memory.type, memory.citation.span, memory.fact)
    draft = _Draft(Beliefs(tx), Settling(), now)
    related = await draft.beliefs.related(candidate)
    same = [other for other in related if compare(candidate, other) is Verdict.SAME]
    same = same or await draft.beliefs.similar_statement(memory)
    if same:
        return replace(_outdated(memory, same[0]), retired_at=now), Plan(())
    await draft.beliefs.load_witnesses([memory])
    changes = await _settle(candidate, memory, draft)
    (again,) = [one.memory for one in changes if isinstance(one, Add)]
    if again.status is not Status.ACTIVE:
        again = replace(again, retired_at=now)
    others = tuple(one for one in changes if not isinstance(one, Add))
    return again, Plan(others, (), tuple(draft.decisions))


def ids_of(episode: Episode, candidates: Sequence[Candidate]) -> set[str]:
    """Return the ids of the memories that candidates of an episode become."""
    return set(_proposals(episode, candidates, "", episode.recorded_at))


def _proposals(
    episode: Episode, candidates: Sequence[Candidate], extractor: str, now: datetime
) -> dict[str, tuple[Candidate, Memory]]:
    proposals: dict[str, tuple[Candidate, Memory]] = {}
    for proposed in candidates:
        fact = proposed.fact
        candidate = replace(proposed, fact=canonical(fact) if fact else None)
        memory = _memory(episode, candidate, extractor, now)
        proposals.setdefault(memory.id, (candidate, memory))
    return proposals


async def rivals(tx: Transaction, memory: Memory) -> list[Memory]:
    """Return the active memories that contradict an active one."""
    if memory.fact is None:
        return []
    candidate = Candidate(memory.text, memory.type, memory.citation.span, memory.fact)
    related = await Beliefs(tx).related(candidate)
    return [
        one for one in related if one.id != memory.id and compare(candidate, one) is Verdict.CLASHES
    ]


@dataclass
class _Draft:
    """The plan so far."""

    beliefs: Beliefs
    settling: Settling
    now: datetime
    changes: list[Change] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)


async def _settle(candidate: Candidate, memory: Memory, draft: _Draft) -> list[Change]:
    beliefs = draft.beliefs
    same: list[Memory] = []
    clashing: list[Memory] = []
    for other in await beliefs.related(candidate):
        verdict = compare(candidate, other)
        if verdict is Verdict.SAME:
            same.append(other)
        # What expires first ends nothing: the other holds again afterwards.
        elif verdict is Verdict.CLASHES and _lasts(memory, other):
            clashing.append(other)
    if not clashing and not same:
        same = await beliefs.similar_statement(memory)
    await beliefs.load_witnesses([*same, *clashing])
    mine = beliefs.trust(memory)
    decide = draft.settling.policy is Policy.DECIDE or (
        candidate.correction and all(beliefs.trust(other) <= mine for other in clashing)
    )
    for other in same:
        if beliefs.trust(other) >= mine:
            weaker = [one for one in clashing if beliefs.trust(one) < mine] if decide else []
            superseded = [one for one in weaker if one.said_at <= memory.said_at]
            return [
                *beliefs.reinforce(other, memory),
                *_supersede(superseded, other, memory, beliefs, LATER),
            ]
    if not clashing:
        # Stated again on better evidence: the better words replace the stored ones.
        return _replace([one for one in same if _lasts(memory, one)], memory, beliefs, RESTATED)
    if decide:
        return _decide(memory, same, clashing, draft)
    return _resolve(memory, clashing, draft)


def _lasts(memory: Memory, other: Memory) -> bool:
    """Whether a memory is to be found for at least as long as another."""
    if memory.expires_at is None or other.expires_at is None:
        return memory.expires_at is None
    return memory.expires_at >= other.expires_at


def _decide(
    memory: Memory, same: list[Memory], clashing: list[Memory], draft: _Draft
) -> list[Change]:
    """Let the later claim win, unless it is trusted less: then keep both."""
    beliefs = draft.beliefs
    mine = beliefs.trust(memory)
    newer = [one for one in clashing if one.said_at > memory.said_at]
    ending = [one for one in newer if beliefs.trust(one) >= mine]
    if ending:
        # A late report is history already: the oldest of the later claims ended it.
        by = min(ending, key=lambda other: other.said_at)
        return [Add(_outdated(memory, by), rule=LATE_REPORT)]
    superseded = [one for one in clashing if one not in newer and beliefs.trust(one) <= mine]
    staying = [one for one in clashing if one not in superseded]
    if staying:
        both = Resolution(_question_id(memory, staying), Choice.KEEP_BOTH, TRUST, draft.now)
        draft.decisions.append(Decision(both, (memory.id, *(other.id for other in staying))))
    outlived = [one for one in same if _lasts(memory, one)]
    return _replace([*superseded, *outlived], memory, beliefs, LATER)


def _question_id(memory: Memory, clashing: Sequence[Memory]) -> str:
    """Return the id of the question which of these holds."""
    return derived_id("q", memory.id, *sorted(other.id for other in clashing))


def _resolve(memory: Memory, clashing: list[Memory], draft: _Draft) -> list[Change]:
    """Apply the answer, or a policy that needs none, to a contradiction; ask if there
    is neither.
    """
    clashing = sorted(clashing, key=draft.beliefs.trust, reverse=True)
    question_id = _question_id(memory, clashing)
    by_policy = draft.settling.policy.choice
    resolution = draft.settling.resolutions.get(question_id)
    # Above 0 if the stored claim is trusted more than the new one.
    above = draft.beliefs.trust(clashing[0]) - draft.beliefs.trust(memory)
    if resolution is None and by_policy is not None:
        resolution = Resolution(question_id, by_policy, "policy", draft.now)
    # Only a person's answer lifts what is trusted less over what is trusted more.
    if resolution is not None and resolution.decided_by in ("policy", EXPIRY):
        less = Choice.KEEP_NEW if above > 0 else Choice.KEEP_EXISTING
        if above and resolution.choice is less:
            resolution = Resolution(question_id, Choice.KEEP_BOTH, TRUST, draft.now)
    if resolution is None:
        if len(draft.questions) < draft.settling.questions_max:
            reason, recommended = _recommendation(memory, clashing, above)
            shown = tuple(clashing[:SIDES_MAX])
            draft.questions.append(Question(question_id, memory, shown, reason, recommended))
        return []
    changes, also = _chosen(resolution, memory, clashing, draft.beliefs)
    touched = (memory.id, *(other.id for other in clashing), *also)
    draft.decisions.append(Decision(resolution, touched))
    return changes


def _chosen(
    resolution: Resolution, memory: Memory, clashing: list[Memory], beliefs: Beliefs
) -> tuple[list[Change], tuple[str, ...]]:
    """Return the changes, and the ids of memories that only the choice created."""
    match resolution.choice:
        case Choice.KEEP_EXISTING:
            return [Add(_outdated(memory, clashing[0]), rule=resolution.choice)], ()
        case Choice.KEEP_NEW:
            return _replace(clashing, memory, beliefs, resolution.choice), ()
        case Choice.KEEP_BOTH:
            beliefs.add(memory)
            return [Add(memory, rule=resolution.choice)], ()
        case Choice.MERGE:
            assert resolution.text is not None
            merged = replace(
                memory,
                id=derived_id("mem", memory.id, resolution.question_id, resolution.text),
                text=resolution.text,
                fact=None,
                extractor=PERSON,
            )
            also = tuple(other.citation for other in clashing)
            beliefs.inherit_witnesses(merged, [memory, *clashing])
            changes = _replace(clashing, merged, beliefs, resolution.choice, also=also)
            outdated = Add(_outdated(memory, merged), rule=resolution.choice)
            return [*changes, outdated], (merged.id,)


def _replace(
    old: list[Memory],
    new: Memory,
    beliefs: Beliefs,
    rule: str,
    *,
    also: tuple[Citation, ...] = (),
) -> list[Change]:
    beliefs.add(new)
    return [Add(new, also, rule if old else ""), *_supersede(old, new, new, beliefs, rule)]


def _supersede(
    old: list[Memory], by: Memory, said: Memory, beliefs: Beliefs, rule: str
) -> list[Change]:
    """Supersede `old` by `by`, because of the statement `said`."""
    for other in old:
        beliefs.drop(other)
    return [Supersede(other.id, by.id, _end_of(other, said), rule) for other in old]


def _recommendation(memory: Memory, clashing: list[Memory], above: int) -> tuple[str, Choice]:
    """Return the reason of a question and the side that the evidence favours: the more trusted,
    else the later claim, unless it is much less certain.
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
    if above:
        less = "new" if above > 0 else "old"
        reason += f" The {less} one rests on what a program fetched or a model said."
        return reason, Choice.KEEP_EXISTING if above > 0 else Choice.KEEP_NEW
    later = all(memory.said_at >= other.said_at for other in clashing)
    surer = all(memory.confidence >= other.confidence - SURE for other in clashing)
    return reason, Choice.KEEP_NEW if later and surer else Choice.KEEP_EXISTING


async def _with_stored_text(tx: Transaction, questions: Sequence[Question]) -> tuple[Question, ...]:
    """Return the questions with the exact text of the stored memories."""
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
    """Return when the older claim ceased to hold: the start of the newer one, if that is later;
    never before its own start.
    """
    ended = new.valid_from if new.valid_from > old.valid_from else new.said_at
    return max(ended, old.valid_from)


def _memory(episode: Episode, candidate: Candidate, extractor: str, now: datetime) -> Memory:
    span = candidate.span
    turn = turn_at(episode.turns, span.start)
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
        source=episode.source,
        extractor=extractor,
        container=episode.container,
        expires_at=episode.expires_at,
        layer=layer_of(candidate.type),
    )


def _witness(episode: Episode, span: Span) -> Witness:
    """Return the witness of a span; of several speakers, the least trusted."""
    source = (episode.source.session_id, episode.source.agent_id)
    speakers = [turn.speaker for turn in turns_at(episode.turns, span)] or [None]
    return least_trusted([Witness(episode.id, span, speaker, *source) for speaker in speakers])
