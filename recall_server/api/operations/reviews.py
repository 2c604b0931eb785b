"""Reviews: everything that waits for a decision. The questions and disputes among them are also the
conflicts, under their older names. A recheck finds what should be decided.
"""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.operations.operation import (
    INT64_MAX,
    REVIEWS,
    Arguments,
    Call,
    Http,
    Json,
    Mcp,
    NoArguments,
    Operation,
    operation,
)
from recall_server.domain.ids import is_proposal
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.plan import Choice
from recall_server.domain.screening import Held
from recall_server.services.tasks.reviews import (
    CONTRADICTIONS,
    Answered,
    Review,
    ReviewKind,
    Suspects,
    Verdict,
)

LISTED_MAX = 100


class ListReviews(Arguments):
    kind: Annotated[ReviewKind | None, Field(strict=False)] = None
    limit: int = Field(50, ge=1, le=LISTED_MAX)


class AnswerReview(Arguments):
    id: str
    choice: Literal[
        "keep_existing", "keep_new", "keep_both", "merge", "accept", "edit", "reject", "release"
    ]
    text: str | None = None

    @property
    def decision(self) -> Choice | Verdict:
        return Verdict(self.choice) if self.choice in set(Verdict) else Choice(self.choice)


class ResolveConflict(Arguments):
    """The body of an answer; `text` goes with merge."""

    id: str
    choice: Annotated[Choice, Field(strict=False)]
    text: str | None = None

    @property
    def decision(self) -> Choice:
        return self.choice


def kinds_for(call: Call, kind: ReviewKind | None) -> Collection[ReviewKind]:
    """Return the kinds that are asked for and that the caller may decide about."""
    rights = call.caller.rights
    kinds = {*CONTRADICTIONS, ReviewKind.PROPOSAL}
    if release_quarantined.allowed(rights) and rights.access_scope.everything:
        kinds.add(ReviewKind.QUARANTINE)
    return kinds if kind is None else kinds & {kind}


async def _answer(call: Call, given: AnswerReview | ResolveConflict) -> Answered:
    return await call.services.reviews.answer(
        call.context, given.id, given.decision, given.text, call.caller.rights
    )


def decided_as(given: AnswerReview, _: Rights) -> Operation:
    """Return the operation of an answer: releasing a turn needs the scope for that."""
    if is_proposal(given.id):
        return answer_review
    match given.decision:
        case Verdict.RELEASE:
            return release_quarantined
        case Verdict.REJECT:
            return reject_quarantined
        case _:
            return answer_review


def resolved(done: Answered, _: ResolveConflict) -> Json:
    return {
        "task_id": done.task and done.task.id,
        "status": str(done.task.status.state) if done.task else "settled",
        "open": len(done.task.status.questions) if done.task else 0,
    }


@operation(
    Scope.CONSOLIDATE,
    present=lambda found, _: {"reviews": [presenters.review(one) for one in found]},
    returns=("reviews",),
    http=(Http("GET", "/v1/reviews"),),
    mcp=Mcp(
        "List what waits for a decision: contradictions, proposals, and turns in quarantine.",
        toolset=REVIEWS,
        idempotent=True,
    ),
    cli="recall reviews list",
    read_only=True,
)
async def list_reviews(call: Call, given: ListReviews) -> list[Review]:
    """List what waits for a decision, the oldest first: questions, disputes, proposals, and turns
    in quarantine.
    """
    kinds = kinds_for(call, given.kind)
    return await call.services.reviews.waiting(call.context, kinds, limit=given.limit)


@operation(
    Scope.CONSOLIDATE,
    present=lambda done, _: presenters.answered(done),
    returns=("id", "kind"),
    becomes=decided_as,
    http=(Http("POST", "/v1/reviews/{id}"),),
    mcp=Mcp("Answer what waits for a decision, once, with one of its choices.", toolset=REVIEWS),
    cli="recall reviews answer",
)
async def answer_review(call: Call, given: AnswerReview) -> Answered:
    """Answer what waits for a decision, once."""
    return await _answer(call, given)


@operation(
    Scope.CONSOLIDATE,
    present=lambda found, _: {"conflicts": [presenters.conflict(one) for one in found]},
    returns=("conflicts",),
    http=(Http("GET", "/v1/conflicts"),),
    cli="recall conflicts list",
    read_only=True,
)
async def list_conflicts(call: Call, _: NoArguments) -> list[Review]:
    """List the contradictions that wait for an answer, the oldest first."""
    return await call.services.reviews.waiting(call.context, CONTRADICTIONS, limit=LISTED_MAX)


@operation(
    Scope.CONSOLIDATE,
    present=resolved,
    returns=("task_id", "status", "open"),
    http=(Http("POST", "/v1/conflicts"),),
    cli="recall conflicts resolve",
)
async def resolve_conflict(call: Call, given: ResolveConflict) -> Answered:
    """Answer one contradiction; a task goes on once nothing is left to ask."""
    return await _answer(call, given)


GET_POLICY = Operation(
    "get_policy",
    Scope.ADMIN,
    "Show how contradictions are settled if a request names no policy.",
    cli="recall conflicts policy",
)
SET_POLICY = Operation(
    "set_policy",
    Scope.ADMIN,
    "Set how contradictions are settled if a request names no policy.",
    cli="recall conflicts policy",
)


@operation(
    Scope.CONSOLIDATE,
    returns=("queued", "job_id"),
    whole_namespace=True,
    http=(Http("POST", "/v1/recheck", 202),),
    cli="recall recheck",
)
async def recheck_memories(call: Call, _: NoArguments) -> Json:
    """Compare the believed memories again: contradictions open disputes, and what nearly repeats is
    stated as a duplicate.
    """
    return {"queued": True, "job_id": await call.services.recheck.begin(call.context)}


# The words of held texts are exact, as data: they are to be judged, and must not be obeyed.
class ListQuarantine(Arguments):
    state: Annotated[Held, Field(strict=False)] = Held.HELD
    limit: int = Field(50, ge=1, le=LISTED_MAX)
    offset: int = Field(0, ge=0, le=INT64_MAX)


class OneSuspect(Arguments):
    id: str


def _suspects(found: Suspects, _: ListQuarantine) -> Json:
    return {
        "suspects": [presenters.suspect(one) for one in found.found],
        "total": found.total,
        "next_offset": found.next_offset,
    }


@operation(
    Scope.ADMIN,
    present=_suspects,
    returns=("suspects", "total", "next_offset"),
    whole_namespace=True,
    http=(Http("GET", "/v1/quarantine"),),
    cli="recall quarantine list",
    read_only=True,
)
async def list_quarantine(call: Call, given: ListQuarantine) -> Suspects:
    """List texts that were held back, with the reasons."""
    return await call.services.quarantine.list(
        call.context, state=given.state, limit=given.limit, offset=given.offset
    )


@operation(
    Scope.ADMIN,
    returns=("id", "state"),
    whole_namespace=True,
    http=(Http("POST", "/v1/quarantine/{id}/release"),),
    cli="recall quarantine release",
)
async def release_quarantined(call: Call, given: OneSuspect) -> Json:
    """Let a text be found, and make memories of it."""
    await call.services.quarantine.release(call.context, given.id)
    return {"id": given.id, "state": str(Held.RELEASED)}


@operation(
    Scope.ADMIN,
    returns=("id", "state"),
    whole_namespace=True,
    http=(Http("POST", "/v1/quarantine/{id}/reject"),),
    cli="recall quarantine reject",
)
async def reject_quarantined(call: Call, given: OneSuspect) -> Json:
    """Keep a text hidden for good."""
    await call.services.quarantine.reject(call.context, given.id)
    return {"id": given.id, "state": str(Held.REJECTED)}


OPERATIONS = (
    list_reviews,
    answer_review,
    list_conflicts,
    resolve_conflict,
    GET_POLICY,
    SET_POLICY,
    recheck_memories,
)
QUARANTINE = (list_quarantine, release_quarantined, reject_quarantined)
