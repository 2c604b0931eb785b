"""Memories that have expired, for a search that asks for them. They are not in the index any more:
the newest are read and compared with the question by their words.
"""

from dataclasses import replace

from recall_server.domain.memory import Memory
from recall_server.domain.query import Hit, Item, ItemKind, Query, Scores
from recall_server.domain.search import ranking
from recall_server.domain.text.terms import terms
from recall_server.storage.store import Transaction

READ_MAX = 1_000


async def matching(tx: Transaction, query: Query) -> list[Hit]:
    """Return the expired memories that share words with a question, best first. Their score is 0,
    as none of them is an answer now.
    """
    newest = await tx.memories.expired(READ_MAX)
    pool = [terms(one.searchable) for one in newest]
    scores = ranking.bm25plus(terms(query.text), pool)
    found = [(score, one) for score, one in zip(scores, newest, strict=True) if score > 0]
    found.sort(key=lambda one: (-one[0], one[1].id))
    return [_hit(memory, score) for score, memory in found]


def _hit(memory: Memory, final: float) -> Hit:
    return Hit(_item(memory), Scores(0.0, final), memory.text)


def _item(memory: Memory) -> Item:
    """Return the item of a memory, without the words that it cites: they have expired too."""
    return Item(
        id=memory.id,
        kind=ItemKind.MEMORY,
        text=memory.text,
        topic=memory.topic,
        recorded_at=memory.recorded_at,
        valid_from=memory.valid_from,
        citation=replace(memory.citation, quote=""),
        quote="",
        importance=memory.importance,
        type=memory.type,
        attribute=memory.fact.attribute if memory.fact else None,
        container=memory.container,
        tags=memory.source.tags,
        metadata=memory.source.metadata,
        superseded_by=memory.superseded_by,
        valid_until=memory.valid_until,
        expires_at=memory.expires_at,
        agent_id=memory.source.agent_id,
        expired=True,
    )
