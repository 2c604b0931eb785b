"""The limits of a namespace: bytes of texts, and tokens of language models."""

from recall_server.domain.errors import QuotaExceeded
from recall_server.storage.bound_connection import BoundConnection

DAYS_KEPT = 31


async def take_quota(handle: BoundConnection, *texts: str) -> int:
    """Count the bytes of texts that this transaction keeps; how many they are. Where they are more
    than the quota has left, `QuotaExceeded` is raised here or later (see `Connection.expect`).
    """
    size = sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    if size:
        await handle.expect(
            "take_quota", QuotaExceeded(), bytes=size, bytes_max=handle.quota_bytes_max
        )
    return size


async def return_quota(handle: BoundConnection, size: int) -> None:
    """The texts of so many bytes are gone."""
    if size:
        await handle.send("return_quota", bytes=size)


class Spend:
    """Tokens by day, of all models together."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def reserve(self, day: int, tokens: int, tokens_max: int) -> bool:
        """Take so many for a call; False where the day has not as many left."""
        await self._handle.send("forget_spend", day=day - DAYS_KEPT)
        return bool(
            await self._handle.fetch(
                "reserve_tokens", day=day, tokens=tokens, tokens_max=tokens_max
            )
        )

    async def settle(self, day: int, more: int) -> None:
        """A call took so many more than were reserved; fewer, where it is negative."""
        await self._handle.send("settle_tokens", day=day, more=more)

    async def spent(self, day: int) -> int:
        """The tokens spent on a day, with those that are reserved."""
        rows = await self._handle.fetch("spent_tokens", day=day)
        return int(rows[0]["tokens"]) if rows else 0
