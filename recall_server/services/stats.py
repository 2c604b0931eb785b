"""Counts of waiting jobs, and the operator's statistics over all namespaces."""

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Self

from recall_server.domain.namespace import Namespace
from recall_server.domain.task import JobState
from recall_server.services.memory.embedding import EMBED
from recall_server.services.memory.ingest import EXTRACT
from recall_server.storage.store import Store


@dataclass(frozen=True)
class Backlog:
    """How many jobs wait or run, and how many were given up. `unreconciled`: the texts that the
    rules read in place of the model, until the model reads them again.
    """

    pending_extractions: int
    failed_extractions: int
    pending_embeddings: int
    failed_embeddings: int
    unreconciled: int

    @classmethod
    def count(cls, jobs: Mapping[tuple[str, JobState], int]) -> Self:
        def pending(kind: str) -> int:
            return jobs.get((kind, JobState.QUEUED), 0) + jobs.get((kind, JobState.PROCESSING), 0)

        return cls(
            pending_extractions=pending(EXTRACT),
            failed_extractions=jobs.get((EXTRACT, JobState.FAILED), 0),
            pending_embeddings=pending(EMBED),
            failed_embeddings=jobs.get((EMBED, JobState.FAILED), 0),
            unreconciled=jobs.get((EXTRACT, JobState.COMPLETE), 0),
        )


@dataclass(frozen=True)
class ServerStats:
    """Statistics over all namespaces."""

    namespaces: int
    findable_items: int
    backlog: Backlog


# Growth is measured over the last days, or over the life of the database if that is shorter.
GROWTH_DAYS = 7.0
# Kinds of data that grow with the texts that are stored.
OF_TEXTS = ("texts", "memories", "embeddings", "words", "jobs")


@dataclass(frozen=True)
class Size:
    """How many bytes a kind of data takes on the disk, and by how many it grows per day."""

    bytes: int
    bytes_a_day: int


async def sizes(
    store: Store, of_kind: Mapping[str, int], namespaces: AsyncIterator[Namespace], now: datetime
) -> dict[str, Size]:
    """Return the size and growth of each kind, estimated from the share of texts, or of audit
    records, that are from the last days. It reads every text: do not call it while a caller waits.
    """
    first = await store.autocommit(None).access.first_namespace_at() or now
    days = min(max((now - first) / timedelta(days=1), 1.0), GROWTH_DAYS)
    since = now - timedelta(days=days)
    texts, recent_texts, records, recent_records = 0, 0, 0, 0
    async for namespace in namespaces:
        async with store.snapshot(namespace) as tx:
            kept, recent = await tx.access.text_bytes(since)
            head, (cut, _) = await tx.audit.head(), await tx.audit.cut()
            recent_records += await tx.audit.recent(since)
        texts, recent_texts = texts + kept, recent_texts + recent
        records += head.seq - cut if head else 0
    shares = dict.fromkeys(OF_TEXTS, recent_texts / texts if texts else 0.0)
    shares["audit"] = recent_records / records if records else 0.0
    return {
        kind: Size(size, round(size * min(1.0, shares.get(kind, 0.0)) / days))
        for kind, size in of_kind.items()
    }


async def server_stats(store: Store) -> ServerStats:
    """Return the counts over all namespaces, for the operator."""
    async with store.transaction(None, write=False) as tx:
        namespaces, items = await tx.access.namespace_totals()
        return ServerStats(namespaces, items, Backlog.count(await tx.jobs.all_counts()))
