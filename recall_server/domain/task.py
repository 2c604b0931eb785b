"""Durable work: jobs, and consolidation tasks with their questions and answers."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import Field

from recall_server.domain.episode import Source, Turn, Utterance
from recall_server.domain.errors import Invalid, OutsideAccessScope, RecallError
from recall_server.domain.extraction import Candidate, Refused, Usage
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import Memory
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.plan import Choice, Policy, Question, Resolution
from recall_server.domain.screening import orders, suspicions
from recall_server.domain.text.cleaning import clean_text

# The key in a job's payload of the change that its events are a part of, if it is not its own.
PART_OF = "part_of"


class JobState(StrEnum):
    QUEUED = "queued"
    PROCESSING = "processing"
    COMPLETE = "complete"
    FAILED = "failed"


@dataclass(frozen=True)
class Job:
    """Durable work. `attempt` is the fencing token: only the holder of the newest one may finish
    it. `accessor`: the token with which the job ends.
    """

    id: str
    namespace: Namespace
    kind: str
    payload: Mapping[str, Any]
    attempt: int = 0
    failures: int = 0
    created_at: datetime | None = None
    accessor: str | None = None


@dataclass(frozen=True)
class JobProgress:
    """The stored state of a job. `error_code`: why its last attempt failed, or, if it is complete,
    why another extractor than the configured one did it.
    """

    id: str
    kind: str
    state: JobState
    attempts: int
    failures: int
    created_at: datetime
    finished_at: datetime | None
    error_code: str | None


@dataclass(frozen=True)
class TextJob(JobProgress):
    """The stored state of a job about a text. `refused`: the candidates that it did not make
    memories of, `REFUSED_MAX` at most. `held_turns`: how many turns are in quarantine.
    """

    episode_id: str
    held_turns: int = 0
    refused: tuple[Refused, ...] = ()


def together(pages: Sequence[JobProgress]) -> JobProgress:
    """Return the state of a job whose pages are jobs of their own, the first page first."""
    states = {one.state for one in pages}
    ended = [one.finished_at for one in pages if one.finished_at]
    order = (JobState.FAILED, JobState.PROCESSING, JobState.QUEUED, JobState.COMPLETE)
    return replace(
        pages[0],
        state=next(one for one in order if one in states),
        attempts=sum(one.attempts for one in pages),
        failures=sum(one.failures for one in pages),
        finished_at=max(ended) if len(ended) == len(pages) else None,
        error_code=next((one.error_code for one in pages if one.error_code), None),
    )


class TaskState(StrEnum):
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
        """True if the task waits for nobody but a caller: it has ended or asks a question."""
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

    `expires_in_s` is how long each round of questions may wait, in seconds; None: for ever.
    `occurred_at` is when the text was said, if not now, and `text_expires_at` until when it is
    found. A conversation comes as `utterances` and is stored as one text with its `turns`.
    `access_scope` limits what the task may see and change on behalf of its caller. A text goes
    into `container`; a merge covers that container, or every one separately if none is named.
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
    # The name of this field in stored tasks.
    access_scope: Annotated[AccessScope, Field(alias="reach")] = FULL_ACCESS
    container: str = ""
    occurred_at: datetime | None = None
    text_expires_at: datetime | None = None
    utterances: tuple[Utterance, ...] = ()
    turns: tuple[Turn, ...] = ()

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
            access_scope=access_scope.confined(self.topic, container),
        )

    @property
    def effective_scope(self) -> AccessScope:
        """The access scope of the work itself: that of the caller, limited to the container."""
        if self.mode is Mode.MERGE and not self.container:
            return self.access_scope
        return self.access_scope.inside({self.container})


@dataclass(frozen=True)
class Proposal:
    """A text that should replace several memories; it has no authority yet. `draft`: the final text
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
    stored, so that no question is asked twice. `expected` is the digest of the plan to apply.
    `drafts` are its proposals if some of them are still to be written. `read_to` is where the part
    of the text ends that the candidates are of; None: they are of all of it.
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
    resolutions: tuple[Resolution, ...] = ()
    expected: str = ""
    drafts: tuple[Proposal, ...] = ()
    read_to: int | None = None


@dataclass(frozen=True)
class Outcome:
    """The changes of a task, made or (`dry_run`) planned. `read_to`: up to which character the text
    was read, if that is not all of it, as the task has all changes that one may have.
    """

    dry_run: bool = False
    created: tuple[Memory, ...] = ()
    superseded: tuple[str, ...] = ()
    reinforced: tuple[str, ...] = ()
    groups_found: int = 0
    questions: tuple[Question, ...] = ()
    resolutions: tuple[Resolution, ...] = ()
    digest: str = ""
    rejected: int = 0
    read_to: int | None = None


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
    # The bytes that count for the task; the next two are parts of them.
    stored_bytes: int = 0
    request_bytes: int = 0
    event_bytes: int = 0

    @property
    def large(self) -> bool:
        """True if reading, writing or showing it would delay other callers noticeably."""
        return max(self.stored_bytes, len(self.request.text)) > LARGE_BYTES

    @property
    def owed_bytes(self) -> int:
        """The bytes reserved for the text that the task will store, with its labels."""
        ends_in_text = self.request.mode is Mode.INGEST and not self.request.dry_run
        if not ends_in_text or self.status.state.final:
            return 0
        return self.request_bytes + IDS_BYTES

    def memories(self) -> Iterator[Memory]:
        """Yield the memories that the task's presentation contains."""
        asked = list(self.status.questions)
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


LARGE_BYTES = 65_536
# The ids and digests of a text take at most this.
IDS_BYTES = 512
MERGED_CHARS_MAX = 4_096
_CHOICES = ", ".join(Choice)
NOT_CLEAR = (
    "It is not clear which side to keep. Answer keep_existing, keep_new or keep_both, or send "
    "resolutions with an id and a choice for each question."
)

# Prose that stands for a choice. It is accepted only if exactly one choice matches.
_PROSE: Mapping[Choice, re.Pattern[str]] = {
    Choice.KEEP_EXISTING: re.compile(
        r"\bkeep[_ -]existing\b|\b(?:keep|stay with|leave|stick with)\b[^.;\n]{0,20}"
        r"\b(?:existing|old|current|previous|first|as it (?:is|was))\b",
        re.IGNORECASE,
    ),
    Choice.KEEP_NEW: re.compile(
        r"\bkeep[_ -]new\b|\b(?:keep|take|use|accept|prefer)\b[^.;\n]{0,20}"
        r"\b(?:new|newer|latest|second)\b|\breplace\b[^.;\n]{0,12}\b(?:it|old|existing)\b",
        re.IGNORECASE,
    ),
    Choice.KEEP_BOTH: re.compile(r"\bkeep[_ -]both\b|\bboth\b", re.IGNORECASE),
}
_NAMED = re.compile(r"\b(q_[0-9a-z]{26}|\d{1,3})\s*[:=.)-]+\s*([^\n,;]+)")


class AnswerUnclear(Invalid):
    """The answer could not be understood. Send resolutions with id and choice."""


def resolutions(
    given: str | Sequence[Any], questions: Sequence[Question], *, by: str, at: datetime
) -> list[Resolution]:
    """Parse an answer to the open `questions`; it may leave some of them open.

    A list holds `{"id", "choice", "text"?}`. A text is one choice for all ("keep_new"), one for
    each ("1: keep_new, 2: keep_both", by number or id), or prose that names a choice. Raises
    `AnswerUnclear`, which names the faulty part; no part of the answer is used then.
    """
    if not isinstance(given, str):
        return _listed(given, questions, by, at)
    named = _NAMED.findall(given)
    if named:
        ids = {str(number): question.id for number, question in enumerate(questions, 1)}
        listed = [
            {"id": ids.get(name, name), "choice": str(_meant(words) or words.strip())}
            for name, words in named
        ]
        return _listed(listed, questions, by, at)
    choice = _meant(given)
    if choice is None:
        raise AnswerUnclear(NOT_CLEAR)
    return [Resolution(question.id, choice, by, at) for question in questions]


def says_nothing(given: str | Sequence[Any]) -> bool:
    """True if an answer is not understood, whatever the questions are."""
    return isinstance(given, str) and not _NAMED.search(given) and _meant(given) is None


def _meant(words: str) -> Choice | None:
    """Return the one choice that the words name; None if they name none or several."""
    plain = words.strip().strip("\"'`.!").lower().replace("-", "_").replace(" ", "_")
    if plain in set(Choice) - {Choice.MERGE}:
        return Choice(plain)
    found = [choice for choice, pattern in _PROSE.items() if pattern.search(words)]
    return found[0] if len(found) == 1 else None


def _listed(
    given: Sequence[Any], questions: Sequence[Question], by: str, at: datetime
) -> list[Resolution]:
    if not given:
        raise AnswerUnclear("The list of resolutions is empty. Send one for each question.")
    open_ids = [question.id for question in questions]
    found: dict[str, Resolution] = {}
    for number, one in enumerate(given, 1):
        called = f"Resolution {number}" if len(given) > 1 else "The answer"
        resolution = _one(called, one, open_ids, by, at)
        if resolution.question_id in found:
            raise AnswerUnclear(f"{called} answers a question twice. Send one of each.")
        found[resolution.question_id] = resolution
    return list(found.values())


def _one(called: str, given: Any, open_ids: Sequence[str], by: str, at: datetime) -> Resolution:
    if not isinstance(given, Mapping) or not set(given) <= {"id", "choice", "text"}:
        raise AnswerUnclear(f"{called} must be an object of id, choice and text.")
    if given.get("id") not in open_ids:
        ids = ", ".join(open_ids[:10]) + (" …" if len(open_ids) > 10 else "")
        raise AnswerUnclear(f"{called} has no id of an open question: {ids}.")
    choice, text = given.get("choice"), given.get("text")
    if choice not in set(Choice):
        raise AnswerUnclear(f"{called} has an unknown choice. Choose one of: {_CHOICES}.")
    if (text is not None) != (choice == Choice.MERGE) or not isinstance(text, str | None):
        raise AnswerUnclear(f"{called}: text goes with merge, and merge needs it.")
    if text is not None:
        try:
            clean_text(text, chars_max=MERGED_CHARS_MAX)
        except RecallError as error:
            raise AnswerUnclear(f"{called}: {error.message}") from None
        if orders(text) or suspicions(text):
            raise AnswerUnclear(f"{called}: the text gives orders to a model.")
    return Resolution(given["id"], Choice(choice), by, at, text)
