"""Counts of calls in this minute and the last, as the library `limits` wants them stored: in
memory, bounded, and open to what other replicas have counted.
"""

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from limits.aio.storage import Storage
from limits.aio.storage.base import SlidingWindowCounterSupport

MINUTE_S = 60
KEYS_MAX = 100_000

Told = tuple[str, int]
"""A key and the number of a minute."""


@dataclass
class _Count:
    minute: int
    calls: int = 0
    before: int = 0
    """The calls of the minute before."""


class SlidingWindow(Storage, SlidingWindowCounterSupport):
    """Windows of a minute. Of more than `KEYS_MAX` keys, the one not met for longest is forgotten.

    With `shared`, what is counted here is kept for `untold` until somebody tells it to the others,
    and `learn` takes the sums that they told.
    """

    STORAGE_SCHEME = None

    def __init__(self, now: Callable[[], datetime], *, shared: bool = False) -> None:
        super().__init__()
        self._now = now
        self._shared = shared
        self._counts: OrderedDict[str, _Count] = OrderedDict()
        self._untold: dict[Told, int] = {}

    @property
    def base_exceptions(self) -> type[Exception]:
        return OSError

    def __len__(self) -> int:
        return len(self._counts)

    def _at(self) -> tuple[int, float]:
        """The number of this minute, and the seconds that are left of it."""
        minute, gone = divmod(self._now().timestamp(), MINUTE_S)
        return int(minute), MINUTE_S - gone

    def _count(self, key: str) -> _Count:
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

    def _ask(self, key: str, minute: int) -> None:
        """Adding nothing tells what others have added."""
        if self._shared:
            self._untold.setdefault((key, minute), 0)

    async def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        count = self._count(key)
        minute, left = self._at()
        if int(count.before * left / expiry + count.calls) + amount > limit:
            return False
        count.calls += amount
        if self._shared:
            self._untold[key, minute] = self._untold.get((key, minute), 0) + amount
        return True

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        count, (_, left) = self._count(key), self._at()
        return count.before, left, count.calls, left + expiry

    async def clear_sliding_window(self, key: str, expiry: int) -> None:  # noqa: ARG002
        self._counts.pop(key, None)

    def untold(self) -> dict[Told, int]:
        """What was counted here since this was last asked."""
        told, self._untold = self._untold, {}
        return told

    def untell(self, counts: dict[Told, int]) -> None:
        """Nobody could be told: keep what still matters for the next time."""
        minute, _ = self._at()
        for (key, at), calls in counts.items():
            if at >= minute - 1:
                self._untold[key, at] = self._untold.get((key, at), 0) + calls

    def learn(self, sums: dict[Told, int]) -> None:
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

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:  # noqa: ARG002
        self._count(key).calls += amount
        return self._count(key).calls

    async def get(self, key: str) -> int:
        return self._count(key).calls

    async def get_expiry(self, key: str) -> float:  # noqa: ARG002
        return self._now().timestamp() + self._at()[1]

    async def check(self) -> bool:
        return True

    async def reset(self) -> int:
        known = len(self._counts)
        self._counts.clear()
        return known

    async def clear(self, key: str) -> None:
        self._counts.pop(key, None)
