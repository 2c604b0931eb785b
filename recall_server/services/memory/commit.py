"""Applies plans: the only code that changes memories. Checks, applies and indexes."""

from datetime import datetime

from recall_server.domain.errors import Stale
from recall_server.domain.memory import Status
from recall_server.domain.plan import Add, Change, Plan, Reinforce, Supersede
from recall_server.domain.search.index_entry import findable_memory
from recall_server.services.memory import indexing
from recall_server.storage.index.words import Postings
from recall_server.storage.store import Transaction


async def apply(
    tx: Transaction, plan: Plan, now: datetime, *, passages: Postings | None = None
) -> None:
    """Make the changes of `plan` within `tx`, index what is new, with the `passages` of a text that
    was stored with it, and store the decisions. What is superseded stays found.

    Raises `Stale` if a change does not find what it expects; the caller's transaction rolls back.
    """
    assert not plan.questions
    for change in plan.changes:
        await _apply(tx, change, now)
    added = [change.memory for change in plan.changes if isinstance(change, Add)]
    await indexing.show_new(tx, {one.id: findable_memory(one) for one in added}, passages)
    for decision in plan.decisions:
        await tx.memories.note(decision)


async def _apply(tx: Transaction, change: Change, now: datetime) -> None:
    match change:
        case Add(memory, also, rule):
            await tx.memories.add(memory, rule)
            for citation in also:
                await tx.memories.cite(memory.id, citation)
        case Reinforce(memory_id, citation, counts, until):
            if not await tx.memories.reinforce(
                memory_id, citation, now, counts=counts, until=until
            ):
                raise Stale
        case Supersede(memory_id, by, valid_until, rule):
            if not await tx.memories.retire(
                memory_id,
                Status.SUPERSEDED,
                now,
                superseded_by=by,
                valid_until=valid_until,
                reason=rule,
            ):
                raise Stale
