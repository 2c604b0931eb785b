"""What the tests of the verbs say over and over."""

from recall_server.app import House
from recall_server.domain.model import AuditEntry, Memory, Namespace
from recall_server.services.ingest import Accepted, Submission

ALICE = Namespace("alice")


def entry(house: House, namespace: Namespace = ALICE) -> AuditEntry:
    return house.services.audit.begin(namespace, "store_memory", "test", "acc_test")


async def enter(house: House, namespace: Namespace = ALICE) -> str:
    """A token of a namespace, which is made."""
    line = house.services.audit.begin(namespace, "create_token", "test", None)
    token, _ = await house.services.access.issue(namespace, entry=line)
    return token


async def remember(house: House, text: str, *, key: str | None = None) -> Accepted:
    return await house.services.ingest.remember(
        ALICE, Submission(text, "life", key), entry=entry(house)
    )


async def drained(house: House) -> None:
    """Run jobs until none is due."""
    while await house.worker.run_once():
        pass


async def memories(house: House, *, limit: int = 20) -> list[Memory]:
    """The active memories, with their quotes."""
    async with house.store.transaction(ALICE, write=False) as tx:
        return await tx.memories.page(limit=limit, offset=0, type_="", topic="")
