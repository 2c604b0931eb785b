"""The tables of limits: calls of tokens, bytes kept, and tokens of language models."""

from collections.abc import Iterable, Mapping

from recall_server.domain.errors import QuotaExceeded
from recall_server.domain.namespace import Namespace
from recall_server.storage.bound_connection import BoundConnection, BoundTable
from recall_server.storage.driver import Document

Counted = tuple[Namespace, str, int]
"""A namespace, one of its tokens (or '' for all of them), and the number of a minute."""


class Rates(BoundTable):
    """Counts of calls, for all tenants."""

    async def add(self, counts: Mapping[Counted, int]) -> dict[Counted, int]:
        """Add to the counts. Return their new values. Erased namespaces are not counted."""
        rows: Iterable[list[object]] = ([*key, calls] for key, calls in counts.items())
        found = await self._bound.fetch("add_calls", counted=Document(list(rows)))
        return {
            (Namespace(row["namespace"]), row["accessor"], int(row["minute"])): int(row["calls"])
            for row in found
        }

    async def forget(self, *, before: int) -> None:
        """Remove the counts of minutes before `before`."""
        await self._bound.send("forget_calls", minute=before)


DAYS_KEPT = 31


# Bytes that a findable item counts in addition to its text, for its rows and its vector.
ITEM_BYTES = 256
# Bytes that an event counts.
EVENT_BYTES = 96


def bytes_of(values: Iterable[object]) -> int:
    """Return the stored bytes of the texts and documents among these values."""
    texts = (one.text if isinstance(one, Document) else one for one in values)
    return sum(len(one.encode("utf-8", "surrogatepass")) for one in texts if isinstance(one, str))


async def take_quota(bound: BoundConnection, size: int) -> None:
    """Take bytes that this transaction stores from the quota, which findable items use too. If not
    enough is left, `QuotaExceeded` is raised here or later (see `Connection.expect`).
    """
    if size:
        await bound.expect(
            "take_quota",
            QuotaExceeded,
            bytes=size,
            bytes_max=bound.quota_bytes_max,
            item_bytes=ITEM_BYTES,
        )


async def return_quota(bound: BoundConnection, size: int) -> None:
    """Give bytes that are no longer stored back to the quota."""
    if size:
        await bound.send("return_quota", bytes=size)


class Spend(BoundTable):
    """Tokens spent per day, for all models together."""

    async def reserve(self, day: int, tokens: int, tokens_max: int) -> bool:
        """Reserve tokens for a call. Return False if the day has not enough left."""
        await self._bound.send("forget_spend", day=day - DAYS_KEPT)
        return await self._bound.touched(
            "reserve_tokens", day=day, tokens=tokens, tokens_max=tokens_max
        )

    async def settle(self, day: int, more: int) -> None:
        """Add what a call took more than was reserved; negative if it took less."""
        await self._bound.send("settle_tokens", day=day, more=more)
