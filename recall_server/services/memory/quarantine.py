"""Quarantine: turns that were held back on arrival, until a person releases or rejects them."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.errors import ReviewNotFound, Stale
from recall_server.domain.security.screening import Held, Place, Suspect
from recall_server.domain.text.cleaning import storable
from recall_server.services.memory import indexing
from recall_server.services.memory.ingest import EXTRACT
from recall_server.storage.store import Store, Transaction

LISTED_MAX = 100
"""Suspects on one page."""


@dataclass(frozen=True)
class Suspects:
    """One page of suspects, and the number of all suspects in this state."""

    found: tuple[Suspect, ...]
    total: int
    next_offset: int | None


@dataclass(frozen=True)
class Quarantine:
    """Lists suspects and decides about them."""

    store: Store
    runtime: Runtime

    async def list(self, context: Context, *, state: Held, limit: int, offset: int) -> Suspects:
        """Return the turns in this state with their words and the reasons, newest first."""
        async with self.store.transaction(context.namespace, write=False) as tx:
            found = await tx.quarantine.page(state, limit=limit, offset=offset)
            total = await tx.quarantine.count(state)
        context.entry.counts["suspects"] = len(found)
        reached = offset + len(found)
        return Suspects(tuple(found), total, reached if found and reached < total else None)

    async def release(self, context: Context, item_id: str) -> None:
        """Index the turn and enqueue its extraction. Idempotent. Raises `ReviewNotFound`; `Stale`
        if it was rejected.
        """
        job_id, now = self.runtime.new_id("job"), self.runtime.now()
        # Releasing the turn and extracting its memories are one change.
        context.entry.part_of = job_id
        async with self.store.transaction(
            context.namespace, entry=context.entry, locked=True
        ) as tx:
            place = await self._decide(tx, item_id, Held.RELEASED, now, context.entry)
            if place is not None:
                show = partial(tx.episodes.show, item_id, now)
                await indexing.reread(tx, [place.episode_id], show)
                payload = {"episode_id": place.episode_id, "turn": place.position}
                await tx.jobs.add(job_id, EXTRACT, payload, now, context.entry.began_by)
        self.runtime.wake()

    async def reject(self, context: Context, item_id: str) -> None:
        """Keep the turn hidden. Idempotent. Raises `ReviewNotFound`; `Stale` if it was
        released: undo the release instead.
        """
        async with self.store.transaction(
            context.namespace, entry=context.entry, locked=True
        ) as tx:
            await self._decide(tx, item_id, Held.REJECTED, self.runtime.now(), context.entry)

    async def _decide(
        self, tx: Transaction, item_id: str, state: Held, now: datetime, entry: AuditEntry
    ) -> Place | None:
        """Store the decision and return the place of the turn; None if it was made before."""
        storable(item_id)
        by = entry.by
        decided = await tx.quarantine.decide(item_id, state, by, now)
        place = await tx.quarantine.place(item_id)
        if place is None:
            raise ReviewNotFound
        before = place.decided
        if before.state is not state:
            raise Stale(
                f"{before.by} has {before.state} it at {before.at:%Y-%m-%dT%H:%M:%SZ}; it is "
                "decided about once. List what is still held."
            )
        entry.ids += [item_id, place.episode_id]
        entry.counts[str(state)] = int(decided)
        return place if decided else None
