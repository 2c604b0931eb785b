"""Applies plans: changes memories and their index entries; and asks the questions of disputes that
a plan leaves, with the jobs that have a language model judge them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial

from recall_server.domain.context import Runtime
from recall_server.domain.errors import Stale
from recall_server.domain.ids import derived_id
from recall_server.domain.memory import BELIEVED, Memory, Status
from recall_server.domain.plan import (
    Add,
    Change,
    Dispute,
    EndEarlier,
    Forget,
    Plan,
    Propose,
    Question,
    Reinforce,
    Restore,
    Rule,
    Settle,
    Supersede,
)
from recall_server.domain.search.index_entry import findable_memory
from recall_server.services.memory import indexing, reconcile
from recall_server.storage.index.words import Postings
from recall_server.storage.store import Transaction
from recall_server.storage.tables.disputes import OpenDispute


async def apply(
    tx: Transaction, plan: Plan, now: datetime, *, passages: Postings | None = None
) -> None:
    """Make the changes of `plan` within `tx`, index new memories together with the `passages` of a
    text that was stored with them, and store the decisions and relations. Superseded memories stay
    in the index.

    Raises `Stale` if a change does not find what it expects; the caller's transaction rolls back.
    """
    assert not plan.questions
    for change in plan.changes:
        await _apply(tx, change, now)
    added = [change.memory for change in plan.changes if isinstance(change, Add)]
    await indexing.show_new(tx, {one.id: findable_memory(one) for one in added}, passages)
    for decision in plan.decisions:
        await tx.decisions.add(decision)
    if plan.relations:
        await tx.relations.add(plan.relations, {one.id for one in added})
    if any(isinstance(change, Supersede | Forget) for change in plan.changes):
        await settle_ended(tx, now)


async def settle_ended(tx: Transaction, now: datetime) -> None:
    """Settle the disputes with a side that is no longer believed: nothing is left to ask."""
    for question_id in await tx.disputes.ended():
        await _apply(tx, Settle(question_id), now)


async def _apply(tx: Transaction, change: Change, now: datetime) -> None:
    match change:
        case Add():
            await _add(tx, change)
            done = True
        case Reinforce():
            done = await _reinforce(tx, change, now)
        case Supersede() | EndEarlier():
            done = await _supersede(tx, change, now)
        case Forget(memory_id):
            words = await tx.memories.citations([memory_id])
            await indexing.hide(tx, [memory_id])
            await tx.memories.forget(memory_id, now)
            await indexing.forget_words(tx, memory_id, words, now)
            done = True
        case Restore(memory):
            await tx.memories.restore(memory, now)
            await indexing.show(tx, [memory.id])
            texts = {one.episode_id for one in await tx.memories.citations([memory.id])}
            await indexing.reread(tx, texts, partial(tx.episodes.remember, memory.id, now))
            done = True
        case Dispute(question_id, memory_id, existing):
            done = await tx.disputes.open(question_id, memory_id, existing, now)
        case Settle(question_id):
            done = await tx.disputes.close(question_id, now)
        case Propose():
            await _propose(tx, change, now)
            done = True
    if not done:
        raise Stale


async def _reinforce(tx: Transaction, change: Reinforce, now: datetime) -> bool:
    return await tx.memories.reinforce(
        change.memory_id,
        change.citation,
        now,
        counts=change.counts,
        until=change.until,
        superseded=change.superseded,
    )


async def _supersede(tx: Transaction, change: Supersede | EndEarlier, now: datetime) -> bool:
    memory_id, by, until = change.memory_id, change.by, change.valid_until
    if isinstance(change, EndEarlier):
        return await tx.memories.end_earlier(memory_id, by, until, now, reason=Rule.LATE_REPORT)
    return await tx.memories.retire(
        memory_id,
        Status.SUPERSEDED,
        now,
        superseded_by=by,
        valid_until=until,
        reason=change.rule,
    )


async def _add(tx: Transaction, change: Add) -> None:
    await tx.memories.add(change.memory, change.rule)
    for citation in change.also:
        await tx.memories.cite(change.memory.id, citation)


async def _propose(tx: Transaction, change: Propose, now: datetime) -> None:
    """Store proposed memories as forgotten, which hides their words, or as quarantined if their
    words are to stay findable.
    """
    for memory in change.memories:
        if change.hides_words:
            await tx.memories.add(memory)
            await _apply(tx, Forget(memory.id), now)
        else:
            await tx.memories.add(replace(memory, status=Status.QUARANTINED, retired_at=now))
    await tx.proposals.open(change.proposal)


JUDGE = "judge"


@dataclass(frozen=True)
class Judgements:
    """Queues the jobs that have disputes judged, on behalf of whoever opened them; none if no
    language model `judges`.
    """

    runtime: Runtime
    judges: bool

    async def promise(self, tx: Transaction, plan: Plan, accessor: str | None) -> None:
        """Queue a job for each dispute of the plan."""
        disputes = [one.question_id for one in plan.changes if isinstance(one, Dispute)]
        await self.promise_each(tx, disputes, accessor)

    async def promise_each(
        self, tx: Transaction, disputes: Iterable[str], accessor: str | None
    ) -> None:
        """Queue a job for each of these disputes that none waits for."""
        for one in disputes if self.judges else ():
            job_id, now = derived_id("job", one, JUDGE), self.runtime.now()
            payload = {"question_id": one}
            await tx.jobs.add(job_id, JUDGE, payload, now, accessor, again=True)


async def question_of(
    tx: Transaction, dispute: OpenDispute, known: Mapping[str, Memory]
) -> Question | None:
    """Return the question of a dispute; None if a side is not `known`, as it is beyond the access
    scope, or believed no more.
    """
    if not known.keys() >= {dispute.new, *dispute.existing}:
        return None
    existing = [known[one] for one in dispute.existing]
    believed = [one for one in existing if one.status in BELIEVED]
    if not believed or known[dispute.new].status not in BELIEVED:
        return None
    return await reconcile.question_of(tx, dispute.question_id, known[dispute.new], believed)
