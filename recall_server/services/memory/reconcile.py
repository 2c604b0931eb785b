"""What an extractor proposes and what is known, made into a plan (FEATURES C07, F01, F07).

A stated correction, an exact duplicate and a multi-valued attribute settle themselves. Any other
contradiction is settled by policy: *decide* lets the claim stated later win, *ask* makes a question
of it, the others always choose the same. What is less trusted replaces nothing that is trusted
more, unless somebody says so (SECURITY LLM-03): both stay, and it is noted that they contradict.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from recall_server.domain.attributes import canonical
from recall_server.domain.contradiction import Verdict, compare
from recall_server.domain.episode import Citation, Episode, Span
from recall_server.domain.extraction import Candidate
from recall_server.domain.ids import derived_id
from recall_server.domain.memory import Memory, Status
from recall_server.domain.plan import (
    PERSON,
    Add,
    Change,
    Choice,
    Decision,
    Plan,
    Policy,
    Question,
    Resolution,
    Settling,
    Supersede,
)
from recall_server.domain.security.trust import Witness, least_trusted
from recall_server.domain.text.transcript import turn_at
from recall_server.services.memory.beliefs import Beliefs
from recall_server.storage.store import Transaction

# So much less confidence in the newer claim speaks for the older one.
SURE = 0.2
# Who decided that both stay, where the one that would win is trusted less.
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
) -> Plan:
    """What to change so that `candidates` are remembered, given what `tx` sees; and what to ask
    before that, if `settling` (by default: decide) leaves a contradiction open.

    A candidate that was made into a memory before, whatever became of it, is passed over: working
    through an episode twice adds nothing, and brings nothing back. Of one that is `new`, and not
    kept yet, nothing can have been made.
    """
    proposals: dict[str, tuple[Candidate, Memory]] = {}
    for proposed in candidates:
        fact = proposed.fact
        candidate = replace(proposed, fact=canonical(fact) if fact else None)
        memory = _memory(episode, candidate, extractor, now)
        proposals.setdefault(memory.id, (candidate, memory))
    before = {} if new else await tx.memories.get(list(proposals))
    draft = _Draft(Beliefs(tx), settling or Settling(), now)
    for memory_id, (candidate, memory) in proposals.items():
        if memory_id not in before:
            draft.beliefs.add_witness(memory, _witness(episode, candidate.span))
            draft.changes += await _settle(candidate, memory, draft)
    return Plan(tuple(draft.changes), await _quoted(tx, draft.questions), tuple(draft.decisions))


@dataclass
class _Draft:
    """The plan as far as it has come."""

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
        elif verdict is Verdict.CLASHES:
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
            given_way = [one for one in weaker if one.said_at <= memory.said_at]
            return [
                *beliefs.reinforce(other, memory),
                *_supersede(given_way, other, memory, beliefs),
            ]
    if not clashing:
        # Said on better evidence than it was: the better words are kept.
        return _replace(same, memory, beliefs)
    if decide:
        return _decide(memory, same, clashing, draft)
    return _resolve(memory, clashing, draft)


def _decide(
    memory: Memory, same: list[Memory], clashing: list[Memory], draft: _Draft
) -> list[Change]:
    """The claim that was said later wins, unless it is trusted less: then both stay."""
    beliefs = draft.beliefs
    mine = beliefs.trust(memory)
    newer = [one for one in clashing if one.said_at > memory.said_at]
    ending = [one for one in newer if beliefs.trust(one) >= mine]
    if ending:
        # Told late: it is history already, and the oldest of what came after it ended it.
        return [Add(_outdated(memory, min(ending, key=lambda other: other.said_at)))]
    giving_way = [one for one in clashing if one not in newer and beliefs.trust(one) <= mine]
    staying = [one for one in clashing if one not in giving_way]
    if staying:
        both = Resolution(_asked(memory, staying), Choice.KEEP_BOTH, TRUST, draft.now)
        draft.decisions.append(Decision(both, (memory.id, *(other.id for other in staying))))
    return _replace([*giving_way, *same], memory, beliefs)


def _asked(memory: Memory, clashing: Sequence[Memory]) -> str:
    """The id of the question which of these holds."""
    return derived_id("q", memory.id, *sorted(other.id for other in clashing))


def _resolve(memory: Memory, clashing: list[Memory], draft: _Draft) -> list[Change]:
    """What the answer, or a policy that needs none, makes of a contradiction; a question where
    there is neither.
    """
    clashing = sorted(clashing, key=draft.beliefs.trust, reverse=True)
    question_id = _asked(memory, clashing)
    by_policy = draft.settling.policy.choice
    resolution = draft.settling.resolutions.get(question_id)
    # Above 0 where what is known is trusted more than what is new.
    above = draft.beliefs.trust(clashing[0]) - draft.beliefs.trust(memory)
    if resolution is None and by_policy is not None:
        resolution = Resolution(question_id, by_policy, "policy", draft.now)
        if above and by_policy is (Choice.KEEP_NEW if above > 0 else Choice.KEEP_EXISTING):
            resolution = Resolution(question_id, Choice.KEEP_BOTH, TRUST, draft.now)
    if resolution is None:
        reason, recommended = _weighed(memory, clashing, above)
        draft.questions.append(Question(question_id, memory, tuple(clashing), reason, recommended))
        return []
    changes, also = _chosen(resolution, memory, clashing, draft.beliefs)
    touched = (memory.id, *(other.id for other in clashing), *also)
    draft.decisions.append(Decision(resolution, touched))
    return changes


def _chosen(
    resolution: Resolution, memory: Memory, clashing: list[Memory], beliefs: Beliefs
) -> tuple[list[Change], tuple[str, ...]]:
    """The changes, and the ids of memories that only the choice brought about."""
    match resolution.choice:
        case Choice.KEEP_EXISTING:
            return [Add(_outdated(memory, clashing[0]))], ()
        case Choice.KEEP_NEW:
            return _replace(clashing, memory, beliefs), ()
        case Choice.KEEP_BOTH:
            beliefs.add(memory)
            return [Add(memory)], ()
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
            given_way = _replace(clashing, merged, beliefs, also=also)
            return [*given_way, Add(_outdated(memory, merged))], (merged.id,)


def _replace(
    old: list[Memory], new: Memory, beliefs: Beliefs, *, also: tuple[Citation, ...] = ()
) -> list[Change]:
    beliefs.add(new)
    return [Add(new, also), *_supersede(old, new, new, beliefs)]


def _supersede(old: list[Memory], by: Memory, said: Memory, beliefs: Beliefs) -> list[Change]:
    """`old` gives way to `by`, because of what was `said`."""
    for other in old:
        beliefs.drop(other)
    return [Supersede(other.id, by.id, _end_of(other, said)) for other in old]


def _weighed(memory: Memory, clashing: list[Memory], above: int) -> tuple[str, Choice]:
    """Why nobody can tell, and which side the evidence leans to: to what is trusted more, else to
    what was said later, unless it is much less sure.
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
        session_id=episode.source.session_id,
        agent_id=episode.source.agent_id,
        extractor=extractor,
        container=episode.container,
    )


def _witness(episode: Episode, span: Span) -> Witness:
    """Whose words a span of an episode is; where several speak, those of the least trusted."""
    source = (episode.source.session_id, episode.source.agent_id)
    speakers = [turn.speaker for turn in episode.turns if turn.span.overlaps(span)] or [None]
    return least_trusted([Witness(episode.id, span, speaker, *source) for speaker in speakers])
