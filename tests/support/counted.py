"""Counts the cost of work: rows, bytes, calls and steps of the event loop."""

import asyncio
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from recall_server.application import Application
from recall_server.storage import bound_connection
from recall_server.storage.bound_connection import Autocommit
from recall_server.storage.driver import Connection, Failure, Params, Row, Statement


class Counts:
    """Rows read and statements that read them, by whether the transaction writes."""

    def __init__(self) -> None:
        self.read: Counter[bool] = Counter()
        self.fetches: Counter[bool] = Counter()
        self.most = 0
        self.written: list[str] = []
        """The statements whose rows nobody needs."""
        self.under_lock: list[str] = []
        """The statements that read in transactions that write."""
        self.expected: list[str] = []
        """The statements that must touch a row."""
        self.rows_alone = 0
        """The rows that the engine gets one after the other."""


class _Counting:
    """A connection that counts."""

    def __init__(self, connection: Connection, counts: Counts, *, write: bool) -> None:
        self._connection, self._counts, self._write = connection, counts, write

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        rows = await self._connection.fetch(sql, params)
        self._counts.under_lock += [sql] * self._write
        self._counts.read[self._write] += len(rows)
        self._counts.fetches[self._write] += 1
        self._counts.most = max(self._counts.most, len(rows))
        return rows

    async def fetch_each(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        return [await self.fetch(*one) for one in statements]

    async def send(self, sql: str, params: Params) -> None:
        self._counts.written.append(sql)
        await self._connection.send(sql, params)

    async def expect(self, sql: str, params: Params, otherwise: Failure) -> None:
        self._counts.expected.append(sql)
        await self._connection.expect(sql, params, otherwise)

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        self._counts.rows_alone += len(rows)
        await self._connection.many(sql, rows)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


class _Counted:
    """A driver whose connections count."""

    def __init__(self, driver: Any, counts: Counts) -> None:
        self._driver, self._counts = driver, counts

    @asynccontextmanager
    async def transaction(self, *, write: bool, **given: Any) -> AsyncIterator[Any]:
        async with self._driver.transaction(write=write, **given) as connection:
            yield _Counting(connection, self._counts, write=write)

    async def autocommit(
        self, statements: Sequence[Statement], *, namespace: str | None
    ) -> list[Sequence[Row]]:
        connection = Autocommit(self._driver, namespace)
        return await _Counting(connection, self._counts, write=False).fetch_each(statements)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


@contextmanager
def counted(application: Application) -> Iterator[Counts]:
    """Count the rows and statements of the application in the block."""
    counts, driver = Counts(), application.store.driver
    application.store.driver = _Counted(driver, counts)
    try:
        yield counts
    finally:
        application.store.driver = driver


class _Interrupted:
    """A driver that does something after a statement that reads outside of a transaction; without
    a statement, before a transaction that writes.
    """

    def __init__(
        self, driver: Any, sql: Collection[str], act: Callable[[], Awaitable[None]], times: int
    ) -> None:
        self._driver, self._sql, self._act, self._times = driver, sql, act, times
        self._acts = False

    @asynccontextmanager
    async def transaction(self, *, write: bool, **given: Any) -> AsyncIterator[Any]:
        if write and not self._sql:
            await self._interrupt()
        async with self._driver.transaction(write=write, **given) as connection:
            yield connection

    async def autocommit(
        self, statements: Sequence[Statement], *, namespace: str | None
    ) -> list[Sequence[Row]]:
        found: list[Sequence[Row]] = await self._driver.autocommit(statements, namespace=namespace)
        if any(sql in self._sql for sql, _ in statements):
            await self._interrupt()
        return found

    async def _interrupt(self) -> None:
        if self._times and not self._acts:
            self._times -= 1
            self._acts = True
            await self._act()
            self._acts = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)


@contextmanager
def interrupted(
    application: Application,
    query: str | None,
    act: Callable[[], Awaitable[None]],
    *,
    times: int = 1,
) -> Iterator[None]:
    """In the block, `act` so many times right after a query has read without a lock; without a
    query, right before a transaction that writes.
    """
    driver = application.store.driver
    found = bound_connection.load(driver.engine)[query] if query else None
    sql = {found.sql, found.unlimited or ""} if found else set[str]()
    application.store.driver = _Interrupted(driver, sql, act, times)
    try:
        yield
    finally:
        application.store.driver = driver


class Steps:
    """The steps of the event loop during the watch: their number, and the longest in seconds of the
    loop's own processor time.
    """

    count, longest_s = 0, 0.0

    async def watch(self) -> None:
        before = time.thread_time()
        while True:
            await asyncio.sleep(0)
            now = time.thread_time()
            self.count, self.longest_s = self.count + 1, max(self.longest_s, now - before)
            before = now


@asynccontextmanager
async def steps() -> AsyncIterator[Steps]:
    """Watch the steps of the event loop in the block."""
    found = Steps()
    watching = asyncio.create_task(found.watch())
    await asyncio.sleep(0)
    try:
        yield found
        await asyncio.sleep(0)
    finally:
        watching.cancel()
        await asyncio.wait({watching})


class Calls:
    """The number of Python functions that this thread has called."""

    count = 0

    def seen(self, _frame: object, event: str, _arg: object) -> None:
        self.count += event == "call"


@contextmanager
def calls() -> Iterator[Calls]:
    """Count the calls of this thread in the block."""
    found, before = Calls(), sys.getprofile()
    sys.setprofile(found.seen)
    try:
        yield found
    finally:
        sys.setprofile(before)
