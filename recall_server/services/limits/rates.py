"""How many calls a minute: per token, per namespace, and of those who show no good token, per
address. Replicas on one database share what they count, about once a second.
"""

import asyncio
import math
from collections.abc import Callable
from datetime import datetime
from ipaddress import IPv6Address, ip_address

import structlog
from limits import RateLimitItemPerMinute
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from recall_server.domain.errors import RateLimited, RecallError
from recall_server.domain.namespace import Namespace
from recall_server.services.limits.sliding_window import MINUTE_S, SlidingWindow
from recall_server.storage.store import Store
from recall_server.storage.tables.rates import Counted

log = structlog.get_logger()

SHARE_S = 1.0
_BITS_OF_A_NETWORK = 64


class _Limit:
    """So many a minute of each key; 0: any number."""

    def __init__(self, windows: SlidingWindow, per_minute: int, name: str) -> None:
        self._windows = windows
        self._limiter = SlidingWindowCounterRateLimiter(windows)
        self._item = RateLimitItemPerMinute(per_minute, namespace=name) if per_minute else None

    async def count(self, *key: str) -> None:
        """Count one more. Raises `RateLimited`, and does not count, where it is one too many."""
        if self._item is None or await self._limiter.hit(self._item, *key):
            return
        limit = self._item.amount
        before, left, calls, _ = await self._windows.get_sliding_window(
            self._item.key_for(*key), MINUTE_S
        )
        raise RateLimited(retry_after_s=_wait(limit, before, calls, left), limit=limit)


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
    ) -> None:
        """Each so many a minute; 0: any number."""
        self._store = store
        self._now = now
        # A file has one server; a database of Postgres may have any number.
        self.shared = store.engine == "postgres"
        self._windows = SlidingWindow(now, shared=self.shared)
        self._token = _Limit(self._windows, token_calls, "token")
        self._namespace = _Limit(self._windows, namespace_calls, "namespace")
        self._strangers = _Limit(SlidingWindow(now), bad_tokens, "address")
        self._forgotten = 0

    async def call(self, namespace: Namespace, accessor: str) -> None:
        """A call by a token. Raises `RateLimited`."""
        await self._token.count(namespace, accessor)
        await self._namespace.count(namespace, "")

    async def bad_token(self, address: str) -> None:
        """A call from `address` with a token that is none. Raises `RateLimited`."""
        await self._strangers.count(_network(address))

    async def run(self) -> None:
        """Share what is counted, until cancelled."""
        while self.shared:
            await asyncio.sleep(SHARE_S)
            try:
                await self.share()
            except RecallError as error:
                log.warning("rates_not_shared", code=error.code)

    async def share(self) -> None:
        """Tell the other replicas, and learn what all have counted. Where the database does not
        answer, this one goes on by what it knows. Costs one statement, and nothing where nobody
        called.
        """
        untold = self._windows.untold()
        if not untold:
            return
        keys = {_counted(key, minute): (key, minute) for key, minute in untold}
        minute = int(self._now().timestamp() // MINUTE_S)
        try:
            async with self._store.transaction(None) as tx:
                sums = await tx.rates.add({one: untold[key] for one, key in keys.items()})
                if self._forgotten != minute:
                    await tx.rates.forget(before=minute - 1)
        except BaseException:
            self._windows.untell(untold)
            raise
        self._forgotten = minute
        self._windows.learn({keys[one]: calls for one, calls in sums.items()})


def _counted(key: str, minute: int) -> Counted:
    """What a key of the library, NAME/NAMESPACE/ACCESSOR/…, counts."""
    _, namespace, rest = key.split("/", 2)
    accessor = rest.rsplit("/", 3)[0]
    return Namespace(namespace), accessor, minute


def _wait(limit: int, before: int, calls: int, left: float) -> int:
    """Whole seconds until one more call fits: what is counted for the last minute shrinks as this
    one goes by.
    """
    if calls < limit:
        # before * rest / minute + calls < limit
        rest = MINUTE_S * (limit - calls) / before if before else MINUTE_S
        return max(1, math.floor(left - rest) + 1)
    return math.floor(left + MINUTE_S * (1 - limit / calls)) + 1


def _network(address: str) -> str:
    """Whoever has one IPv6 address has 2**64 of them."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address):
        return f"{int(parsed) >> (128 - _BITS_OF_A_NETWORK):x}"
    return str(parsed)
