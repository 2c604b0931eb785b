"""Fair turns: whoever has the fewest goes first, so that nobody waits behind another's crowd."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager


class Turns:
    """At most `at_once` go at a time, and of one key at most `each`. Those who wait go in the order
    in which they came within a key; among keys, that one first which has the fewest under way, then
    that one whose last turn began longest ago.

    For one event loop; what it keeps of a key is gone when nobody of it goes or waits.
    """

    def __init__(self, at_once: int, *, each: int | None = None) -> None:
        self._at_once = at_once
        self._each = at_once if each is None else each
        self._going: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._begun: dict[Hashable, int] = {}
        self._total = 0
        self._count = 0

    @property
    def busy(self) -> bool:
        """Somebody goes."""
        return self._total > 0

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

    def give_back(self, key: Hashable) -> None:
        """End a turn, and begin the next."""
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
        return self._going.get(key, 0) < self._each

    def _begin(self, key: Hashable) -> None:
        self._total += 1
        self._count += 1
        self._going[key] = self._going.get(key, 0) + 1
        self._begun[key] = self._count

    def _forget(self, key: Hashable) -> None:
        if key in self._waiting and not self._waiting[key]:
            del self._waiting[key]
        if key not in self._waiting and key not in self._going:
            self._begun.pop(key, None)
