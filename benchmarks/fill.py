"""Namespaces to measure on, with the rows and indexes that extraction would have written."""

import hashlib
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta

from benchmarks.texts import Texts
from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.episode import Citation, Episode, Span
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.memory import EXTRACTED_TYPES, Memory, Status, importance
from recall_server.services.auth import TokenRequest
from recall_server.services.memory import indexing
from recall_server.storage.store import Transaction

BATCH = 250
APART = timedelta(minutes=7)
SEED = 20260301
_TYPES = EXTRACTED_TYPES


Say = Callable[[str], None]


def context(built: Application, owner: Namespace, operation: str) -> Context:
    """Return the context of a service for an operation in a namespace."""
    return Context(built.services.audit.begin(owner, operation, "benchmark", None))


async def tenant(
    built: Application,
    name: str,
    texts: Sequence[str] = (),
    say: Say = lambda _: None,
    *,
    wanted: TokenRequest | None = None,
) -> str:
    """Return a new token of a namespace, which is made if it is new. Make a memory of each of
    `texts` in it.
    """
    ns = namespace(name)
    creating = context(built, ns, "create_token")
    token, _ = await built.services.access.issue(creating, label="benchmark", wanted=wanted)
    await fill(built, ns, texts, lambda done: say(f"{name}: {done:,} of {len(texts):,} memories"))
    return token


async def fill(
    built: Application,
    owner: Namespace,
    texts: Sequence[str],
    on_progress: Callable[[int], None] = lambda _: None,
) -> list[str]:
    """Make a memory of each of `texts`, with its vector; return the ids in the order of the texts.

    The namespace must exist. The age of the oldest is seven minutes for each text.
    """
    now = built.runtime.now()
    ids: list[str] = []
    for first in range(0, len(texts), BATCH):
        batch = texts[first : first + BATCH]
        start = now - APART * (len(texts) - first)
        episode = _episode(f"ep_{first:026}", batch, start)
        memories = _memories(episode, batch, first)
        async with built.store.transaction(owner) as tx:
            await tx.episodes.add(episode, episode.id, "")
            for memory in memories:
                await tx.memories.add(memory)
            await indexing.show(tx, [memory.id for memory in memories])
            await _embed(built, tx, memories)
        ids += [memory.id for memory in memories]
        on_progress(len(ids))
    return ids


async def fill_versions(
    built: Application, owner: Namespace, memories: int, versions: int, say: Say
) -> tuple[datetime, datetime]:
    """Fill a namespace; return a moment at which half of it was known, and one at which half was
    true.
    """
    await tenant(built, owner)
    said = Texts(SEED).statements(memories)
    known = [built.runtime.now()]

    def progress(done: int) -> None:
        say(f"{done:,} of {memories * versions:,} versions")
        while done >= memories * len(known):
            known.append(built.runtime.now())

    ids = await fill(
        built, owner, [f"{text} v{v}" for v in range(versions) for text in said], progress
    )
    began = built.runtime.now() - APART * len(ids)
    for version in range(1, versions):
        async with built.store.transaction(owner) as tx:
            await tx.lock()
            for place in range((version - 1) * memories, version * memories):
                await tx.memories.retire(
                    [ids[place]],
                    Status.SUPERSEDED,
                    known[version],
                    superseded_by=ids[place + memories],
                    valid_until=began + APART * (place + memories),
                )
    half = len(ids) // 2
    return known[versions // 2] + timedelta(milliseconds=1), began + APART * half


def _episode(episode_id: str, texts: Sequence[str], start: datetime) -> Episode:
    text = "\n".join(texts)
    return Episode(
        id=episode_id,
        text=text,
        topic="general",
        occurred_at=start,
        recorded_at=start,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        job_id=episode_id.replace("ep_", "job_"),
    )


def _memories(episode: Episode, texts: Sequence[str], first: int) -> list[Memory]:
    memories = []
    position = 0
    for number, text in enumerate(texts):
        said_at = episode.occurred_at + APART * number
        memories.append(
            Memory(
                id=f"mem_{first + number:026}",
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
