"""The verbs; no protocol, no SQL, no environment."""

from dataclasses import dataclass

from recall_server.services.access import Access
from recall_server.services.audit import Audit
from recall_server.services.checkpoints import Checkpoints
from recall_server.services.consolidate import Consolidate
from recall_server.services.delegation import Delegation
from recall_server.services.embedding import Embedding
from recall_server.services.erase import Erase
from recall_server.services.export import Export
from recall_server.services.holds import Holds
from recall_server.services.importing import Import
from recall_server.services.ingest import Ingest
from recall_server.services.ledger import Ledger
from recall_server.services.proof import Proof
from recall_server.services.purge import Purge
from recall_server.services.push import Push
from recall_server.services.quarantine import Quarantine
from recall_server.services.recall import Recall
from recall_server.services.sources import Sources
from recall_server.services.tasks import Tasks


@dataclass(frozen=True)
class Services:
    """All verbs of the house, built once."""

    access: Access
    audit: Audit
    checkpoints: Checkpoints
    consolidate: Consolidate
    delegation: Delegation
    embedding: Embedding
    erase: Erase
    export: Export
    importing: Import
    holds: Holds
    ingest: Ingest
    ledger: Ledger
    proof: Proof
    purge: Purge
    push: Push
    quarantine: Quarantine
    recall: Recall
    sources: Sources
    tasks: Tasks
