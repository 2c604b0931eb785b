"""A record of the audit log while its operation runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from recall_server.domain.extraction import Usage
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import Bearer

# Stands for the token where a change was asked for without one.
OPERATOR = "operator"


class Outcome(StrEnum):
    """The outcome of an operation."""

    OK = "ok"
    ERROR = "error"


class AccessCount(NamedTuple):
    """The number of times that a memory or a turn was shown, and the last one."""

    id: str
    times: int
    last: datetime


@dataclass
class AuditEntry:
    """One audit record, filled in while the operation runs.

    Holds ids, counts and codes, never text. `details` are stored beside the log and can be erased.
    `written` is set by the transaction that wrote the record, so that each operation writes exactly
    one. `ends_caller`: the operation may revoke the token of its caller and has checked that the
    token was valid.
    `read_only`: the operation changes nothing, so its record is written behind the reply.
    `bearer` is the token of the caller, with which what the operation begins ends.
    `memories_shown` and `turns_shown` are the accesses that a search counts. `part_of` is the job,
    task or import that it is a part of, and `caused_by` the token that began that. `inputs` is a
    digest of the arguments, of which the record has a keyed one.
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
    read_only: bool = False
    bearer: Bearer | None = None
    memories_shown: list[str] = field(default_factory=list)
    turns_shown: list[str] = field(default_factory=list)
    part_of: str | None = None
    caused_by: str | None = None
    inputs: bytes | None = None

    @property
    def change(self) -> str:
        """What events of memories name as the change that they are a part of."""
        return self.part_of or self.id

    @property
    def made_by(self) -> str | None:
        """The accessor that events of memories name."""
        return self.accessor or self.caused_by

    @property
    def by(self) -> str:
        """Who decides with this call."""
        return self.accessor or OPERATOR

    @property
    def began_by(self) -> str | None:
        """The name of the caller's token, for what it begins."""
        return self.bearer.name if self.bearer else self.accessor
