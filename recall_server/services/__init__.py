"""The verbs; no protocol, no SQL, no environment."""

from dataclasses import dataclass

from recall_server.services.access import Access
from recall_server.services.audit import Audit
from recall_server.services.ingest import Ingest
from recall_server.services.recall import Recall


@dataclass(frozen=True)
class Services:
    """All verbs of the house, built once."""

    access: Access
    audit: Audit
    ingest: Ingest
    recall: Recall
