"""Intents: remember, correct or forget at once, with a report of what was decided; change a memory
by hand, and state what one is to another.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.operations.intake import Origin, check_own, moment_given, source_of
from recall_server.api.operations.memories import delete_memory
from recall_server.api.operations.operation import (
    REVIEWS,
    Arguments,
    Call,
    Http,
    Json,
    Mcp,
    Operation,
    operation,
)
from recall_server.domain.errors import Invalid
from recall_server.domain.intents import Intent, intended
from recall_server.domain.memory import MemoryType
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.plan import (
    Add,
    Change,
    Dispute,
    EndEarlier,
    Forget,
    Propose,
    Reinforce,
    RelationKind,
    Ruling,
    Supersede,
)
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Related, Report, Wish


class ProposeChange(Arguments):
    text: str = ""
    intent: Annotated[Intent, Field(strict=False)] = Intent.AUTO
    memory_id: str = Field("", description="to correct or forget; else the best match of text")
    type: Annotated[MemoryType | None, Field(strict=False)] = None
    container: str = ""
    dry_run: bool = False
    topic: str = ""
    confidence: float | None = Field(None, ge=0, le=1)
    evidence: str = ""
    needs_review: bool = False
    session_id: str = ""
    agent_id: str = ""
    tags: list[str] = Field([])
    metadata: dict[str, Any] = Field({})
    source: Origin | None = Field(None, description="{app?, model?, description?}")
    trace_id: str = ""
    occurred_at: str = Field("", description="when it was said; ISO date, or time with zone")
    expires_at: str = ""

    def wish(self, call: Call) -> Wish:
        """Return the wish of a caller. Raises `Invalid` if the arguments do not fit together."""
        intent = intended(self.intent, self.text, self.memory_id)
        if not self.text.strip() and not (self.memory_id and intent is Intent.FORGET):
            raise Invalid("There is no text. Send what is to be remembered, or is right.")
        return Wish(
            self.intent,
            Submission(
                self.text,
                self.topic,
                source=source_of(self, call.client),
                container=self.container,
                occurred_at=moment_given(self.occurred_at, "occurred_at"),
                expires_at=moment_given(self.expires_at, "expires_at"),
            ),
            self.memory_id,
            self.type,
            self.confidence,
            self.dry_run,
            review=_decided_as(self, call.caller.rights) is propose_change,
            evidence=self.evidence,
            needs_review=self.needs_review,
        )


class SubmitMemory(ProposeChange):
    """The same, done at once, unless it is to wait for a review."""

    review: bool = False


class SubmitDurable(SubmitMemory):
    """`submit_memory`, or the body that Camillo takes."""

    namespace: str = ""
    content: str = ""
    memory_type: (
        Literal["semantic", "preference", "procedural", "relationship", "profile", "core"] | None
    ) = None
    scope: Literal["local"] | None = Field(None, description="a memory stays in its namespace")

    def wish(self, call: Call) -> Wish:
        check_own(self.namespace, "namespace", call.caller.namespace)
        if self.text and self.content:
            raise Invalid("Send one of text and content.")
        if self.type and self.memory_type:
            raise Invalid("Send one of type and memory_type.")
        type_ = MemoryType(self.memory_type) if self.memory_type else self.type
        given = {"text": self.text or self.content, "type": type_}
        return SubmitMemory.wish(self.model_copy(update=given), call)


class UpdateMemory(Arguments):
    """The fields to change; all others stay."""

    memory_id: str
    text: str = ""
    type: Annotated[MemoryType | None, Field(strict=False)] = None
    confidence: float | None = Field(None, ge=0, le=1)
    dry_run: bool = False
    review: bool = False


class RelateMemories(Arguments):
    from_id: str
    relation: Annotated[RelationKind, Field(strict=False)]
    to_id: str
    confidence: float = Field(1.0, ge=0, le=1)


def _decided_as(given: ProposeChange, rights: Rights) -> Operation:
    text = given.text or (given.content if isinstance(given, SubmitDurable) else "")
    forgets = intended(given.intent, text, given.memory_id) is Intent.FORGET
    asked = delete_memory if forgets else submit_memory
    at_once = isinstance(given, SubmitMemory) and not given.review
    return _or_proposed(asked, rights, review=not at_once)


def _updated_as(given: UpdateMemory, rights: Rights) -> Operation:
    return _or_proposed(update_memory, rights, review=given.review)


def _or_proposed(asked: Operation, rights: Rights, *, review: bool) -> Operation:
    """Return the operation that a caller with these rights asks for: a caller that may only propose
    the change proposes it.
    """
    unasked = rights.proposes and not rights.allows(asked.scope)
    return propose_change if review or unasked else asked


# The first of these changes that a plan contains is the outcome of the submission.
_OUTCOMES = (
    (Propose, "proposed", "It waits until somebody accepts it: see the reviews."),
    (Forget, "forgotten", "It is not found any more. Restoring it takes that back."),
    (
        Dispute,
        "disputed",
        "It contradicts what is remembered. Both stay until somebody answers: see the reviews.",
    ),
    (Supersede, "superseded", "It takes the place of what was remembered before."),
    (Add, "added", "It is remembered."),
    (Reinforce, "reinforced", "It was remembered already; these words are cited with it."),
)
_SHOWN = "Nothing is changed: this shows what would be done without dry_run."
_HELD = "The words read like an order to a model. They are held back until somebody releases them."
_UNCLEAR = "Any of these memories may be meant. Send the memory_id of one of them."
_NOT_FORGOTTEN = (
    " Nothing was forgotten, as the words may be a statement: to forget, send intent forget with "
    "words of one memory, or with its memory_id."
)
_NO_MATCH = "No memory matches these words well enough. Send a memory_id, or more of its words."


def reported(one: Report, _: Arguments | None = None) -> Json:
    """Return what was decided about a submission, by which rule, against which memories, and which
    others came near.
    """
    changes = one.plan.changes
    found = next(
        ((name, why) for kind, name, why in _OUTCOMES if any(isinstance(c, kind) for c in changes)),
        ("nothing", "It was remembered already, from these words."),
    )
    if one.held:
        found = ("held", _HELD)
    elif one.unclear:
        found = ("nothing", _UNCLEAR)
    elif not changes and one.intent is not Intent.REMEMBER:
        found = ("nothing", _NO_MATCH)
    outcome, message = found
    message = _SHOWN if one.dry_run and changes else message
    shown: Json = {
        "outcome": outcome,
        "intent": str(one.intent),
        "dry_run": one.dry_run,
        "message": message + (_NOT_FORGOTTEN if one.not_forgotten else ""),
        "changes": [_change(change, one) for change in changes],
        "rules": [_ruling(ruling) for ruling in one.plan.rulings],
        "considered": [
            {"memory_id": near.memory.id, "text": near.memory.text, "score": near.score}
            for near in one.considered
        ],
        "thresholds": vars(one.thresholds),
    }
    if one.unclear:
        shown["unclear"] = list(one.unclear)
    if one.masked:
        shown["masked"] = one.masked
    if one.change_id:
        shown["change_id"] = one.change_id
    if one.episode_id:
        shown["episode_id"] = one.episode_id
    return shown


def _change(change: Change, report: Report) -> Json:
    """Return a change with the words of its memory. A dry run's new memory has no id yet."""
    known = {
        memory.id: memory.text
        for ruling in report.plan.rulings
        for memory in (ruling.memory, *ruling.same, *ruling.clashing)
    } | {near.memory.id: near.memory.text for near in report.considered}
    disputed = {one.memory_id for one in report.plan.changes if isinstance(one, Dispute)}
    new = {added.memory.id for added in report.plan.changes if isinstance(added, Add)}

    def id_of(memory_id: str) -> str | None:
        return None if report.dry_run and memory_id in new else memory_id

    match change:
        case Add(memory):
            return {
                "change": "added",
                "memory_id": id_of(memory.id),
                "text": memory.text,
                "type": str(memory.type),
                "status": "disputed" if memory.id in disputed else str(memory.status),
                "superseded_by": memory.superseded_by,
            }
        case Supersede(memory_id, by) | EndEarlier(memory_id, by):
            return {
                "change": "superseded",
                "memory_id": memory_id,
                "text": known.get(memory_id),
                "by": id_of(by),
            }
        case Dispute(question_id, memory_id, existing):
            return {
                "change": "disputed",
                "memory_id": id_of(memory_id),
                "with": list(existing),
                "review_id": None if report.dry_run else question_id,
            }
        case Propose(proposal, memories):
            return {
                "change": "proposed",
                "review_id": proposal.id,
                "kind": str(proposal.kind),
                "statements": [one.text for one in memories],
                "targets": list(proposal.targets),
            }
        case Reinforce(memory_id) | Forget(memory_id):
            name = "reinforced" if isinstance(change, Reinforce) else "forgotten"
            return {"change": name, "memory_id": memory_id, "text": known.get(memory_id)}
        case _:
            raise AssertionError(change)


def _ruling(one: Ruling) -> Json:
    return {
        "rule": str(one.rule),
        "statement": one.memory.text,
        "same": [memory.id for memory in one.same],
        "against": [{"memory_id": other.id, "text": other.text} for other in one.clashing],
    }


_RETURNS = (
    *("outcome", "intent", "dry_run", "message", "changes", "rules", "considered"),
    "thresholds",
)
# The arguments that a model is told of.
_LISTED = {"text", "intent", "memory_id", "type", "container", "dry_run"}


@operation(
    Scope.WRITE,
    present=reported,
    returns=_RETURNS,
    becomes=_decided_as,
    proposes=True,
    http=(
        Http("POST", "/v1/memories:submit"),
        Http("POST", "/submit_memory", arguments=SubmitDurable),
    ),
    mcp=Mcp(
        "Remember, correct or forget one statement at once. The answer says what was decided and "
        "why; dry_run only shows it.",
        SubmitDurable,
        returns=("outcome", "message", "changes"),
        unlisted=frozenset(SubmitDurable.model_fields) - _LISTED,
    ),
)
async def submit_memory(call: Call, given: SubmitMemory) -> Report:
    """Remember, correct or forget something at once, and report what was decided."""
    return await call.services.intents.submit(call.context, given.wish(call))


@operation(
    Scope.EDIT,
    present=reported,
    returns=_RETURNS,
    becomes=_updated_as,
    proposes=True,
    http=(Http("PATCH", "/v1/memories/{memory_id}"),),
    cli="recall edit",
)
async def update_memory(call: Call, given: UpdateMemory) -> Report:
    """Change a memory by hand: a new version takes its place, whoever said the old one."""
    return await call.services.intents.update(
        call.context,
        given.memory_id,
        text=given.text,
        type_=given.type,
        confidence=given.confidence,
        dry_run=given.dry_run,
        review=_updated_as(given, call.caller.rights) is propose_change,
    )


@operation(
    Scope.PROPOSE,
    present=reported,
    returns=_RETURNS,
    http=(Http("POST", "/v1/proposals"),),
)
async def propose_change(call: Call, given: ProposeChange) -> Report:
    """Propose to remember, correct or forget something: it waits until somebody accepts it."""
    return await call.services.intents.submit(call.context, given.wish(call))


@operation(
    Scope.WRITE,
    present=lambda made, _: presenters.related(made),
    returns=("from_id", "relation", "to_id", "question_id"),
    http=(Http("POST", "/v1/relations"),),
    mcp=Mcp(
        "State what one memory is to another; contradicts opens a dispute.",
        toolset=REVIEWS,
        idempotent=True,
    ),
)
async def relate_memories(call: Call, given: RelateMemories) -> Related:
    """State what one memory is to another."""
    return await call.services.intents.relate(
        call.context, given.from_id, given.relation, given.to_id, given.confidence
    )


OPERATIONS = (submit_memory, update_memory, propose_change, relate_memories)
