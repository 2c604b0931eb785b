"""Recheck: compares believed memories with each other again, page by page. A contradiction opens a
dispute, of facts or of texts of which one denies the other; a near repetition is stated as a
duplicate. It decides and deletes nothing.

Judging: a language model settles a dispute that no rule settles, if it is sure enough. Anyone who
may answer the dispute can answer it first, or undo the decision.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.extraction import Judge, Judgement
from recall_server.domain.ids import derived_id
from recall_server.domain.memory import Memory
from recall_server.domain.permissions import ACCESS_SCOPE, AccessScope
from recall_server.domain.plan import (
    Choice,
    Dispute,
    Plan,
    Question,
    Relation,
    RelationKind,
    Resolution,
)
from recall_server.domain.similarity import near_duplicates, opposed
from recall_server.domain.task import Job, JobProgress, together
from recall_server.services.limits import Budget
from recall_server.services.memory import commit, reconcile
from recall_server.services.memory.beliefs import Beliefs, similar_items
from recall_server.services.memory.commit import JUDGE, Judgements, question_of
from recall_server.services.memory.episodes import Redaction
from recall_server.storage.store import Store, Transaction

RECHECK = "recheck"
# How many memories one job compares: the next page waits its turn among other namespaces.
PAGE_MEMORIES = 50


@dataclass(frozen=True)
class Recheck:
    store: Store
    runtime: Runtime
    judgements: Judgements

    async def begin(self, context: Context) -> str:
        """Queue the first page. Return the id of its job, which is the change id of all pages."""
        async with self.store.change(context) as tx:
            job_id = await promise(tx, self.runtime, AccessScope(), context.entry.began_by)
            context.entry.ids.append(job_id)
            context.entry.counts["queued"] = 1
        self.runtime.wake()
        return job_id

    async def progress(self, context: Context, job_id: str) -> JobProgress | None:
        """Return how far a recheck is, over all its pages; None if no recheck that the caller may
        see has this id.
        """
        if not context.caller_scope.everything:
            return None
        async with self.store.view(context) as tx:
            pages = await tx.jobs.of_run(job_id, RECHECK)
        if not pages:
            return None
        context.entry.ids.append(job_id)
        return together(pages)

    async def work(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Compare a page, and queue the next. Raises `Fenced` if another worker holds the job, and
        `Stale` if a memory to be disputed has changed meanwhile.
        """
        record, planned_at = entry(RECHECK), self.runtime.now()
        scope = ACCESS_SCOPE.validate_python(job.payload.get("reach", {}))
        async with self.store.transaction(job.namespace, write=False, access_scope=scope) as tx:
            page = await tx.memories.believed(job.payload.get("after", ""), PAGE_MEMORIES)
            plan = await _compared(tx, page, planned_at)
        async with self.store.transaction(job.namespace, entry=record, locked=True) as tx:
            now = await tx.moment()
            plan = plan.dated(planned_at, now)
            await commit.apply(tx, plan, now)
            await self.judgements.promise(tx, plan, job.accessor)
            await tx.jobs.finish(job, now)
            if len(page) == PAGE_MEMORIES:
                payload = {**job.payload, "after": page[-1].id}
                await tx.jobs.add(self.runtime.new_id("job"), RECHECK, payload, now, job.accessor)
            record.ids += plan.ids()
            record.counts |= {
                "memories": len(page),
                **plan.counts(),
                "duplicates": len(plan.relations),
            }
        self.runtime.wake()


async def promise(
    tx: Transaction, runtime: Runtime, scope: AccessScope, accessor: str | None
) -> str:
    """Queue a recheck of the memories in an access scope. Return the id of its first job."""
    job_id = runtime.new_id("job")
    payload = {"run_id": job_id, "reach": ACCESS_SCOPE.dump_python(scope, mode="json")}
    await tx.jobs.add(job_id, RECHECK, payload, runtime.now(), accessor)
    return job_id


async def _compared(tx: Transaction, page: Sequence[Memory], now: datetime) -> Plan:
    disputes, relations = [], list[Relation]()
    for memory in page:
        similar = await _similar(tx, memory)
        clashing = await _undecided(tx, memory, similar)
        if clashing:
            ids = tuple(one.id for one in clashing)
            question_id = derived_id("q", memory.id, *ids, now.isoformat())
            disputes.append(Dispute(question_id, memory.id, ids))
        mine = (memory.recorded_at, memory.id)
        older = [one for one in similar if (one.recorded_at, one.id) < mine]
        relations += [
            Relation.by_rule(memory, RelationKind.DUPLICATES, one, now)
            for one in await _those(near_duplicates, memory, older)
        ]
    return Plan(tuple(disputes), relations=tuple(relations))


async def _similar(tx: Transaction, memory: Memory) -> list[Memory]:
    """Return other memories of the same type and container that share words with a memory."""
    found = [one for one in await similar_items(tx, memory.text) if one.startswith("mem_")]
    return [
        one
        for one in await tx.memories.active(found)
        if (one.type, one.container) == (memory.type, memory.container) and one.id != memory.id
    ]


async def _undecided(tx: Transaction, memory: Memory, similar: Sequence[Memory]) -> list[Memory]:
    """Return the older memories that a memory contradicts, if nobody was asked and nothing was
    decided about them. Memories that expire are left out.
    """
    clashing = {one.id: one for one in await reconcile.rivals(tx, memory)}
    clashing |= {one.id: one for one in await _those(opposed, memory, similar)}
    rivals = [
        one
        for one in clashing.values()
        if one.container == memory.container
        and one.expires_at is None
        and (one.said_at, one.id) < (memory.said_at, memory.id)
    ]
    if not rivals:
        return []
    decided = await tx.decisions.of_memories([memory.id, *(one.id for one in rivals)])
    mine = {one.question_id for one in decided.get(memory.id, ())}
    asked = (await tx.disputes.others([memory.id])).get(memory.id, ())
    return [
        one
        for one in rivals
        if one.id not in asked
        and mine.isdisjoint(each.question_id for each in decided.get(one.id, ()))
    ]


async def _those(
    holds: Callable[[str, str], bool], memory: Memory, others: Sequence[Memory]
) -> list[Memory]:
    """Return the memories for whose texts a comparison holds."""
    if not others:
        return []
    # In a thread: comparing characters is slow, and others are waiting.
    found = await asyncio.to_thread(lambda: [holds(memory.text, one.text) for one in others])
    return [one for one, same in zip(others, found, strict=True) if same]


@dataclass(frozen=True)
class Judging:
    """Has disputes judged. A judgement of less than `confidence_min` leaves its dispute open;
    without one, or without a judge, all stay open.
    """

    store: Store
    runtime: Runtime
    budget: Budget
    redaction: Redaction
    judge: Judge | None
    confidence_min: float | None

    @property
    def judgements(self) -> Judgements:
        judges = self.judge is not None and self.confidence_min is not None
        return Judgements(self.runtime, judges)

    async def work(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Judge one dispute. Raises what `Budget.ask` raises, and `Fenced` if another worker
        holds the job.
        """
        record = entry(JUDGE)
        async with self.store.transaction(job.namespace, write=False) as tx:
            question = await _open(tx, job)
        judgement, reason = None, ""
        if question is not None and self.judge is not None and self.judgements.judges:
            judgement = await self.budget.ask(
                job.namespace, self.judge.call_tokens_max, partial(self.judge.judge, question)
            )
            reason = await self.redaction.text(judgement.reason, record)
            record.usage = judgement.usage
        async with self.store.transaction(job.namespace, entry=record, locked=True) as tx:
            now = await tx.moment()
            await tx.jobs.finish(job, now)
            if question is None or judgement is None:
                return
            if (left := await _open(tx, job)) != question:
                # A side has changed since it was asked, or somebody has answered.
                await self.judgements.promise_each(tx, [question.id] if left else [], job.accessor)
                return
            if not await self._may(tx, question, judgement):
                return
            choice = judgement.choice or Choice.KEEP_BOTH
            resolution = Resolution(
                question.id,
                choice,
                judgement.by,
                now,
                reason=reason,
                confidence=judgement.confidence,
            )
            plan = await reconcile.answered(tx, question, resolution, now)
            await commit.apply(tx, plan, now)
            record.ids += [question.id, *plan.ids()]
            record.counts |= plan.counts()
        self.runtime.wake()

    async def _may(self, tx: Transaction, question: Question, judgement: Judgement) -> bool:
        """True if the judgement settles the question: it is sure enough, and puts no side above one
        that is trusted more.
        """
        if judgement.choice is None or judgement.confidence < (self.confidence_min or 0):
            return False
        beliefs = Beliefs(tx)
        await beliefs.load_witnesses([question.new, *question.existing])
        new = beliefs.trust(question.new)
        existing = [beliefs.trust(one) for one in question.existing]
        match judgement.choice:
            case Choice.KEEP_NEW:
                return new >= max(existing)
            case Choice.KEEP_EXISTING:
                return min(existing) >= new
            case _:
                return True


async def _open(tx: Transaction, job: Job) -> Question | None:
    dispute = await tx.disputes.get(job.payload["question_id"])
    if dispute is None:
        return None
    known = await tx.memories.get([dispute.new, *dispute.existing])
    return await question_of(tx, dispute, known)
