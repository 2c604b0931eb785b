"""The table of the server as a whole."""

from collections.abc import Mapping
from datetime import datetime

from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Document


class Server:
    """One row; on a handle for all namespaces."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def kid(self) -> str | None:
        """The name of the key that this database belongs to; None where it is new."""
        rows = await self._handle.fetch("bound_key")
        return str(rows[0]["kid"]) if rows else None

    async def bind(self, kid: str, public: Mapping[str, str], now: datetime) -> None:
        """Let the database belong to a key, unless it belongs to one."""
        await self._handle.send("bind_key", kid=kid, public_key=Document(dict(public)), now=now)

    async def set_tokens_not_before(self, at: datetime) -> None:
        """From now on no token is let in that was made before `at`."""
        await self._handle.send("set_server_not_before", at=at)
