"""The running server as one value: settings, store, services and worker."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import structlog

from recall_server.config import Settings
from recall_server.domain.context import Runtime
from recall_server.domain.errors import DatabaseUnavailable
from recall_server.domain.extraction import Extractor, Judge
from recall_server.domain.ids import Namespace
from recall_server.integrations.issuers import Issuer
from recall_server.integrations.keys import ServerKey
from recall_server.services.audit import Audit
from recall_server.services.audit.verification import Checkpoints, Verification
from recall_server.services.auth import Access, OpenAnswers
from recall_server.services.auth.signed_tokens import Delegation
from recall_server.services.erasure import Erase, Holds
from recall_server.services.erasure.ledger import Ledger
from recall_server.services.erasure.purge import Purge
from recall_server.services.erasure.purge_source import Sources
from recall_server.services.limits import ModelKeys
from recall_server.services.memory.beliefs import Aliases
from recall_server.services.memory.indexing import Embedding, ItemEmbedder
from recall_server.services.memory.ingest import Ingest
from recall_server.services.memory.intents import Intents
from recall_server.services.memory.rebuild import Rebuild
from recall_server.services.memory.texts import Texts
from recall_server.services.memory.undo import Changes
from recall_server.services.metrics import Metrics
from recall_server.services.retention import Retention
from recall_server.services.search.recall import Recall
from recall_server.services.supervision import Supervisor
from recall_server.services.tasks import Tasks
from recall_server.services.tasks.consolidate import Consolidate
from recall_server.services.tasks.push import Push
from recall_server.services.tasks.recheck import Recheck
from recall_server.services.tasks.reviews import Quarantine, Reviews
from recall_server.services.transfer import Export
from recall_server.services.transfer.importing import Import
from recall_server.services.webhooks import Registrations
from recall_server.storage.inspection import Finding, Level, space_findings
from recall_server.storage.store import Store
from recall_server.worker import Worker

log = structlog.get_logger()

# A probe must be answered within a second, whatever the database does.
READY_S = 0.8


@dataclass(frozen=True)
class Services:
    access: Access
    aliases: Aliases
    audit: Audit
    changes: Changes
    checkpoints: Checkpoints
    consolidate: Consolidate
    delegation: Delegation
    embedding: Embedding
    erase: Erase
    export: Export
    importing: Import
    holds: Holds
    ingest: Ingest
    intents: Intents
    ledger: Ledger
    model_keys: ModelKeys
    metrics: Metrics
    open_answers: OpenAnswers
    # The digest by which log lines name a namespace.
    log_name: Callable[[Namespace], str]
    verification: Verification
    purge: Purge
    push: Push
    quarantine: Quarantine
    rebuild: Rebuild
    recall: Recall
    retention: Retention
    recheck: Recheck
    reviews: Reviews
    sources: Sources
    tasks: Tasks
    texts: Texts
    webhooks: Registrations


@dataclass(repr=False)  # it would spell out every setting and service
class Application:
    """All parts of a running server or worker. While `loading` or `stopping`, `/ready` says no."""

    settings: Settings
    runtime: Runtime
    store: Store
    services: Services
    worker: Worker
    extractor: Extractor
    judge: Judge | None
    embedder: ItemEmbedder | None
    key: ServerKey
    supervisor: Supervisor
    issuers: tuple[Issuer, ...] = ()
    stopping: bool = False
    loading: "asyncio.Task[object] | None" = None
    _look: "asyncio.Task[list[Finding]] | None" = field(default=None, init=False)
    _warned: set[str] = field(default_factory=set, init=False)

    def stop(self) -> None:
        """Say no at `/ready`, and release every call that waits for a task."""
        self.stopping = True
        self.services.tasks.transitions.events.close()

    def starting(self) -> bool:
        return self.loading is not None and not self.loading.done()

    async def ready(self) -> list[Finding]:
        """Return the warnings for the operator, within a second; each is logged once. Concurrent
        callers share one check. Raises `Unavailable` if the server cannot serve.
        """
        if self._look is None or self._look.done():
            self._look = asyncio.create_task(self._looked())
        try:
            async with asyncio.timeout(READY_S):
                found = await asyncio.shield(self._look)
        except TimeoutError:
            raise DatabaseUnavailable(
                f"The database has not answered within {READY_S:g} s. See whether it runs, and "
                "what keeps it busy."
            ) from None
        for one in found:
            if one.check not in self._warned:
                log.warning("unsafe", check=one.check, text=one.text)
        self._warned = {one.check for one in found}
        return found

    async def _looked(self) -> list[Finding]:
        await self.check()
        return await self.warnings()

    async def check(self) -> None:
        """Raise `Unavailable` if the database does not answer, or reads cannot be recorded."""
        self.services.audit.reads.check()
        await self.store.autocommit(None).access.by_accessor("")

    async def warnings(self) -> list[Finding]:
        """Return warnings about low disk space, a rejected key of a language model, and failing
        background work.
        """
        where = self.settings.database
        findings = space_findings(where) if isinstance(where, Path) and where.exists() else ()
        found = [finding for finding in findings if finding.level is not Level.OK]
        if keys := await self.services.model_keys.rejected():
            text = f"The key of the language model is rejected: {', '.join(map(str, keys))}."
            step = "Set one that its service takes, and restart."
            found.append(Finding("model_key_rejected", Level.WARN, f"{text} {step}"))
        if failing := await self.supervisor.failing():
            text = f"Background work fails again and again: {', '.join(map(str, failing))}."
            step = "The log says why, under background_work_failed."
            found.append(Finding("background_work", Level.WARN, f"{text} {step}"))
        return found
