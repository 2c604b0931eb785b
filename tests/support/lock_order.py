"""Records at the driver the order in which transactions on Postgres lock."""

import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from recall_server.storage.driver import Connection, Driver, Failure, Params, Row, Statement

NAMESPACE, AUDIT, JOBS, QUEUES = "namespaces", "audit_heads", "operations", "queues"
_COMMENT = re.compile(r"--[^\n]*")
_SELECTED = re.compile(r"\bFROM (\w+)(?:(?!\bFROM\b).)*?\bFOR (?:NO KEY )?UPDATE\b", re.DOTALL)
_CHANGED = re.compile(r"\b(?:(?<!FOR )(?<!KEY )(?<!DO )UPDATE|DELETE FROM) (\w+)")
_REPLACED = re.compile(r"\bINSERT INTO (\w+).*\bDO UPDATE\b", re.DOTALL)


def locked_by(sql: str) -> Iterator[str]:
    """Return the tables of which a statement locks existing rows, with a `?` if it takes only rows
    that no other transaction has locked.
    """
    bare = _COMMENT.sub("", sql)
    mark = "?" if "SKIP LOCKED" in bare else ""
    for pattern in (_SELECTED, _REPLACED, _CHANGED):
        yield from (f"{table}{mark}" for table in pattern.findall(bare))


@dataclass(frozen=True)
class Locks:
    """Tables in the order in which a transaction first locked rows of them."""

    namespace: str | None
    tables: tuple[str, ...]

    @property
    def fault(self) -> str:
        """Return what is wrong with the order, or "".

        The namespace comes first and the audit log next. A transaction that holds the namespace is
        then alone in it: any other waits, after the audit log, for rows of one table. Work for all
        namespaces has no namespace to lock: its rows come before jobs. Queues come last, in one
        order, so that a transaction that has locked one waits for nobody.
        """
        if NAMESPACE in self.tables[1:] or AUDIT in self.tables[2:]:
            return "late"
        rest = [one for one in self.tables if one not in {NAMESPACE, AUDIT} and "?" not in one]
        if QUEUES in rest[:-1]:
            return "queues before the end"
        rest = [one for one in rest if one != QUEUES]
        if AUDIT in self.tables[1:] and self.tables[0] != NAMESPACE:
            return "late"
        if self.namespace is None:
            return "jobs before rows" if JOBS in rest[:-1] else ""
        return "without the namespace" if len(rest) > 1 and NAMESPACE not in self.tables else ""


@dataclass
class Recorder:
    """A driver that records the locks of each transaction of another driver."""

    driver: Driver
    found: set[Locks] = field(default_factory=set)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)

    @asynccontextmanager
    async def transaction(
        self, *, namespace: str | None, **given: Any
    ) -> AsyncIterator[Connection]:
        tables: dict[str, None] = {}
        try:
            async with self.driver.transaction(namespace=namespace, **given) as connection:
                yield _Recorded(connection, tables)
        finally:
            if tables:
                self.found.add(Locks(namespace, tuple(tables)))


@dataclass
class _Recorded:
    connection: Connection
    tables: dict[str, None]

    def _note(self, sql: str) -> None:
        self.tables.update(dict.fromkeys(locked_by(sql)))

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        self._note(sql)
        return await self.connection.fetch(sql, params)

    async def fetch_each(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        return [await self.fetch(*one) for one in statements]

    async def send(self, sql: str, params: Params) -> None:
        self._note(sql)
        await self.connection.send(sql, params)

    async def expect(self, sql: str, params: Params, otherwise: Failure) -> None:
        self._note(sql)
        await self.connection.expect(sql, params, otherwise)

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        self._note(sql)
        await self.connection.many(sql, rows)

    async def script(self, sql: str) -> None:
        await self.connection.script(sql)
