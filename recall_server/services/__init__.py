"""The operations, without protocols, SQL or the environment."""

from collections.abc import Callable
from dataclasses import dataclass

from recall_server.domain.ids import Namespace
from recall_server.services.audit import Audit
from recall_server.services.audit.verification import Checkpoints, Verification
from recall_server.services.auth import Access, OpenAnswers
from recall_server.services.auth.signed_tokens import Delegation
from recall_server.services.erasure import Erase, Holds
from recall_server.services.erasure.ledger import Ledger
from recall_server.services.erasure.purge import Purge
from recall_server.services.erasure.purge_source import Sources
from recall_server.services.limits import ModelKeys
from recall_server.services.memory.indexing import Embedding
from recall_server.services.memory.ingest import Ingest
from recall_server.services.memory.intents import Intents
from recall_server.services.memory.rebuild import Rebuild
from recall_server.services.memory.subject_aliases import Aliases
from recall_server.services.memory.texts import Texts
from recall_server.services.memory.undo import Changes
from recall_server.services.metrics import Metrics
from recall_server.services.retention import Retention
from recall_server.services.search.recall import Recall
from recall_server.services.tasks import Tasks
from recall_server.services.tasks.consolidate import Consolidate
from recall_server.services.tasks.push import Push
from recall_server.services.tasks.recheck import Recheck
from recall_server.services.tasks.reviews import Quarantine, Reviews
from recall_server.services.transfer import Export
from recall_server.services.transfer.importing import Import
from recall_server.services.webhooks import Registrations


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
