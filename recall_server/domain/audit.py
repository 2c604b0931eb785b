"""A record of the audit log while its operation runs."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from recall_server.domain.extraction import Usage
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import Bearer

# Stands for the token if a change was asked for without one.
OPERATOR = "operator"


class Outcome(StrEnum):
    """The outcome of an operation."""

    OK = "ok"
    ERROR = "error"


class AccessCount(NamedTuple):
    """How many times a memory or a turn was shown, and when last."""

    id: str
    times: int
    last: datetime


@dataclass
class AuditEntry:
    """One audit record, filled in while the operation runs.

    Holds ids, counts and codes, never text.

    `details`: stored next to the log, so that they can be erased.
    `written`: set by the transaction that wrote the record, so that each operation writes one.
    `ends_caller`: the operation may revoke the token of its caller and has checked that the token
    was valid.
    `read_only`: the operation changes nothing, so its record is written after the reply.
    `bearer`: the token of the caller; what the operation begins ends with it.
    `memories_shown`, `turns_shown`: the accesses that a search counts.
    `part_of`: the job, task or import that the operation is a part of.
    `caused_by`: the token that began that.
    `inputs`: a digest of the arguments; the record has a keyed digest of it.
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
        """The change id that memory events name."""
        return self.part_of or self.id

    @property
    def made_by(self) -> str | None:
        """The accessor that memory events name."""
        return self.accessor or self.caused_by

    @property
    def by(self) -> str:
        """The decider that decisions of this call name."""
        return self.accessor or OPERATOR

    @property
    def began_by(self) -> str | None:
        """The name of the caller's token, for the work that it begins."""
        return self.bearer.name if self.bearer else self.accessor
