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
        self._subscriptions: dict[Key, set[Subscription]] = {}
        self.closed = False

    def publish(self, namespace: Namespace, task: Task) -> None:
        """Something happened to the run, as it is now, and is committed."""
        for subscription in self._subscriptions.get((namespace, task.id), ()):
            subscription.deliver(task)

    def close(self) -> None:
        """Wake everybody, for the last time."""
        self.closed = True
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.deliver(None)

    @asynccontextmanager
    async def subscribe(self, namespace: Namespace, task_id: str) -> AsyncIterator["Subscription"]:
        """Hear every ring from here on."""
        key, subscription = (namespace, task_id), Subscription(self._poll_s)
        self._subscriptions.setdefault(key, set()).add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions[key].discard(subscription)
            if not self._subscriptions[key]:
                del self._subscriptions[key]


class Subscription:
    """One who waits. Look first, then wait: what happened in between is not missed."""

    def __init__(self, poll_s: float) -> None:
        self._delivered = asyncio.Event()
        self._latest: Task | None = None
        self._poll_s = poll_s

    def deliver(self, task: Task | None) -> None:
        if task is None or self._latest is None or task.version > self._latest.version:
            self._latest = task
        self._delivered.set()

    async def wait(self) -> Task | None:
        """Until the next ring, which brings the run; or, with None, until it is time to look what
        other processes did.
        """
        try:
            async with asyncio.timeout(self._poll_s):
                await self._delivered.wait()
        except TimeoutError:
            return None
        self._delivered.clear()
        return self._latest
