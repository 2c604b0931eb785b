"""What was checked and how it went: one line for each check, and their number at the end."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

WHY_CHARS_MAX = 600
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


class Failed(Exception):
    """The check did not hold; the message says why."""


class Report:
    """Print each result as it comes."""

    def __init__(self) -> None:
        self.passed = 0
        self.failed = 0

    @contextmanager
    def check(self, name: str) -> Iterator[None]:
        """Count the block as one check. Any error in it is its failure, and the next check runs."""
        try:
            yield
        except Exception as error:  # noqa: BLE001  # one broken client must not hide the others
            self.failed += 1
            kind = "" if isinstance(error, Failed) else f"{type(error).__name__}: "
            print(f"FAILED {name}: {kind}{_one_line(str(error))}", flush=True)
        else:
            self.passed += 1
            print(f"ok {name}", flush=True)

    def close(self) -> int:
        """Print the sum, and return the exit code of the run."""
        print(f"{self.passed} passed, {self.failed} failed", flush=True)
        return 1 if self.failed else 0


def demand(held: object, why: str) -> None:
    """Raise `Failed` if the condition is false."""
    if not held:
        raise Failed(why)


def _one_line(text: str) -> str:
    return " ".join(_COLOUR.sub("", text).split())[:WHY_CHARS_MAX]
