"""Through which tables run their named queries: an open transaction, or none around each query."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.storage.driver import Connection, Driver, Params, Row
from recall_server.storage.queries import Query

ANY = 2**62


@dataclass(frozen=True)
class BoundConnection:
    """One open transaction. Fills in `:namespace` and the caller's access scope, so that no query
    can omit or change them.
    """

    connection: Connection
    queries: Mapping[str, Query]
    namespace: Namespace | None
    access_scope: AccessScope = FULL_ACCESS
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
            return {**params, "namespace": self.namespace, **_spelled(self.access_scope)}
        return {**params, "namespace": self.namespace}


def _spelled(access_scope: AccessScope) -> dict[str, Any]:
    """An access scope as query parameters: each part, and whether it is unlimited."""
    return {
        "any_topic": access_scope.topics is None,
        "topics": sorted(access_scope.topics or ()),
        "any_type": access_scope.types is None,
        "types": sorted(access_scope.types or ()),
        "any_agent": access_scope.agent_id is None,
        "agent": access_scope.agent_id or "",
        "any_container": access_scope.containers is None,
        "containers": sorted(access_scope.containers or ()),
    }


class Autocommit:
    """A `Connection` each of whose statements is a transaction by itself, reads, and gives its
    rows. What is sent to be seen with something else cannot be sent here.
    """

    def __init__(self, driver: Driver, namespace: str | None) -> None:
        self._driver = driver
        self._namespace = namespace

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        return await self._driver.autocommit(sql, params, namespace=self._namespace)

    async def send(self, sql: str, params: Params) -> NoReturn:
        raise LookupError(_why(sql, params))

    async def expect(self, sql: str, params: Params, otherwise: Exception) -> NoReturn:
        raise LookupError(_why(sql, params)) from otherwise

    async def many(self, sql: str, rows: Sequence[Params]) -> NoReturn:
        raise LookupError(_why(sql, *rows))

    async def script(self, sql: str) -> NoReturn:
        raise LookupError(_why(sql))


def _why(sql: str, *given: Params) -> str:
    return f"it takes a transaction to send this, with {len(given)} sets of parameters: {sql}"
