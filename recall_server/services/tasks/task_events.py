"""Wakes those who wait for changes of a task in this process. Changes of other processes are found
by polling.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from recall_server.domain.namespace import Namespace
from recall_server.domain.task import Task

Key = tuple[Namespace, str]


class TaskEvents:
    """Publishes changes of tasks to subscribers; keeps nothing about tasks without one. `closed`
    once the process stops: nobody may wait then.
    """

    def __init__(self, *, poll_s: float) -> None:
        self._poll_s = poll_s
        self._subscriptions: dict[Key, set[Subscription]] = {}
        self.closed = False

    def publish(self, namespace: Namespace, task: Task) -> None:
        """Wake the task's subscribers. Call it after the commit, with the task as committed."""
        for subscription in self._subscriptions.get((namespace, task.id), ()):
            subscription.deliver(task)

    def close(self) -> None:
        """Wake all subscribers for the last time."""
        self.closed = True
        for subscriptions in self._subscriptions.values():
            for subscription in subscriptions:
                subscription.deliver(None)

    @asynccontextmanager
    async def subscribe(self, namespace: Namespace, task_id: str) -> AsyncIterator["Subscription"]:
        """Receive every publication from here on."""
        key, subscription = (namespace, task_id), Subscription(self._poll_s)
        self._subscriptions.setdefault(key, set()).add(subscription)
        try:
            yield subscription
        finally:
            self._subscriptions[key].discard(subscription)
            if not self._subscriptions[key]:
                del self._subscriptions[key]


class Subscription:
    """One waiter. Read first, then wait: changes in between are not missed."""

    def __init__(self, poll_s: float) -> None:
        self._delivered = asyncio.Event()
        self._latest: Task | None = None
        self._poll_s = poll_s

    def deliver(self, task: Task | None) -> None:
        if task is None or self._latest is None or task.version > self._latest.version:
            self._latest = task
        self._delivered.set()

    async def wait(self) -> Task | None:
        """Wait for the next publication and return the task; None when it is time to poll."""
        try:
            async with asyncio.timeout(self._poll_s):
                await self._delivered.wait()
        except TimeoutError:
            return None
        self._delivered.clear()
        return self._latest
