"""Who waits for news of a run, within this process. What other processes change is found by
looking now and then.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recall_server.domain.namespace import Namespace
from recall_server.domain.task import Task

Key = tuple[Namespace, str]


class TaskEvents:
    """Wakes those who wait for a run; nothing is kept of runs that nobody waits for. `closed` once
    this process stops: then nobody is to wait any longer.
    """

    def __init__(self, *, poll_s: float) -> None:
        self._poll_s = poll_s
        self._waiting: dict[Key, set[Subscription]] = {}
        self.closed = False

    def ring(self, namespace: Namespace, task: Task) -> None:
        """Something happened to the run, as it is now, and is committed."""
        for ear in self._waiting.get((namespace, task.id), ()):
            ear.hear(task)

    def close(self) -> None:
        """Wake everybody, for the last time."""
        self.closed = True
        for ears in self._waiting.values():
            for ear in ears:
                ear.hear(None)

    @asynccontextmanager
    async def listening(self, namespace: Namespace, task_id: str) -> AsyncIterator["Subscription"]:
        """Hear every ring from here on."""
        key, ear = (namespace, task_id), Subscription(self._poll_s)
        self._waiting.setdefault(key, set()).add(ear)
        try:
            yield ear
        finally:
            self._waiting[key].discard(ear)
            if not self._waiting[key]:
                del self._waiting[key]


class Subscription:
    """One who waits. Look first, then wait: what happened in between is not missed."""

    def __init__(self, poll_s: float) -> None:
        self._rung = asyncio.Event()
        self._heard: Task | None = None
        self._poll_s = poll_s

    def hear(self, task: Task | None) -> None:
        if task is None or self._heard is None or task.version > self._heard.version:
            self._heard = task
        self._rung.set()

    async def wait(self) -> Task | None:
        """Until the next ring, which brings the run; or, with None, until it is time to look what
        other processes did.
        """
        try:
            async with asyncio.timeout(self._poll_s):
                await self._rung.wait()
        except TimeoutError:
            return None
        self._rung.clear()
        return self._heard
