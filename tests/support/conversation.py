"""Storing, searching and listing through the services, as Alice."""

from recall_server.application import Application
from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.episode import Citation, Span, episode_of
from recall_server.domain.ids import Namespace
from recall_server.domain.intents import Intent
from recall_server.domain.memory import Memory, MemoryType
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.plan import Dispute, Policy
from recall_server.services.memory.ingest import Accepted, Submission
from recall_server.services.memory.intents import Wish
from recall_server.storage.store import Transaction
from tests.support.runtime import NOON

ALICE = Namespace("alice")


def entry(application: Application, namespace: Namespace = ALICE) -> AuditEntry:
    return application.services.audit.begin(namespace, "store_memory", "test", "acc_test")


def context(
    application: Application, namespace: Namespace = ALICE, *, scope: AccessScope = FULL_ACCESS
) -> Context:
    """Return the context of a caller, by default with access to the whole namespace."""
    return Context(entry(application, namespace), scope)


async def enter(application: Application, namespace: Namespace = ALICE) -> str:
    """Make a namespace, and return a token of it."""
    line = application.services.audit.begin(namespace, "create_token", "test", None)
    token, _ = await application.services.access.issue(Context(line))
    return token


async def remember(application: Application, text: str, *, key: str | None = None) -> Accepted:
    return await application.services.ingest.remember(
        context(application), Submission(text, "life", key)
    )


async def drained(application: Application) -> None:
    """Run jobs until none is due."""
    while await application.worker.run_once():
        pass


async def memories(application: Application, *, limit: int = 20) -> list[Memory]:
    """Return the active memories, with their quotes."""
    async with application.store.transaction(ALICE, write=False) as tx:
        return await tx.memories.page(limit=limit, offset=0, type_="", topic="")


async def citing(tx: Transaction, text: str = "") -> Memory:
    """Return a memory, without an id, that cites words of the first text that search finds."""
    ids, _ = await tx.findables.page(0)
    return Memory(
        id="",
        text=text,
        type=MemoryType.PREFERENCE,
        topic="life",
        citation=Citation(episode_of(ids[0]), Span(6, 12)),
        said_at=NOON,
        valid_from=NOON,
        recorded_at=NOON,
        extractor="test",
    )


async def contradicted(application: Application, namespace: Namespace = ALICE) -> str:
    """Return the id of a dispute about where Zoe lives."""
    services = application.services
    await services.tasks.set_policy(context(application, namespace), Policy.ASK)
    for place in ("Oslo", "Bergen"):
        wish = Wish(Intent.REMEMBER, Submission(f"Zoe lives in {place}.", "life"))
        report = await services.intents.submit(context(application, namespace), wish)
    await services.tasks.set_policy(context(application, namespace), None)
    (disputed,) = [one for one in report.plan.changes if isinstance(one, Dispute)]
    return disputed.question_id
