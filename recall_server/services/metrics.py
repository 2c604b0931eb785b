"""Metrics for Prometheus, where no label names a tenant, a token or a text; counts of waiting jobs,
and the operator's statistics over all namespaces.
"""

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial
from typing import Self

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import RecallError
from recall_server.domain.extraction import Judgement, Usage
from recall_server.domain.ids import Namespace
from recall_server.domain.task import JobState
from recall_server.services.memory.indexing import EMBED
from recall_server.services.memory.ingest import EXTRACT
from recall_server.storage.store import Store

# The creation time of each counter would be one more line that nobody needs.
disable_created_metrics()  # type: ignore[no-untyped-call]

# A scrape is answered within a second, whatever the database does.
DATABASE_S = 0.8
_SECONDS = (0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)


class Metrics:
    """The metrics of one process. Those of the database are read on each scrape, and are the same
    in every process of a server.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        self._requests = counter(
            "recall_requests",
            "Calls of operations; outcome is ok, or the code of the error.",
            ["protocol", "operation", "outcome"],
        )
        self._seconds = Histogram(
            "recall_request_seconds",
            "Seconds of a call of an operation.",
            ["protocol", "operation"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._jobs = gauge("recall_jobs", "Jobs that wait, run or failed.", ["kind", "state"])
        self._oldest = gauge(
            "recall_oldest_job_seconds", "Seconds for which the oldest job that is due has waited."
        )
        self._tokens = counter(
            "recall_model_tokens", "Tokens of language models.", ["model", "direction"]
        )
        self._judgements = counter(
            "recall_judgements",
            "Contradictions that a language model was asked about; outcome is its choice, unsure, "
            "or refused.",
            ["outcome"],
        )
        self._degraded = counter(
            "recall_degraded", "Searches that lacked a part, such as the embedder."
        )
        self._cache = gauge("recall_cache_bytes", "Bytes of indexes held in memory.")
        self._erasures = gauge("recall_erasures_open", "Erasures whose receipt is not final.")

    def called(self, entry: AuditEntry) -> None:
        self._requests.labels(entry.protocol, entry.operation, entry.code or "ok").inc()
        self._seconds.labels(entry.protocol, entry.operation).observe(entry.elapsed_ms() / 1_000)

    def refused(self, code: str) -> None:
        self._requests.labels("http", "none", code).inc()

    def used(self, usage: Usage) -> None:
        """Count the tokens of a call of a language model."""
        if usage.model is not None:
            self._tokens.labels(usage.model, "in").inc(usage.input_tokens)
            self._tokens.labels(usage.model, "out").inc(usage.output_tokens)

    def judged(self, judgement: Judgement) -> None:
        outcome = "refused" if judgement.refused else judgement.choice or "unsure"
        self._judgements.labels(outcome).inc()

    def degraded(self) -> None:
        self._degraded.inc()

    async def exposed(self, store: Store, now: datetime) -> bytes:
        """Return all metrics in the text format of Prometheus. If the database does not answer, its
        gauges are NaN, or absent.
        """
        self._cache.set(store.cache_bytes)
        self._jobs.clear()
        try:
            async with asyncio.timeout(DATABASE_S), store.transaction(None, write=False) as tx:
                counts = await tx.jobs.counts()
                oldest = await tx.jobs.oldest_due(now)
                erasures = await tx.erasures.count_unpurged()
        except (RecallError, TimeoutError):
            self._oldest.set(float("nan"))
            self._erasures.set(float("nan"))
        else:
            for (kind, state), jobs in counts.items():
                self._jobs.labels(kind, state).set(jobs)
            self._oldest.set((now - oldest).total_seconds() if oldest else 0)
            self._erasures.set(erasures)
        return await asyncio.to_thread(generate_latest, self.registry)


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
        return ServerStats(namespaces, items, Backlog.count(await tx.jobs.counts()))
