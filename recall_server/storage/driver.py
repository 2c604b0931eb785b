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
from recall_server.domain.permissions import Bearer

Engine = Literal["sqlite", "postgres"]
Row = Mapping[str, Any]
Params = Mapping[str, Any]
Failure = Exception | type[Exception]


@dataclass(frozen=True)
class TimeLimits:
    """Seconds for one statement of a read-only transaction, and for a whole snapshot: while one
    lasts, the engine keeps everything that others overwrite.
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
    """A parameter that is JSON. A pickled copy has only the text."""

    value: Any

    @cached_property
    def text(self) -> str:
        """The JSON text, made once, since the same document may go into several rows."""
        return to_json(self.value).decode()

    def __getstate__(self) -> dict[str, str]:
        return {"text": self.text}


class Connection(Protocol):
    """One open transaction. Values may be str, int, float, bool, bytes, None, datetime (aware),
    Document, or list (of ids or terms).
    """

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        """Run one statement. Return its rows, if any."""

    async def send(self, sql: str, params: Params) -> None:
        """Run one statement whose rows are not needed. It may still be waiting when this returns,
        but runs before the next statement; its error may be raised there, or on leaving.
        """

    async def expect(self, sql: str, params: Params, otherwise: Failure) -> None:
        """`send` one statement that must touch a row. If it does not, `otherwise` is raised at the
        next statement or on leaving, and the transaction is rolled back.
        """

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        """`send` one statement once for each of `rows`."""

    async def script(self, sql: str) -> None:
        """Run several statements without parameters (migrations)."""


@dataclass
class Holder:
    """This process as others see it. `id` is None while they cannot tell whether it is alive."""

    id: int | None = None


class Driver(Protocol):
    """An engine. It raises its errors as `RecallError`s: `DatabaseUnavailable` (try again) or
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

        Row-level security lets only the rows of `namespace` through; `None` is for statements that
        serve all tenants. Only an `erasing` transaction may destroy texts.
        """

    async def autocommit(self, sql: str, params: Params, *, namespace: str | None) -> Sequence[Row]:
        """Run one statement in a read transaction of its own. Return its rows."""

    async def purge(self, tables: Sequence[str]) -> str:
        """Destroy what deleted and overwritten rows of `tables` have left behind in files: free
        pages, journals, statistics. Return in words what could not be reached; "" for nothing.

        Blocks all other access meanwhile. Raises `DatabaseUnavailable` if another transaction still
        reads an older state or holds a lock: then nothing may be reported as destroyed.
        """

    async def files(self) -> Sequence[Path]:
        """The files and folders that hold the database, as far as this process can read them."""

    def texts(self, namespace: str, tables: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
        """Yield every row of a namespace as text, with its table; none if `files` has all of it."""

    def snapshot(self, namespace: str) -> AbstractAsyncContextManager[Connection]:
        """A read transaction that sees one moment for as long as it lasts. It may be long: it takes
        no resource from calls, except one connection of the pool on Postgres. Raises `QueryTimeout`
        after `TimeLimits.snapshot_s`.
        """

    def holding(self) -> AbstractAsyncContextManager[Holder]:
        """Show to other processes that this one is alive, as long as the block lasts."""

    async def gone(self, holders: Sequence[int]) -> Sequence[int]:
        """Return those of `holders` whose process has certainly ended or lost the database."""

    def migration(self) -> AbstractAsyncContextManager[Connection]:
        """A transaction as the owner of the schema, holding the migration lock."""


async def run_uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to completion even if the caller is cancelled, and raise the cancellation
    afterwards.

    It is raised even if the work failed, or a loop that retries failures would go on.
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

    psycopg stops the statement of a cancelled task and reports a stopped pipeline as an error. A
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
    """Return a time with its time zone."""
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


def bearer(row: Row) -> Bearer | None:
    """Return the token that has set up a receiver."""
    if not row["accessor"]:
        return None
    ends_at = moment_or_none(row["token_ends_at"])
    return Bearer(row["accessor"], moment(row["created_at"]), ends_at)


def accesses(counts: Iterable[AccessCount]) -> Document:
    """Return access counts as a query parameter, with times in the format of SQLite."""
    return Document(
        [[one.id, one.times, one.last.isoformat(timespec="microseconds")] for one in counts]
    )
