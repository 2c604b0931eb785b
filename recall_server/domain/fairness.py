"""Fairness among keys: a semaphore whose next slot goes to the key with the fewest slots, a
steady rate for each key, and gates.
"""

import asyncio
import math
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Any
from weakref import WeakValueDictionary

# How long a key counts as active after its last use.
RECENT_S = 1.0
# No caller yields for longer than this, or to a slot that has been held for longer.
YIELD_MAX_S = 0.05


class FairSemaphore:
    """Grants at most `limit` slots at a time, to one key at most `per_key`, or `per_key_contended`
    while another key is active. Waiters of one key are served in order; among keys, the one with
    the fewest slots goes first, then the one whose last slot began longest ago.

    For one event loop. The state of a key is dropped when it holds no slot and nobody waits for it.
    """

    def __init__(
        self, limit: int, *, per_key: int | None = None, per_key_contended: int | None = None
    ) -> None:
        self._limit = limit
        self._per_key = limit if per_key is None else per_key
        self._per_key_contended = self._per_key if per_key_contended is None else per_key_contended
        self._held: dict[Hashable, int] = {}
        self._waiting: dict[Hashable, deque[asyncio.Future[None]]] = {}
        self._begun_at: dict[Hashable, float] = {}
        self._total = 0
        # The last two distinct keys, each with the time of its last use.
        self._last: tuple[Hashable, float] = (None, -math.inf)
        self._other: tuple[Hashable, float] = (None, -math.inf)
        self._ended = asyncio.Event()

    @property
    def contended(self) -> bool:
        """True if anybody waits."""
        return bool(self._waiting)

    def waiting(self, key: Hashable) -> int:
        return len(self._waiting.get(key, ()))

    @asynccontextmanager
    async def slot(self, key: Hashable) -> AsyncIterator[None]:
        await self.acquire(key)
        try:
            yield
        finally:
            self.release(key)

    async def acquire(self, key: Hashable) -> None:
        """Wait for a slot; it is held until `release`. A cancelled waiter holds none."""
        self._note_use(key)
        if self._total < self._limit and self._free(key) and key not in self._waiting:
            self._begin(key)
            return
        turn = asyncio.get_running_loop().create_future()
        queue = self._waiting.setdefault(key, deque())
        queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self.release(key)  # the slot was granted while the waiter was cancelled
            elif turn in queue:
                queue.remove(turn)
                self._forget(key)
            raise

    async def yield_to_others(self, key: Hashable) -> None:
        """Wait while another key holds its only slot, unless `key` itself holds only one.

        Call it in the middle of work, while holding nothing that others may need.
        """
        if not self._should_yield(key):
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(YIELD_MAX_S):
                while self._should_yield(key):
                    await self._ended.wait()

    def release(self, key: Hashable) -> None:
        """Give a slot back and grant it to the next waiter."""
        self._note_use(key)
        self._ended.set()
        self._ended = asyncio.Event()
        self._total -= 1
        self._held[key] -= 1
        if not self._held[key]:
            del self._held[key]
        self._forget(key)
        while self._total < self._limit:
            eligible = [one for one in self._waiting if self._free(one)]
            if not eligible:
                return
            first = min(
                eligible, key=lambda one: (self._held.get(one, 0), self._begun_at.get(one, 0.0))
            )
            turn = self._waiting[first].popleft()
            if not turn.done():  # else it was cancelled
                self._begin(first)
                turn.set_result(None)
            self._forget(first)

    def _free(self, key: Hashable) -> bool:
        # Contended: another key was active within `RECENT_S`.
        _, at = self._other if self._last[0] == key else self._last
        contended = _now() - at < RECENT_S
        return self._held.get(key, 0) < (self._per_key_contended if contended else self._per_key)

    def _note_use(self, key: Hashable) -> None:
        if self._last[0] != key:
            self._other = self._last
        self._last = key, _now()

    def _should_yield(self, key: Hashable) -> bool:
        single = [one for one, held in self._held.items() if held == 1 and one not in self._waiting]
        if key in single:
            return False
        young = _now() - YIELD_MAX_S
        return any(self._begun_at[one] > young for one in single)

    def _begin(self, key: Hashable) -> None:
        self._total += 1
        self._held[key] = self._held.get(key, 0) + 1
        self._begun_at[key] = _now()

    def _forget(self, key: Hashable) -> None:
        if key in self._waiting and not self._waiting[key]:
            del self._waiting[key]
        if key not in self._waiting and key not in self._held:
            self._begun_at.pop(key, None)


def _now() -> float:
    return asyncio.get_running_loop().time()


class Gates:
    """A gate for each key, which a task may close to the others. For one event loop."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()
        self._closed_by: dict[Hashable, asyncio.Task[Any] | None] = {}

    @asynccontextmanager
    async def closed(self, key: Hashable) -> AsyncIterator[None]:
        """Have other tasks wait in `passed` until the block ends."""
        lock = self._locks.setdefault(key, asyncio.Lock())
        async with lock:
            self._closed_by[key] = asyncio.current_task()
            try:
                yield
            finally:
                del self._closed_by[key]

    async def passed(self, key: Hashable) -> None:
        """Wait until no other task has closed the gate."""
        own = asyncio.current_task()
        while self._closed_by.get(key, own) is not own:
            async with self._locks[key]:
                pass


# Beyond so many keys, those that nothing waits for are dropped.
KEYS_MAX = 1_000


class Pace:
    """Lets `per_s` of each key pass in a second, in the order in which it comes. Nothing waits for
    longer than `wait_max_s`.
    """

    def __init__(self, per_s: float, wait_max_s: float) -> None:
        self._per_s = per_s
        self._wait_max_s = wait_max_s
        self._passed_at: dict[Hashable, float] = {}

    def wait_s(self, key: Hashable, amount: float, now: float) -> float | None:
        """Return the seconds until all that came before this `amount` has passed; None if it may
        not wait that long, and is refused.
        """
        if len(self._passed_at) > KEYS_MAX:
            self._passed_at = {one: at for one, at in self._passed_at.items() if at > now}
        begins = max(now, self._passed_at.get(key, now))
        if begins - now > self._wait_max_s:
            return None
        self._passed_at[key] = begins + amount / self._per_s
        return begins - now
