"""The one connection that writes to SQLite, and commits that several transactions share: whoever
waits for the writer goes on where the one before has stopped, and the disk is waited for once.

Each is a savepoint, so that one that fails takes nothing of the others with it. Nobody hears how
theirs has ended, well or not, before all that they have seen is on the disk.
"""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from recall_server.domain.errors import RecallError
from recall_server.domain.fair_semaphore import FairSemaphore
from recall_server.storage.driver import Row
from recall_server.storage.run_uncancelled import run_uncancelled
from recall_server.storage.sqlite.thread import (
    Step,
    Thread,
    Transaction,
    step_of,
    translated,
    unsynced,
)

# A deferred transaction that turns to writing fails at once, whatever the time-out.
WRITE = "BEGIN IMMEDIATE"
# Who came first waits for the last: there are not many, and nobody begins after so long.
TOGETHER_MAX = 16
TOGETHER_S = 0.02


class _Commit:
    """What several transactions share. `waiting`: how many have ended, and wait for it."""

    def __init__(self) -> None:
        self.waiting = 0
        self.began_at = asyncio.get_running_loop().time()
        self._over = asyncio.Event()
        self._failure: Exception | None = None

    @property
    def over(self) -> bool:
        return self._over.is_set()

    def end(self, failure: Exception | None = None) -> None:
        self._failure = failure
        self._over.set()

    async def kept(self) -> None:
        """Wait for it, if anybody does. Raises what went wrong with it."""
        if self.waiting:
            await self._over.wait()
        if self._failure is not None:
            raise self._failure


class Writer:
    """Lets one transaction write at a time. `sound` is a step that raises where the file cannot be
    trusted; `doubt` hears of everything that failed.
    """

    def __init__(
        self, raw: Thread, path: Path, sound: Step, doubt: Callable[[BaseException], None]
    ) -> None:
        self._raw = raw
        self._path = path
        self._sound = sound
        self._doubt = doubt
        # SQLite allows one writer; queueing here is cheaper than SQLITE_BUSY and a retry.
        self._turns = FairSemaphore(1)
        # Begun, and left by who was there last to who comes next.
        self._open: _Commit | None = None
        self._closing: asyncio.Task[None] | None = None

    @asynccontextmanager
    async def autocommit(self, namespace: str | None) -> AsyncIterator[Thread]:
        """The connection, with no transaction open."""
        async with self._turn(namespace):
            await self._commit_open()
            yield self._raw

    @asynccontextmanager
    async def transaction(
        self, namespace: str | None, *, lengthy: bool, brief: bool
    ) -> AsyncIterator[Transaction]:
        """One transaction. For one that is `lengthy` nobody waits who came before. What is `brief`
        takes its steps here, but for those that wait for others or the disk.
        """
        shared: _Commit | None = None
        try:
            async with self._turn(namespace):
                if lengthy:
                    await self._commit_open()
                shared = self._open or _Commit()
                async with self._part(shared, last=lengthy, brief=brief) as part:
                    yield part
        except Exception:
            if shared is not None:
                await shared.kept()
            raise
        await shared.kept()

    async def single(self, namespace: str | None, step: Step) -> Sequence[Row]:
        """One statement that is a transaction by itself, and need not last. Where others have begun
        it is kept with them, or lost; what it has seen of theirs holds when this is `settled`.
        """
        async with self._turn(namespace):
            if self._open is None:
                with translated(self._path):
                    return await self._raw.run([self._sound, unsynced(step)])
            async with self._part(self._open, brief=True) as part:
                return await part.take(step)

    async def settled(self) -> None:
        """Wait until what can be seen here is committed. Raises where it cannot be."""
        if self._open is not None:
            await self._open.kept()

    async def close(self) -> None:
        if self._closing is not None:
            await self._closing

    @asynccontextmanager
    async def _turn(self, namespace: str | None) -> AsyncIterator[None]:
        try:
            async with self._turns.slot(namespace):
                yield
        finally:
            # Who was to go on may have gone away: then nobody else is there to commit.
            if self._open is not None and not self._turns.busy:
                self._closing = asyncio.ensure_future(self._close_open())

    async def _close_open(self) -> None:
        async with self.autocommit(None):
            pass

    async def _commit_open(self) -> None:
        if self._open is not None:
            with suppress(RecallError):  # it is said to those who wait for it
                await run_uncancelled(self._commit(self._open))

    @asynccontextmanager
    async def _part(
        self, shared: _Commit, *, brief: bool, last: bool = False
    ) -> AsyncIterator[Transaction]:
        def here() -> bool:
            return brief and self._raw.idle

        begin = [step_of("SAVEPOINT part", {})] if shared.waiting else [self._sound, _BEGIN]
        part = Transaction(self._raw, self._path, begin, here)
        try:
            yield part
            begun = part.begun or shared.waiting > 0
            if begun and here() and not last and self._awaits_another(shared):
                self._pass(shared, part)
            else:
                await run_uncancelled(self._end(shared, part, last=last))
        except BaseException as error:  # a caller that hung up must leave nothing behind
            self._doubt(error)
            if not part.ended:
                await run_uncancelled(self._undo(shared, part))
            raise

    async def _end(self, shared: _Commit, part: Transaction, *, last: bool) -> None:
        """Commit, or leave that to the next one."""
        if not part.asked and not shared.waiting:
            return
        steps = _last(shared, part)
        if last or not self._awaits_another(shared):
            await self._commit(shared, steps, part)
            return
        with translated(self._path):
            await self._raw.run(steps)
        self._passed(shared, part)

    def _pass(self, shared: _Commit, part: Transaction) -> None:
        """Leave the commit to the next one, here and now."""
        with translated(self._path):
            self._raw.taken(_last(shared, part))
        self._passed(shared, part)

    def _passed(self, shared: _Commit, part: Transaction) -> None:
        part.ended = True
        shared.waiting += 1
        self._open = shared

    async def _undo(self, shared: _Commit, part: Transaction) -> None:
        """As if it had never begun; those before it are committed, or wait on."""
        if not shared.waiting:
            await self._raw.rollback()
            return
        if part.begun:
            try:
                with translated(self._path):
                    await self._raw.run([step_of("ROLLBACK TO part", {}), _RELEASE])
            except Exception as error:  # noqa: BLE001  # told to all
                await self._lose(shared, error)
                return
        if not self._awaits_another(shared):
            with suppress(RecallError):
                await self._commit(shared)

    def _awaits_another(self, shared: _Commit) -> bool:
        age_s = asyncio.get_running_loop().time() - shared.began_at
        return self._turns.contended and shared.waiting < TOGETHER_MAX and age_s < TOGETHER_S

    async def _commit(
        self, shared: _Commit, steps: Sequence[Step] = (), part: Transaction | None = None
    ) -> None:
        """Behind the last steps of `part`, if given. What these raise concerns nobody else."""
        committing = False

        def commit(raw: sqlite3.Connection) -> Sequence[Any]:
            nonlocal committing
            committing = True
            self._sound(raw)
            return raw.execute("COMMIT").fetchall()

        try:
            with translated(self._path):
                await self._raw.run([*steps, commit])
        except Exception as error:
            if committing:
                if part is not None:
                    part.ended = True
                await self._lose(shared, error)
            raise
        if part is not None:
            part.ended = True
        self._open = None
        shared.end()

    async def _lose(self, shared: _Commit, error: Exception) -> None:
        """Nothing of it holds, of nobody's."""
        self._doubt(error)
        self._open = None
        shared.end(error)
        await self._raw.rollback()


def _last(shared: _Commit, part: Transaction) -> list[Step]:
    """What it has not taken yet, and its end where others were there before."""
    if not part.asked:
        return []
    return [*part.rest(), *([_RELEASE] if shared.waiting else [])]


_BEGIN = step_of(WRITE, {})
_RELEASE = step_of("RELEASE part", {})
