"""Counts of calls in this minute and the last: in memory, bounded, and open to what other replicas
have counted.
"""

import math
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime

MINUTE_S = 60
KEYS_MAX = 100_000

Key = tuple[str, str]
"""A namespace and one of its tokens (or '' for all of them); or a network, and ''."""
Told = tuple[Key, int]
"""A key and the number of a minute."""


@dataclass
class _Count:
    minute: int
    calls: int = 0
    before: int = 0
    """The calls of the minute before."""


class SlidingWindow:
    """Windows of a minute. Of more than `KEYS_MAX` keys, the one not met for longest is forgotten.

    With `shared`, what is counted here is kept for `untold` until somebody tells it to the others,
    and `learn` takes the sums that they told.
    """

    def __init__(self, now: Callable[[], datetime], *, shared: bool = False) -> None:
        self._now = now
        self._shared = shared
        self._counts: OrderedDict[Key, _Count] = OrderedDict()
        self._untold: dict[Told, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def hit(self, key: Key, limit: int) -> int:
        """Count one call; 0. Where it is one too many it is not counted: the whole seconds until
        one fits. The last minute counts for as much of it as the window of 60 s still covers.
        """
        count, (minute, left) = self._count(key), self._at()
        if int(count.before * left / MINUTE_S + count.calls) < limit:
            count.calls += 1
            if self._shared:
                self._untold[key, minute] = self._untold.get((key, minute), 0) + 1
            return 0
        if count.calls < limit:
            # before * rest / minute + calls < limit
            rest = MINUTE_S * (limit - count.calls) / count.before if count.before else MINUTE_S
            return max(1, math.floor(left - rest) + 1)
        return math.floor(left + MINUTE_S * (1 - limit / count.calls)) + 1

    def untold(self) -> dict[Told, int]:
        """What was counted here since this was last asked."""
        told, self._untold = self._untold, {}
        return told

    def untell(self, counts: Mapping[Told, int]) -> None:
        """Nobody could be told: keep what still matters for the next time."""
        minute, _ = self._at()
        for (key, at), calls in counts.items():
            if at >= minute - 1:
                self._untold[key, at] = self._untold.get((key, at), 0) + calls

    def learn(self, sums: Mapping[Told, int]) -> None:
        """Take what all have told; what was counted here meanwhile comes on top."""
        for (key, at), calls in sums.items():
            count = self._counts.get(key)
            if count is None:
                continue
            known = calls + self._untold.get((key, at), 0)
            if at == count.minute:
                count.calls = known
            elif at == count.minute - 1:
                count.before = known

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
        """Adding nothing tells what others have added."""
        if self._shared:
            self._untold.setdefault((key, minute), 0)
