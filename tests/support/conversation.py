"""Storing, searching and listing through the services, as Alice."""

from recall_server.application import Application
from recall_server.domain.audit import AuditEntry
from recall_server.domain.memory import Memory
from recall_server.domain.namespace import Namespace
from recall_server.services.memory.ingest import Accepted, Submission

ALICE = Namespace("alice")


def entry(application: Application, namespace: Namespace = ALICE) -> AuditEntry:
    return application.services.audit.begin(namespace, "store_memory", "test", "acc_test")


async def enter(application: Application, namespace: Namespace = ALICE) -> str:
    """A token of a namespace, which is made."""
    line = application.services.audit.begin(namespace, "create_token", "test", None)
    token, _ = await application.services.access.issue(namespace, entry=line)
    return token


async def remember(application: Application, text: str, *, key: str | None = None) -> Accepted:
    return await application.services.ingest.remember(
        ALICE, Submission(text, "life", key), entry=entry(application)
    )


async def drained(application: Application) -> None:
    """Run jobs until none is due."""
    while await application.worker.run_once():
        pass


async def memories(application: Application, *, limit: int = 20) -> list[Memory]:
    """The active memories, with their quotes."""
    async with application.store.transaction(ALICE, write=False) as tx:
        return await tx.memories.page(limit=limit, offset=0, type_="", topic="")
