"""A change of memory as a value: made by rules, shown as a dry run, applied in one transaction.

Where no rule may decide, the plan asks (FEATURES C07, F02): it has questions, and waits for a
resolution of each.
"""

import hashlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from recall_server.domain.episode import Citation
from recall_server.domain.memory import Memory

PERSON = "person"
"""Stands for an extractor where somebody who was asked wrote the text of a memory."""


class Choice(StrEnum):
    """What may become of two statements that contradict each other."""

    KEEP_EXISTING = "keep_existing"
    KEEP_NEW = "keep_new"
    KEEP_BOTH = "keep_both"
    MERGE = "merge"


class Policy(StrEnum):
    """Who settles a contradiction that no rule settles: whoever is asked, the claim that was said
    later, or always the same side.
    """

    ASK = "ask"
    DECIDE = "decide"
    KEEP_EXISTING = "keep_existing"
    KEEP_NEW = "keep_new"
    KEEP_BOTH = "keep_both"

    @property
    def choice(self) -> Choice | None:
        """The choice it makes by itself; None for those that look at the case."""
        return None if self in (Policy.ASK, Policy.DECIDE) else Choice(self.value)


@dataclass(frozen=True)
class Question:
    """A new statement, and the active memories that it contradicts.

    Its id follows from the memories: should one of them give way meanwhile, it is another question.
    """

    id: str
    new: Memory
    existing: tuple[Memory, ...]
    reason: str
    recommended: Choice


@dataclass(frozen=True)
class Resolution:
    """The answer to a question: what was chosen, by whom and when; `text` with MERGE only."""

    question_id: str
    choice: Choice
    decided_by: str
    decided_at: datetime
    text: str | None = None


@dataclass(frozen=True)
class Decision:
    """A resolution that took effect, and the memories it was about."""

    resolution: Resolution
    memory_ids: tuple[str, ...]


@dataclass(frozen=True)
class Settling:
    """How contradictions are to be settled: the policy, and what has been answered."""

    policy: Policy = Policy.DECIDE
    resolutions: Mapping[str, Resolution] = field(default_factory=dict)


@dataclass(frozen=True)
class Add:
    """A new memory. One that was outdated before it was told arrives already superseded. `also`
    are further words that it rests on.
    """

    memory: Memory
    also: tuple[Citation, ...] = ()


@dataclass(frozen=True)
class Supersede:
    """An active memory gives way to another. Expects to find it active."""

    memory_id: str
    by: str
    valid_until: datetime


@dataclass(frozen=True)
class Reinforce:
    """An active memory has been stated again; `counts` where that is evidence besides what it
    rests on already. Expects to find it active.
    """

    memory_id: str
    citation: Citation
    counts: bool = True


@dataclass(frozen=True)
class Forget:
    """An active memory is no longer to be recalled. Expects to find it active."""

    memory_id: str


Change = Add | Supersede | Reinforce | Forget

_COUNTED = {Add: "added", Supersede: "superseded", Reinforce: "reinforced", Forget: "forgotten"}


@dataclass(frozen=True)
class Plan:
    """Changes that stand or fall together, in the order they are to be made; none may be made
    while it has questions.
    """

    changes: tuple[Change, ...] = ()
    questions: tuple[Question, ...] = ()
    decisions: tuple[Decision, ...] = ()

    def digest(self) -> str:
        """What the plan would do, in a word: equal where it rests on the same memories. When it
        is made, and in what words, does not matter: ids follow from content.
        """
        parts = [
            f"{_COUNTED[type(change)]} {changed}"
            for change, changed in zip(self.changes, self.ids(), strict=True)
        ]
        parts += [f"asks {question.id}" for question in self.questions]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def counts(self) -> dict[str, int]:
        """How many changes of each kind, for the book."""
        return dict(Counter(_COUNTED[type(change)] for change in self.changes))

    def citations(self) -> list[Citation]:
        """The words that the memories added or reinforced rest on."""
        cited: list[Citation] = []
        for change in self.changes:
            if isinstance(change, Add):
                cited += [change.memory.citation, *change.also]
            elif isinstance(change, Reinforce):
                cited.append(change.citation)
        return cited

    def ids(self) -> list[str]:
        """The memories that the plan touches."""
        return [
            change.memory.id if isinstance(change, Add) else change.memory_id
            for change in self.changes
        ]
