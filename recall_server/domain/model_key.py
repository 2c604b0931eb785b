"""The keys of language models that an operator must replace."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """The work of a language model; each role may have a model of its own."""

    EXTRACT = "extract"
    MERGE = "merge"
    JUDGE = "judge"


@dataclass(frozen=True)
class RejectedKey:
    """A key that the service of a model rejects, with the HTTP status, `since` a time."""

    role: Role
    status: int
    since: datetime

    def __str__(self) -> str:
        return f"{self.role} (HTTP {self.status}) since {self.since:%Y-%m-%d %H:%M} UTC"
