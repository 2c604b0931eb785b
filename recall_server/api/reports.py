"""The report of a submission, as JSON."""

from typing import Any

from recall_server.domain.intents import Intent
from recall_server.domain.plan import (
    Add,
    Change,
    Dispute,
    EndEarlier,
    Forget,
    Propose,
    Reinforce,
    Ruling,
    Supersede,
)
from recall_server.services.memory.intents import Report

Json = dict[str, Any]

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
_UNCLEAR = "Several memories match as well as each other. Send the memory_id of one of them."
_NO_MATCH = "No memory matches these words well enough. Send a memory_id, or more of its words."


def report(one: Report) -> Json:
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
    shown: Json = {
        "outcome": outcome,
        "intent": str(one.intent),
        "dry_run": one.dry_run,
        "message": _SHOWN if one.dry_run and changes else message,
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
