"""The running server as one value: settings, store, services and worker."""

from dataclasses import dataclass
from pathlib import Path

from recall_server.config import Settings
from recall_server.domain.context import Runtime
from recall_server.integrations.crypto.issuers import Issuer
from recall_server.integrations.crypto.keys import ServerKey
from recall_server.integrations.extraction.extractor import Extractor
from recall_server.services import Services
from recall_server.services.memory.embedding import ItemEmbedder
from recall_server.services.supervision import Supervisor
from recall_server.storage.inspection import Finding, Level, space_findings
from recall_server.storage.store import Store
from recall_server.worker import Worker


@dataclass
class Application:
    """All parts of a running server. `stopping` turns `/ready` off while open calls finish."""

    settings: Settings
    runtime: Runtime
    store: Store
    services: Services
    worker: Worker
    extractor: Extractor
    embedder: ItemEmbedder | None
    key: ServerKey
    supervisor: Supervisor
    issuers: tuple[Issuer, ...] = ()
    stopping: bool = False

    def stop(self) -> None:
        """Turn `/ready` off and release every call that waits for a task."""
        self.stopping = True
        self.services.tasks.transitions.events.close()

    async def check(self) -> None:
        """Raise `Unavailable` where the database does not answer, or reads cannot be recorded."""
        self.services.audit.reads.check()
        await self.store.autocommit(None).access.by_accessor("")

    async def warnings(self) -> list[Finding]:
        """Return warnings of low disk space, of a rejected key of a language model, and of
        background work that fails.
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
