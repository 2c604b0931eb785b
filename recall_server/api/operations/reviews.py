"""Reviews: everything that waits for a decision. The questions and disputes are also listed as
conflicts, their older name.
"""

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.arguments import Arguments, NoArguments
from recall_server.api.operations.operation import REVIEWS, Call, Http, Json, Mcp, Operation
from recall_server.api.operations.quarantine import REJECT_QUARANTINED, RELEASE_QUARANTINED
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.plan import Choice
from recall_server.domain.proposal import is_proposal
from recall_server.services.tasks.reviews import (
    CONTRADICTIONS,
    Answered,
    Review,
    ReviewKind,
    Verdict,
)

LISTED_MAX = 100


class ListReviews(Arguments):
    kind: Annotated[ReviewKind | None, Field(strict=False)] = None
    limit: int = Field(50, ge=1, le=LISTED_MAX)


class AnswerReview(Arguments):
    """The body of an answer; `text` goes with merge and edit."""

    id: str
    choice: Literal[
        "keep_existing",
        "keep_new",
        "keep_both",
        "merge",
        "accept",
        "edit",
        "reject",
        "release",
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
    if RELEASE_QUARANTINED.allowed(rights) and rights.access_scope.everything:
        kinds.add(ReviewKind.QUARANTINE)
    return kinds if kind is None else kinds & {kind}


async def list_page(call: Call, given: ListReviews) -> list[Review]:
    kinds = kinds_for(call, given.kind)
    return await call.services.reviews.waiting(call.context, kinds, limit=given.limit)


async def answer(call: Call, given: AnswerReview | ResolveConflict) -> Answered:
    return await call.services.reviews.answer(
        call.context, given.id, given.decision, given.text, call.caller.rights
    )


def decided_as(given: AnswerReview, _: Rights) -> Operation:
    """Return the operation of an answer: releasing a turn needs the scope for that."""
    if is_proposal(given.id):
        return ANSWER_REVIEW
    match given.decision:
        case Verdict.RELEASE:
            return RELEASE_QUARANTINED
        case Verdict.REJECT:
            return REJECT_QUARANTINED
        case _:
            return ANSWER_REVIEW


async def list_conflicts(call: Call, _: NoArguments) -> list[Review]:
    return await call.services.reviews.waiting(call.context, CONTRADICTIONS, limit=LISTED_MAX)


def resolved(done: Answered, _: ResolveConflict | None = None) -> Json:
    return {
        "task_id": done.task and done.task.id,
        "status": str(done.task.status.state) if done.task else "settled",
        "open": len(done.task.status.questions) if done.task else 0,
    }


LIST_REVIEWS = Operation(
    "list_reviews",
    Scope.CONSOLIDATE,
    "List what waits for a decision, the oldest first: questions, disputes, proposals, and turns "
    "in quarantine.",
    ListReviews,
    list_page,
    lambda found, _: {"reviews": [presenters.review(one) for one in found]},
    ("reviews",),
    http=(Http("GET", "/v1/reviews"),),
    mcp=Mcp(
        "List reviews",
        "List what waits for a decision: contradictions, proposals, and turns in quarantine.",
        toolset=REVIEWS,
        idempotent=True,
    ),
    cli="recall reviews list",
    read_only=True,
)
ANSWER_REVIEW = Operation(
    "answer_review",
    Scope.CONSOLIDATE,
    "Answer what waits for a decision, once.",
    AnswerReview,
    answer,
    lambda done, _: presenters.answered(done),
    ("id", "kind"),
    becomes=decided_as,
    http=(Http("POST", "/v1/reviews/{id}"),),
    mcp=Mcp(
        "Answer review",
        "Answer what waits for a decision, once, with one of its choices.",
        toolset=REVIEWS,
    ),
    cli="recall reviews answer",
)
LIST_CONFLICTS = Operation(
    "list_conflicts",
    Scope.CONSOLIDATE,
    "List the contradictions that wait for an answer, the oldest first.",
    NoArguments,
    list_conflicts,
    lambda found, _: {"conflicts": [presenters.conflict(one) for one in found]},
    ("conflicts",),
    http=(Http("GET", "/v1/conflicts"),),
    cli="recall conflicts list",
    read_only=True,
)
RESOLVE_CONFLICT = Operation(
    "resolve_conflict",
    Scope.CONSOLIDATE,
    "Answer one contradiction; a task goes on once nothing is left to ask.",
    ResolveConflict,
    answer,
    resolved,
    ("task_id", "status", "open"),
    http=(Http("POST", "/v1/conflicts"),),
    cli="recall conflicts resolve",
)
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

OPERATIONS = (
    LIST_REVIEWS,
    ANSWER_REVIEW,
    LIST_CONFLICTS,
    RESOLVE_CONFLICT,
    GET_POLICY,
    SET_POLICY,
)
