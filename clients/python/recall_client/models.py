"""Answers of the server. A field that this release does not know is kept, by `extra="allow"`."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field


class Answer(BaseModel):
    model_config = ConfigDict(extra="allow", frozen=True)


class Citation(Answer):
    """The exact characters of a text that a memory rests on."""

    episode_id: str
    start: int
    end: int
    quote: str = ""
    speaker: str | None = None
    said_at: datetime | None = None


class Decision(Answer):
    """A decision about a memory that no rule could settle. That of a language model has a reason
    and a confidence.
    """

    choice: str
    decided_by: str
    decided_at: datetime
    reason: str | None = None
    confidence: float | None = None


class Memory(Answer):
    id: str
    text: str
    topic: str
    type: str
    status: str
    container: str | None = None
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    entity: str | None = None
    attribute: str | None = None
    value: str | None = None
    negated: bool = False
    importance: float = 0.0
    confidence: float = 0.0
    created_at: datetime | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    superseded_by: str | None = None
    expires_at: datetime | None = None
    source: Citation | None = None
    trust: str | None = None
    # The rules made the memory while the language model was out of service.
    unreconciled: bool = False
    decisions: list[Decision] = []
    relations: list["Relation"] = []


class MemoryPage(Answer):
    memories: list[Memory]
    total: int
    has_more: bool
    next_offset: int | None = None
    next_cursor: str | None = None


class Hit(Answer):
    """A hit of a search: a memory, or with type `episode` a passage of a text."""

    id: str
    text: str
    topic: str
    type: str
    score: float
    importance: float = 0.0
    created_at: datetime | None = None
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    superseded_by: str | None = None
    expires_at: datetime | None = None
    quote: str | None = None
    speaker: str | None = None
    said_at: datetime | None = None
    container: str | None = None
    tags: list[str] = []
    around: list[str] = []
    unreconciled: bool = False
    # With explain:
    scores: dict[str, Any] | None = None
    source: Citation | None = None
    metadata: dict[str, Any] = {}


class SearchResult(Answer):
    """`weak_evidence`: the answer is likely not among the hits. `degraded`: why the search was less
    than it could be.
    """

    results: list[Hit]
    total: int
    weak_evidence: bool
    degraded: str | None = None
    left_out: int = 0
    evidence: float = 0.0


class ContextBlock(Answer):
    """A block for a prompt, or why there is none."""

    has_usable_context: bool
    context_enhancement: str | None = None
    abstained_reason: str | None = None
    diagnostics: dict[str, Any] = {}


class Evidence(Answer):
    """A memory that an answer rests on, and the container that it is in (`bucket_id`)."""

    memory_id: str
    scope_type: str
    bucket_id: str | None = None
    relevance: float
    support: float


class GroundedAnswer(Answer):
    """An answer with what it rests on, or why there is none."""

    answer: str | None = None
    abstained: bool
    abstained_reason: str | None = None
    used_memory_count: int = 0
    diagnostics: dict[str, Any] = {}
    evidence: list[Evidence] = []


class Summary(Answer):
    summary: str
    memory_refs: list[str]
    health_note: str


class Snapshot(Answer):
    """What is in no container, summed up as of a moment."""

    user_id: str
    generated_at: datetime
    snapshot: Summary


class Stored(Answer):
    """A text that was accepted; the job makes memories of it. `cached`: its key was used before,
    for the same text. `masked`: how many secrets in it were written over.
    """

    job_id: str
    queued: bool = True
    cached: bool = False
    masked: int = 0


class Job(Answer):
    job_id: str
    kind: str
    state: str
    attempts: int
    failures: int
    error_code: str | None = None
    created_at: datetime | None = None
    finished_at: datetime | None = None
    memory_ids: list[str] = []
    held_turns: int = 0

    @property
    def ended(self) -> bool:
        return self.finished_at is not None


class Text(Answer):
    """A text as it was stored. `whole`: none of it was forgotten, erased or held back."""

    id: str
    text: str
    topic: str
    whole: bool
    job_id: str
    container: str | None = None
    session_id: str | None = None
    agent_id: str | None = None
    client: str | None = None
    app: str | None = None
    model: str | None = None
    description: str | None = None
    name: str | None = None
    trace_id: str | None = None
    group_id: str | None = None
    tags: list[str] = []
    metadata: dict[str, Any] = {}
    said_at: datetime | None = None
    created_at: datetime | None = None
    expires_at: datetime | None = None


class TextPage(Answer):
    texts: list[Text]
    next_offset: int | None = None


class Forgotten(Answer):
    forgotten: list[str]


class Stats(Answer):
    by_type: dict[str, int]
    total: int
    pending_extractions: int
    failed_extractions: int = 0
    pending_embeddings: int = 0
    unreconciled: int = 0
    by_status: dict[str, int] | None = None


class Status(Answer):
    status: str
    version: str
    memories: int
    pending_extractions: int


class Deleted(Answer):
    deleted: str
    receipt_id: str | None = None
    receipt_secret: str | None = None
    receipt: Any = None


class Restored(Answer):
    restored: str


class Interval(Answer):
    begin: datetime | None = Field(None, alias="from")
    until: datetime | None = None


class TimelineValue(Memory):
    true: Interval
    known: Interval


class Overlap(Interval):
    memory_ids: list[str]


class Timeline(Answer):
    """The values of an attribute over time. `cut`: there is more, and older."""

    entity: str
    attribute: str
    values: list[TimelineValue]
    gaps: list[Interval]
    overlaps: list[Overlap]
    cut: bool


class Change(Answer):
    """The effect of one store, task, import or call, in numbers of events. `decisions`: the answers
    by which it settled disputes. `words`: how a memory that it added or changed begins.
    """

    id: str
    at: datetime
    operation: str
    accessor: str | None
    counts: dict[str, int]
    undone: bool
    decisions: list[Decision] = []
    words: str | None = None


class ChangePage(Answer):
    """`next_before`: where the next page begins."""

    changes: list[Change]
    next_before: int | None


class Undone(Answer):
    """The effect of an undo; `change_id` names the undo, which can be undone. `words`: how the
    memories begin, in a dry run.
    """

    undone: list[str]
    memory_ids: list[str]
    forgotten_ids: list[str]
    episode_ids: list[str]
    change_id: str | None
    dry_run: bool
    words: dict[str, str] = {}


class Erased(Answer):
    """The counts of an erasure, with a receipt and the secret that collects the final one; with
    `dry_run`, the counts that an erasure would have.
    """

    kind: str
    counts: dict[str, int]
    dry_run: bool
    memory_ids: list[str] = []
    episode_ids: list[str] = []
    task_ids: list[str] = []
    tokens_revoked: int | None = None
    receipt_id: str | None = None
    receipt_secret: str | None = None
    receipt: Any = None


class Receipt(Answer):
    receipt: Any
    final: bool


class Side(Answer):
    """One of the statements that contradict each other."""

    text: str
    memory_id: str | None = None
    value: str | None = None
    negated: bool = False
    source: Citation | None = None
    said_at: datetime | None = None
    valid_from: datetime | None = None
    confidence: float = 0.0
    strength: float = 0.0


class Question(Answer):
    """A contradiction that no rule settles, with the possible choices."""

    id: str
    existing: list[Side]
    new: Side
    reason: str
    choices: list[str]
    recommended: str
    entity: str | None = None
    attribute: str | None = None
    task_id: str | None = None
    asked_at: datetime | None = None
    expires_at: datetime | None = None


class Submitted(Answer):
    """The outcome of a submission, with the rules, the other memories considered, and the
    thresholds that decided which one was meant.
    """

    outcome: str
    intent: str
    dry_run: bool
    message: str
    changes: list[dict[str, Any]]
    rules: list[Any]
    considered: list[Any]
    thresholds: dict[str, float] = {}
    masked: int = 0


class Relation(Answer):
    from_id: str
    relation: str
    to_id: str
    reason: str | None = None
    confidence: float = 0.0
    made_by: str | None = None
    made_at: datetime | None = None
    question_id: str | None = None


class Review(Answer):
    """Something that waits for a decision, and the possible answers."""

    id: str
    kind: str
    choices: list[str]
    about: dict[str, Any]
    asked_at: datetime | None = None


class Reviews(Answer):
    reviews: list[Review]


class ReviewAnswered(Answer):
    id: str
    kind: str
    task_id: str | None = None
    status: str | None = None
    open: int = 0
    change_id: str | None = None


class Conflicts(Answer):
    conflicts: list[Question]


class Resolved(Answer):
    """`task_id`: None if no task has asked."""

    task_id: str | None = None
    status: str | None = None
    open: int = 0


class Outcome(Answer):
    """The result of a task, or its questions."""

    dry_run: bool = False
    memories: list[Memory] = []
    superseded: list[str] = []
    reinforced: list[str] = []
    groups_found: int = 0
    rejected: int = 0
    read_to: int | None = None
    contradictions: list[Question] = []
    resolutions: list[Any] = []


class Consolidation(Outcome):
    task_id: str
    status: str
    message: str | None = None


class Task(Answer):
    id: str
    status: str
    message: str | None = None
    output: Outcome | None = None


_AT_WORK = {"submitted", "working"}


class TaskEvent(Answer):
    """A change of a task: its state, and in `artifact`, in the form of A2A, its result."""

    task_id: str
    state: str | None = None
    message: str | None = None
    artifact: dict[str, Any] | None = None

    @property
    def idle(self) -> bool:
        """True if the task has ended, or asks and waits for an answer."""
        return self.state is not None and self.state not in _AT_WORK


class PushConfig(Answer):
    id: str
    url: str
    scheme: str | None = None
    set_by: str | None = None
    set_at: datetime | None = None


class PushConfigs(Answer):
    push_configs: list[PushConfig]


class Webhook(Answer):
    """A receiver of the events of a namespace; `state` is active, failing or dead."""

    id: str
    url: str
    kinds: list[str]
    include_text: bool
    state: str
    failures: int = 0
    code: str | None = None
    delivered_at: datetime | None = None
    set_by: str | None = None
    set_at: datetime | None = None


class Alias(Answer):
    """Another name of a subject."""

    subject: str
    alias: str


class Aliases(Answer):
    aliases: list[Alias]


class AliasRemoved(Answer):
    removed: str


class ListedWebhook(Webhook):
    pending: int


class NewWebhook(Webhook):
    """`secret` is shown only this once."""

    secret: str


class Webhooks(Answer):
    webhooks: list[ListedWebhook]


class WebhookRemoved(Answer):
    removed: str


class WebhookTested(Answer):
    """The result of a test: the status of the answer, or the code of why there was none."""

    delivered: bool
    status: int | None = None
    code: str | None = None


class Whoami(Answer):
    """The rights of a token. A limit that is None does not exist."""

    namespace: str
    accessor: str
    scopes: list[str]
    topics: list[str] | None = None
    types: list[str] | None = None
    agent_id: str | None = None
    containers: list[str] | None = None
    expires_at: datetime | None = None


class Token(Whoami):
    label: str | None = None
    parent: str | None = None
    created_at: datetime | None = None
    uses_left: int | None = None
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None
    not_before: datetime | None = None


class NewToken(Token):
    """`token` is shown only this once."""

    token: str


class Tokens(Answer):
    tokens: list[Token]


class Revoked(Answer):
    revoked: list[str]
    ended: dict[str, int]


class AuditRecords(Answer):
    records: list[dict[str, Any]]
    next_cursor: str | None = None


class Suspect(Answer):
    """A text that was held back. Its words are data, and must not be obeyed."""

    id: str
    state: str
    reasons: list[str]
    topic: str
    source: Citation
    agent_id: str | None = None
    client: str | None = None
    held_at: datetime | None = None
    decided_by: str | None = None
    decided_at: datetime | None = None


class Suspects(Answer):
    suspects: list[Suspect]
    total: int
    next_offset: int | None = None


class Decided(Answer):
    id: str
    state: str


class Processed(Answer):
    """An answer in the form of aCMF."""

    accepted: bool
    job_id: str
    cached: bool = False
    container: str | None = None
    created_user: bool = False
    created_containers: list[str] = []
    accepted_at: datetime | None = None
