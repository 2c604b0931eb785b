"""The batches that a rebuild has derived so far, and the rows that they are compared with."""

import json
from collections.abc import AsyncIterator, Collection, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from recall_server.domain import record
from recall_server.domain.episode import episode_of
from recall_server.domain.memory_event import EventKind, MemoryEvent, MemoryState
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Document, Row, document, moment, moment_or_none
from recall_server.storage.index.words import Statistics
from recall_server.storage.tables.memories import keys_of, state_of
from recall_server.storage.tables.memory_events import event_of


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


class Kept(NamedTuple):
    """The fields of a memory that no update changes, as its rows and its events have them.

    `row`: the recorded fields and the keys by which facts are found. `citations`: by position.
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
        rows = await self._bound.fetch("page_of_memory_ids", after=after, limit=limit)
        return [row["id"] for row in rows]

    async def texts(self, after: str, limit: int) -> list[str]:
        """Return the next texts, in the order of their ids."""
        rows = await self._bound.fetch("episodes_to_index", after=after, limit=limit)
        return [row["id"] for row in rows]

    async def states(self, ids: Collection[str]) -> Mapping[str, MemoryState]:
        """Return the states of these memories."""
        rows = await self._bound.fetch("states_now", ids=sorted(ids)) if ids else []
        return {row["id"]: state_of(row) for row in rows}

    async def last_states(self, ids: Collection[str]) -> Mapping[str, MemoryState]:
        """Return the states that the last events of these memories left; those that release 0.1.0
        made and nothing changed since have no event.
        """
        rows = await self._bound.fetch("last_states", ids=sorted(ids)) if ids else []
        return {row["id"]: state_of(row) for row in rows}

    async def kept(self, ids: Collection[str]) -> dict[str, Kept]:
        """Return what is kept of these memories."""
        if not ids:
            return {}
        wanted = sorted(ids)
        rows = await self._bound.fetch("records_now", ids=wanted)
        found = {row["id"]: Kept(row, {}, []) for row in rows}
        for row in await self._bound.fetch("citations", ids=wanted):
            memory_id, position, *cited = dict(row).values()
            if memory_id in found:
                found[memory_id].citations.update(record.dropped([(position, *cited)]))
        for row in await self._bound.fetch("recorded_of", ids=wanted):
            if row["item_id"] in found:
                found[row["item_id"]].events.append(_written(row))
        return found

    async def give_digests(self, digests: Mapping[int, str]) -> None:
        """Write the digests that events of an older release lack, by the number of the event."""
        await self._bound.many(
            "give_digest", [{"seq": seq, "digest": one} for seq, one in digests.items()]
        )

    async def write(
        self, memory_id: str, values: Mapping[str, Any], citations: Mapping[int, record.Cited]
    ) -> None:
        """Set the recorded fields of a memory, and these of its citations. Needs an erasing
        transaction.
        """
        fields = {name: values[name] for name in record.FIELDS}
        await self._bound.send("write_record", id=memory_id, **fields)
        await self.write_keys(memory_id, values)
        for position, (episode_id, start, end) in citations.items():
            place = {"id": memory_id, "position": position}
            await self._bound.send("remove_citation", **place)
            await self._bound.send(
                "undo_dropped_citation",
                **place,
                episode_id=episode_id,
                span_start=start,
                span_end=end,
            )

    async def write_keys(self, memory_id: str, values: Mapping[str, Any]) -> None:
        """Set the keys by which the fact of a memory is found."""
        await self._bound.send("write_keys", id=memory_id, **keys_in(values))

    async def with_events(self, after: str, limit: int) -> list[str]:
        """Return the next memories that have events, in the order of their ids."""
        rows = await self._bound.fetch("memories_with_events", after=after, limit=limit)
        return [row["id"] for row in rows]

    async def relations(self) -> dict[Ends, datetime]:
        """Return all relations, each with the moment at which it was made."""
        rows = await self._bound.fetch("all_relations")
        return {(row["from_id"], row["to_id"], row["kind"]): moment(row["made_at"]) for row in rows}

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

    async def correct_counts(self, more: Mapping[tuple[str, str], int]) -> None:
        """Add to counts of memories, by type and topic."""
        if more:
            await self._bound.many(
                "correct_count",
                [{"type": t, "topic": topic, "more": many} for (t, topic), many in more.items()],
            )
            await self._bound.send("remove_zero_counts")

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
        return [event_of(row) for row in await self._bound.fetch("events_of_disputes")]

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
        return list(await self._bound.fetch("entries_of", ids=sorted(ids))) if ids else []


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
    )


_ADDS = (EventKind.ADDED, EventKind.IMPORTED)
