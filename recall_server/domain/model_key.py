"""The keys of language models, as far as an operator has to see to them."""

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
    """The service of a model has rejected the key with this status of HTTP, `since` then."""

    role: Role
    status: int
    since: datetime

    def __str__(self) -> str:
        return f"{self.role} (HTTP {self.status}) since {self.since:%Y-%m-%d %H:%M} UTC"
