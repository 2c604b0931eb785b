"""The findings of the self-check of a server, its settings and its database."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """`WARN` may be intended; a server does not start with `FAIL`."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """The result of one check: its name, and one line with the fault and the next step."""

    check: str
    level: Level
    text: str


def judged(check: str, good: str, *, fail: str | None = None, warn: str | None = None) -> Finding:
    """Return the worst result of a check; `good` if there is no fault."""
    if fail is not None:
        return Finding(check, Level.FAIL, fail)
    if warn is not None:
        return Finding(check, Level.WARN, warn)
    return Finding(check, Level.OK, good)
