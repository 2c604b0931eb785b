"""The verbs; no protocol, no SQL, no environment."""

from dataclasses import dataclass

from recall_server.services.access import Access
from recall_server.services.audit import Audit
from recall_server.services.consolidate import Consolidate
from recall_server.services.delegation import Delegation
from recall_server.services.ingest import Ingest
from recall_server.services.push import Push
from recall_server.services.recall import Recall
from recall_server.services.tasks import Tasks


@dataclass(frozen=True)
class Services:
    """All verbs of the house, built once."""

    access: Access
    audit: Audit
    consolidate: Consolidate
    delegation: Delegation
    ingest: Ingest
    push: Push
    recall: Recall
    tasks: Tasks
