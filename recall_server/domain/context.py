"""On whose behalf a service acts."""

from dataclasses import dataclass

from recall_server.domain.audit import AuditEntry
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope


@dataclass(frozen=True)
class Context:
    """The audit record of an operation, and the part of its namespace that the caller may reach.

    A service fills in the record; the transaction of the effect writes it.
    """

    entry: AuditEntry
    scope: AccessScope = FULL_ACCESS

    @property
    def namespace(self) -> Namespace:
        return self.entry.namespace
