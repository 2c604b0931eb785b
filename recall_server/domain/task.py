"""A consolidation under way: what was asked for, how far it has come, what it waits for, what came
of it. Over A2A it is a task; the states are those of the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any

from recall_server.domain.episode import Source
from recall_server.domain.errors import OutsideAccessScope
from recall_server.domain.extraction import Candidate, Usage
from recall_server.domain.memory import Memory
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.plan import Policy, Question, Resolution


class TaskState(StrEnum):
    """Where a run stands."""

    SUBMITTED = "submitted"
    WORKING = "working"
    INPUT_REQUIRED = "input-required"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELED = "canceled"

    @property
    def final(self) -> bool:
        return self in (TaskState.COMPLETED, TaskState.FAILED, TaskState.CANCELED)

    @property
    def idle(self) -> bool:
        """Whether whoever waits for an answer has got one: it is over, or asks."""
        return self.final or self is TaskState.INPUT_REQUIRED


class Mode(StrEnum):
    """What is to be consolidated (FEATURES C24): a text that is handed in, the memories of a
    topic, or a plan that an earlier dry run made.
    """

    INGEST = "ingest"
    MERGE = "merge"
    APPLY = "apply"


class Expiry(StrEnum):
    """What happens to questions that nobody answered in time."""

    KEEP_EXISTING = "keep_existing"
    KEEP_NEW = "keep_new"
    KEEP_BOTH = "keep_both"
    CANCEL = "cancel"


@dataclass(frozen=True)
class Request:
    """What was asked for. Without a `policy` that of the namespace holds, or else *ask*.
    `expires_in_s` is how long each round of questions may wait, in seconds;
    None is for ever. `reach` is what the run may see and change, on behalf of who asked. A
    text goes into `container`; a merge is of what is in it, or, where none is named, of each.
    """

    mode: Mode
    topic: str
    text: str = ""
    policy: Policy | None = None
    similarity_threshold: float = 0.85
    dry_run: bool = False
    plan_id: str = ""
    expires_in_s: float | None = None
    on_expiry: Expiry = Expiry.KEEP_EXISTING
    source: Source = field(default_factory=Source)
    reach: AccessScope = FULL_ACCESS
    container: str = ""

    def limited_to(self, reach: AccessScope) -> Request:
        """The request, held to what who asks may reach. Raises `OutsideAccessScope`."""
        if reach.types is not None:
            raise OutsideAccessScope(
                "This token is limited to types of memories, and a task is about all."
            )
        if self.mode is Mode.APPLY:
            return self
        agent = reach.writer(self.topic, self.source.agent_id)
        container = reach.room(self.container)
        return replace(
            self,
            source=replace(self.source, agent_id=agent),
            container=container,
            reach=reach.confined(self.topic, container),
        )

    @property
    def effective_scope(self) -> AccessScope:
        """What the run looks at and changes: of its reach that which is in its container."""
        if self.mode is Mode.MERGE and not self.container:
            return self.reach
        return self.reach.inside({self.container})


@dataclass(frozen=True)
class Proposal:
    """A text that is to take the place of several memories; it has no authority yet."""

    source_ids: tuple[str, ...]
    text: str
    by: str


@dataclass(frozen=True)
class Work:
    """How far a run has come, so that any process can go on from there.

    `next` counts the passages that are done (of an ingest) or the groups that are merged. What a
    model said is kept, so it is asked once. `expected` is the digest of the plan to be applied.
    """

    episode_id: str
    started_at: datetime
    next: int = 0
    candidates: tuple[Candidate, ...] = ()
    groups: tuple[tuple[str, ...], ...] | None = None
    proposals: tuple[Proposal, ...] = ()
    extractor: str = ""
    rejected: int = 0
    usage: Usage = field(default_factory=Usage)
    questions: tuple[Question, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    expected: str = ""


@dataclass(frozen=True)
class Outcome:
    """What came of a run: what it changed, or would change (`dry_run`)."""

    dry_run: bool = False
    created: tuple[Memory, ...] = ()
    superseded: tuple[str, ...] = ()
    reinforced: tuple[str, ...] = ()
    groups_found: int = 0
    questions: tuple[Question, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    digest: str = ""
    rejected: int = 0


@dataclass(frozen=True)
class Failure:
    """Why a run failed: a stable code and a sentence that may be shown."""

    code: str
    message: str


@dataclass(frozen=True)
class Status:
    """What a run says of itself: its state since `at`, what it asks, and a remark (`note`), such
    as what was wrong with an answer.
    """

    state: TaskState
    at: datetime
    note: str = ""
    questions: tuple[Question, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True)
class Message:
    """What a client said, as its protocol spells it."""

    id: str
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """One run. `version` counts all changes, `round` the times it was set going: an answer is for
    one round, and is taken once. `accessor` is the token that asked for it.
    """

    id: str
    context_id: str
    accessor: str | None
    created_at: datetime
    request: Request
    work: Work
    status: Status
    messages: tuple[Message, ...] = ()
    outcome: Outcome | None = None
    version: int = 0
    round: int = 0
    events: int = 0
    expires_at: datetime | None = None

    def memories(self) -> Iterator[Memory]:
        """The memories that whoever looks at the run gets to see."""
        asked = [*self.status.questions, *self.work.questions]
        if self.outcome is not None:
            yield from self.outcome.created
            asked += self.outcome.questions
        for question in asked:
            yield question.new
            yield from question.existing


@dataclass(frozen=True)
class Event:
    """Something that happened to a run: a new status, or its outcome. `seq` counts from 1."""

    task_id: str
    context_id: str
    seq: int
    status: Status | None = None
    outcome: Outcome | None = None

    @property
    def final(self) -> bool:
        return self.status is not None and self.status.state.final
