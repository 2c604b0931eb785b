"""How many calls a minute: per token, per namespace, and of those who show no good token, per
address. Replicas on one database share what they count, about once a second.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from ipaddress import IPv6Address, ip_address

import structlog

from recall_server.domain.errors import RateLimited, RecallError
from recall_server.domain.namespace import Namespace
from recall_server.services.limits.sliding_window import MINUTE_S, SlidingWindow
from recall_server.storage.store import Store

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
    ) -> None:
        """Each so many a minute; 0: any number."""
        self._store = store
        self._now = now
        # A file has one server; a database of Postgres may have any number.
        self.shared = store.engine == "postgres"
        self._windows = SlidingWindow(now, shared=self.shared)
        self._token = _Limit(self._windows, token_calls)
        self._namespace = _Limit(self._windows, namespace_calls)
        self._strangers = _Limit(SlidingWindow(now), bad_tokens)
        self._forgotten = 0

    async def call(self, namespace: Namespace, accessor: str) -> None:
        """A call by a token. Raises `RateLimited`."""
        self._token.count(namespace, accessor)
        self._namespace.count(namespace, "")

    async def bad_token(self, address: str) -> None:
        """A call from `address` with a token that is none. Raises `RateLimited`."""
        self._strangers.count(_network(address))

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
        keys = {(Namespace(key[0]), key[1], minute): (key, minute) for key, minute in untold}
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


def _network(address: str) -> str:
    """Whoever has one IPv6 address has 2**64 of them."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return "unknown"
    if isinstance(parsed, IPv6Address):
        return f"{int(parsed) >> (128 - _BITS_OF_A_NETWORK):x}"
    return str(parsed)
