"""What a look at a running server, its settings and its database finds."""

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """`WARN` may be meant so; with `FAIL` nobody should be served."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """One check: what was looked at, and in one line what is the matter and what to do."""

    check: str
    level: Level
    text: str


def judged(check: str, good: str, *, fail: str | None = None, warn: str | None = None) -> Finding:
    """The worst that is said of a check; `good` where nothing is."""
    if fail is not None:
        return Finding(check, Level.FAIL, fail)
    if warn is not None:
        return Finding(check, Level.WARN, warn)
    return Finding(check, Level.OK, good)
