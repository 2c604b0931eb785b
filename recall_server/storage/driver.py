"""The port that an engine must fill, and what both engines share."""

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic_core import to_json

from recall_server.domain.audit import AccessCount
from recall_server.domain.episode import Span
from recall_server.domain.errors import QueryTimeout, RecallError
from recall_server.domain.memory import Fact

Engine = Literal["sqlite", "postgres"]
Row = Mapping[str, Any]
Params = Mapping[str, Any]


@dataclass(frozen=True)
class TimeLimits:
    """Seconds for one statement of those who only read, and for all of a snapshot: as long as it
    lasts, an engine keeps whatever others overwrite.
    """

    query_s: float = 3.0
    snapshot_s: float = 600.0

    @property
    def snapshot_over(self) -> QueryTimeout:
        return QueryTimeout(
            f"It took longer than {self.snapshot_s:g} seconds to read it all, and was broken off. "
            "Take it faster, or have the operator raise RECALL_EXPORT_S."
        )


@dataclass(frozen=True)
class Document:
    """A parameter that is JSON."""

    value: Any

    @cached_property
    def text(self) -> str:
        """As it is written; the same may go into several rows."""
        return to_json(self.value).decode()


class Connection(Protocol):
    """One open transaction. Values may be str, int, float, bool, bytes, None, datetime (aware),
    Document, or list (of ids or terms).
    """

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        """Run one statement; the rows it returns, or none."""

    async def send(self, sql: str, params: Params) -> None:
        """Run one statement whose rows nobody needs. It need not have run when this returns, but
        has before whatever comes next; what it raises may come up there, or on leaving.
        """

    async def expect(self, sql: str, params: Params, otherwise: Exception) -> None:
        """`send` one statement that must touch a row. Where it does not, `otherwise` is raised
        there or on leaving, and nothing of the transaction holds.
        """

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        """`send` one statement once for each of `rows`."""

    async def script(self, sql: str) -> None:
        """Run several statements without parameters (migrations)."""


@dataclass
class Holder:
    """This process, as others see it. `id` is None while they could not know whether it lives."""

    id: int | None = None


class Driver(Protocol):
    """An engine. Driver errors leave it as `RecallError`s: `DatabaseUnavailable` (try again) or
    `DatabaseUnusable` (an operator must act).
    """

    engine: Engine

    async def open(self) -> None: ...

    async def close(self) -> None: ...

    def transaction(
        self,
        *,
        namespace: str | None,
        write: bool,
        erasing: bool = False,
    ) -> AbstractAsyncContextManager[Connection]:
        """A transaction that commits on leaving and rolls back on any error or cancellation.

        `namespace` is what row-level security lets through; `None` is for statements that serve
        all tenants. Only one that is `erasing` may destroy what was said.
        """

    async def autocommit(self, sql: str, params: Params, *, namespace: str | None) -> Sequence[Row]:
        """One statement that reads and is a transaction by itself; the rows it returns."""

    async def purge(self, tables: Sequence[str]) -> str:
        """Destroy what deleted and overwritten rows of `tables` have left behind in files: free
        pages, journals, statistics. What of it could not be reached, in words; "" for nothing.

        Locks everybody out meanwhile. Raises `DatabaseUnavailable` where somebody still reads an
        older state, or is in the way: then nothing may be said to be gone.
        """

    async def files(self) -> Sequence[Path]:
        """The files and folders that hold the database, as far as this process can read them."""

    def texts(self, namespace: str, tables: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
        """Every row of a namespace as text, with its table; none where `files` has all of it."""

    def snapshot(self, namespace: str) -> AbstractAsyncContextManager[Connection]:
        """A transaction that reads, and sees one moment for as long as it lasts. It may last: it
        takes nothing from those who serve calls but, of Postgres, one connection. Raises
        `QueryTimeout` when it has lasted too long.
        """

    def holding(self) -> AbstractAsyncContextManager[Holder]:
        """Let others know, as long as the block lasts, that this process lives."""

    async def gone(self, holders: Sequence[int]) -> Sequence[int]:
        """Those of `holders` whose process has certainly ended, or is cut off from the database."""

    def migration(self) -> AbstractAsyncContextManager[Connection]:
        """A transaction as the owner of the schema, holding the migration lock."""


async def run_uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to completion even if the caller is cancelled; the cancellation is raised
    afterwards.

    It is raised even if the work failed: a loop that retries failures would go on otherwise.
    """
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError from task.exception()
    task.result()


@contextmanager
def cancelled_as_such() -> Iterator[None]:
    """Raise a cancellation as `CancelledError` even if the driver reports it as a failure.

    psycopg stops the statement of a cancelled task, and reports a stopped pipeline as an error; a
    loop that retries errors would go on.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except RecallError as error:
        if task and task is asyncio.current_task() and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise


def moment(value: Any) -> datetime:
    """A time, aware of its zone."""
    return value if isinstance(value, datetime) else datetime.fromisoformat(value)


def moment_or_none(value: Any) -> datetime | None:
    return None if value is None else moment(value)


def document(value: Any) -> Any:
    return json.loads(value) if isinstance(value, str) else value


def span(row: Row) -> Span:
    return Span(row["span_start"], row["span_end"])


def fact(row: Row) -> Fact | None:
    if row["entity"] is None:
        return None
    return Fact(row["entity"], row["attribute"], row["value"], bool(row["negated"]))


def accesses(counts: Iterable[AccessCount]) -> Document:
    """Access counts as queries take them, with times as SQLite keeps them."""
    return Document(
        [[one.id, one.times, one.last.isoformat(timespec="microseconds")] for one in counts]
    )
