"""The port that an engine must fill, and what both engines share."""

import asyncio
import json
import re
from collections.abc import (
    AsyncIterator,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AbstractAsyncContextManager, contextmanager
from dataclasses import dataclass
from datetime import datetime
from enum import EnumType
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import (
    Any,
    Literal,
    ParamSpec,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    get_type_hints,
)

from pydantic_core import from_json, to_json

from recall_server.domain.audit import AccessCount
from recall_server.domain.episode import Citation, Span
from recall_server.domain.errors import QueryTimeout, RecallError
from recall_server.domain.memory import Fact
from recall_server.domain.permissions import Bearer

T = TypeVar("T")
K = TypeVar("K")
P = ParamSpec("P")

Engine = Literal["sqlite", "postgres"]
Row = Mapping[str, Any]
Params = Mapping[str, Any]
Failure = type[Exception]
Statement = tuple[str, Params]

# A large document is written and read a part at a time: one call for all of it would keep the
# interpreter from every other thread, and so from the event loop. So many items are written at
# once, and a document of so many characters is read at once, which takes a millisecond or two.
ITEMS_AT_ONCE = 100
CHARS_AT_ONCE = 131_072
# A document has lists of items in it, or is one.
_LEVELS = 2

_SEPARATORS = re.compile(r"[\s,:]*")
_DECODER = json.JSONDecoder()


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """Yield these items, `size` at a time."""
    left = iter(items)
    while some := list(islice(left, size)):
        yield some


def fitting(sized: Iterable[tuple[T, int]], most: int) -> list[T]:
    """Return the first of these whose sizes are not more than `most` together; at least one."""
    found: list[T] = []
    total = 0
    for one, size in sized:
        total += size
        if found and total > most:
            break
        found.append(one)
    return found


def grouped(pairs: Iterable[tuple[K, T]]) -> dict[K, list[T]]:
    """Return the second of each pair, in lists by the first."""
    found: dict[K, list[T]] = {}
    for key, one in pairs:
        found.setdefault(key, []).append(one)
    return found


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
        return _written(self.value)

    def __getstate__(self) -> dict[str, str]:
        return {"text": self.text}

    @classmethod
    def written(cls, value: Any) -> Self:
        """Return a document whose text is made at once: later, that could delay the event loop."""
        made = cls(value)
        _ = made.text
        return made

    @classmethod
    def of_rows(cls, rows: Iterable[Params]) -> Self:
        """Return rows as one document, with its text made at once."""
        return cls.written(
            [
                {name: one.value if isinstance(one, cls) else one for name, one in row.items()}
                for row in rows
            ]
        )


class Connection(Protocol):
    """One open transaction. Values may be str, int, float, bool, bytes, None, datetime (aware),
    Document, or list (of ids or terms).
    """

    async def fetch(self, sql: str, params: Params) -> Sequence[Row]:
        """Run one statement. Return its rows, if any."""

    async def fetch_each(self, statements: Sequence[Statement]) -> list[Sequence[Row]]:
        """`fetch` several statements in one round trip."""

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

    async def autocommit(
        self, statements: Sequence[Statement], *, namespace: str | None
    ) -> list[Sequence[Row]]:
        """Run statements in a read transaction of their own, in one round trip. Return their rows.
        Each sees what is committed when it begins.
        """

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


async def apart(large: bool, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Do a piece of work, in a thread if it is large: others would notice the delay."""
    if large:
        return await asyncio.to_thread(work, *args, **kwargs)
    return work(*args, **kwargs)


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
    """Return the document of a text that a database has checked, or what a driver has read."""
    if not isinstance(value, str):
        return value
    if len(value) <= CHARS_AT_ONCE:
        return from_json(value)
    return _read(value, _after(value, 0), _LEVELS)[0]


def _written(value: Any) -> str:
    """Return a document as text."""
    if isinstance(value, list | tuple) and len(value) > ITEMS_AT_ONCE:
        starts = range(0, len(value), ITEMS_AT_ONCE)
        parts = (to_json(value[at : at + ITEMS_AT_ONCE])[1:-1].decode() for at in starts)
        return f"[{','.join(parts)}]"
    if isinstance(value, dict) and any(map(_is_long, value.values())):
        named = (f"{to_json(str(name)).decode()}:{_written(one)}" for name, one in value.items())
        return f"{{{','.join(named)}}}"
    return to_json(value).decode()


def _is_long(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > ITEMS_AT_ONCE


def _read(text: str, at: int, levels: int) -> tuple[Any, int]:
    """Return the value that begins at a place, and the place after it."""
    if not levels or text[at] not in "[{":
        return _DECODER.raw_decode(text, at)
    return (_items if text[at] == "[" else _members)(text, _after(text, at + 1), levels - 1)


def _items(text: str, at: int, levels: int) -> tuple[list[Any], int]:
    found = []
    while text[at] != "]":
        item, at = _read(text, at, levels)
        found.append(item)
        at = _after(text, at)
    return found, at + 1


def _members(text: str, at: int, levels: int) -> tuple[dict[str, Any], int]:
    found = {}
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        found[name], at = _read(text, _after(text, at), levels)
        at = _after(text, at)
    return found, at + 1


def _after(text: str, at: int) -> int:
    """Return the place of the next value, name or bracket."""
    match = _SEPARATORS.match(text, at)
    return match.end() if match else at


def reader(kind: Callable[..., T], **given: str | Callable[[Row], Any]) -> Callable[[Row], T]:
    """Return a function that makes a dataclass or named tuple of a row. A field is the column of
    its name, in the type of the field; `given` names another column, or computes the field.
    """
    made = {name: one for name, one in given.items() if not isinstance(one, str)}

    @cache
    def columns() -> list[tuple[str, Any, Callable[[Any], Any] | None]]:
        hints = get_type_hints(kind).items()
        return [(one, given.get(one, one), _typed(hint)) for one, hint in hints if one not in made]

    def read(row: Row) -> T:
        found = {
            name: row[column] if typed is None else typed(row[column])
            for name, column, typed in columns()
        }
        for name, of_row in made.items():
            found[name] = of_row(row)
        return kind(**found)

    return read


def _typed(hint: Any) -> Callable[[Any], Any] | None:
    """Return what makes a value of this type of a column; None if the column has it already."""
    of = get_args(hint)
    if NoneType in of:
        typed = _typed(of[0])
        return typed and (lambda value: None if value is None else typed(value))
    if get_origin(hint) is tuple:
        each = _typed(of[0])
        if each is None:
            return lambda value: tuple(document(value) or ())
        return lambda value: tuple(map(each, document(value) or ()))
    if get_origin(hint) in (dict, Mapping):
        return lambda value: document(value) or {}
    if hint is datetime:
        return moment
    return hint if hint in (bool, bytes) or isinstance(hint, EnumType) else None


def span(row: Row) -> Span:
    return Span(row["span_start"], row["span_end"])


def cited(citation: Citation) -> dict[str, Any]:
    """Return the columns of the words that are cited."""
    place = citation.span
    return {"episode_id": citation.episode_id, "span_start": place.start, "span_end": place.end}


def fact(row: Row) -> Fact | None:
    return None if row["entity"] is None else _fact(row)


_fact = reader(Fact)


def bearer(row: Row) -> Bearer | None:
    """Return the token that has set up a receiver."""
    return _bearer(row) if row["accessor"] else None


_bearer = reader(Bearer, name="accessor", since="created_at", until="token_ends_at")


def registered_by(token: Bearer | None) -> dict[str, Any]:
    """Return the columns that `bearer` reads."""
    return {"accessor": token and token.name, "token_ends_at": token and token.until}


def accesses(counts: Iterable[AccessCount]) -> Document:
    """Return access counts as a query parameter, with times in the format of SQLite."""
    return Document(
        [[one.id, one.times, one.last.isoformat(timespec="microseconds")] for one in counts]
    )
