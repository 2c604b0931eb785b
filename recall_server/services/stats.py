"""The jobs that wait, of a namespace or of all, and the operator's view of the whole."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from recall_server.domain.task import JobState
from recall_server.services.memory.embedding import EMBED
from recall_server.services.memory.ingest import EXTRACT
from recall_server.storage.store import Store


@dataclass(frozen=True)
class Backlog:
    """How many jobs wait or run, and how many were given up. `unreconciled` are the texts of which
    the rules have made memories in place of the model, until it makes them again.
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
    """All namespaces together."""

    namespaces: int
    findable_items: int
    backlog: Backlog


async def server_stats(store: Store) -> ServerStats:
    """Counts over all namespaces, for the operator."""
    async with store.transaction(None, write=False) as tx:
        namespaces, items = await tx.access.namespace_totals()
        return ServerStats(namespaces, items, Backlog.count(await tx.jobs.all_counts()))
