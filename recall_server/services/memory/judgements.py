"""Questions of disputes, and the jobs that have a language model judge them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from recall_server.domain.context import Runtime
from recall_server.domain.ids import derived_id
from recall_server.domain.memory import BELIEVED, Memory
from recall_server.domain.plan import Dispute, Plan, Question
from recall_server.services.memory import reconcile
from recall_server.storage.store import Transaction
from recall_server.storage.tables.disputes import OpenDispute

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
