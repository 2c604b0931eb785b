"""How many calls a minute: by token, by namespace, and without a good token by address. Replicas on
one database share what they count, about once a second.
"""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv6Address, ip_address

import structlog

from recall_server.domain.errors import RateLimited, RecallError
from recall_server.domain.namespace import Namespace
from recall_server.storage.store import Store

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
    """Windows of a minute. Of more than `keys_max` keys, the one not met for longest is forgotten.

    With `shared`, counts of this server are kept for `take_unshared` until they are published to
    the replicas, and `learn` takes the published sums.
    """

    def __init__(
        self, now: Callable[[], datetime], *, shared: bool = False, keys_max: int = KEYS_MAX
    ) -> None:
        self._now = now
        self._shared = shared
        self._keys_max = keys_max
        self._counts: OrderedDict[Key, _Count] = OrderedDict()
        self._unshared: dict[Counted, int] = {}

    def __len__(self) -> int:
        return len(self._counts)

    def take(self, key: Key, limit: int) -> bool:
        """Count one more call, unless that is one too many: those of this minute, and as large a
        share of the last minute's as it still reaches into the sliding window.
        """
        minute, left = self._minute()
        count = self._count(key, minute)
        if int(count.before * left / MINUTE_S + count.calls) + 1 > limit:
            return False
        count.calls += 1
        if self._shared:
            self._unshared[key, minute] = self._unshared.get((key, minute), 0) + 1
        return True

    def wait_s(self, key: Key, limit: int) -> int:
        """Whole seconds until one more call fits, as the share of the last minute shrinks."""
        minute, left = self._minute()
        count = self._count(key, minute)
        if count.calls < limit:
            # before * rest / minute + calls < limit
            rest = MINUTE_S * (limit - count.calls) / count.before if count.before else MINUTE_S
            return max(1, math.floor(left - rest) + 1)
        return math.floor(left + MINUTE_S * (1 - limit / count.calls)) + 1

    def _minute(self) -> tuple[int, float]:
        """The number of this minute, and the seconds that are left of it."""
        minute, passed = divmod(self._now().timestamp(), MINUTE_S)
        return int(minute), MINUTE_S - passed

    def _count(self, key: Key, minute: int) -> _Count:
        count = self._counts.get(key)
        if count is None:
            count = self._counts[key] = _Count(minute)
            while len(self._counts) > self._keys_max:
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
            self._unshared.setdefault((key, minute), 0)

    def take_unshared(self) -> dict[Counted, int]:
        """The counts of this server since the last call."""
        counts, self._unshared = self._unshared, {}
        return counts

    def put_back(self, counts: dict[Counted, int]) -> None:
        """Publishing failed: keep what still matters for the next time."""
        minute, _ = self._minute()
        for (key, at), calls in counts.items():
            if at >= minute - 1:
                self._unshared[key, at] = self._unshared.get((key, at), 0) + calls

    def learn(self, sums: dict[Counted, int]) -> None:
        """Take the sums of all replicas; calls counted here meanwhile come on top."""
        for (key, at), calls in sums.items():
            count = self._counts.get(key)
            if count is None:
                continue
            known = calls + self._unshared.get((key, at), 0)
            if at == count.minute:
                count.calls = known
            elif at == count.minute - 1:
                count.before = known


log = structlog.get_logger()

SHARE_S = 1.0
_BITS_OF_A_NETWORK = 64


class _Limit:
    """So many calls a minute of each key; 0: any number."""

    def __init__(self, windows: SlidingWindow, per_minute: int) -> None:
        self._windows = windows
        self._per_minute = per_minute

    def count(self, *key: str) -> None:
        """Count one more. Raises `RateLimited`, and does not count, where it is one too many."""
        limit = self._per_minute
        if limit and not self._windows.take(key, limit):
            raise RateLimited(retry_after_s=self._windows.wait_s(key, limit), limit=limit)


class Rates:
    """Counts calls, and says when they are too many."""

    def __init__(
        self,
        store: Store,
        now: Callable[[], datetime],
        *,
        token_calls: int,
        namespace_calls: int,
        bad_tokens: int,
        anonymous: int = 0,
        keys_max: int = KEYS_MAX,
    ) -> None:
        """Each so many a minute; 0: any number. `keys_max`: how many callers are counted apart."""
        self._store = store
        self._now = now
        # A file has one server; a database of Postgres may have any number.
        self.shared = store.engine == "postgres"
        self._windows = SlidingWindow(now, shared=self.shared, keys_max=keys_max)
        self._token = _Limit(self._windows, token_calls)
        self._namespace = _Limit(self._windows, namespace_calls)
        self._bad_tokens = _Limit(SlidingWindow(now, keys_max=keys_max), bad_tokens)
        self._anonymous = _Limit(SlidingWindow(now, keys_max=keys_max), anonymous)
        self._forgotten = 0

    async def call(self, namespace: Namespace, accessor: str) -> None:
        """A call by a token. Raises `RateLimited`."""
        self._token.count(namespace, accessor)
        self._namespace.count(namespace, "")

    async def bad_token(self, address: str) -> None:
        """A call from `address` with a token that is none. Raises `RateLimited`."""
        self._bad_tokens.count(network_of(address))

    async def anonymous(self, address: str) -> None:
        """A call from `address` that needs no token. Raises `RateLimited`."""
        self._anonymous.count(network_of(address))

    async def run(self) -> None:
        """Share what is counted, until cancelled."""
        while self.shared:
            await asyncio.sleep(SHARE_S)
            try:
                await self.share()
            except RecallError as error:
                log.warning("rates_not_shared", code=error.code)

    async def share(self) -> None:
        """Publish the counts and learn those of all replicas, in one statement; none without calls.
        Where the database does not answer, this one goes on by what it knows.
        """
        unshared = self._windows.take_unshared()
        if not unshared:
            return
        keys = {(Namespace(key[0]), key[1], minute): (key, minute) for key, minute in unshared}
        minute = int(self._now().timestamp() // MINUTE_S)
        try:
            async with self._store.transaction(None) as tx:
                sums = await tx.rates.add({one: unshared[key] for one, key in keys.items()})
                if self._forgotten != minute:
                    await tx.rates.forget(before=minute - 1)
        except BaseException:
            self._windows.put_back(unshared)
            raise
        self._forgotten = minute
        self._windows.learn({keys[one]: calls for one, calls in sums.items()})


def network_of(address: str) -> str:
    """What is counted as one address: of IPv6 a network, as its holder has 2**64 addresses."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address):
        return f"{int(parsed) >> (128 - _BITS_OF_A_NETWORK):x}"
    return str(parsed)
