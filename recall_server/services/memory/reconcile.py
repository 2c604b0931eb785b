"""Makes a plan from an extractor's candidates and the stored memories.

A stated correction, an exact duplicate and a multi-valued attribute settle themselves. The policy
settles any other contradiction: *decide* lets the later claim win; *ask* makes it a question, or a
dispute if nobody waits for a question; each of the others always chooses the same side. A less
trusted claim never replaces a more trusted one unless a person says so: both stay, and the
contradiction is recorded.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TypeGuard

from recall_server.domain.attributes import canonical
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
    Dispute,
    Plan,
    Policy,
    Question,
    Relation,
    RelationKind,
    Resolution,
    Restore,
    Rule,
    Ruling,
    Settle,
    Settling,
    Supersede,
)
from recall_server.domain.similarity import Verdict, compare
from recall_server.domain.text.transcript import turn_at, turns_at
from recall_server.domain.trust import Witness, least_trusted
from recall_server.services.memory.beliefs import Beliefs, end_of, outdated, place, stated
from recall_server.storage.store import Transaction


@dataclass(frozen=True)
class Corrected:
    """A memory that somebody says is wrong. `by_hand`: the correction may replace it even if it is
    trusted more.
    """

    memory: Memory
    by_hand: bool = False


# How many contradicted memories a question shows and a decision names. An answer still applies to
# all of them.
SIDES_MAX = 10
# A newer claim is not recommended if its confidence is lower by more than this.
SURE = 0.2
# `decided_by` of a decision to keep both because the later claim is trusted less.
TRUST = "trust"


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
    corrected: Corrected | None = None,
) -> Plan:
    """Return the changes that make `candidates` memories, given what `tx` sees, and the questions
    that `settling` (by default: decide) leaves open.

    A candidate that was made into a memory before is skipped, whatever became of that memory: a
    repetition adds nothing and restores nothing.

    `new`: the episode is not stored yet, so no such memory can exist.
    `without`: active memories to ignore.
    `corrected`: the memory that the first candidate replaces.
    """
    proposals = _proposals(episode, candidates, extractor, now)
    before = {} if new else await tx.memories.get(list(proposals), quoted=False)
    draft = _Draft(Beliefs(tx), settling or Settling(), now)
    for one in without:
        draft.beliefs.drop(one.id)
    most, left = draft.settling.changes_max, list[Candidate]()
    for memory_id, (candidate, memory) in proposals.items():
        if memory_id in before:
            continue
        if most is not None and draft.size >= most:
            left.append(candidate)
        else:
            draft.beliefs.set_witnesses(memory, [_witness(episode, candidate.span)])
            draft.changes += await _settle(candidate, memory, draft, corrected)
            corrected = None
    ids = {other.id for question in draft.questions for other in question.existing}
    stored = await tx.memories.get(sorted(ids)) if ids else {}
    # With the exact text of the stored memories.
    questions = [
        replace(one, existing=tuple(stored.get(other.id, other) for other in one.existing))
        for one in draft.questions
    ]
    return replace(draft.plan(draft.changes, questions), left=tuple(left))


async def settling(tx: Transaction) -> Settling:
    """Return how contradictions are settled when nobody waits for an answer: by the policy of the
    namespace, where *ask* opens disputes.
    """
    return Settling(await tx.access.policy() or Policy.DECIDE, disputes=True)


async def restored(
    tx: Transaction,
    forgotten: Memory,
    now: datetime,
    settling: Settling | None = None,
    corrected: Memory | None = None,
) -> Plan:
    """Return the changes that restore a forgotten memory. It is settled with what was stated since,
    as if it were stated only now. It replaces `corrected`, if that is given.
    """
    memory = replace(forgotten, status=Status.ACTIVE, retired_at=None, superseded_by=None)
    draft = _Draft(Beliefs(tx), settling or Settling(), now, stored=True)
    candidate = stated(memory)
    related = await draft.beliefs.related(candidate)
    same: Sequence[Memory] = [one for one in related if compare(candidate, one) is Verdict.SAME]
    same = same or await draft.beliefs.similar_statement(memory)
    if same and corrected is None:
        return Plan((Restore(replace(outdated(memory, same[0]), retired_at=now)),))
    await draft.beliefs.load_witnesses([memory])
    by_hand = Corrected(corrected, by_hand=True) if corrected else None
    changes = await _settle(candidate, memory, draft, by_hand)
    made = [one for one in changes if not _adds(one, memory)]
    added = [one.memory for one in changes if isinstance(one, Add) and one not in made]
    if not added:
        # A known memory says the same already and supersedes the restored one.
        by = {one.by for one in changes if isinstance(one, Supersede)}
        added = [outdated(memory, one) for one in same if one.id in by]
    again = added[0]
    if again.status is not Status.ACTIVE:
        again = replace(again, retired_at=now)
    return draft.plan([Restore(again), *made])


async def arrived(
    tx: Transaction,
    memory: Memory,
    beside: Collection[str],
    now: datetime,
    settling: Settling | None = None,
) -> Plan:
    """Return the changes that settle an imported memory, stored as active, with what was known here
    before: with all memories except `beside`, those of the same import.
    """
    draft = _Draft(Beliefs(tx), settling or Settling(), now, stored=True)
    for one in (memory.id, *beside):
        draft.beliefs.drop(one)
    candidate = stated(memory)
    verdicts = {compare(candidate, one) for one in await draft.beliefs.related(candidate)}
    if Verdict.SAME in verdicts or Verdict.CLASHES not in verdicts:
        return Plan()
    await draft.beliefs.load_witnesses([memory])
    return draft.plan(_of_stored(memory, await _settle(candidate, memory, draft)))


def _of_stored(memory: Memory, changes: Sequence[Change]) -> list[Change]:
    """Return the changes if a memory is stored already: what would add it as superseded supersedes
    it.
    """
    made: list[Change] = []
    for change in changes:
        if not _adds(change, memory):
            made.append(change)
        elif change.memory.superseded_by and change.memory.valid_until:
            by, until = change.memory.superseded_by, change.memory.valid_until
            made.append(Supersede(memory.id, by, until, change.rule))
    return made


def _adds(change: Change, memory: Memory) -> TypeGuard[Add]:
    return isinstance(change, Add) and change.memory.id == memory.id


async def answered(
    tx: Transaction, question: Question, resolution: Resolution, now: datetime
) -> Plan:
    """Return the changes that settle a dispute as the answer says."""
    draft, new = _Draft(Beliefs(tx), Settling(), now), question.new
    existing = list(question.existing)
    await draft.beliefs.load_witnesses([new, *existing])
    changes, also = _chosen(resolution, new, existing, draft.beliefs)
    touched = (new.id, *(other.id for other in existing), *also)
    draft.decisions.append(Decision(resolution, touched))
    made = [
        replace(one, memory=replace(one.memory, status=Status.ACTIVE, recorded_at=now))
        if isinstance(one, Add)
        else one
        for one in _of_stored(new, changes)
    ]
    return draft.plan([Settle(question.id), *made])


async def question_of(
    tx: Transaction, dispute_id: str, new: Memory, existing: Sequence[Memory]
) -> Question:
    """Return the question which side of a dispute holds, its existing memories ordered by trust,
    the most trusted first.
    """
    beliefs = Beliefs(tx)
    await beliefs.load_witnesses([new, *existing])
    ordered = sorted(existing, key=beliefs.trust, reverse=True)
    above = beliefs.trust(ordered[0]) - beliefs.trust(new)
    reason, recommended = _recommendation(new, ordered, above)
    return Question(dispute_id, new, tuple(ordered), reason, recommended)


def proposed(
    episode: Episode, candidates: Sequence[Candidate], extractor: str, now: datetime
) -> dict[str, Memory]:
    """Return the memories that candidates of an episode become, by id."""
    proposals = _proposals(episode, candidates, extractor, now)
    return {memory_id: memory for memory_id, (_, memory) in proposals.items()}


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


async def rivals(tx: Transaction, memory: Memory, beliefs: Beliefs | None = None) -> list[Memory]:
    """Return the active memories that contradict an active one. With `beliefs` what is read of a
    matter is read once.
    """
    if memory.fact is None:
        return []
    candidate = stated(memory)
    related = await (beliefs or Beliefs(tx)).related(candidate)
    return [
        one for one in related if one.id != memory.id and compare(candidate, one) is Verdict.CLASHES
    ]


@dataclass
class _Draft:
    beliefs: Beliefs
    settling: Settling
    now: datetime
    # The statement is a memory already.
    stored: bool = False
    changes: list[Change] = field(default_factory=list)
    questions: list[Question] = field(default_factory=list)
    decisions: list[Decision] = field(default_factory=list)
    relations: list[Relation] = field(default_factory=list)
    rulings: list[Ruling] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number of changes, and of the relations and decided sides that they bring."""
        decided = sum(len(one.memory_ids) for one in self.decisions)
        return len(self.changes) + len(self.relations) + decided

    def plan(self, changes: Sequence[Change], questions: Sequence[Question] = ()) -> Plan:
        return Plan(
            tuple(changes),
            tuple(questions),
            tuple(self.decisions),
            tuple(self.relations),
            tuple(self.rulings),
        )

    def rule(
        self,
        memory: Memory,
        rule: Rule,
        same: Sequence[Memory] = (),
        clashing: Sequence[Memory] = (),
    ) -> None:
        self.rulings.append(Ruling(memory, rule, tuple(same), tuple(clashing)))

    def named(self, clashing: Sequence[Memory]) -> list[Memory]:
        """Return the contradicting memories that a record names: `SIDES_MAX` at most, the most
        trusted and then the newest first, as each of them adds a row.
        """
        ordered = sorted(
            clashing, key=lambda one: (self.beliefs.trust(one), one.recorded_at, one.id)
        )
        near = {one.id for one in ordered[-SIDES_MAX:]}
        return [one for one in clashing if one.id in near]

    def relate(self, memory: Memory, kind: RelationKind, others: Sequence[Memory]) -> None:
        self.relations += [Relation.by_rule(memory, kind, one, self.now) for one in others]


async def _settle(
    candidate: Candidate, memory: Memory, draft: _Draft, corrected: Corrected | None = None
) -> list[Change]:
    beliefs = draft.beliefs
    same, clashing = await _compared(candidate, memory, beliefs, corrected)
    mine = beliefs.trust(memory)
    trusted = all(beliefs.trust(other) <= mine for other in clashing)
    if corrected and (corrected.by_hand or trusted):
        return _correct(memory, same, clashing, draft)
    decide = draft.settling.policy is Policy.DECIDE or (candidate.correction and trusted)
    if (decide or not clashing) and (
        placed := await place(memory, same, clashing, beliefs, stored=draft.stored)
    ):
        draft.rule(memory, placed.rule, same, [*clashing, *placed.before])
        draft.relate(memory, RelationKind.DUPLICATES, placed.duplicates)
        return list(placed.changes)
    for other in same:
        if beliefs.trust(other) >= mine:
            weaker = [one for one in clashing if beliefs.trust(one) < mine] if decide else []
            superseded = [one for one in weaker if one.said_at <= memory.said_at]
            draft.rule(memory, Rule.RESTATED, same, clashing)
            return [
                *beliefs.reinforce(other, memory),
                *_supersede(superseded, other, memory, beliefs, Rule.LATER),
            ]
    if not clashing:
        # It is stated again on better evidence, so the new words replace the stored ones.
        outlived = [one for one in same if _lasts(memory, one)]
        draft.relate(memory, RelationKind.DUPLICATES, outlived)
        draft.rule(memory, Rule.RESTATED if same else Rule.NEW, same)
        return _replace(outlived, memory, beliefs, Rule.RESTATED)
    if decide:
        stated = Rule.STATED_CORRECTION if candidate.correction else Rule.LATER
        return await _decide(memory, same, clashing, draft, stated)
    return _resolve(memory, clashing, draft)


async def _compared(
    candidate: Candidate, memory: Memory, beliefs: Beliefs, corrected: Corrected | None
) -> tuple[list[Memory], list[Memory]]:
    """Return what says the same and what contradicts it, with their witnesses loaded."""
    same: list[Memory] = []
    clashing = [corrected.memory] if corrected else []
    for other in await beliefs.related(candidate):
        verdict = compare(candidate, other)
        if corrected and other.id == corrected.memory.id:
            continue
        if verdict is Verdict.SAME:
            same.append(other)
        # A memory that expires first ends nothing: the other holds again afterwards.
        elif verdict is Verdict.CLASHES and _lasts(memory, other):
            clashing.append(other)
    if not clashing and not same:
        same = await beliefs.similar_statement(memory)
    await beliefs.load_witnesses([*same, *clashing])
    return same, clashing


def _correct(
    memory: Memory, same: list[Memory], clashing: list[Memory], draft: _Draft
) -> list[Change]:
    """Replace what is corrected with the correction, or with a memory that says the same already
    and is trusted at least as much.
    """
    beliefs = draft.beliefs
    draft.rule(memory, Rule.ASKED_FOR, same, clashing)
    by = next((one for one in same if beliefs.trust(one) >= beliefs.trust(memory)), None)
    if by is None:
        return _replace([*clashing, *same], memory, beliefs, Rule.ASKED_FOR)
    superseded = _supersede(clashing, by, memory, beliefs, Rule.ASKED_FOR)
    return [*beliefs.reinforce(by, memory), *superseded]


def _lasts(memory: Memory, other: Memory) -> bool:
    """True if a memory expires no earlier than another."""
    if memory.expires_at is None or other.expires_at is None:
        return memory.expires_at is None
    return memory.expires_at >= other.expires_at


async def _decide(
    memory: Memory, same: list[Memory], clashing: list[Memory], draft: _Draft, rule: Rule
) -> list[Change]:
    """Let the later claim win, unless it is trusted less: then keep both."""
    beliefs = draft.beliefs
    mine = beliefs.trust(memory)
    newer = [one for one in clashing if one.said_at > memory.said_at]
    ending = [one for one in newer if beliefs.trust(one) >= mine]
    if ending:
        # A late report is already history.
        by = min(ending, key=lambda one: (one.said_at, one.id))
        draft.rule(memory, Rule.LATE_REPORT, same, clashing)
        return [Add(outdated(memory, by), rule=Rule.LATE_REPORT)]
    superseded = [one for one in clashing if one not in newer and beliefs.trust(one) <= mine]
    staying = [one for one in clashing if one not in superseded]
    if staying:
        both = Resolution(_question_id(memory, staying), Choice.KEEP_BOTH, TRUST, draft.now)
        named = draft.named(staying)
        draft.decisions.append(Decision(both, (memory.id, *(other.id for other in named))))
        draft.relate(memory, RelationKind.CONTRADICTS, named)
    draft.rule(memory, Rule.LESS_TRUSTED if staying else rule, same, clashing)
    outlived = [one for one in same if _lasts(memory, one)]
    draft.relate(memory, RelationKind.DUPLICATES, outlived)
    return _replace([*superseded, *outlived], memory, beliefs, rule)


def _question_id(memory: Memory, clashing: Sequence[Memory]) -> str:
    """Return the id of the question which of these memories holds."""
    return derived_id("q", memory.id, *sorted(other.id for other in clashing))


def _resolve(memory: Memory, clashing: list[Memory], draft: _Draft) -> list[Change]:
    """Settle a contradiction by its answer, or by a policy that needs none; else ask, or open a
    dispute.
    """
    clashing = sorted(clashing, key=draft.beliefs.trust, reverse=True)
    question_id = _question_id(memory, clashing)
    named = draft.named(clashing)
    by_policy = draft.settling.policy.choice
    resolution = draft.settling.resolutions.get(question_id)
    # Above 0 if the stored claim is trusted more than the new one.
    above = draft.beliefs.trust(clashing[0]) - draft.beliefs.trust(memory)
    if resolution is None and by_policy is not None:
        resolution = Resolution(question_id, by_policy, "policy", draft.now)
    # Only a person's answer lets a less trusted claim replace a more trusted one.
    if resolution is not None and resolution.decided_by in ("policy", EXPIRY):
        less = Choice.KEEP_NEW if above > 0 else Choice.KEEP_EXISTING
        if above and resolution.choice is less:
            resolution = Resolution(question_id, Choice.KEEP_BOTH, TRUST, draft.now)
    if resolution is None and draft.settling.disputes and above > 0:
        # A less trusted claim, such as fetched text, puts no more trusted one in dispute.
        resolution = Resolution(question_id, Choice.KEEP_BOTH, TRUST, draft.now)
    if resolution is None and draft.settling.disputes:
        draft.rule(memory, Rule.DISPUTE, clashing=clashing)
        draft.relate(memory, RelationKind.CONTRADICTS, named)
        draft.beliefs.add(memory)
        # Each time that these contradict each other is a new dispute, with its own answer.
        dispute_id = derived_id("q", question_id, draft.now.isoformat())
        return [
            Add(memory, rule=Rule.DISPUTE),
            Dispute(dispute_id, memory.id, tuple(one.id for one in named)),
        ]
    if resolution is None:
        if len(draft.questions) < draft.settling.questions_max:
            reason, recommended = _recommendation(memory, clashing, above)
            shown = tuple(clashing[:SIDES_MAX])
            draft.questions.append(Question(question_id, memory, shown, reason, recommended))
        return []
    changes, also = _chosen(resolution, memory, clashing, draft.beliefs)
    touched = (memory.id, *(other.id for other in named), *also)
    draft.decisions.append(Decision(resolution, touched))
    by = {"policy": Rule.POLICY, TRUST: Rule.LESS_TRUSTED}
    draft.rule(memory, by.get(resolution.decided_by, Rule.ANSWER), clashing=clashing)
    if resolution.choice is Choice.KEEP_BOTH:
        draft.relate(memory, RelationKind.CONTRADICTS, named)
    return changes


def _chosen(
    resolution: Resolution, memory: Memory, clashing: list[Memory], beliefs: Beliefs
) -> tuple[list[Change], tuple[str, ...]]:
    """Return the changes, and the ids of memories that only the choice created."""
    match resolution.choice:
        case Choice.KEEP_EXISTING:
            return [Add(outdated(memory, clashing[0]), rule=resolution.choice)], ()
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
            given_way = Add(outdated(memory, merged), rule=resolution.choice)
            return [*changes, given_way], (merged.id,)


def _replace(
    old: list[Memory], new: Memory, beliefs: Beliefs, rule: str, *, also: tuple[Citation, ...] = ()
) -> list[Change]:
    beliefs.add(new)
    return [Add(new, also, rule if old else ""), *_supersede(old, new, new, beliefs, rule)]


def _supersede(
    old: list[Memory], by: Memory, said: Memory, beliefs: Beliefs, rule: str
) -> list[Change]:
    """Supersede `old` by `by`, because of the statement `said`."""
    for other in old:
        beliefs.drop(other.id)
    return [Supersede(other.id, by.id, end_of(other, said), rule) for other in old]


def _recommendation(memory: Memory, clashing: Sequence[Memory], above: int) -> tuple[str, Choice]:
    """Return the reason of a question and the side that the evidence favours: the more trusted
    claim, or at equal trust the later one, unless it is much less certain.
    """
    new, old = memory.fact, clashing[0].fact
    if new is None or old is None:
        reason = "One is said to correct the other."
    elif new.negated != old.negated:
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
    """Return the witness of a span: of several speakers, the least trusted."""
    source = (episode.source.session_id, episode.source.agent_id)
    speakers = [turn.speaker for turn in turns_at(episode.turns, span)] or [None]
    return least_trusted([Witness(episode.id, span, speaker, *source) for speaker in speakers])
