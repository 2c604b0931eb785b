"""Rows that are written directly into the store."""

import hashlib

from recall_server.domain.episode import Citation, Episode, Span, Turn
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import Fact, Memory, MemoryType
from recall_server.domain.permissions import TokenInfo
from recall_server.storage.store import Store
from tests.support.runtime import NOON

ALICE = Namespace("alice")
BOB = Namespace("bob")


async def enter(store: Store, *namespaces: Namespace) -> None:
    for namespace in namespaces:
        async with store.transaction(namespace) as tx:
            await tx.access.add_token(
                TokenInfo(f"acc_{namespace}", namespace, NOON), f"hash of {namespace}"
            )


def an_episode(episode_id: str = "ep_1", text: str = "I live in Oslo.") -> Episode:
    return Episode(
        id=episode_id,
        text=text,
        topic="life",
        occurred_at=NOON,
        recorded_at=NOON,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        job_id="job_1",
        turns=(Turn(0, Span(0, len(text)), "Alice", "s1", NOON),),
    )


def a_memory(memory_id: str = "mem_1", text: str = "Alice lives in Oslo.") -> Memory:
    return Memory(
        id=memory_id,
        text=text,
        type=MemoryType.FACT,
        topic="life",
        citation=Citation("ep_1", Span(0, 15)),
        said_at=NOON,
        valid_from=NOON,
        recorded_at=NOON,
        fact=Fact("Alice", "lives_in", "Oslo"),
        extractor="rules/1",
    )
