"""The tables of limits: calls of tokens, bytes kept, and tokens of language models."""

from collections.abc import Iterable, Mapping

from recall_server.domain.errors import QuotaExceeded
from recall_server.domain.namespace import Namespace
from recall_server.storage.bound_connection import BoundConnection, BoundTable
from recall_server.storage.driver import Document

Counted = tuple[Namespace, str, int]
"""A namespace, one of its tokens (or '' for all of them), and the number of a minute."""


class Rates(BoundTable):
    """Counts of calls, of all tenants."""

    async def add(self, counts: Mapping[Counted, int]) -> dict[Counted, int]:
        """Add to the counts; what they are then. Nothing is kept of a namespace that is gone."""
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


# What an item that search finds counts beside the text that it is in: it has rows and a vector.
ITEM_BYTES = 256
# What an event counts.
EVENT_BYTES = 96


def bytes_of(values: Iterable[object]) -> int:
    """How many bytes the texts and documents among these values have, as they are stored."""
    texts = (one.text if isinstance(one, Document) else one for one in values)
    return sum(len(one.encode("utf-8", "surrogatepass")) for one in texts if isinstance(one, str))


async def take_quota(bound: BoundConnection, size: int) -> None:
    """Count bytes that this transaction keeps. Where they are more than the quota has left beside
    the items that search finds, `QuotaExceeded` is raised here or later (see `Connection.expect`).
    """
    if size:
        await bound.expect(
            "take_quota",
            QuotaExceeded(),
            bytes=size,
            bytes_max=bound.quota_bytes_max,
            item_bytes=ITEM_BYTES,
        )


async def return_quota(bound: BoundConnection, size: int) -> None:
    """So many bytes are gone."""
    if size:
        await bound.send("return_quota", bytes=size)


class Spend(BoundTable):
    """Tokens by day, of all models together."""

    async def reserve(self, day: int, tokens: int, tokens_max: int) -> bool:
        """Take so many for a call; False where the day has not as many left."""
        await self._bound.send("forget_spend", day=day - DAYS_KEPT)
        return await self._bound.touched(
            "reserve_tokens", day=day, tokens=tokens, tokens_max=tokens_max
        )

    async def settle(self, day: int, more: int) -> None:
        """A call took so many more than were reserved; fewer, where it is negative."""
        await self._bound.send("settle_tokens", day=day, more=more)

    async def spent(self, day: int) -> int:
        """The tokens spent on a day, with those that are reserved."""
        rows = await self._bound.fetch("spent_tokens", day=day)
        return int(rows[0]["tokens"]) if rows else 0
