"""A connection to SQLite in a thread of its own, that stops a statement when its time is over."""

import sqlite3
import time
from collections.abc import Callable, Sequence
from typing import Any

import aiosqlite

from recall_server.domain.errors import RecallError

# Between two looks at the clock; of SQLite's virtual machine: a millisecond's worth or less.
INSTRUCTIONS = 10_000

Step = Callable[[sqlite3.Connection], Sequence[Any]]


class _Visit:
    """Steps that are taken in the thread; each may last `within_s` seconds."""

    def __init__(self, within_s: float | None) -> None:
        self._within_s = within_s
        self._ends: float | None = None
        self.unwanted = False

    def begin(self) -> None:
        if self._within_s is not None:
            self._ends = time.monotonic() + self._within_s

    def over(self) -> bool:
        return self.unwanted or (self._ends is not None and time.monotonic() > self._ends)


class SqliteThread(aiosqlite.Connection):
    """Going there and back costs more than most statements, so several can go at once."""

    _visit: _Visit | None = None
    _ended: RecallError | None = None

    async def limited(self) -> None:
        """Look at the clock from now on. What has no visit, as the end of a reading, is let be."""
        await self.set_progress_handler(self._over, INSTRUCTIONS)

    async def run(self, steps: Sequence[Step], *, within_s: float | None = None) -> Sequence[Any]:
        """Take the steps, up to the first that fails or takes longer than `within_s`; the rows of
        the last. Nobody's thread goes on with what its caller has given up.
        """
        visit = _Visit(within_s)
        try:
            rows: Sequence[Any] = await self._execute(  # type: ignore[no-untyped-call]
                self._taken, steps, visit
            )
        except BaseException:
            visit.unwanted = True
            raise
        return rows

    def end_reading(self) -> None:
        """Nobody has to wait for it: whoever comes next stands behind it in the queue."""
        self._tx.put_nowait((None, lambda: self._conn.execute("COMMIT")))

    def end_with(self, error: RecallError) -> None:
        """Let go of what is read, and raise `error` for whatever is asked from now on."""
        self._ended = error
        self._tx.put_nowait((None, self._conn.rollback))

    def _taken(self, steps: Sequence[Step], visit: _Visit) -> Sequence[Any]:
        rows: Sequence[Any] = ()
        self._visit = visit
        try:
            for step in steps:
                if self._ended is not None:
                    raise self._ended
                visit.begin()
                rows = step(self._conn)
        finally:
            self._visit = None
        return rows

    def _over(self) -> bool:
        visit = self._visit
        return self._ended is not None or (visit is not None and visit.over())
