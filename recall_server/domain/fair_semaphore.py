"""Fair turns: whoever has the fewest goes first, so that nobody waits behind another's crowd."""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager, suppress

# Somebody whose turn has ended is taken for one who comes again for so long.
NEAR_S = 1.0
# Nobody gives way for longer, and to a turn that lasts longer nobody does.
WAY_S = 0.05


class FairSemaphore:
    """At most `at_once` go at a time, and of one key at most `each`, or `beside` where another one
    is near. Those who wait go in the order in which they came within a key; among keys, that one
    first which has the fewest under way, then that one whose last turn began longest ago.

    For one event loop; what it keeps of a key is gone when nobody of it goes or waits.
    """

    def __init__(self, at_once: int, *, each: int | None = None, beside: int | None = None) -> None:
        self._at_once = at_once
        self._each = at_once if each is None else each
        self._beside = self._each if beside is None else beside
        self._going: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._begun: dict[Hashable, int] = {}
        self._begun_at: dict[Hashable, float] = {}
        self._total = 0
        self._count = 0
        # Who was here last, and who of the others; and when.
        self._last: tuple[Hashable, float] = (None, -math.inf)
        self._other: tuple[Hashable, float] = (None, -math.inf)
        self._ended = asyncio.Event()

    @property
    def crowded(self) -> bool:
        """Somebody waits."""
        return bool(self._waiting)

    def waiting(self, key: Hashable) -> int:
        """How many of `key` wait."""
        return len(self._waiting.get(key, ()))

    @asynccontextmanager
    async def of(self, key: Hashable) -> AsyncIterator[None]:
        """A turn, for as long as the block lasts."""
        await self.take(key)
        try:
            yield
        finally:
            self.give_back(key)

    async def take(self, key: Hashable) -> None:
        """Wait for a turn; it lasts until `give_back`. Whoever is cancelled here has none."""
        self._seen(key)
        if self._total < self._at_once and self._free(key) and key not in self._waiting:
            self._begin(key)
            return
        turn = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(key, deque())
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.give_back(key)  # the turn came as its taker left
            elif turn in queue:
                queue.remove(turn)
                self._forget(key)
            raise

    async def yield_to_others(self, key: Hashable) -> None:
        """Who has one single turn goes first: wait while another has, unless `key` has one itself.
        To be called in the midst of work, where it holds nothing that somebody else may need.
        """
        if not self._in_the_way(key):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(WAY_S):
                while self._in_the_way(key):
                    await self._ended.wait()

    def give_back(self, key: Hashable) -> None:
        """End a turn, and begin the next."""
        self._seen(key)
        self._ended.set()
        self._ended = asyncio.Event()
        self._total -= 1
        self._going[key] -= 1
        if not self._going[key]:
            del self._going[key]
        self._forget(key)
        while self._total < self._at_once:
            able = [one for one in self._waiting if self._free(one)]
            if not able:
                return
            self._call(min(able, key=self._rank))

    def _call(self, key: Hashable) -> None:
        """Give a turn to the first of `key` who still waits."""
        queue = self._waiting[key]
        turn = queue.popleft()
        if not turn.done():
            self._begin(key)
            turn.set_result(None)
        self._forget(key)

    def _rank(self, key: Hashable) -> tuple[int, int]:
        return self._going.get(key, 0), self._begun.get(key, 0)

    def _free(self, key: Hashable) -> bool:
        return self._going.get(key, 0) < (self._beside if self._near(key) else self._each)

    def _near(self, key: Hashable) -> bool:
        """Whether any other was here a moment ago."""
        _, at = self._other if self._last[0] == key else self._last
        return _now() - at < NEAR_S

    def _seen(self, key: Hashable) -> None:
        if self._last[0] != key:
            self._other = self._last
        self._last = key, _now()

    def _in_the_way(self, key: Hashable) -> bool:
        if self._single(key):
            return False
        young = _now() - WAY_S
        return any(
            one != key and self._single(one) and self._begun_at[one] > young for one in self._going
        )

    def _single(self, key: Hashable) -> bool:
        return self._going.get(key) == 1 and key not in self._waiting

    def _begin(self, key: Hashable) -> None:
        self._total += 1
        self._count += 1
        self._going[key] = self._going.get(key, 0) + 1
        self._begun[key] = self._count
        self._begun_at[key] = _now()

    def _forget(self, key: Hashable) -> None:
        if key in self._waiting and not self._waiting[key]:
            del self._waiting[key]
        if key not in self._waiting and key not in self._going:
            self._begun.pop(key, None)
            self._begun_at.pop(key, None)


def _now() -> float:
    return asyncio.get_running_loop().time()
