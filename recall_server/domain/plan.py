"""A change of memory as a value: made by rules, shown as a dry run, applied in one transaction.

If no rule decides, the plan has questions and waits for a resolution of each.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Self

from recall_server.domain.episode import Citation
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Memory
from recall_server.domain.memory_event import Histories
from recall_server.domain.permissions import Scope

PERSON = "person"
"""The name in `extractor` of a memory that a person wrote as the answer to a question."""
EXPIRY = "expiry"
"""`decided_by` of a question that nobody answered in time."""


class RelationKind(StrEnum):
    """The relation of the memory `from_id` to the memory `to_id`."""

    EXTENDS = "extends"
    SUPERSEDES = "supersedes"
    CONTRADICTS = "contradicts"
    REFINES = "refines"
    EXCEPTION_TO = "exception_to"
    CONSOLIDATES = "consolidates"
    DUPLICATES = "duplicates"


class Reason(StrEnum):
    """The origin of a relation: a rule of reconciliation, a merge, or a caller."""

    RULE = "rule"
    MERGE = "merge"
    HAND = "hand"


BY_HAND = frozenset(RelationKind) - {RelationKind.SUPERSEDES}
"""The relations that a caller may state. Supersession follows from changes of memory only."""


@dataclass(frozen=True)
class Relation:
    """A directed relation between two memories. `made_by`: the token that stated it, if any."""

    from_id: str
    to_id: str
    kind: RelationKind
    reason: Reason
    made_at: datetime
    confidence: float = 1.0
    made_by: str | None = None

    @classmethod
    def by_rule(cls, memory: Memory, kind: RelationKind, other: Memory, now: datetime) -> Self:
        """Return the relation that a rule finds, as sure as the less certain of the two."""
        sure = min(memory.confidence, other.confidence)
        return cls(memory.id, other.id, kind, Reason.RULE, now, sure)

    @property
    def inbound(self) -> str:
        """The reason that the event of `to_id` has."""
        return f"inbound {self.kind}"

    def standing(self, histories: Histories) -> Self | None:
        """Return the relation as it was last stated by a change that still stands; None if all
        changes that stated it were taken back. A relation without events came with a memory, and
        stands as long as the memory does.
        """
        ends = histories.related(self.to_id, self.inbound)
        stated = [
            one
            for change_id, one in histories.related(self.from_id, self.kind).items()
            if change_id in ends
        ]
        if not stated:
            return self
        stands = [one for one in stated if one.change_id not in histories.taken_back]
        return replace(self, made_at=stands[0].at, made_by=stands[0].accessor) if stands else None


class ProposalKind(StrEnum):
    """The proposed action: remember, correct or forget something, change a memory by hand
    (`UPDATE`), or add a memory that a model extracted and doubts (`EXTRACT`).
    """

    REMEMBER = "remember"
    CORRECT = "correct"
    UPDATE = "update"
    FORGET = "forget"
    EXTRACT = "extract"

    @property
    def scope(self) -> Scope:
        """The scope that a token needs to answer it."""
        return {ProposalKind.FORGET: Scope.FORGET, ProposalKind.UPDATE: Scope.EDIT}.get(
            self, Scope.WRITE
        )


@dataclass(frozen=True)
class Proposal:
    """A proposed change.

    `new`: the ids of the memories that it would add; until then nothing finds them.
    `targets`: the ids of the memories that it would replace or forget.
    `closed_at`: when it was answered or withdrawn.
    """

    id: str
    kind: ProposalKind
    new: tuple[str, ...]
    targets: tuple[str, ...]
    made_by: str | None
    opened_at: datetime
    closed_at: datetime | None = None
    choice: str | None = None
    decided_by: str | None = None

    @property
    def whole(self) -> bool:
        """Whether all that it is about is there: of one that was taken in, a memory may be left
        out.
        """
        adds = self.kind is not ProposalKind.FORGET
        changes = self.kind not in {ProposalKind.REMEMBER, ProposalKind.EXTRACT}
        return bool(self.new) == adds and bool(self.targets) == changes


class Choice(StrEnum):
    KEEP_EXISTING = "keep_existing"
    KEEP_NEW = "keep_new"
    KEEP_BOTH = "keep_both"
    MERGE = "merge"


class Policy(StrEnum):
    """The policy for contradictions that no rule settles: ask a question, let the later claim win,
    or always choose the same side.
    """

    ASK = "ask"
    DECIDE = "decide"
    KEEP_EXISTING = "keep_existing"
    KEEP_NEW = "keep_new"
    KEEP_BOTH = "keep_both"

    @property
    def choice(self) -> Choice | None:
        """The fixed choice; None for ASK and DECIDE, which depend on the case."""
        return None if self in (Policy.ASK, Policy.DECIDE) else Choice(self.value)


@dataclass(frozen=True)
class Question:
    """A new statement, and the active memories that it contradicts.

    The id is derived from the memories: if one of them is superseded meanwhile, the id changes.
    """

    id: str
    new: Memory
    existing: tuple[Memory, ...]
    reason: str
    recommended: Choice


@dataclass(frozen=True)
class Resolution:
    """The answer to a question: the choice, its author and time; `text` with MERGE only. `reason`
    and `confidence` are those of a language model that judged.
    """

    question_id: str
    choice: Choice
    decided_by: str
    decided_at: datetime
    text: str | None = None
    reason: str | None = None
    confidence: float | None = None


@dataclass(frozen=True)
class Decision:
    """A resolution that took effect, and the memories it was about."""

    resolution: Resolution
    memory_ids: tuple[str, ...]


@dataclass(frozen=True)
class Settling:
    """How contradictions are settled: by the policy and the answers so far. A plan asks at most
    `questions_max` questions; the others are asked when these are answered. `disputes`: nobody
    waits for an answer, so both sides are kept as disputed instead of asking. With `changes_max`
    changes a plan is about no further candidate, so that it is applied in a short transaction.
    """

    policy: Policy = Policy.DECIDE
    resolutions: Mapping[str, Resolution] = field(default_factory=dict)
    questions_max: int = 50
    disputes: bool = False
    changes_max: int | None = None


@dataclass(frozen=True)
class Add:
    """Add a memory; one that was outdated before it was stated is added as superseded. `also`:
    further citations. `rule`: why it replaces another, or is added as superseded.
    """

    memory: Memory
    also: tuple[Citation, ...] = ()
    rule: str = ""


@dataclass(frozen=True)
class Supersede:
    """Replace a memory with another, by a `rule`. Expects the replaced memory to be believed."""

    memory_id: str
    by: str
    valid_until: datetime
    rule: str = ""


@dataclass(frozen=True)
class EndEarlier:
    """Let another memory take the place of a superseded one, from an earlier moment than before.
    Expects it to be superseded.
    """

    memory_id: str
    by: str
    valid_until: datetime


@dataclass(frozen=True)
class Reinforce:
    """Record that a memory was stated again, with the citation, unless it has enough of them.
    `counts`: this is independent evidence. The memory then lasts at least `until`; None: for ever.
    Expects it to be believed, or `superseded`: a late report of the time when it held.
    """

    memory_id: str
    citation: Citation | None
    counts: bool = True
    until: datetime | None = None
    superseded: bool = False


@dataclass(frozen=True)
class Forget:
    """Hide a memory and the words that it cites until it is restored. Expects it to be findable."""

    memory_id: str


@dataclass(frozen=True)
class Restore:
    """Undo `Forget`: store the memory as given. Expects it to be forgotten or held back."""

    memory: Memory


@dataclass(frozen=True)
class Dispute:
    """Mark two sides as disputed until somebody answers; `memory_id` is the new side. Expects all
    of them to be believed.
    """

    question_id: str
    memory_id: str
    existing: tuple[str, ...]


@dataclass(frozen=True)
class Settle:
    """End a dispute: its memories that are in no other dispute become active again. Expects it to
    be open.
    """

    question_id: str


@dataclass(frozen=True)
class Propose:
    """Store memories that nothing finds until somebody accepts the proposal. `hides_words`: the
    words that they cite are hidden too.
    """

    proposal: Proposal
    memories: tuple[Memory, ...] = ()
    hides_words: bool = True


Change = Add | Supersede | EndEarlier | Reinforce | Forget | Restore | Dispute | Settle | Propose

_COUNTED = {
    Add: "added",
    Supersede: "superseded",
    EndEarlier: "ended_earlier",
    Reinforce: "reinforced",
    Forget: "forgotten",
    Restore: "restored",
    Dispute: "disputed",
    Settle: "settled",
    Propose: "proposed",
}


class Rule(StrEnum):
    """The rule by which a plan decided about one statement. Memory events name it, or, if a
    question was answered, the choice.
    """

    NEW = "new"
    RESTATED = "restated"
    STATED_CORRECTION = "stated_correction"
    LATER = "later"
    LATE_REPORT = "late_report"
    LESS_TRUSTED = "less_trusted"
    POLICY = "policy"
    ANSWER = "answer"
    DISPUTE = "dispute"
    ASKED_FOR = "asked_for"


@dataclass(frozen=True)
class Ruling:
    """How one statement was decided: the rule, and the memories that it was compared with."""

    memory: Memory
    rule: Rule
    same: tuple[Memory, ...] = ()
    clashing: tuple[Memory, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Changes that are applied all or none, in this order, and only if there are no questions.
    `left`: the candidates that it is not about, as it has all changes that one plan may have.
    """

    changes: tuple[Change, ...] = ()
    questions: tuple[Question, ...] = ()
    decisions: tuple[Decision, ...] = ()
    relations: tuple[Relation, ...] = ()
    rulings: tuple[Ruling, ...] = ()
    left: tuple[Candidate, ...] = ()

    def digest(self) -> str:
        """Return a hash of the plan's effect: equal if it changes the same memories in the same
        way.

        Time and wording do not matter, as ids follow from content.
        """
        parts = [
            f"{_COUNTED[type(change)]} {changed}"
            for change, changed in zip(self.changes, self.ids(), strict=True)
        ]
        parts += [f"asks {question.id}" for question in self.questions]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def counts(self) -> dict[str, int]:
        """Return the number of changes of each kind, for the audit log."""
        return dict(Counter(_COUNTED[type(change)] for change in self.changes))

    def ids(self) -> list[str]:
        return [_id(change) for change in self.changes]

    def dated(self, planned_at: datetime, now: datetime) -> Self:
        """Return a plan that was made ahead of its turn as if it were made now."""
        if planned_at == now:
            return self

        def then(at: Any) -> Any:
            return now if at == planned_at else at

        def remade(one: Memory) -> Memory:
            recorded_at, retired_at = then(one.recorded_at), then(one.retired_at)
            return replace(one, recorded_at=recorded_at, retired_at=retired_at)

        def anew(change: Change) -> Change:
            match change:
                case Add(memory):
                    return replace(change, memory=remade(memory))
                case Supersede():
                    return replace(change, valid_until=then(change.valid_until))
                case Propose(proposal, memories):
                    opened = replace(proposal, opened_at=then(proposal.opened_at))
                    return replace(change, proposal=opened, memories=tuple(map(remade, memories)))
                case _:
                    return change

        def decided(one: Decision) -> Decision:
            resolution = one.resolution
            at = then(resolution.decided_at)
            return replace(one, resolution=replace(resolution, decided_at=at))

        return replace(
            self,
            changes=tuple(map(anew, self.changes)),
            decisions=tuple(map(decided, self.decisions)),
            relations=tuple(replace(one, made_at=then(one.made_at)) for one in self.relations),
        )


def _id(change: Change) -> str:
    match change:
        case Add(memory) | Restore(memory):
            return memory.id
        case Settle(question_id):
            return question_id
        case Propose(proposal):
            return proposal.id
        case _:
            return change.memory_id
