"""The table of call counts: how much each token did in the last minutes, on all replicas."""

from collections.abc import Iterable, Mapping

from recall_server.domain.namespace import Namespace
from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Document

Counted = tuple[Namespace, str, int]
"""A namespace, one of its tokens (or '' for all of them), and the number of a minute."""


class Rates:
    """Counts of calls, of all tenants."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def add(self, counts: Mapping[Counted, int]) -> dict[Counted, int]:
        """Add to the counts; what they are then. Nothing is kept of a namespace that is gone."""
        rows: Iterable[list[object]] = ([*key, calls] for key, calls in counts.items())
        found = await self._handle.fetch("add_calls", counted=Document(list(rows)))
        return {
            (Namespace(row["namespace"]), row["accessor"], int(row["minute"])): int(row["calls"])
            for row in found
        }

    async def forget(self, *, before: int) -> None:
        """Remove the counts of minutes before `before`."""
        await self._handle.send("forget_calls", minute=before)
