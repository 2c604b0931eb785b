"""A consolidation task: its request, progress, questions and outcome. The states are those of
A2A.
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
    """The state of a task."""

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
        """Whether the task waits for nobody but a caller: it has ended or asks a question."""
        return self.final or self is TaskState.INPUT_REQUIRED


class Mode(StrEnum):
    """The input of a consolidation: a text, the memories of a topic, or the plan of an earlier dry
    run.
    """

    INGEST = "ingest"
    MERGE = "merge"
    APPLY = "apply"


class Expiry(StrEnum):
    """The resolution of questions that were not answered in time."""

    KEEP_EXISTING = "keep_existing"
    KEEP_NEW = "keep_new"
    KEEP_BOTH = "keep_both"
    CANCEL = "cancel"


@dataclass(frozen=True)
class Request:
    """The arguments of a task. Without a `policy` that of the namespace applies, else *ask*.

    `expires_in_s` is how long each round of questions may wait, in seconds; None: for ever. `reach`
    limits what the task may see and change on behalf of its caller. A text goes into `container`; a
    merge covers that container, or every one separately if none is named.
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
    # Stored tasks have the access scope under this name.
    reach: AccessScope = FULL_ACCESS
    container: str = ""

    def limited_to(self, access_scope: AccessScope) -> Request:
        """Return the request limited to the caller's access scope. Raises `OutsideAccessScope`."""
        if access_scope.types is not None:
            raise OutsideAccessScope(
                "This token is limited to types of memories, and a task is about all."
            )
        if self.mode is Mode.APPLY:
            return self
        agent = access_scope.writer(self.topic, self.source.agent_id)
        container = access_scope.container_for(self.container)
        return replace(
            self,
            source=replace(self.source, agent_id=agent),
            container=container,
            reach=access_scope.confined(self.topic, container),
        )

    @property
    def effective_scope(self) -> AccessScope:
        """The access scope of the work itself: that of the caller, limited to the container."""
        if self.mode is Mode.MERGE and not self.container:
            return self.reach
        return self.reach.inside({self.container})


@dataclass(frozen=True)
class Proposal:
    """A text that should replace several memories; it has no authority yet. The text of a `draft`
    is still to be written, by the model `by`.
    """

    source_ids: tuple[str, ...]
    text: str
    by: str
    draft: bool = False


@dataclass(frozen=True)
class Work:
    """The progress of a task, so that any process can continue it.

    `next` counts the finished passages (of an ingest) or merged groups. Answers of models are
    stored, so that each is asked once. `expected` is the digest of the plan to apply.
    `drafts` are its proposals if some of them are still to be written.
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
    drafts: tuple[Proposal, ...] = ()


@dataclass(frozen=True)
class Outcome:
    """The changes of a task, made or (`dry_run`) planned."""

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
    """Why a task failed: a stable code and a sentence that callers may see."""

    code: str
    message: str


@dataclass(frozen=True)
class Status:
    """The state of a task since `at`, its questions, and a remark (`note`), such as why an answer
    was not understood.
    """

    state: TaskState
    at: datetime
    note: str = ""
    questions: tuple[Question, ...] = ()
    failure: Failure | None = None


@dataclass(frozen=True)
class Message:
    """A message of a client, as its protocol spells it."""

    id: str
    document: Mapping[str, Any]


@dataclass(frozen=True)
class Task:
    """A task. `version` counts all changes; `round` counts its starts: an answer is for one round
    and is accepted once. `accessor` is the token that started it.
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
        """Yield the memories that the task's presentation contains."""
        asked = [*self.status.questions, *self.work.questions]
        if self.outcome is not None:
            yield from self.outcome.created
            asked += self.outcome.questions
        for question in asked:
            yield question.new
            yield from question.existing


@dataclass(frozen=True)
class Event:
    """A change of a task: a new status, or its outcome. `seq` counts from 1."""

    task_id: str
    context_id: str
    seq: int
    status: Status | None = None
    outcome: Outcome | None = None

    @property
    def final(self) -> bool:
        return self.status is not None and self.status.state.final
