"""Clearing: a namespace that is too large for one transaction is emptied in many short ones, so
that nobody else waits; its doors are closed before the first, and nobody sees it half empty.

A part of the job `purge`: it goes on after a crash, and what is gone is not looked for again.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime

import structlog

from recall_server.domain.erasure import Digests
from recall_server.domain.namespace import Namespace
from recall_server.services.erasure import redact
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.erasure import SPLIT, Erasure

log = structlog.get_logger()

# So many rows are erased in one transaction, which takes about a second.
AT_ONCE_MAX = 10_000
BATCH = 1_000
EPISODES_BATCH = 20

Told = Callable[[int], object]
Step = Callable[[Transaction], Awaitable[int]]


@dataclass(frozen=True)
class NamespaceEraser:
    """Empties namespaces whose erasure has begun."""

    store: Store
    digests: Digests
    now: Callable[[], datetime]

    async def large(self, namespace: Namespace) -> dict[str, int] | None:
        """How many rows it holds, by table, where that is too much for one transaction. Counted
        where nobody waits for it: what is written meanwhile is erased, and not among them.
        """
        async with self.store.transaction(namespace, write=False) as tx:
            counts = await tx.erasures.counts()
        return counts if sum(counts.values()) > AT_ONCE_MAX else None

    async def clear(self, erasure: Erasure, told: Told = lambda _: None) -> None:
        """Empty the namespace and call its erasure logically done; `told` is how many rows are gone
        so far.
        """
        namespace, gone = erasure.namespace, 0
        for step in (*map(_rows_of, SPLIT), self._memories, self._episodes):
            while rows := await self._short(namespace, step):
                gone += rows
                told(gone)
            log.info("namespace_clearing", erasure=erasure.id, rows=gone)
        async with self._begun(namespace) as tx:
            await tx.lock()
            await tx.erasures.sweep(self.now())
            await tx.erasures.cleared(erasure.id)
        self.store.forget(namespace)
        log.info("namespace_cleared", erasure=erasure.id, rows=gone)

    async def _short(self, namespace: Namespace, step: Step) -> int:
        async with self._begun(namespace) as tx:
            return await step(tx)

    @asynccontextmanager
    async def _begun(self, namespace: Namespace) -> AsyncIterator[Transaction]:
        async with self.store.transaction(namespace, erasing=True) as tx:
            yield tx

    async def _memories(self, tx: Transaction) -> int:
        found = await tx.erasures.first_memories(BATCH)
        await tx.erasures.remember(redact.digests_of_memories(tx, self.digests, found))
        await tx.erasures.remove_cleared("memories", [row["id"] for row in found])
        return len(found)

    async def _episodes(self, tx: Transaction) -> int:
        found = await tx.erasures.first_episodes(EPISODES_BATCH)
        await tx.erasures.remember(redact.digests_of_episodes(tx, self.digests, found))
        ids = [row["id"] for row, _ in found]
        await tx.erasures.remove_cleared("turns", ids)
        await tx.erasures.remove_cleared("episodes", ids)
        return len(found) + sum(len(turns) for _, turns in found)


def _rows_of(table: str) -> Step:
    async def step(tx: Transaction) -> int:
        return await tx.erasures.clear_some(table, BATCH)

    return step
