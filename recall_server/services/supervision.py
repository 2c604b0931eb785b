"""Keeps background work going: no error ends it silently."""

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import structlog

from recall_server.domain.errors import RecallError
from recall_server.storage.store import Store
from recall_server.storage.tables.access import FailingWork

log = structlog.get_logger()

# Work is reported as failing after this many failures in a row, until its last failure is this old:
# several times the longest pause.
FAILURES_MIN = 3
TOLD_S = 300.0


@dataclass(eq=False)
class Supervisor:
    """Logs an error of background work, and starts the work again after a pause, which doubles.
    Repeated failures are noted in the database, where every process of this server sees them.
    """

    store: Store
    now: Callable[[], datetime]
    pause_min_s: float = 1.0
    pause_max_s: float = 60.0
    _stopping: asyncio.Event = field(default_factory=asyncio.Event)

    def stop(self) -> None:
        """From now on, do not start work again that fails."""
        self._stopping.set()

    async def keep(self, work: str, begin: Callable[[], Awaitable[None]]) -> None:
        """Run `begin`, again after each error, until it returns or is cancelled. `work` names it in
        logs.
        """
        failures = 0
        loop = asyncio.get_running_loop()
        while True:
            begun = loop.time()
            try:
                await begin()
            except Exception as raised:  # noqa: BLE001  # whatever it is, it must not end the work
                error = raised
            else:
                return
            failures = 1 if loop.time() - begun > self.pause_max_s else failures + 1
            await self._tell(FailingWork(work, _name(error), failures, self.now()), error)
            pause_s = min(self.pause_max_s, math.ldexp(self.pause_min_s, min(failures, 32) - 1))
            with suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._stopping.wait()
                    return

    async def failing(self) -> list[FailingWork]:
        """Return the work that fails repeatedly in any process, or did within `TOLD_S` seconds."""
        noted = await self.store.autocommit(None).server.failing_work()
        since = self.now() - timedelta(seconds=TOLD_S)
        return [one for one in noted if one.at > since]

    async def _tell(self, failing: FailingWork, error: Exception) -> None:
        # The message of a `RecallError` says enough; others need their traceback.
        cause = (
            {"message": error.message} if isinstance(error, RecallError) else {"exc_info": error}
        )
        known = {"work": failing.work, "code": failing.error, "failures": failing.failures}
        log.error("background_work_failed", **known, **cause)
        if failing.failures < FAILURES_MIN:
            return
        try:
            async with self.store.transaction(None) as tx:
                await tx.server.note_failing_work(failing)
        except Exception:
            log.exception("background_failure_not_noted", work=failing.work)


@asynccontextmanager
async def beside(*works: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run `works` for as long as the block lasts."""
    tasks = {asyncio.create_task(work) for work in works}
    try:
        yield
    finally:
        for one in tasks:
            one.cancel()
        await asyncio.wait(tasks)


def _name(error: Exception) -> str:
    return error.code if isinstance(error, RecallError) else type(error).__name__
