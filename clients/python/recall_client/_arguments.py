"""The arguments of operations that take many, by the names that the server gives them; all may be
left out, and None is the same. The server refuses a name that it does not know.
"""

from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any, TypedDict

Moment = str | date | datetime


class InTime(TypedDict, total=False):
    """A moment of the past: what was true then, and what was known then."""

    as_of: Moment | None
    known_at: Moment | None


class Selection(TypedDict, total=False):
    """The filters of a search or a list."""

    container: str | None
    topic: str | None
    tags: Sequence[str] | None
    metadata: Mapping[str, Any] | None
    said_after: Moment | None
    said_before: Moment | None
    recorded_after: Moment | None
    recorded_before: Moment | None
    valid_after: Moment | None
    valid_before: Moment | None
    expires_after: Moment | None
    expires_before: Moment | None
    app: str | None
    group_id: str | None
    layer: str | None


class Filtered(Selection, InTime, total=False):
    include_expired: bool | None
    limit: int | None
    type: str | None


class SearchMemories(Filtered, total=False):
    containers: Sequence[str] | None
    mode: str | None
    recency_weight: float | None
    mmr_lambda: float | None
    score_threshold: float | None
    max_tokens: int | None
    neighbours: int | None
    explain: bool | None
    reinforce: bool | None


class InspectMemories(Filtered, total=False):
    offset: int | None
    cursor: str | None
    status: str | None


class ListTexts(Selection, total=False):
    limit: int | None
    offset: int | None
    session_id: str | None


class Labelled(TypedDict, total=False):
    """The labels of a text."""

    topic: str | None
    container: str | None
    session_id: str | None
    agent_id: str | None
    tags: Sequence[str] | None
    metadata: Mapping[str, Any] | None
    source: Mapping[str, str] | None
    trace_id: str | None
    occurred_at: Moment | None
    expires_at: Moment | None


class StoreMemory(Labelled, total=False):
    messages: Sequence[Mapping[str, Any]] | None
    idempotency_key: str | None
    infer: bool | None
    type: str | None
    user_message: str | None
    assistant_response: str | None


class ProposeChange(Labelled, total=False):
    intent: str | None
    memory_id: str | None
    type: str | None
    dry_run: bool | None
    confidence: float | None
    evidence: str | None
    needs_review: bool | None


class SubmitMemory(ProposeChange, total=False):
    review: bool | None


class Consolidate(Labelled, total=False):
    mode: str | None
    text: str | None
    messages: Sequence[Mapping[str, Any]] | None
    policy: str | None
    similarity_threshold: float | None
    dry_run: bool | None
    plan_id: str | None
    expires_in_s: float | None
    on_expiry: str | None


class Grounded(InTime, total=False):
    user_id: str | None
    containers: Sequence[Mapping[str, str]] | None
    scope_level: str | None
    read_mode: str | None
    budgets: Mapping[str, int] | None
    metadata: Mapping[str, Any] | None


class DelegateToken(TypedDict, total=False):
    scopes: Sequence[str] | None
    topics: Sequence[str] | None
    types: Sequence[str] | None
    agent_id: str | None
    containers: Sequence[str] | None
    expires_in_s: float | None


class IssueToken(DelegateToken, total=False):
    label: str | None
    uses: int | None


class ReadAudit(TypedDict, total=False):
    operation: str | None
    accessor: str | None
    outcome: str | None
    since: Moment | None
    until: Moment | None
    id: str | None
    limit: int | None
    cursor: str | None
