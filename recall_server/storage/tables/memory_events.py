"""The table of events. The tables that change memories and passages note what they do; a
transaction writes all of it at its end, with its operation.
"""

from collections.abc import Collection
from datetime import datetime

from recall_server.domain.audit import AuditEntry
from recall_server.domain.episode import Citation, Span
from recall_server.domain.memory_event import EventKind, MemoryEvent
from recall_server.storage.bound_connection import ANY, BoundTable
from recall_server.storage.driver import Document, Row, document, moment
from recall_server.storage.tables.limits import EVENT_BYTES, take_quota
from recall_server.storage.tables.memories import state_of

# What can be done to the same memories for ever, with no new text that would be counted.
AGAIN = frozenset({EventKind.RESTORED, EventKind.UNDONE})


class MemoryEvents(BoundTable):
    """Append-only, but for what an erasure takes along."""

    async def write(self, entry: AuditEntry | None) -> None:
        """What was noted in this transaction, as done by the operation of this record."""
        noted = self._bound.noted
        if not noted:
            return
        size = len(noted) * EVENT_BYTES
        bounded = not AGAIN.isdisjoint(kind for _, kind, _ in noted)
        await self._bound.send("number_events", count=len(noted), bytes=0 if bounded else size)
        if bounded:
            await take_quota(self._bound, size)
        await self._bound.send(
            "add_events",
            count=len(noted),
            change_id=entry.change if entry else "",
            operation=entry.operation if entry else "",
            accessor=entry.made_by if entry else None,
            events=Document(
                [
                    [item_id, kind, _text(one.at), one.episode_id, reason, one.dropped]
                    for (item_id, kind, reason), one in noted.items()
                ]
            ),
        )

    async def of_items(self, ids: Collection[str]) -> list[MemoryEvent]:
        """The events of these memories, texts, turns or passages, in their order."""
        return [_event(row) for row in await self._bound.fetch("events_of_items", ids=sorted(ids))]

    async def latest(self, ids: Collection[str], limit: int) -> list[MemoryEvent]:
        """The last events of these that were known at the moment that is read, in their order."""
        rows = await self._bound.fetch("latest_events_of_items", ids=sorted(ids), limit=limit)
        return [_event(row) for row in reversed(rows)]

    async def of_change(self, change_id: str) -> list[MemoryEvent]:
        """The events of a job, task, import or call, in their order."""
        rows = await self._bound.fetch("events_of_change", change_id=change_id)
        return [_event(row) for row in rows]

    async def page(self, before: int | None, limit: int) -> list[MemoryEvent]:
        """The events before a number, the newest first."""
        upto = ANY if before is None else before
        rows = await self._bound.fetch("page_of_events", before=upto, limit=limit)
        return [_event(row) for row in rows]


def _text(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")


def _event(row: Row) -> MemoryEvent:
    return MemoryEvent(
        seq=row["seq"],
        change_id=row["change_id"],
        at=moment(row["at"]),
        kind=EventKind(row["kind"]),
        item_id=row["item_id"],
        reason=row["reason"],
        operation=row["operation"],
        accessor=row["accessor"],
        episode_id=row["episode_id"],
        state=state_of(row) if row["status"] else None,
        dropped=tuple(
            (position, Citation(episode_id, Span(start, end)))
            for position, episode_id, start, end in document(row["dropped"]) or ()
        ),
    )
