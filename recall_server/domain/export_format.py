"""The format of exports: JSON Lines, one object per line, each with its `kind`.

The first line is the `manifest`. The last is the `end`, with the number of lines of each kind and
the SHA-256 of all bytes before it. Between them, each sorted by id: `episode`, `memory`, `task`,
`recipient`, `audit`; an export about one person has `excerpt` instead of `episode`. All is ASCII
(RFC 8259 escapes), so that no text in it can control a terminal. Times are UTC. `schema()` returns
the format as JSON Schema.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    ConfigDict,
    Field,
    JsonValue,
    PlainSerializer,
    TypeAdapter,
    ValidationError,
    model_validator,
)

from recall_server.domain.attributes import ALIASES_MAX
from recall_server.domain.ids import NONE, PROPOSAL
from recall_server.domain.memory import BELIEVED, Layer, MemoryType, Status
from recall_server.domain.plan import Choice, Policy, ProposalKind, Reason, RelationKind
from recall_server.domain.text.cleaning import validator_message

FORMAT = "recall-export"
VERSION = 1
# Every JSON reader can hold integers up to this exactly.
COUNT_MAX = 2**53

Record = Mapping[str, Any]


def written(record: Record) -> bytes:
    """Return a record as its line."""
    return json.dumps(record, separators=(",", ":"), allow_nan=False).encode("ascii") + b"\n"


def spelled(moment: datetime) -> str:
    """Return a time as it is written in a line: UTC, to the microsecond."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")


def _storable(text: str) -> str:
    if "\x00" in text:
        raise ValueError("NUL cannot be kept")
    return text


def _one_line(text: str) -> str:
    if not text.isprintable():
        raise ValueError("it must be printable and on one line")
    return text


def _storable_object(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if "\\u0000" in json.dumps(value):
        raise ValueError("NUL cannot be kept")
    return value


def _in_utc(moment: datetime) -> datetime:
    try:
        return moment.astimezone(UTC)
    except OverflowError:
        raise ValueError("there is no such time in UTC") from None


def _id(prefix: str) -> Any:
    return Field(pattern=f"^{prefix}_[0-9a-hjkmnp-tv-z]{{26}}$")


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc), PlainSerializer(spelled)]
Text = Annotated[str, AfterValidator(_storable)]
Metadata = Annotated[dict[str, JsonValue], AfterValidator(_storable_object)]
Label = Annotated[str, Field(min_length=1, max_length=256), AfterValidator(_one_line)]
ContainerName = Annotated[str, Field(max_length=128), AfterValidator(_one_line)]
Count = Annotated[int, Field(ge=0, le=COUNT_MAX)]
Share = Annotated[float, Field(ge=0, le=1)]
Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
EpisodeId = Annotated[str, _id("ep")]
MemoryId = Annotated[str, _id("mem")]
TaskId = Annotated[str, _id("task")]


class _Strict(BaseModel):
    # Built on first use: most commands neither export nor import.
    model_config = ConfigDict(
        extra="forbid", strict=True, frozen=True, allow_inf_nan=False, defer_build=True
    )


class Aliases(_Strict):
    """The other names of a subject."""

    subject: Label
    aliases: Annotated[list[Label], Field(max_length=ALIASES_MAX)]


class Manifest(_Strict):
    """The head of the file. `server`: the id of the server's key. `subject`: the person that the
    export is about, if any.
    """

    kind: Literal["manifest"]
    format: Literal["recall-export"]
    version: Literal[1]
    namespace: Label
    made_at: Moment
    engine: Literal["sqlite", "postgres"]
    schema_version: Count
    server: Label
    subject: Text | None
    conflict_policy: Policy | None
    # Older exports do not have it.
    aliases: list[Aliases] = []


class Turn(_Strict):
    """One utterance of an episode: characters `start` to `end` of its text."""

    position: Annotated[int, Field(ge=0, lt=2**31)]
    start: Count
    end: Count
    speaker: Text | None
    session: Text | None
    said_at: Moment | None
    importance: Share
    # "covered" is in files of 0.1.0, where a turn that a memory cites was not found by itself.
    state: Literal["open", "covered", "hidden"]
    access_count: Count
    last_accessed_at: Moment | None


class Forgotten(_Strict):
    """Characters `start` to `end` of an episode that are hidden, because a memory or passage that
    rests on them was forgotten.
    """

    id: Annotated[str, Field(pattern=r"^(mem|ep)_[0-9a-z.]+$", max_length=64)]
    start: Annotated[int, Field(ge=0, lt=2**31)]
    end: Annotated[int, Field(ge=1, lt=2**31)]
    forgotten_at: Moment


class Extraction(_Strict):
    """An unfinished extraction; `next` passages of the episode are done."""

    state: Literal["pending", "failed"]
    next: Count
    error_code: Label | None


class Episode(_Strict):
    """A text exactly as it was sent, with its turns. `extraction` is null if nothing is left
    to do, and `request_digest` is empty if words of it were erased.
    """

    kind: Literal["episode"]
    id: EpisodeId
    text: Text
    content_hash: Sha256
    topic: Label
    name: Text | None
    session_id: Label | None
    agent_id: Label | None
    group_id: Label | None
    source: Text | None
    source_model: Text | None
    source_description: Text | None
    tags: list[Text] | None
    metadata: Metadata | None
    occurred_at: Moment
    recorded_at: Moment
    expired_at: Moment | None
    idempotency_key: Label
    request_digest: Sha256 | Literal[""]
    job_id: Annotated[str, _id("(job|task)")]
    extraction: Extraction | None
    turns: list[Turn]
    # Older exports do not have the following fields.
    container: ContainerName = NONE
    source_app: Text | None = None
    trace_id: Text | None = None
    kept_as: MemoryType | Literal["text"] | None = None
    forgotten: list[Forgotten] = []

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if hashlib.sha256(self.text.encode()).hexdigest() != self.content_hash:
            raise ValueError("the text is not the one that its content_hash was made of")
        position, end = -1, 0
        for turn in self.turns:
            # The words of overlapping turns would be stored and found several times.
            if turn.position <= position or not end <= turn.start < turn.end <= len(self.text):
                raise ValueError("a turn is not where it says")
            position, end = turn.position, turn.end
        return self


class Cited(_Strict):
    """Characters `start` to `end` of an episode."""

    episode_id: EpisodeId
    start: Annotated[int, Field(ge=0, lt=2**31)]
    end: Annotated[int, Field(ge=1, lt=2**31)]


class Decided(_Strict):
    """A decision that no rule could make. That of a language model has a reason and confidence."""

    question_id: Annotated[str, _id("q")]
    choice: Choice
    decided_by: Label
    decided_at: Moment
    judge_reason: Text | None = None
    judge_confidence: Share | None = None


class Disputed(_Strict):
    """A dispute that the memory is or was a side of."""

    question_id: Annotated[str, _id("q")]
    side: Literal["existing", "new"]
    opened_at: Moment
    closed_at: Moment | None


class Proposed(_Strict):
    """A proposal that would add the memory, replace or forget it; closed where it was answered or
    taken back.
    """

    id: Annotated[str, _id(PROPOSAL)]
    side: Literal["new", "target"]
    proposal: ProposalKind
    made_by: Label | None
    opened_at: Moment
    closed_at: Moment | None
    choice: Literal["accept", "edit", "reject"] | None
    decided_by: Label | None

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if (self.choice is None) != (self.decided_by is None):
            raise ValueError("choice and decided_by do not agree")
        if self.choice is not None and self.closed_at is None:
            raise ValueError("an answered proposal is closed")
        return self


class Related(_Strict):
    """A relation of the memory to another one."""

    to_id: MemoryId
    relation: RelationKind
    reason: Reason
    confidence: Share
    made_by: Label | None
    made_at: Moment


class Memory(_Strict):
    """A memory in any state, with its citations, the first of which it was made from."""

    kind: Literal["memory"]
    id: MemoryId
    text: Annotated[Text, Field(min_length=1)]
    type: MemoryType
    topic: Label
    entity: Text | None
    attribute: Text | None
    value: Text | None
    negated: bool
    status: Status
    said_at: Moment
    valid_from: Moment
    valid_until: Moment | None
    recorded_at: Moment
    retired_at: Moment | None
    superseded_by: MemoryId | None
    importance: Share
    confidence: Share
    reinforcements: Count
    access_count: Count
    last_accessed_at: Moment | None
    session_id: Label | None
    agent_id: Label | None
    extractor: Text
    citations: Annotated[list[Cited], Field(min_length=1)]
    decisions: list[Decided]
    container: ContainerName = NONE
    tags: list[Text] | None = None
    metadata: Metadata | None = None
    expires_at: Moment | None = None
    disputes: list[Disputed] = []
    relations: list[Related] = []
    proposals: list[Proposed] = []
    layer: Layer = Layer.SEMANTIC

    @model_validator(mode="after")
    def _whole(self) -> Self:
        disputed = any(one.closed_at is None for one in self.disputes)
        if (self.status is Status.DISPUTED) != (disputed and self.status in BELIEVED):
            raise ValueError("status and disputes do not agree")
        if (self.status in BELIEVED) != (self.retired_at is None):
            raise ValueError("status and retired_at do not agree")
        if len({self.entity is None, self.attribute is None, self.value is None}) > 1:
            raise ValueError("entity, attribute and value go together")
        if any(cited.start >= cited.end for cited in self.citations):
            raise ValueError("a citation cites nothing")
        return self


class Task(_Strict):
    """A consolidation (an A2A task), with its messages and results."""

    kind: Literal["task"]
    id: TaskId
    context_id: Text
    state: Label
    accessor: Text | None
    created_at: Moment
    changed_at: Moment
    expires_at: Moment | None
    request: JsonValue
    work: JsonValue
    status: JsonValue
    messages: JsonValue
    outcome: JsonValue
    events: JsonValue


class Recipient(_Strict):
    """A receiver of the events of a task; its URL is without query and credentials."""

    kind: Literal["recipient"]
    task_id: TaskId
    id: Text
    url: Text
    created_at: Moment


class Audit(_Strict):
    kind: Literal["audit"]
    id: Annotated[str, _id("rec")]
    at: Moment
    protocol: Label = Field(alias="door")
    operation: Label
    accessor: Label | None
    request_id: Label
    ids: list[Text]
    counts: dict[str, int]
    outcome: Label
    code: Label | None
    milliseconds: float
    model: Label | None
    input_tokens: Count
    output_tokens: Count
    cost_usd: float


class Excerpt(_Strict):
    """A turn that concerns the person of the export, without the rest of its episode."""

    kind: Literal["excerpt"]
    episode_id: EpisodeId
    position: Annotated[int, Field(ge=0, lt=2**31)]
    topic: Label
    recorded_at: Moment
    said_at: Moment | None
    speaker: Text | None
    text: Text


class End(_Strict):
    """The number of lines of each kind except `end`, and the SHA-256 of their bytes."""

    kind: Literal["end"]
    counts: dict[str, Count]
    sha256: Sha256


Line = Manifest | Episode | Memory | Task | Recipient | Audit | Excerpt | End
# The order of the kinds.
ORDER = ("manifest", "episode", "excerpt", "memory", "task", "recipient", "audit", "end")


@cache
def _line() -> TypeAdapter[Line]:
    return TypeAdapter(Annotated[Line, Field(discriminator="kind")])


def read(raw: bytes) -> Line:
    """Return the record of a line. Raises `ValueError` with the end of a sentence about the line,
    which repeats none of its content.
    """
    try:
        return _line().validate_json(raw)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in fault["loc"][1:])
        why = validator_message(fault["msg"])
        raise ValueError(f"{where}: {why}" if where else why) from None


def schema() -> dict[str, Any]:
    return _line().json_schema()
