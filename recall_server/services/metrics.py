"""Metrics for Prometheus. No label names a tenant, a token or a text."""

import asyncio
from datetime import datetime

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
from recall_server.domain.extraction import Usage
from recall_server.integrations.extraction.extractor import Judgement
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
        self._requests = Counter(
            "recall_requests",
            "Calls of operations; outcome is ok, or the code of the error.",
            ["protocol", "operation", "outcome"],
            registry=self.registry,
        )
        self._seconds = Histogram(
            "recall_request_seconds",
            "Seconds of a call of an operation.",
            ["protocol", "operation"],
            buckets=_SECONDS,
            registry=self.registry,
        )
        self._jobs = Gauge(
            "recall_jobs",
            "Jobs that wait, run or failed.",
            ["kind", "state"],
            registry=self.registry,
        )
        self._oldest = Gauge(
            "recall_oldest_job_seconds",
            "Seconds for which the oldest job that is due has waited.",
            registry=self.registry,
        )
        self._tokens = Counter(
            "recall_model_tokens",
            "Tokens of language models.",
            ["model", "direction"],
            registry=self.registry,
        )
        self._judgements = Counter(
            "recall_judgements",
            "Contradictions that a language model was asked about; outcome is its choice, unsure, "
            "or refused.",
            ["outcome"],
            registry=self.registry,
        )
        self._degraded = Counter(
            "recall_degraded",
            "Searches that lacked a part, such as the embedder.",
            registry=self.registry,
        )
        self._cache = Gauge(
            "recall_cache_bytes", "Bytes of indexes held in memory.", registry=self.registry
        )
        self._erasures = Gauge(
            "recall_erasures_open",
            "Erasures whose receipt is not final.",
            registry=self.registry,
        )

    def called(self, entry: AuditEntry) -> None:
        """Count an operation that has ended."""
        self._requests.labels(entry.protocol, entry.operation, entry.code or "ok").inc()
        self._seconds.labels(entry.protocol, entry.operation).observe(entry.elapsed_ms() / 1_000)

    def refused(self, code: str) -> None:
        """Count a request that reached no operation."""
        self._requests.labels("http", "none", code).inc()

    def used(self, usage: Usage) -> None:
        """Count the tokens of a call of a language model."""
        if usage.model is not None:
            self._tokens.labels(usage.model, "in").inc(usage.input_tokens)
            self._tokens.labels(usage.model, "out").inc(usage.output_tokens)

    def judged(self, judgement: Judgement) -> None:
        """Count the answer of a judge."""
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
                counts = await tx.jobs.all_counts()
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
