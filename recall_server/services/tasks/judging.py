"""Judging: a language model settles a dispute that no rule settles, if it is sure enough. Anyone
who may answer the dispute can answer it first, or undo the decision.
"""

from collections.abc import Callable
from dataclasses import dataclass

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Runtime
from recall_server.domain.plan import Choice, Question, Resolution
from recall_server.domain.task import Job
from recall_server.integrations.extraction.extractor import Judge, Judgement
from recall_server.services.limits.budget import Budget
from recall_server.services.memory import commit, reconcile
from recall_server.services.memory.beliefs import Beliefs
from recall_server.services.memory.episodes import Redaction
from recall_server.services.memory.judgements import JUDGE, Judgements, question_of
from recall_server.storage.store import Store, Transaction


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
        """Judge one dispute. Raises what `Budget.judge` raises, and `Fenced` if another worker
        holds the job.
        """
        record = entry(JUDGE)
        async with self.store.transaction(job.namespace, write=False) as tx:
            question = await _open(tx, job)
        judgement, reason = None, ""
        if question is not None and self.judge is not None and self.judgements.judges:
            judgement = await self.budget.judge(job.namespace, self.judge, question)
            reason = await self.redaction.text(judgement.reason, record)
            record.usage = judgement.usage
        async with self.store.transaction(job.namespace, entry=record) as tx:
            await tx.lock()
            now = self.runtime.now()
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
