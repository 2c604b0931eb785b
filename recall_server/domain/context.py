"""On whose behalf a service acts, and the process that it acts in."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timedelta

from recall_server.domain.audit import AuditEntry
from recall_server.domain.ids import new_id
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope


@dataclass(frozen=True)
class Context:
    """The audit record of an operation, and the caller's access scope.

    A service fills in the record; the transaction of the effect writes it.
    """

    entry: AuditEntry
    scope: AccessScope = FULL_ACCESS

    @property
    def namespace(self) -> Namespace:
        return self.entry.namespace


@dataclass(frozen=True)
class Runtime:
    """The clock, the random source and the worker of a process: `wake` makes the worker look for
    jobs now, `wake_pushes` for pushes to deliver, and `lease` is how long it holds one.
    """

    now: Callable[[], datetime]
    random_bytes: Callable[[int], bytes]
    wake: Callable[[], None]
    lease: timedelta
    wake_pushes: Callable[[], None] = lambda: None

    def new_id(self, prefix: str) -> str:
        return new_id(prefix, self.now(), self.random_bytes(10))
