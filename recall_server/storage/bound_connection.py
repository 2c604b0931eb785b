"""One open transaction, through which the shelves run their named queries."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.storage.driver import Connection, Row
from recall_server.storage.queries import Query

ANY = 2**62


@dataclass(frozen=True)
class BoundConnection:
    """One open transaction. Fills in `:namespace` and the reach of who asks, so that no query can
    forget or change them.
    """

    connection: Connection
    queries: Mapping[str, Query]
    namespace: Namespace | None
    reach: AccessScope = FULL_ACCESS
    # Bytes of texts that the namespace may keep.
    quota_bytes_max: int = ANY

    async def fetch(self, query: str, **params: Any) -> Sequence[Row]:
        return await self.connection.fetch(
            self.queries[query].sql, self._bound(self.queries[query], params)
        )

    async def send(self, query: str, **params: Any) -> None:
        """`fetch` without the answer, so without waiting for it: see `Connection.send`."""
        await self.connection.send(
            self.queries[query].sql, self._bound(self.queries[query], params)
        )

    async def expect(self, query: str, otherwise: Exception, **params: Any) -> None:
        """`send` of a query that must touch a row: see `Connection.expect`."""
        await self.connection.expect(
            self.queries[query].sql, self._bound(self.queries[query], params), otherwise
        )

    async def many(self, query: str, rows: Sequence[Mapping[str, Any]]) -> None:
        if rows:
            named = self.queries[query]
            await self.connection.many(named.sql, [self._bound(named, row) for row in rows])

    def _bound(self, query: Query, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if query.across:
            if self.namespace is not None:
                raise LookupError(f"{query.name} serves all namespaces; this handle has one")
            return params
        if self.namespace is None:
            raise LookupError(f"{query.name} needs a namespace; this handle has none")
        if "any_topic" in query.parameters:
            return {**params, "namespace": self.namespace, **_spelled(self.reach)}
        return {**params, "namespace": self.namespace}


def _spelled(reach: AccessScope) -> dict[str, Any]:
    """A reach as queries take it: each part with whether it is no limit."""
    return {
        "any_topic": reach.topics is None,
        "topics": sorted(reach.topics or ()),
        "any_type": reach.types is None,
        "types": sorted(reach.types or ()),
        "any_agent": reach.agent_id is None,
        "agent": reach.agent_id or "",
        "any_container": reach.containers is None,
        "containers": sorted(reach.containers or ()),
    }
