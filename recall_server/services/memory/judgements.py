"""Questions of disputes, and the jobs that have a language model judge them."""

from collections.abc import Mapping

from recall_server.domain.context import Runtime
from recall_server.domain.memory import BELIEVED, Memory
from recall_server.domain.plan import Dispute, Plan, Question
from recall_server.services.memory import reconcile
from recall_server.storage.store import Transaction
from recall_server.storage.tables.disputes import OpenDispute

JUDGE = "judge"


async def promise_judgements(
    tx: Transaction, runtime: Runtime, plan: Plan, accessor: str | None
) -> None:
    """Add a job that has each dispute of the plan judged, on behalf of whoever opened it."""
    for change in plan.changes:
        if isinstance(change, Dispute):
            payload = {"question_id": change.question_id}
            await tx.jobs.add(runtime.new_id("job"), JUDGE, payload, runtime.now(), accessor)


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
