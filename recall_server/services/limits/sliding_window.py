"""Calls of each key within a sliding minute: in memory, bounded, and open to the counts of other
replicas.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

MINUTE_S = 60
KEYS_MAX = 100_000

Key = tuple[str, ...]
Counted = tuple[Key, int]
"""A key and the number of a minute."""


@dataclass
class _Count:
    minute: int
    calls: int = 0
    before: int = 0
    """The calls of the minute before."""


class SlidingWindow:
    """Windows of a minute. Of more than `KEYS_MAX` keys, the one not met for longest is forgotten.

    With `shared`, counts of this server are kept for `untold` until they are published to the
    replicas, and `learn` takes the published sums.
    """

    def __init__(self, now: Callable[[], datetime], *, shared: bool = False) -> None:
        self._now = now
        self._shared = shared
        self._counts: OrderedDict[Key, _Count] = OrderedDict()
        self._untold: dict[Counted, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def take(self, key: Key, limit: int) -> bool:
        """Count one more call, unless that is one too many: those of this minute, and as large a
        share of the last minute's as it still reaches into the sliding window.
        """
        count = self._count(key)
        minute, left = self._at()
        if int(count.before * left / MINUTE_S + count.calls) + 1 > limit:
            return False
        count.calls += 1
        if self._shared:
            self._untold[key, minute] = self._untold.get((key, minute), 0) + 1
        return True

    def wait_s(self, key: Key, limit: int) -> int:
        """Whole seconds until one more call fits: the last minute's share shrinks as this one
        goes by.
        """
        count, (_, left) = self._count(key), self._at()
        if count.calls < limit:
            # before * rest / minute + calls < limit
            rest = MINUTE_S * (limit - count.calls) / count.before if count.before else MINUTE_S
            return max(1, math.floor(left - rest) + 1)
        return math.floor(left + MINUTE_S * (1 - limit / count.calls)) + 1

    def _at(self) -> tuple[int, float]:
        """The number of this minute, and the seconds that are left of it."""
        minute, gone = divmod(self._now().timestamp(), MINUTE_S)
        return int(minute), MINUTE_S - gone

    def _count(self, key: Key) -> _Count:
        minute, _ = self._at()
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count(minute)
            while len(self._counts) > KEYS_MAX:
                self._counts.popitem(last=False)
            self._ask(key, minute - 1)
        elif count.minute != minute:
            count.before = count.calls if count.minute == minute - 1 else 0
            count.minute, count.calls = minute, 0
            self._ask(key, minute - 1)
        self._counts.move_to_end(key)
        return count

    def _ask(self, key: Key, minute: int) -> None:
        """Publishing zero calls returns the sum of the others."""
        if self._shared:
            self._untold.setdefault((key, minute), 0)

    def untold(self) -> dict[Counted, int]:
        """The counts of this server since the last call."""
        counts, self._untold = self._untold, {}
        return counts

    def untell(self, counts: dict[Counted, int]) -> None:
        """Publishing failed: keep what still matters for the next time."""
        minute, _ = self._at()
        for (key, at), calls in counts.items():
            if at >= minute - 1:
                self._untold[key, at] = self._untold.get((key, at), 0) + calls

    def learn(self, sums: dict[Counted, int]) -> None:
        """Take the sums of all replicas; calls counted here meanwhile come on top."""
        for (key, at), calls in sums.items():
            count = self._counts.get(key)
            if count is None:
                continue
            known = calls + self._untold.get((key, at), 0)
            if at == count.minute:
                count.calls = known
            elif at == count.minute - 1:
                count.before = known
