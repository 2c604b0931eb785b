"""Who waits for news of a run, within this process. What other processes change is found by
looking now and then.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recall_server.domain.model import Namespace

Key = tuple[Namespace, str]


class Bell:
    """Wakes those who wait for a run; nothing is kept of runs that nobody waits for. `closed` once
    this process stops: then nobody is to wait any longer.
    """

    def __init__(self, *, poll_s: float) -> None:
        self._poll_s = poll_s
        self._waiting: dict[Key, set[asyncio.Event]] = {}
        self.closed = False

    def ring(self, namespace: Namespace, run_id: str) -> None:
        """Something happened to the run, and is committed."""
        for event in self._waiting.get((namespace, run_id), ()):
            event.set()

    def close(self) -> None:
        """Wake everybody, for the last time."""
        self.closed = True
        for events in self._waiting.values():
            for event in events:
                event.set()

    @asynccontextmanager
    async def listening(self, namespace: Namespace, run_id: str) -> AsyncIterator["Ear"]:
        """Hear every ring from here on."""
        key, event = (namespace, run_id), asyncio.Event()
        self._waiting.setdefault(key, set()).add(event)
        try:
            yield Ear(event, self._poll_s)
        finally:
            self._waiting[key].discard(event)
            if not self._waiting[key]:
                del self._waiting[key]


class Ear:
    """One who waits. Look first, then wait: what happened in between is not missed."""

    def __init__(self, event: asyncio.Event, poll_s: float) -> None:
        self._event = event
        self._poll_s = poll_s

    async def wait(self) -> None:
        """Until the next ring, or until it is time to look what other processes did."""
        try:
            async with asyncio.timeout(self._poll_s):
                await self._event.wait()
        except TimeoutError:
            return
        self._event.clear()
