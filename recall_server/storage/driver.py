"""The port that an engine must fill: run a statement, open a transaction. Nothing else differs."""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Protocol

from pydantic_core import to_json

from recall_server.domain.errors import QueryTimeout

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


@dataclass
class PendingRows:
    """Rows that come with those of the next `fetch`; None until then."""

    rows: Sequence[Row] | None = None


class Connection(Protocol):
    """One open transaction. Values may be str, int, float, bool, bytes, None, datetime (aware),
    Document, or list (of ids or terms).
    """

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        """Run one statement; the rows it returns, or none."""
        ...

    async def send(self, sql: str, params: Params) -> None:
        """Run one statement whose rows nobody needs. It need not have run when this returns, but
        has before whatever comes next; what it raises may come up there, or on leaving.
        """
        ...

    async def ask(self, sql: str, params: Params) -> PendingRows:
        """`send` one statement whose rows come with those of the next `fetch`."""
        ...

    async def expect(self, sql: str, params: Params, otherwise: Exception) -> None:
        """`send` one statement that must touch a row. Where it does not, `otherwise` is raised
        there or on leaving, and nothing of the transaction holds.
        """
        ...

    async def many(self, sql: str, rows: Sequence[Params]) -> None:
        """`send` one statement once for each of `rows`."""
        ...

    async def script(self, sql: str) -> None:
        """Run several statements without parameters (migrations)."""
        ...


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
        brief: bool = False,
        noting: bool = False,
    ) -> AbstractAsyncContextManager[Connection]:
        """A transaction that commits on leaving and rolls back on any error or cancellation.

        `namespace` is what row-level security lets through; `None` is for statements that serve
        all tenants. Only one that is `erasing` may destroy what was said. One that is `brief`
        touches a few rows by their keys, and nothing else: others may be made to wait for that.
        One that is `noting` only reads, but for its line in the book: of Postgres alone, as whoever
        reads from SQLite must not wait for those who write.
        """
        ...

    async def autocommit(
        self,
        sql: str,
        params: Params,
        *,
        namespace: str | None,
        write: bool,
        lasting: bool,
    ) -> Sequence[Row]:
        """One statement that is a transaction by itself; the rows it returns. What is not `lasting`
        may be lost if the machine fails that runs the database and all that use it; and what it saw
        may not be committed yet, see `settled`.
        """
        ...

    async def settled(self) -> None:
        """Wait until all that was seen here so far is committed. Raises where it cannot be."""
        ...

    async def purge(self, tables: Sequence[str]) -> str:
        """Destroy what deleted and overwritten rows of `tables` have left behind in files: free
        pages, journals, statistics. What of it could not be reached, in words; "" for nothing.

        Locks everybody out meanwhile. Raises `DatabaseUnavailable` where somebody still reads an
        older state, or is in the way: then nothing may be said to be gone.
        """
        ...

    async def files(self) -> Sequence[Path]:
        """The files and folders that hold the database, as far as this process can read them."""
        ...

    def texts(self, namespace: str, tables: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
        """Every row of a namespace as text, with its table; none where `files` has all of it."""
        ...

    def snapshot(self, namespace: str) -> AbstractAsyncContextManager[Connection]:
        """A transaction that reads, and sees one moment for as long as it lasts. It may last: it
        takes nothing from those who serve calls but, of Postgres, one connection. Raises
        `QueryTimeout` when it has lasted too long.
        """
        ...

    def migration(self) -> AbstractAsyncContextManager[Connection]:
        """A transaction as the owner of the schema, holding the migration lock."""
        ...
