"""The table of memory events. The tables that change memories and passages note their events; at
its end a transaction writes them with its operation, and queues them for webhooks.
"""

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime

from recall_server.domain.audit import AuditEntry
from recall_server.domain.episode import Citation, Span
from recall_server.domain.memory import Status
from recall_server.domain.memory_event import EventKind, MemoryEvent
from recall_server.domain.record import Recorded
from recall_server.domain.webhook import (
    MEMORY_EVENTS,
    TEXT_EVENTS,
    kind_for_memory,
    kind_for_words,
)
from recall_server.storage.bound_connection import ANY, BoundTable, Noted
from recall_server.storage.driver import Document, Row, document, moment
from recall_server.storage.tables.limits import EVENT_BYTES, take_quota
from recall_server.storage.tables.memories import state_of
from recall_server.storage.tables.webhooks import WebhookEvent, Webhooks

# Serializing more events than this delays other callers noticeably.
INLINE_MAX = 200

# Kinds that can be repeated on the same memories for ever, without new text that would be counted.
AGAIN = frozenset({EventKind.RESTORED, EventKind.UNDONE, EventKind.RELATED})


class MemoryEvents(BoundTable):
    """Append-only, except for erasures."""

    async def write(self, entry: AuditEntry | None) -> None:
        """Write what was noted in this transaction, as done by the operation of this record."""
        noted, announced = self._bound.noted, self._bound.announced
        if not noted and not announced:
            return
        count = len(noted) + len(announced)
        size = len(noted) * EVENT_BYTES
        bounded = not AGAIN.isdisjoint(kind for _, kind, _ in noted)
        last = await self._number(count, 0 if bounded else size)
        if bounded:
            await take_quota(self._bound, size)
        if noted:
            # Events of memories have no episode.
            memories = {item_id for (item_id, _, _), one in noted.items() if one.episode_id is None}
            await self.count(memories)
            await self._bound.send(
                "add_events",
                count=count,
                change_id=entry.change if entry else "",
                operation=entry.operation if entry else "",
                accessor=entry.made_by if entry else None,
                events=await asyncio.to_thread(_document, noted, self._bound.recorded)
                if len(noted) > INLINE_MAX
                else _document(noted, self._bound.recorded),
            )
        if last is not None:
            kept = await self._for_webhooks(last - count)
            await Webhooks(self._bound).keep(kept, self._bound.now())

    async def _number(self, count: int, size: int) -> int | None:
        """Number the events of this transaction: the last number, where a webhook may be told of
        any; else None.
        """
        given = {"count": count, "bytes": size}
        if not self._bound.announced and not any(
            kind in (TEXT_EVENTS if one.episode_id else MEMORY_EVENTS)
            for (_, kind, _), one in self._bound.noted.items()
        ):
            await self._bound.send("number_events", **given)
            return None
        rows = await self._bound.fetch("number_events", **given)
        return int(rows[0]["last_event"]) if rows and rows[0]["has_webhooks"] else None

    async def _for_webhooks(self, before: int) -> list[WebhookEvent]:
        """Return the webhook events of this transaction, whose memory events have the numbers after
        `before`: events of memories and passages first.
        """
        noted, announced = self._bound.noted, self._bound.announced
        rows = await self._bound.fetch("statuses_since", seq=before) if noted else []
        statuses = {row["seq"]: row for row in rows}
        found = []
        for seq, ((item_id, kind, _), one) in enumerate(noted.items(), before + 1):
            if (row := statuses.get(seq)) is not None:
                was = row["status_before"] and Status(row["status_before"])
                named = kind_for_memory(kind, was, Status(row["status"]))
            else:
                named = kind_for_words(kind, hides=one.hides)
            if named is not None:
                found.append(WebhookEvent(seq, named, item_id, one.at))
        first = before + len(noted) + 1
        found += [WebhookEvent(seq, *one) for seq, one in enumerate(announced, first)]
        return found

    async def numbered(self, seq: int) -> MemoryEvent | None:
        """Return the event of this number."""
        found = await self._bound.fetch("event_numbered", seq=seq)
        return event_of(found[0]) if found else None

    async def count(self, ids: Collection[str], *, erased: bool = False) -> None:
        """Update the counts of memories for these changed ones, before their events are written; or
        with `erased`, before they and their events are deleted.
        """
        if ids:
            changed = sorted(ids)
            await self._bound.send("count_changed_memories", ids=changed, erased=int(erased))
            await self._bound.send("remove_empty_counts", ids=changed)

    async def of_items(self, ids: Collection[str]) -> list[MemoryEvent]:
        """Return the events of these memories, texts, turns or passages, oldest first."""
        return [
            event_of(row) for row in await self._bound.fetch("events_of_items", ids=sorted(ids))
        ]

    async def latest(self, ids: Collection[str], limit: int) -> list[MemoryEvent]:
        """Return the last `limit` events of these items that were known at the requested moment,
        oldest first.
        """
        rows = await self._bound.fetch("latest_events_of_items", ids=sorted(ids), limit=limit)
        return [event_of(row) for row in reversed(rows)]

    async def related(self, ids: Collection[str]) -> list[MemoryEvent]:
        """The events of these memories that say what stated their relations, and what of it was
        taken back, as it was known at the moment that is read.
        """
        rows = await self._bound.fetch("events_of_relations", ids=sorted(ids)) if ids else []
        return [event_of(row) for row in rows]

    async def items(self, change_id: str) -> list[str]:
        """Return the items of a change, in the order of its events."""
        rows = await self._bound.fetch("items_of_change", change_id=change_id)
        return [row["item_id"] for row in rows]

    async def changed_later(self, change_id: str) -> list[str]:
        """Return the items of a change that were changed again since."""
        rows = await self._bound.fetch("items_changed_later", change_id=change_id)
        return [row["item_id"] for row in rows]

    async def changed_after(self, seq: int) -> list[str]:
        """The memories that were changed behind the event of this number."""
        rows = await self._bound.fetch("memories_changed_after", seq=seq)
        return [row["item_id"] for row in rows]

    async def brought(self, change_id: str) -> list[MemoryEvent]:
        """Return the events of a change that added, imported or released words."""
        rows = await self._bound.fetch("words_shown_by_change", change_id=change_id)
        return [event_of(row) for row in rows]

    async def counts(self, change_id: str) -> dict[EventKind, int]:
        """Return how many events of each kind a change has."""
        rows = await self._bound.fetch("counts_of_change", change_id=change_id)
        return {EventKind(row["kind"]): int(row["events"]) for row in rows}

    async def undone_of(self, ids: Collection[str]) -> list[MemoryEvent]:
        """Return the events by which changes of these items were undone."""
        rows = await self._bound.fetch("undone_of_items", ids=sorted(ids)) if ids else []
        return [event_of(row) for row in rows]

    async def page(self, before: int | None, limit: int) -> list[MemoryEvent]:
        """Return the events before a number, the newest first."""
        upto = ANY if before is None else before
        rows = await self._bound.fetch("page_of_events", before=upto, limit=limit)
        return [event_of(row) for row in rows]


def _document(
    noted: Mapping[tuple[str, EventKind, str], Noted], recorded: Mapping[str, Recorded]
) -> Document:
    """Return the events as a query parameter, with its JSON text made. The first event of a memory
    has the digest of what was recorded of it, and what is kept of that.
    """
    kept = {item_id: [one.digest(), one.answer] for item_id, one in recorded.items()}
    found = Document(
        [
            [
                *(item_id, kind, _text(one.at), one.episode_id, reason, one.dropped),
                *kept.pop(item_id, (None, None)),
            ]
            for (item_id, kind, reason), one in noted.items()
        ]
    )
    _ = found.text
    return found


def _text(at: datetime) -> str:
    return at.isoformat(timespec="microseconds")


def event_of(row: Row) -> MemoryEvent:
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
