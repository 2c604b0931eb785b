"""The table of memory events. The tables that change memories and passages note their events; at
its end a transaction writes them with its operation, and queues them for webhooks. And the batches
that a rebuild has derived of them so far, with the rows that they are compared with.
"""

import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from recall_server.domain import record
from recall_server.domain.audit import AuditEntry
from recall_server.domain.episode import Citation, Span, episode_of
from recall_server.domain.memory import FINDABLE, Status
from recall_server.domain.memory_event import EventKind, MemoryEvent, MemoryState
from recall_server.domain.record import Recorded
from recall_server.domain.webhook import MEMORY_EVENTS, TEXT_EVENTS, kind_for_memory, kind_for_words
from recall_server.storage.bound_connection import ANY, BoundTable, Noted
from recall_server.storage.driver import (
    Document,
    Row,
    apart,
    document,
    grouped,
    moment,
    moment_or_none,
    reader,
)
from recall_server.storage.index.words import Statistics
from recall_server.storage.tables.access import EVENT_BYTES, bytes_of, label_bytes, take_quota
from recall_server.storage.tables.memories import keys_of, state_of
from recall_server.storage.tables.tasks import WebhookEvent, Webhooks

# Serializing more events than this delays other callers noticeably.
INLINE_MAX = 200

# Kinds that can be repeated on the same memories for ever, without new text that would be counted.
AGAIN = frozenset({EventKind.RESTORED, EventKind.UNDONE, EventKind.RELATED})


class Basis(NamedTuple):
    """The state that a plan of memories was made from. The plan still holds if `others` are equal
    later, and no memory, and no text that was there, has `changed` since the event `last_event`.

    `others`: the number of erasures, the policy and the aliases of subjects.
    """

    last_event: int
    changed: bool
    others: tuple[Any, ...]

    def stands(self, later: "Basis") -> bool:
        return self.others == later.others and not later.changed


class MemoryEvents(BoundTable):
    """Append-only, except for erasures."""

    async def write(self, entry: AuditEntry | None) -> None:
        """Write what was noted in this transaction, as done by the operation of this record. Raises
        `QuotaExceeded` for what no text that was counted bounds.
        """
        noted, announced = self._bound.noted, self._bound.announced
        if not noted and not announced:
            return
        count = len(noted) + len(announced)
        kept = ((item_id, one.answer) for item_id, one in self._bound.recorded.items())
        answers = {item_id: answer for item_id, answer in kept if answer is not None}
        labels = sum(one.stored_bytes for one in self._bound.recorded.values())
        size = len(noted) * EVENT_BYTES + bytes_of(answers.values()) + labels
        # A short text may have long labels, and many memories.
        bounded = labels > 0 or not AGAIN.isdisjoint(kind for _, kind, _ in noted)
        # This comes first: on SQLite nobody waits before a transaction needs rows.
        large = len(noted) > INLINE_MAX
        events = await apart(large, _document, noted, self._bound.recorded, answers)
        last = await self._number(count, 0 if bounded else size)
        if bounded:
            await take_quota(self._bound, size)
        if noted:
            # Events of memories have no episode.
            memories = {item_id for (item_id, _, _), one in noted.items() if one.episode_id is None}
            await self.count(memories - self._bound.counted)
            await self._bound.send(
                "add_events",
                count=count,
                change_id=entry.change if entry else "",
                operation=entry.operation if entry else "",
                accessor=entry.made_by if entry else None,
                events=events,
            )
        if last is not None:
            of_webhooks = await self._for_webhooks(last - count)
            await Webhooks(self._bound).keep(of_webhooks, self._bound.now())

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
        return await self._first(_event, "event_numbered", seq=seq)

    async def count(self, ids: Collection[str], *, erased: bool = False) -> None:
        """Update the counts of memories for these changed ones, before their events are written; or
        with `erased`, before they and their events are deleted.
        """
        if ids:
            changed = sorted(ids)
            await self._bound.send("count_changed_memories", ids=changed, erased=int(erased))
            await self._bound.send("remove_empty_counts", ids=changed)

    async def counts_then(
        self, ids: Collection[str], believed: Collection[str]
    ) -> dict[tuple[str, str], int]:
        """Return, by type and topic, how many more of these memories would be active if of them the
        `believed` were.
        """
        rows = await self._by_ids("more_counts", ids, believed=list(believed))
        return {(row["type"], row["topic"]): int(row["more"]) for row in rows}

    async def correct_counts(
        self, more: Mapping[tuple[str, str], int], ids: Iterable[str] = ()
    ) -> None:
        """Add to counts of memories, by type and topic. Events of these ids count none again."""
        self._bound.counted.update(ids)
        if more:
            await self._bound.many(
                "correct_count",
                [{"type": t, "topic": topic, "more": many} for (t, topic), many in more.items()],
            )
            await self._bound.send("remove_zero_counts")

    async def of_items(self, ids: Collection[str]) -> list[MemoryEvent]:
        """Return the events of these memories, texts, turns or passages, oldest first."""
        return await self._all(_event, "events_of_items", ids=sorted(ids))

    async def latest(self, ids: Collection[str], limit: int) -> list[MemoryEvent]:
        """Return the last `limit` events of these items that were known at the requested moment,
        oldest first.
        """
        rows = await self._bound.fetch("latest_events_of_items", ids=sorted(ids), limit=limit)
        return [_event(row) for row in reversed(rows)]

    async def related(self, ids: Collection[str]) -> list[MemoryEvent]:
        """The events of these memories that say what stated their relations, which disputes they
        are in, and what of it was taken back, as it was known at the moment that is read.
        """
        return [_event(row) for row in await self._by_ids("events_of_relations", ids)]

    async def items(self, change_id: str) -> list[str]:
        """Return the items of a change, in the order of its events."""
        return await self._column("item_id", "items_of_change", change_id=change_id)

    async def changed_later(self, change_id: str) -> list[str]:
        """Return the items of a change that were changed again since."""
        return await self._column("item_id", "items_changed_later", change_id=change_id)

    async def changed_after(self, seq: int) -> list[str]:
        """The memories that were changed behind the event of this number."""
        return await self._column("item_id", "memories_changed_after", seq=seq)

    async def basis(self, since: int = ANY) -> Basis:
        """Return what a plan of memories rests on; `changed`: since the event of this number."""
        found = await self._bound.fetch_each(
            {"basis_of_plans": {"seq": since}, "subject_aliases": {}}
        )
        aliases = tuple((row["subject"], row["alias"]) for row in found["subject_aliases"])
        if not found["basis_of_plans"]:
            return Basis(0, False, (0, None, aliases))
        (row,) = found["basis_of_plans"]
        others = row["erase_epoch"], row["conflict_policy"], aliases
        return Basis(row["last_event"], bool(row["changed"]), others)

    async def brought(self, change_id: str) -> list[MemoryEvent]:
        """Return the events of a change that added, imported or released words."""
        return await self._all(_event, "words_shown_by_change", change_id=change_id)

    async def counts(self, change_id: str) -> dict[EventKind, int]:
        """Return how many events of each kind a change has."""
        rows = await self._bound.fetch("counts_of_change", change_id=change_id)
        return {EventKind(row["kind"]): int(row["events"]) for row in rows}

    async def undone_of(self, ids: Collection[str]) -> list[MemoryEvent]:
        """Return the events by which changes of these items were undone."""
        return [_event(row) for row in await self._by_ids("undone_of_items", ids)]

    async def page(self, before: int | None, limit: int) -> list[MemoryEvent]:
        """Return the events before a number, the newest first."""
        upto = ANY if before is None else before
        return await self._all(_event, "page_of_events", before=upto, limit=limit)


def _document(
    noted: Mapping[tuple[str, EventKind, str], Noted],
    recorded: Mapping[str, Recorded],
    answers: Mapping[str, str],
) -> Document:
    """Return the events as a query parameter, with its JSON text made: those that follow each other
    and differ in their items alone as one, with the place of the first. The first event of a memory
    has the digest of what was recorded of it, and what is kept of that.
    """
    kept = {item_id: [one.digest(), answers.get(item_id)] for item_id, one in recorded.items()}
    found: list[list[Any]] = []
    before: Any = None
    for place, ((item_id, kind, reason), one) in enumerate(noted.items()):
        of_item = kept.pop(item_id, (None, None))
        rest = kind, one, reason, of_item
        if rest != before:
            before = rest
            at = one.at.isoformat(timespec="microseconds")
            found.append([place, kind, at, one.episode_id, reason, one.dropped, *of_item, []])
        found[-1][-1].append(item_id)
    return Document.written(found)


def _dropped(row: Row) -> tuple[tuple[int, Citation], ...]:
    return tuple(
        (position, Citation(episode_id, Span(start, end)))
        for position, episode_id, start, end in document(row["dropped"]) or ()
    )


_event = reader(
    MemoryEvent, state=lambda row: state_of(row) if row["status"] else None, dropped=_dropped
)


class Cursor(NamedTuple):
    """How far a rebuild has come: the last memory, and after all of these the last text."""

    memory_id: str = ""
    episode_id: str = ""


class Moment(NamedTuple):
    """The last event and the version of the index at a moment."""

    last_event: int
    version: int


InGroup = tuple[str, str]
"""A dispute and a memory in it, by their ids."""

Ends = tuple[str, str, str]
"""The memories of a relation, from and to, and its kind."""
_ENDS = ("from_id", "to_id", "kind")


class Stated(NamedTuple):
    """The rest of a relation: its reason and confidence, and who stated it, when."""

    reason: str
    confidence: float
    made_by: str | None
    made_at: datetime


class Kept(NamedTuple):
    """The fields of a memory that no update changes, as its rows and its events have them.

    `row`: the recorded fields and the keys by which facts are found; empty if it has no row any
    more. `citations`: by position.
    """

    row: Row
    citations: dict[int, record.Cited]
    events: list[record.Written]


class Rebuilt(BoundTable):
    """The batches of one rebuild. Erasures discard them."""

    async def cursor(self, release: str) -> Cursor | None:
        """Return how far this release has come; None if another release has made the batches."""
        rows = await self._bound.fetch("last_rebuilt")
        if rows and rows[0]["release"] != release:
            return None
        return Cursor(rows[0]["memory_id"], rows[0]["episode_id"]) if rows else Cursor()

    async def keep(self, release: str, cursor: Cursor, derived: str, now: Statistics) -> bool:
        """Keep the next batch, as of `now`. Return False if something was erased since."""
        return await self._bound.touched(
            "keep_rebuilt",
            release=release,
            **cursor._asdict(),
            derived=derived,
            last_event=now.last_event,
            index_version=now.version,
            erase_epoch=now.erase_epoch,
        )

    async def batches(self) -> AsyncIterator[tuple[Moment, str]]:
        """Yield each batch, the oldest first, with the moment of which it is."""
        for row in await self._bound.fetch("numbers_of_rebuilt"):
            for one in await self._bound.fetch("rebuilt_batch", number=row["number"]):
                yield Moment(one["last_event"], one["index_version"]), one["derived"]

    async def discard(self) -> None:
        await self._bound.send("discard_rebuilt")

    async def memories(self, after: str, limit: int) -> list[str]:
        """Return the next memories, in any state, in the order of their ids."""
        return await self._column("id", "page_of_memory_ids", after=after, limit=limit)

    async def texts(self, after: str, limit: int) -> list[str]:
        """Return the next texts, in the order of their ids."""
        return await self._column("id", "episodes_to_index", after=after, limit=limit)

    async def states(self, ids: Collection[str]) -> Mapping[str, MemoryState]:
        return {row["id"]: state_of(row) for row in await self._by_ids("states_now", ids)}

    async def last_states(self, ids: Collection[str]) -> Mapping[str, MemoryState]:
        """Return the states that the last events of these memories left; those that release 0.1.0
        made and nothing changed since have no event.
        """
        return {row["id"]: state_of(row) for row in await self._by_ids("last_states", ids)}

    async def found_since(self, ids: Collection[str]) -> dict[str, datetime]:
        """Return since when each of these memories has been in states that search finds."""
        rows = await self._by_ids("found_since", ids, statuses=sorted(FINDABLE))
        return {row["item_id"]: moment(row["at"]) for row in rows}

    async def kept(self, ids: Collection[str]) -> dict[str, Kept]:
        """Return what is kept of these memories."""
        found = {row["id"]: Kept(row, {}, []) for row in await self._by_ids("records_now", ids)}
        for row in await self._by_ids("recorded_of", ids):
            one = found.setdefault(row["item_id"], Kept({}, {}, []))
            one.events.append(_written(row))
        for row in await self._by_ids("citations", ids):
            memory_id, position, *cited = dict(row).values()
            if memory_id in found:
                found[memory_id].citations.update(record.dropped([(position, *cited)]))
        return found

    async def texts_of(self, change_ids: Collection[str]) -> dict[str, list[str]]:
        """Return the texts that these changes stored or read, each with these changes."""
        rows = await self._bound.fetch("texts_of_changes", changes=sorted(change_ids))
        return grouped((row["id"], row["change_id"]) for row in rows)

    async def give_digests(self, digests: Mapping[int, str]) -> None:
        """Write the digests that events of an older release lack, by the number of the event."""
        await self._bound.many(
            "give_digest", [{"seq": seq, "digest": one} for seq, one in digests.items()]
        )

    async def write(
        self, memory_id: str, values: Mapping[str, Any], citations: Mapping[int, record.Cited]
    ) -> None:
        """Set the recorded fields of a memory, and its citations. Needs an erasing transaction."""
        fields = {name: values[name] for name in record.FIELDS}
        await self._bound.send("write_record", id=memory_id, **fields)
        await self.write_keys(memory_id, values)
        await self._bound.send("remove_citations", id=memory_id)
        await self._cite(memory_id, citations)

    async def add(
        self, memory_id: str, values: Mapping[str, Any], citations: Mapping[int, record.Cited]
    ) -> None:
        """Add the row of a memory that has none, with its citations."""
        labels = {
            name: Document(values[name]) if values[name] else None for name in ("tags", "metadata")
        }
        row = {**values, "id": memory_id, **keys_in(values), **labels}
        # It has counted them since the memory was added.
        await self._bound.many("add_memories", [row | {"stored_bytes": label_bytes(row)}])
        await self._bound.send("remove_citations", id=memory_id)
        await self._cite(memory_id, citations)

    async def _cite(self, memory_id: str, citations: Mapping[int, record.Cited]) -> None:
        names = ("episode_id", "span_start", "span_end")
        await self._bound.many(
            "undo_dropped_citation",
            [
                {"id": memory_id, "position": position, **dict(zip(names, cited, strict=True))}
                for position, cited in sorted(citations.items())
            ],
        )

    async def write_keys(self, memory_id: str, values: Mapping[str, Any]) -> None:
        """Set the keys by which the fact of a memory is found."""
        await self._bound.send("write_keys", id=memory_id, **keys_in(values))

    async def with_events(self, after: str, limit: int) -> list[str]:
        """Return the next memories that have events, in the order of their ids."""
        return await self._column("id", "memories_with_events", after=after, limit=limit)

    async def relations(self) -> dict[Ends, Stated]:
        rows = await self._bound.fetch("all_relations")
        return {
            (row["from_id"], row["to_id"], row["kind"]): Stated(
                row["reason"], row["confidence"], row["made_by"], moment(row["made_at"])
            )
            for row in rows
        }

    async def write_relations(self, relations: Mapping[Ends, Stated]) -> None:
        """Give relations these rows. Needs an erasing transaction."""
        rows = [
            dict(zip(_ENDS, ends, strict=True)) | stated._asdict()
            for ends, stated in relations.items()
        ]
        for row in rows:
            await self._bound.send("remove_relation", **{name: row[name] for name in _ENDS})
        await self._bound.many("relate", rows)

    async def stated(self) -> list[tuple[str, str, str]]:
        """Return the events that state relations: the memory, the change and the reason."""
        rows = await self._bound.fetch("stated_relations")
        return [(row["item_id"], row["change_id"], row["reason"]) for row in rows]

    async def added_at(self, ids: Collection[str]) -> dict[str, datetime | None]:
        """Return when each of these memories was added; None for an imported one."""
        rows = await self._bound.fetch("added_at", ids=sorted(ids))
        return {
            row["item_id"]: None if row["kind"] == EventKind.IMPORTED else moment(row["at"])
            for row in rows
        }

    async def counts(self) -> dict[tuple[str, str], int]:
        """Return the counts of memories, by type and topic."""
        rows = await self._bound.fetch("all_counts")
        return {(row["type"], row["topic"]): int(row["memories"]) for row in rows}

    async def disputes(self) -> dict[InGroup, dict[str, Any]]:
        """Return all rows of memories in disputes."""
        rows = await self._bound.fetch("all_disputes")
        return {
            (row["question_id"], row["memory_id"]): {
                "side": row["side"],
                "opened_at": moment(row["opened_at"]),
                "closed_at": moment_or_none(row["closed_at"]),
            }
            for row in rows
        }

    async def events_of_disputes(self) -> list[MemoryEvent]:
        """Return the events that opened, ended or took back disputes, the oldest first."""
        return [_event(row) for row in await self._bound.fetch("events_of_disputes")]

    async def write_disputes(self, rows: Mapping[InGroup, Mapping[str, Any] | None]) -> None:
        """Give these memories these rows in their disputes; None: no row."""
        for (question_id, memory_id), row in rows.items():
            place = {"question_id": question_id, "memory_id": memory_id}
            await self._bound.send("remove_dispute", **place)
            if row is not None:
                await self._bound.send("write_dispute", **place, **row)

    async def other_labels(self, ids: Collection[str]) -> dict[str, Row]:
        """Return those of these memories whose labels are not those of their text, with these."""
        rows = await self._bound.fetch("other_labels", ids=sorted(ids)) if ids else []
        return {row["id"]: row for row in rows}

    async def write_labels(self, labels: Mapping[str, Row]) -> None:
        """Give memories the labels of their texts."""
        for row in labels.values():
            documents = {
                name: None if row[name] is None else Document(document(row[name]))
                for name in ("tags", "metadata")
            }
            await self._bound.send("write_labels", **{**row, **documents})

    async def changed_after(self, moment: Moment) -> dict[str, Moment]:
        """Return the memories and texts that have changed after a moment, each with the last event
        and version. An event of a memory does not tell which texts lose words with it, but then
        they get other entries.
        """
        found: dict[str, Moment] = {}
        events = await self._bound.fetch("changed_by_events", seq=moment.last_event)
        entries = await self._bound.fetch("changed_entries", version=moment.version)
        changed = [(one["item_id"], Moment(one["seq"], 0)) for one in events]
        changed += [(one["episode_id"], Moment(one["seq"], 0)) for one in events]
        changed += [(episode_of(one["item_id"]), Moment(0, one["version"])) for one in entries]
        for one, last in changed:
            before = found.get(one, Moment(0, 0))
            found[one] = Moment(*map(max, before, last))
        return found

    async def entries(self, ids: Collection[str]) -> list[Row]:
        """Return the index entries by which search finds these items."""
        return list(await self._by_ids("entries_of", ids))


def keys_in(values: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the keys by which the fact in these fields is found."""
    return keys_of(values["entity"], values["attribute"], values["value"])


def _written(row: Row) -> record.Written:
    return record.Written(
        seq=row["seq"],
        adds=row["kind"] in _ADDS,
        digest=row["digest"],
        citations=row["citations"] or 0,
        dropped=record.dropped(document(row["dropped"]) or ()),
        answer=row["answer"] and json.loads(row["answer"]),
        at=moment(row["at"]),
        change_id=row["change_id"],
        undoes=row["reason"] if row["kind"] == EventKind.UNDONE else "",
    )


def kept_relations(events: Iterable[record.Written]) -> dict[Ends, Stated]:
    """Return the relations that these events of a memory, the oldest first, keep: each as it was
    stated first, with the reason and confidence of the last time.
    """
    found: dict[Ends, Stated] = {}
    for event in events:
        for *ends, reason, confidence, made_by, made_at in event.rest.get("relations", ()):
            from_id, to_id, kind = ends
            new = Stated(reason, confidence, made_by, datetime.fromisoformat(made_at))
            old = found.setdefault((from_id, to_id, kind), new)
            found[from_id, to_id, kind] = old._replace(reason=reason, confidence=confidence)
    return found


_ADDS = (EventKind.ADDED, EventKind.IMPORTED)
