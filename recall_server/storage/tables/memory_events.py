"""The table of events. The tables that change memories and passages note what they do; a
transaction writes all of it at its end, with its operation, and keeps what webhooks are told of.
"""

import asyncio
from collections.abc import Collection, Mapping
from datetime import datetime

from recall_server.domain.audit import AuditEntry
from recall_server.domain.episode import Citation, Span
from recall_server.domain.memory import Status
from recall_server.domain.memory_event import EventKind, MemoryEvent
from recall_server.domain.webhook import (
    TOLD_OF_MEMORIES,
    TOLD_OF_WORDS,
    told_of_memory,
    told_of_words,
)
from recall_server.storage.bound_connection import ANY, BoundTable, Noted
from recall_server.storage.driver import Document, Row, document, moment
from recall_server.storage.tables.limits import EVENT_BYTES, take_quota
from recall_server.storage.tables.memories import state_of
from recall_server.storage.tables.webhooks import WebhookEvent, Webhooks

# Writing more of them takes long enough for other callers to notice.
INLINE_MAX = 200

# What can be done to the same memories for ever, with no new text that would be counted.
AGAIN = frozenset({EventKind.RESTORED, EventKind.UNDONE})


class MemoryEvents(BoundTable):
    """Append-only, but for what an erasure takes along."""

    async def write(self, entry: AuditEntry | None) -> None:
        """What was noted in this transaction, as done by the operation of this record."""
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
            # A memory is a part of no text.
            memories = {item_id for (item_id, _, _), one in noted.items() if one.episode_id is None}
            await self.count(memories)
            await self._bound.send(
                "add_events",
                count=count,
                change_id=entry.change if entry else "",
                operation=entry.operation if entry else "",
                accessor=entry.made_by if entry else None,
                events=await asyncio.to_thread(_document, noted)
                if len(noted) > INLINE_MAX
                else _document(noted),
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
            kind in (TOLD_OF_WORDS if one.episode_id else TOLD_OF_MEMORIES)
            for (_, kind, _), one in self._bound.noted.items()
        ):
            await self._bound.send("number_events", **given)
            return None
        rows = await self._bound.fetch("number_events", **given)
        return int(rows[0]["last_event"]) if rows and rows[0]["is_told"] else None

    async def _for_webhooks(self, before: int) -> list[WebhookEvent]:
        """What webhooks may be told of this transaction, whose events are numbered behind
        `before`: those of memories and passages first.
        """
        noted, announced = self._bound.noted, self._bound.announced
        rows = await self._bound.fetch("statuses_since", seq=before) if noted else []
        statuses = {row["seq"]: row for row in rows}
        found = []
        for seq, ((item_id, kind, _), one) in enumerate(noted.items(), before + 1):
            if (row := statuses.get(seq)) is not None:
                was = row["status_before"] and Status(row["status_before"])
                named = told_of_memory(kind, was, Status(row["status"]))
            else:
                named = told_of_words(kind, hides=one.hides)
            if named is not None:
                found.append(WebhookEvent(seq, named, item_id, one.at))
        first = before + len(noted) + 1
        found += [WebhookEvent(seq, *one) for seq, one in enumerate(announced, first)]
        return found

    async def numbered(self, seq: int) -> MemoryEvent | None:
        """The event of this number."""
        found = await self._bound.fetch("event_numbered", seq=seq)
        return _event(found[0]) if found else None

    async def count(self, ids: Collection[str], *, erased: bool = False) -> None:
        """Keep the counts of what there is up to date with these memories, before their events are
        written; or before they are erased, with their events.
        """
        if ids:
            changed = sorted(ids)
            await self._bound.send("count_changed_memories", ids=changed, erased=int(erased))
            await self._bound.send("remove_empty_counts", ids=changed)

    async def of_items(self, ids: Collection[str]) -> list[MemoryEvent]:
        """The events of these memories, texts, turns or passages, in their order."""
        return [_event(row) for row in await self._bound.fetch("events_of_items", ids=sorted(ids))]

    async def latest(self, ids: Collection[str], limit: int) -> list[MemoryEvent]:
        """The last events of these that were known at the moment that is read, in their order."""
        rows = await self._bound.fetch("latest_events_of_items", ids=sorted(ids), limit=limit)
        return [_event(row) for row in reversed(rows)]

    async def items(self, change_id: str) -> list[str]:
        """The items of a change, in the order of its events."""
        rows = await self._bound.fetch("items_of_change", change_id=change_id)
        return [row["item_id"] for row in rows]

    async def changed_later(self, change_id: str) -> list[str]:
        """The items of a change that were changed again since."""
        rows = await self._bound.fetch("items_changed_later", change_id=change_id)
        return [row["item_id"] for row in rows]

    async def brought(self, change_id: str) -> list[MemoryEvent]:
        """The events of a change that brought words, or released them."""
        rows = await self._bound.fetch("words_shown_by_change", change_id=change_id)
        return [_event(row) for row in rows]

    async def counts(self, change_id: str) -> dict[EventKind, int]:
        """How many events of each kind a change has."""
        rows = await self._bound.fetch("counts_of_change", change_id=change_id)
        return {EventKind(row["kind"]): int(row["events"]) for row in rows}

    async def undone_of(self, ids: Collection[str]) -> list[MemoryEvent]:
        """The events of these items that say that a change was undone."""
        rows = await self._bound.fetch("undone_of_items", ids=sorted(ids)) if ids else []
        return [_event(row) for row in rows]

    async def page(self, before: int | None, limit: int) -> list[MemoryEvent]:
        """The events before a number, the newest first."""
        upto = ANY if before is None else before
        rows = await self._bound.fetch("page_of_events", before=upto, limit=limit)
        return [_event(row) for row in rows]


def _document(noted: Mapping[tuple[str, EventKind, str], Noted]) -> Document:
    """The events as they are sent, written already."""
    found = Document(
        [
            [item_id, kind, _text(one.at), one.episode_id, reason, one.dropped]
            for (item_id, kind, reason), one in noted.items()
        ]
    )
    _ = found.text
    return found


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
