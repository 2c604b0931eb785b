"""A record of the audit log, as it is filled in."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from recall_server.domain.extraction import Usage
from recall_server.domain.namespace import Namespace


class Outcome(StrEnum):
    """How an operation ended, for the book."""

    OK = "ok"
    ERROR = "error"


@dataclass
class AuditEntry:
    """One line of the book, filled in while the operation runs (FEATURES I10, J01).

    Holds ids, counts and codes, never text. `details` are what a reader would like to know besides
    and the book must not hold for ever: they are kept beside it, and can be erased. `written` is
    set by the transaction that wrote it, so that an operation writes exactly one. `ends_caller`:
    the operation itself may revoke the token that asks for it, and has seen to it that it stood.
    """

    id: str
    namespace: Namespace
    operation: str
    protocol: str
    accessor: str | None
    request_id: str
    started_at: datetime
    elapsed_ms: Callable[[], float]
    ids: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    outcome: Outcome = Outcome.OK
    code: str | None = None
    usage: Usage = field(default_factory=Usage)
    details: dict[str, str] = field(default_factory=dict)
    written: bool = False
    ends_caller: bool = False
