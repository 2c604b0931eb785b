"""Memories and passages that have expired, for a search that asks for them, compared with the
question by their words. The index keeps the words of passages; of memories the newest are read.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from recall_server.domain.memory import Memory
from recall_server.domain.query import Hit, Item, ItemKind, Query, Scores
from recall_server.domain.search import ranking
from recall_server.domain.text.terms import terms
from recall_server.storage.store import Transaction

READ_MAX = 1_000
# Entries with the most words of the question; most of them have not expired.
SLOTS_MAX = 20_000


async def matching(tx: Transaction, query: Query) -> list[Hit]:
    """Return the expired memories and passages that share words with a question, best first. Their
    score is 0, as none of them is an answer now.
    """
    asked = terms(query.text)
    slots = list(await tx.words.shared(asked, SLOTS_MAX))
    newest = [_item(one) for one in await tx.memories.expired(READ_MAX)]
    newest += await tx.episodes.expired(slots, READ_MAX)
    # Finding the terms of 1,000 long memories takes a third of a second.
    scores = await asyncio.to_thread(_scores, asked, newest)
    found = [(score, one) for score, one in zip(scores, newest, strict=True) if score > 0]
    found.sort(key=lambda one: (-one[0], one[1].id))
    return [Hit(one, Scores(0.0, score), one.text) for score, one in found]


def _scores(asked: Sequence[str], items: Sequence[Item]) -> Sequence[float]:
    return ranking.bm25plus(asked, [terms(one.searchable) for one in items])


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
