"""Namespaces to measure on, with the rows and indexes that extraction would have written."""

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.episode import Citation, Episode, Span
from recall_server.domain.memory import EXTRACTED_TYPES, Memory, importance
from recall_server.domain.namespace import Namespace, namespace
from recall_server.services.memory import indexing
from recall_server.storage.store import Transaction

BATCH = 250
APART = timedelta(minutes=7)
_TYPES = EXTRACTED_TYPES


Say = Callable[[str], None]


async def tenant(
    built: Application, name: str, texts: Sequence[str] = (), say: Say = lambda _: None
) -> str:
    """A new namespace with a memory of each of `texts`; its token."""
    ns = namespace(name)
    entry = built.services.audit.begin(ns, "create_token", "benchmark", None)
    token, _ = await built.services.access.issue(Context(entry), label="benchmark")
    await fill(built, ns, texts, lambda done: say(f"{name}: {done:,} of {len(texts):,} memories"))
    return token


async def fill(
    built: Application,
    owner: Namespace,
    texts: Sequence[str],
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[str]:
    """Make a memory of each of `texts`, with its vector; the ids, in the order of the texts.

    The namespace must exist. The oldest is as many times seven minutes old as there are texts.
    """
    now = built.runtime.now()
    ids: list[str] = []
    for first in range(0, len(texts), BATCH):
        batch = texts[first : first + BATCH]
        start = now - APART * (len(texts) - first)
        episode = _episode(f"ep_fill{first:06}", batch, start)
        memories = _memories(episode, batch)
        async with built.store.transaction(owner) as tx:
            await tx.episodes.add(episode, episode.id, "")
            for memory in memories:
                await tx.memories.add(memory)
            await indexing.show(tx, [memory.id for memory in memories])
            await _embed(built, tx, memories)
        ids += [memory.id for memory in memories]
        on_progress(len(ids))
    return ids


def _episode(episode_id: str, texts: Sequence[str], start: datetime) -> Episode:
    text = "\n".join(texts)
    return Episode(
        id=episode_id,
        text=text,
        topic="general",
        occurred_at=start,
        recorded_at=start,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        job_id=f"job_{episode_id}",
    )


def _memories(episode: Episode, texts: Sequence[str]) -> list[Memory]:
    memories = []
    position = 0
    for number, text in enumerate(texts):
        said_at = episode.occurred_at + APART * number
        memories.append(
            Memory(
                id=f"mem_{episode.id}_{number:04}",
                text=text,
                type=_TYPES[number % len(_TYPES)],
                topic=episode.topic,
                citation=Citation(episode.id, Span(position, position + len(text))),
                said_at=said_at,
                valid_from=said_at,
                recorded_at=said_at,
                importance=importance(text),
                extractor="benchmark",
            )
        )
        position += len(text) + 1
    return memories


async def _embed(built: Application, tx: Transaction, memories: Sequence[Memory]) -> None:
    if built.embedder is None:
        return
    vectors = await built.embedder.embed([memory.text for memory in memories])
    await tx.vectors.put(
        built.embedder.model,
        {memory.id: vector for memory, vector in zip(memories, vectors, strict=True)},
    )
