"""Emptying: a container that is too large for one transaction is erased in many short ones, so that
nobody else waits. Its tasks and all work under way end with the first; what is put in after that
stays, and what is still there is found until its turn comes.

A part of the job `purge`: it goes on after a crash.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

import structlog

from recall_server.domain.erasure import Digests
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.services.erasure import namespace_eraser, redact, restore_turns
from recall_server.services.erasure.ledger import Ledger
from recall_server.services.erasure.namespace_eraser import Told
from recall_server.services.erasure.targets import Room, TargetScan
from recall_server.storage.store import Store
from recall_server.storage.tables.erasure import OPERATOR, Erasure

log = structlog.get_logger()

# So many texts, and rows of what rests on them, go at a time, which takes part of a second.
EPISODES_BATCH = 50
ROWS_BATCH = 500


@dataclass(frozen=True)
class ContainerEraser:
    """Empties containers whose erasure has begun."""

    store: Store
    digests: Digests
    ledger: Ledger
    now: Callable[[], datetime]
    new_id: Callable[[str], str]

    async def large(self, namespace: Namespace, container: str) -> dict[str, int] | None:
        """How many rows a container holds, by table, where that is too much for one transaction."""
        size = await self.store.autocommit(namespace).looking.size(container)
        return size if sum(size.values()) > namespace_eraser.AT_ONCE_MAX else None

    async def empty(self, erasure: Erasure, told: Told = lambda _: None) -> None:
        """Erase what was put in before, and call the erasure logically done; `told` is how many
        rows are gone so far.
        """
        assert erasure.sealed is not None
        name = self.ledger.opened(erasure.sealed).what
        # What a token that may be limited to the container has asked for stays within it.
        by_operator = erasure.claims["requested_by"] == OPERATOR
        reach = FULL_ACCESS if by_operator else AccessScope(containers=frozenset({name}))
        gone = 0
        while rows := await self._batch(erasure, name, reach):
            gone += rows
            told(gone)
        log.info("container_emptied", erasure=erasure.id, rows=gone)

    async def _batch(self, erasure: Erasure, name: str, reach: AccessScope) -> int:
        namespace = erasure.namespace
        looking = TargetScan(Room(name, erasure.requested_at, EPISODES_BATCH, ROWS_BATCH), reach)
        await looking.look(self.store.autocommit(namespace))
        async with self.store.transaction(namespace, erasing=True) as tx:
            await tx.lock()
            affected = await looking.look(tx)
            rows = sum(affected.counts().values()) if affected else 0
            if affected is None or not rows:
                await tx.erasures.cleared(erasure.id)
                return 0
            left = await redact.apply(tx, affected, self.digests, self.now())
            await restore_turns.read_again(tx, left, self.new_id, self.now())
        self.store.forget(namespace)
        return rows
