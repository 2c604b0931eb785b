"""Domain values as JSON."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime

from pydantic_core import to_json

from recall_server.api.operations.operation import Caller, Json
from recall_server.domain.attributes import Interval, Timeline, known_in, true_in
from recall_server.domain.episode import Citation, Episode
from recall_server.domain.memory import Memory, Place
from recall_server.domain.memory_event import EventKind, MemoryEvent
from recall_server.domain.permissions import Rights, TokenInfo
from recall_server.domain.plan import Choice, Question, Relation, Resolution
from recall_server.domain.query import Hit, ItemKind
from recall_server.domain.screening import Suspect
from recall_server.domain.task import JobProgress, Outcome, Status, Task, TaskState
from recall_server.domain.text.cleaning import plain_json
from recall_server.domain.trust import witness
from recall_server.services.erasure import Erased
from recall_server.services.memory.intents import Related
from recall_server.services.search.recall import Counts, Found, History, Page
from recall_server.services.tasks.reviews import Answered, Proposed, Review
from recall_server.storage.tables.tasks import PushConfig, Registration


def compact(value: Json) -> str:
    """Return JSON as text that a model reads. Characters that act on a terminal or hide are
    escaped, and a client that parses the text has the exact data.
    """
    return plain_json(to_json(value).decode())


def found(answer: Found, *, explain: bool) -> Json:
    return {
        "results": [hit(one, explain=explain) for one in answer.hits],
        "total": len(answer.hits),
        "evidence": round(answer.evidence, 4),
        "weak_evidence": answer.weak_evidence,
        "degraded": answer.degraded,
        "left_out": answer.left_out,
        **({"weights": dict(answer.weights)} if explain else {}),
    }


def hit(one: Hit, *, explain: bool) -> Json:
    item, valid_from = one.item, moment(one.item.valid_from)
    shown: Json = {
        "id": item.id,
        "text": one.text,
        "topic": item.topic,
        "type": item.type or "episode",
        "importance": round(item.importance, 4),
        "created_at": moment(item.recorded_at),
        "valid_from": valid_from,
        "score": round(one.scores.score, 6),
    }
    if one.quote:
        shown["quote"] = one.quote
    if item.kind is ItemKind.MEMORY:
        said = item.citation
        shown["speaker"] = said.speaker
        shown["said_at"] = valid_from if said.said_at == item.valid_from else moment(said.said_at)
    if item.superseded_by:
        shown |= {"superseded_by": item.superseded_by, "valid_until": moment(item.valid_until)}
    if one.gave_way_to:
        shown["gave_way_to"] = one.gave_way_to
    if one.disputed_with:
        shown["disputed_with"] = list(one.disputed_with)
    labels = item.unreconciled, item.expires_at, item.expired, item.container, item.tags
    # Most hits have none of these.
    if any((*labels, one.around, one.said_again)):
        beside: Json = {
            "unreconciled": item.unreconciled,
            "expires_at": moment(item.expires_at),
            "expired": item.expired,
            "container": item.container,
            "tags": list(item.tags),
            "around": [said.text for said in one.around],
            "said_again": [{"id": i, "said_at": moment(at)} for i, at in one.said_again],
        }
        shown |= {name: value for name, value in beside.items() if value}
    if explain:
        scores = one.scores
        shown["scores"] = {
            "final": scores.final,
            "coverage": scores.coverage,
            **scores.signals,
            "rerank": scores.rerank,
        }
        shown["source"] = citation(item.citation)
        shown["metadata"] = dict(item.metadata)
    return shown


def memory(one: Memory) -> Json:
    return {
        "id": one.id,
        "text": one.text,
        "topic": one.topic,
        "container": one.container or None,
        "tags": list(one.source.tags),
        "metadata": dict(one.source.metadata),
        "type": one.type,
        "layer": one.layer,
        "status": one.status,
        "entity": one.fact.entity if one.fact else None,
        "attribute": one.fact.attribute if one.fact else None,
        "value": one.fact.value if one.fact else None,
        "negated": one.fact.negated if one.fact else False,
        "importance": round(one.importance, 4),
        "confidence": round(one.confidence, 4),
        "created_at": moment(one.recorded_at),
        "valid_from": moment(one.valid_from),
        "valid_until": moment(one.valid_until),
        "superseded_by": one.superseded_by,
        "expires_at": moment(one.expires_at),
        "source": citation(one.citation),
        "trust": witness(one).trust.name.lower(),
        **({"unreconciled": True} if one.unreconciled else {}),
    }


def text(one: Episode, words: str) -> Json:
    """Return a stored text, with `words` as far as they can be read."""
    return {
        "id": one.id,
        "text": words,
        "topic": one.topic,
        "container": one.container or None,
        "session_id": one.source.session_id,
        "agent_id": one.source.agent_id,
        "client": one.source.client,
        "app": one.source.app,
        "model": one.source.model,
        "description": one.source.description,
        "name": one.source.name,
        "trace_id": one.source.trace_id,
        "group_id": one.source.group_id,
        "tags": list(one.source.tags),
        "metadata": dict(one.source.metadata),
        "said_at": moment(one.occurred_at),
        "created_at": moment(one.recorded_at),
        "expires_at": moment(one.expires_at),
        "whole": words == one.text,
        "job_id": one.job_id,
    }


def decision(one: Resolution, named: str = "question_id") -> Json:
    """Return a decision, with the id of its question under this name."""
    return {
        named: one.question_id,
        "choice": str(one.choice),
        "decided_by": one.decided_by,
        "decided_at": moment(one.decided_at),
        **(
            {"reason": one.reason, "confidence": round(one.confidence, 4)}
            if one.confidence is not None
            else {}
        ),
    }


def citation(one: Citation) -> Json:
    return {
        "episode_id": one.episode_id,
        "start": one.span.start,
        "end": one.span.end,
        "quote": one.quote,
        "speaker": one.speaker,
        "said_at": moment(one.said_at),
    }


def page(one: Page) -> Json:
    return {
        "memories": [memory(m) | disputed(m, one.disputed) for m in one.memories],
        "total": one.total,
        "has_more": one.has_more,
        "next_offset": one.next_offset,
        "next_cursor": cursor(one.next_place) if one.next_place else None,
    }


def cursor(place: Place) -> str:
    return f"{place.recorded_at.isoformat()}~{place.id}"


def disputed(one: Memory, others: Mapping[str, Sequence[str]]) -> Json:
    """The memories that contradict a memory, while the dispute is open."""
    return {"disputed_with": list(others.get(one.id, ()))} if one.status == "disputed" else {}


def relation(one: Relation) -> Json:
    return {
        "from_id": one.from_id,
        "relation": str(one.kind),
        "to_id": one.to_id,
        "reason": str(one.reason),
        "confidence": round(one.confidence, 4),
        "made_by": one.made_by,
        "made_at": moment(one.made_at),
    }


def judged(one: Resolution | None) -> Json:
    """Return what a language model decided about both ends of a relation, if one did."""
    if one is None or one.confidence is None:
        return {}
    by = {"by": one.decided_by, "choice": str(one.choice), "reason": one.reason}
    return {"judged": by | {"confidence": round(one.confidence, 4)}}


def related(made: Related) -> Json:
    return relation(made.relation) | {"question_id": made.question_id}


def with_relations(one: Memory, found: History) -> Json:
    """Return a memory with the decisions about it, if no rule could decide, and its relations."""
    return (
        memory(one)
        | disputed(one, found.disputed)
        | {
            "decisions": [decision(made) for made in found.decisions.get(one.id, ())],
            "relations": [
                relation(made) | judged(found.judged.get(made))
                for made in found.relations
                if one.id in (made.from_id, made.to_id)
            ],
        }
    )


def history(found: History) -> Json:
    return {
        "memories": [
            with_relations(m, found)
            | {"events": [event(one) for one in found.events if one.item_id == m.id]}
            for m in found.chain
        ],
        "total": len(found.chain),
        "has_more": False,
        "next_offset": None,
        "next_cursor": None,
    }


def event(one: MemoryEvent) -> Json:
    """An event of a memory: what, when, by whom and why; `change` is its job, task or call."""
    of_dispute = one.kind in (EventKind.DISPUTED, EventKind.SETTLED)
    return {
        "at": moment(one.at),
        "event": str(one.kind),
        "rule": None if of_dispute else one.reason or None,
        **({"question_id": one.reason} if of_dispute else {}),
        "by": one.accessor,
        "operation": one.operation or None,
        "change": one.change_id or None,
        "status": str(one.state.status) if one.state else None,
    }


def timeline(found: Timeline) -> Json:
    """The memories with the intervals in which each was true, and was known here."""
    return {
        "entity": found.entity,
        "attribute": found.attribute,
        "values": [
            memory(one) | {"true": interval(true_in(one)), "known": interval(known_in(one))}
            for one in found.memories
        ],
        "gaps": [interval(one) for one in found.gaps],
        "overlaps": [
            interval(one.interval) | {"memory_ids": [one.one, one.other]} for one in found.overlaps
        ],
        "cut": found.cut,
    }


def interval(one: Interval) -> Json:
    return {"from": moment(one.start), "until": moment(one.end)}


def merged(task: Task) -> Json:
    """Return the result of a merge in the fields of 0.1.0: a "deleted" source gave way, and stays
    in the history.
    """
    outcome = task.outcome or Outcome(dry_run=task.request.dry_run)
    return {
        "groups_found": outcome.groups_found,
        "memories_consolidated": len(outcome.superseded),
        "memories_created": len(outcome.created),
        "deleted_ids": list(outcome.superseded),
        "created": [memory(m) for m in outcome.created],
        "dry_run": outcome.dry_run,
        "task_id": task.id,
        "status": str(task.status.state),
    }


def erased(one: Erased) -> Json:
    """The rows that were erased, with the receipt and its secret; or those that would be."""
    targets: Json = {
        "kind": str(one.kind),
        "counts": dict(one.counts),
        "memory_ids": list(one.targets.memory_ids),
        "episode_ids": list(one.targets.episode_ids),
        "task_ids": list(one.targets.task_ids),
        "dry_run": one.dry_run,
    }
    if one.dry_run:
        return targets
    return {
        **targets,
        "tokens_revoked": one.tokens_revoked,
        "receipt_id": one.id,
        "receipt_secret": one.secret,
        "receipt": one.receipt,
    }


def job(one: JobProgress, memory_ids: Sequence[str] = ()) -> Json:
    return {
        "job_id": one.id,
        "kind": one.kind,
        "state": str(one.state),
        "attempts": one.attempts,
        "failures": one.failures,
        "error_code": one.error_code,
        "created_at": moment(one.created_at),
        "finished_at": moment(one.finished_at),
        "memory_ids": list(memory_ids),
    }


def counts(one: Counts) -> Json:
    statuses = one.by_status
    states = {} if statuses is None else {"by_status": {str(k): n for k, n in statuses.items()}}
    return {
        **states,
        "by_type": {str(kind): number for kind, number in one.by_type.items()},
        "total": one.total,
        "pending_extractions": one.backlog.pending_extractions,
        "failed_extractions": one.backlog.failed_extractions,
        "unreconciled": one.backlog.unreconciled,
        "pending_embeddings": one.backlog.pending_embeddings,
    }


def rights(one: Rights) -> Json:
    """Return scopes and limits; null means no limit."""
    access_scope = one.access_scope
    return {
        "scopes": sorted(one.scopes),
        "topics": None if access_scope.topics is None else sorted(access_scope.topics),
        "types": None if access_scope.types is None else sorted(access_scope.types),
        "agent_id": access_scope.agent_id,
        "containers": None if access_scope.containers is None else sorted(access_scope.containers),
    }


def whoami(one: Caller) -> Json:
    return {
        "namespace": one.namespace,
        "accessor": one.accessor,
        **rights(one.rights),
        "expires_at": moment(one.expires_at),
    }


def token(one: TokenInfo) -> Json:
    """Return a token. `not_before`: it is refused, since it was made before this moment."""
    return {
        "accessor": one.accessor,
        "namespace": one.namespace,
        "label": one.label,
        **rights(one.rights),
        "parent": one.parent,
        "created_at": moment(one.created_at),
        "expires_at": moment(one.expires_at),
        "uses_left": one.uses_left,
        "last_used_at": moment(one.last_used_at),
        "revoked_at": moment(one.revoked_at),
        "not_before": moment(one.not_before) if one.too_old else None,
    }


def push_config(one: PushConfig) -> Json:
    return {
        "id": one.id,
        "url": one.url,
        "scheme": one.scheme,
        "set_by": one.bearer and one.bearer.name,
        "set_at": moment(one.created_at),
    }


def webhook(one: Registration) -> Json:
    return {
        "id": one.id,
        "url": one.url,
        "kinds": list(one.kinds),
        "include_text": one.include_text,
        "state": "dead" if not one.active else "failing" if one.failures else "active",
        "failures": one.failures,
        "code": one.error_code,
        "delivered_at": moment(one.delivered_at),
        "set_by": one.bearer and one.bearer.name,
        "set_at": moment(one.created_at),
    }


def suspect(one: Suspect) -> Json:
    return {
        "id": one.item_id,
        "state": str(one.decided.state),
        "reasons": list(one.reasons),
        "topic": one.topic,
        "source": citation(one.citation),
        "agent_id": one.agent_id,
        "client": one.client,
        "held_at": moment(one.held_at),
        "decided_by": one.decided.by,
        "decided_at": moment(one.decided.at),
    }


def moment(at: datetime | None) -> str | None:
    """Return a time to the second: fractions tell a reader nothing, and cost a model tokens."""
    if at is None:
        return None
    return f"{at.astimezone(UTC).isoformat()[:19]}Z"


def asked(status: Status) -> str:
    count = len(status.questions)
    lines = [f"{status.note}\n" if status.note else ""]
    lines.append(f"{count} contradiction{'s need' if count > 1 else ' needs'} an answer.")
    for number, one in enumerate(status.questions, 1):
        known = " / ".join(
            f'"{memory.text}" ({memory.said_at:%Y-%m-%d})' for memory in one.existing
        )
        lines.append(
            f'{number}. Known: {known}. New: "{one.new.text}" ({one.new.said_at:%Y-%m-%d}). '
            f"{one.reason} Recommended: {one.recommended}."
        )
    lines.append(
        "Answer keep_existing, keep_new or keep_both for all of them; or by number, as in "
        "'1: keep_new, 2: keep_both'; or with a data part as response_schema describes."
    )
    return "\n".join(line for line in lines if line)


def question(one: Question) -> Json:
    fact = one.new.fact
    return {
        "id": one.id,
        "entity": fact and fact.entity,
        "attribute": fact and fact.attribute,
        "existing": [_side(memory) for memory in one.existing],
        "new": _side(one.new),
        "reason": one.reason,
        "choices": [str(choice) for choice in Choice],
        "recommended": str(one.recommended),
    }


def conflict(one: Review) -> Json:
    """Return a contradiction that waits, with the task that asks about it, if one does."""
    assert one.question is not None
    return {
        **question(one.question),
        "task_id": one.task and one.task.id,
        "asked_at": moment(one.asked_at),
        "expires_at": one.task and moment(one.task.expires_at),
    }


def review(one: Review) -> Json:
    if one.proposed:
        about = proposed(one.proposed)
    else:
        about = suspect(one.suspect) if one.suspect else conflict(one)
    for name in ("id", "choices", "asked_at"):
        about.pop(name, None)
    return {
        "id": one.id,
        "kind": str(one.kind),
        "asked_at": moment(one.asked_at),
        "choices": list(one.choices),
        "about": about,
    }


def proposed(one: Proposed) -> Json:
    """Return what somebody proposes to add (and what it would replace) or to forget."""
    return {
        "proposes": str(one.proposal.kind),
        "proposed_by": one.proposal.made_by,
        "new": [_side(memory) for memory in one.new],
        "targets": [_side(memory) for memory in one.targets],
    }


def answered(one: Answered) -> Json:
    shown: Json = {"id": one.id, "kind": str(one.kind)}
    if one.change_id:
        shown["change_id"] = one.change_id
    if one.task:
        shown |= {
            "task_id": one.task.id,
            "status": str(one.task.status.state),
            "open": len(one.task.status.questions),
        }
    return shown


def _side(memory: Memory) -> Json:
    return {
        "memory_id": memory.id,
        "text": memory.text,
        "value": memory.fact.value if memory.fact else None,
        "negated": memory.fact.negated if memory.fact else False,
        "source": citation(memory.citation),
        "said_at": moment(memory.said_at),
        "valid_from": moment(memory.valid_from),
        "confidence": round(memory.confidence, 4),
        "strength": round(strength(memory), 4),
    }


def strength(memory: Memory) -> float:
    """Return the support of a statement, in [0, 1], as if each time that it was stated had been an
    independent witness of its confidence.
    """
    return 1.0 - (1.0 - memory.confidence) ** (1 + memory.reinforcements)


def result(outcome: Outcome) -> Json:
    return {
        "dry_run": outcome.dry_run,
        "memories": [memory(one) for one in outcome.created],
        "superseded": list(outcome.superseded),
        "reinforced": list(outcome.reinforced),
        "groups_found": outcome.groups_found,
        "rejected": outcome.rejected,
        "read_to": outcome.read_to,
        "contradictions": [question(one) for one in outcome.questions],
        "resolutions": [decision(one, "id") for one in outcome.resolutions],
    }


def summary(outcome: Outcome) -> str:
    counts = (
        f"{len(outcome.created)} memories, {len(outcome.superseded)} superseded, "
        f"{len(outcome.reinforced)} reinforced"
    )
    head = f"Plan only, nothing is changed: {counts}" if outcome.dry_run else counts
    if outcome.questions:
        head += f", {len(outcome.questions)} contradictions to be answered"
    if outcome.read_to is not None:
        head += (
            f". The text was read up to character {outcome.read_to}, as that is all that one task "
            "changes; search finds all of it. Send the rest as another text"
        )
    return "\n".join(
        [f"{head}.", *(f"- {memory.type}: {memory.text}" for memory in outcome.created)]
    )


def plain(task: Task) -> Json:
    """A task as the plain routes of A2A show it."""
    shown: Json = {"id": task.id, "status": str(task.status.state)}
    if task.outcome is not None:
        shown["output"] = result(task.outcome)
    elif task.status.state is TaskState.INPUT_REQUIRED:
        shown["output"] = {"contradictions": [question(one) for one in task.status.questions]}
    if task.status.note:
        shown["message"] = task.status.note
    return shown


def consolidation(task: Task) -> Json:
    """A task as /v1/consolidations shows it: its state, and the fields of its result beside it."""
    shown = plain(task)
    return {"task_id": shown.pop("id"), **shown.pop("output", {}), **shown}
