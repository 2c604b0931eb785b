"""Time that stands still, and random bytes that repeat."""

import hashlib
from datetime import UTC, datetime, timedelta

import pytest

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


class Clock:
    """Time that passes only when a test says so."""

    def __init__(self) -> None:
        self.time = NOON

    def __call__(self) -> datetime:
        return self.time

    def pass_(self, time: timedelta) -> None:
        self.time += time


class RandomBytes:
    """Bytes that are the same in every run, and others after a different number of draws."""

    def __init__(self, drawn: int = 0) -> None:
        self._drawn = drawn

    def __call__(self, count: int) -> bytes:
        self._drawn += 1
        return hashlib.sha256(str(self._drawn).encode()).digest()[:count]


@pytest.fixture
def clock() -> Clock:
    return Clock()
