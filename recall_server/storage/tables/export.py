"""Read a namespace in pages as the records of `domain/export_format.py`, and write rows from such
records. The table registry names the columns.
"""

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from recall_server.domain.episode import turn_id
from recall_server.domain.export_format import Episode, Memory, spelled
from recall_server.domain.memory import Status
from recall_server.domain.memory_event import EventKind
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Document, Row, document, grouped, moment_or_none
from recall_server.storage.tables import registry
from recall_server.storage.tables.access import bytes_of, label_bytes, take_quota
from recall_server.storage.tables.disputes import Relations
from recall_server.storage.tables.episodes import intact
from recall_server.storage.tables.memories import keys_of

# Rows of a page. Pages of rows with whole texts or hundreds of ids have fewer.
PAGE = 200
PAGE_OF_TEXTS = 16

Records = list[dict[str, Any]]


class ExportTable(BoundTable):
    """Reads in pages by key, so that the memory used does not grow with the namespace; writes rows
    in the state in which they were exported.
    """

    async def exists(self) -> bool:
        return bool(await self._bound.fetch("has_namespace"))

    async def episodes(self) -> AsyncIterator[Records]:
        async for rows in self._pages("export_episodes", PAGE_OF_TEXTS):
            yield await self._episodes(rows)

    async def episodes_of(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return those of these episodes that exist, by id."""
        rows = await self._bound.fetch("export_episodes_by_id", ids=list(ids))
        return {record["id"]: record for record in await self._episodes(rows)}

    async def _episodes(self, rows: Sequence[Row]) -> Records:
        jobs = await self._bound.fetch("export_extractions", ids=[row["job_id"] for row in rows])
        extractions = {job["id"]: _extraction(job) for job in jobs}
        lines = await self._lines("episodes", rows)
        for line, row in zip(lines, rows, strict=True):
            line |= {"text": intact(row), "extraction": extractions.get(row["job_id"])}
        return lines

    async def memories(self) -> AsyncIterator[Records]:
        async for rows in self._pages("export_memories", PAGE):
            yield await self._lines("memories", rows)

    async def memories_of(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Return those of these memories that exist, in any state, by id."""
        rows = await self._bound.fetch("export_memories_by_id", ids=list(ids))
        return {record["id"]: record for record in await self._lines("memories", rows)}

    async def tasks(self) -> AsyncIterator[Records]:
        async for rows in self._pages("export_runs", PAGE_OF_TEXTS):
            yield await self._lines("runs", rows)

    async def _lines(self, table: str, rows: Sequence[Row]) -> Records:
        """Return the lines of rows, with the rows of other tables that belong to each."""
        lines = [_record(table, row) for row in rows]
        for part in _PARTS[table]:
            children = await self._children(part.table, part.owner, rows)
            for line in lines:
                line[part.name] = [part.read(one) for one in children.get(line["id"], ())]
        return lines

    async def recipients(self) -> AsyncIterator[Records]:
        async for rows in self._pages("export_runs_with_recipients", PAGE):
            configs = await self._children("push_configs", "run_id", rows)
            yield [_recipient(config) for row in rows for config in configs[row["id"]]]

    async def audit(self) -> AsyncIterator[Records]:
        async for rows in self._pages("export_tool_call_records", PAGE_OF_TEXTS):
            yield [_record("tool_call_records", row) for row in rows]

    async def _children(self, table: str, owner: str, rows: Sequence[Row]) -> dict[str, list[Row]]:
        """Return the rows of a table that belong to these rows, by owner and in their order."""
        ids = [row["id"] for row in rows]
        children = await self._bound.fetch(f"export_{table}_of", ids=ids)
        if table == "relations":
            children = await Relations(self._bound).standing_rows(children)
        return grouped((row[owner], row) for row in children)

    async def keys_taken(self, keys: Iterable[str]) -> dict[str, str]:
        """Return those of these idempotency keys that are used, each with its episode."""
        rows = await self._bound.fetch("keys_taken", keys=list(keys))
        return {row["idempotency_key"]: row["id"] for row in rows}

    async def lengths(self, episode_ids: Iterable[str]) -> dict[str, int]:
        """Return the number of characters of each of these episodes that exists."""
        rows = await self._bound.fetch("lengths_of_episodes", ids=list(episode_ids))
        return {row["id"]: int(row["chars"]) for row in rows}

    async def add_episode(self, episode: Episode, now: datetime) -> None:
        """Add the episode with its turns, and its extraction job if that was not done. Raises
        `QuotaExceeded`.
        """
        size = bytes_of(self._stored("episodes", {**vars(episode), "stored_bytes": 0}).values())
        await take_quota(self._bound, size)
        await self._add("episodes", [{**vars(episode), "stored_bytes": size}])
        self._bound.note(episode.id, EventKind.IMPORTED, now, episode_id=episode.id)
        await self._add_parts("episodes", episode)
        if waits := episode.extraction:
            failed = waits.state == "failed"
            await self._bound.send(
                "import_extraction",
                id=episode.job_id,
                kind="extract",
                payload=Document({"episode_id": episode.id, "next": waits.next}),
                state="failed" if failed else "queued",
                now=now,
                finished_at=now if failed else None,
                error_code=waits.error_code,
            )
            self._bound.note_due(now, pushes=False)

    async def add_memory(self, memory: Memory, now: datetime) -> None:
        """Add the memory in its exported state, with its citations, decisions, disputes and
        relations. The end of the transaction raises `QuotaExceeded`.
        """
        keys = keys_of(memory.entity, memory.attribute, memory.value)
        row = {**vars(memory), **keys}
        row["stored_bytes"] = label_bytes(registry.BY_NAME["memories"].stored(row))
        await self._add("memories", [row])
        recorded = self._bound.record(memory.id)
        recorded.add(row, imported=True)
        recorded.citations += [(one.episode_id, one.start, one.end) for one in memory.citations]
        recorded.relations += [
            [
                *(memory.id, one.to_id, one.relation, one.reason, one.confidence, one.made_by),
                one.made_at.isoformat(),
            ]
            for one in memory.relations
        ]
        # An undo of what shows these words has to know that they were hidden.
        hidden = memory.status == Status.FORGOTTEN and await self._bound.touched(
            "hides_words", id=memory.id
        )
        reason = EventKind.FORGOTTEN if hidden else ""
        self._bound.note(memory.id, EventKind.IMPORTED, now, reason=reason)
        await self._add_parts("memories", memory)

    async def _add_parts(self, table: str, line: Episode | Memory) -> None:
        for part in _PARTS[table]:
            parts = enumerate(getattr(line, part.name))
            await self._add(part.table, [part.row(line.id, place, one) for place, one in parts])

    async def _add(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Add rows. Each must have a value for each column that an import writes; further values
        are ignored.
        """
        await self._bound.many(f"add_{table}", [self._stored(table, row) for row in rows])

    def _stored(self, table: str, row: Mapping[str, Any]) -> dict[str, Any]:
        entry = registry.BY_NAME[table]
        names = (*entry.key, *(name for name, _ in entry.fields), *entry.derived)
        return entry.stored({name: row[name] for name in names})


def _record(table: str, row: Row) -> dict[str, Any]:
    """Return the kind and the id of a line, and the exported columns of its main row."""
    entry = registry.BY_NAME[table]
    record = {"kind": entry.exported, "id": row["id"]}
    return record | {name: _exported(row[name], type_) for name, type_ in entry.fields}


def _exported(value: Any, type_: str) -> Any:
    match type_:
        case "time":
            found = moment_or_none(value)
            return None if found is None else spelled(found)
        case "document":
            return document(value)
        case "bool":
            return bool(value)
    return value


@dataclass(frozen=True)
class _Part:
    """The rows of a table that belong to a line, by their column `owner`. `names`: what columns
    are called in the line; columns of the key that have no name there are left out.
    """

    table: str
    owner: str
    names: Mapping[str, str]
    name: str

    def read(self, row: Row) -> dict[str, Any]:
        entry = registry.BY_NAME[self.table]
        columns = [*((one, "") for one in entry.key if one in self.names), *entry.fields]
        return {self.names.get(name, name): _exported(row[name], type_) for name, type_ in columns}

    def row(self, owner_id: str, place: int, part: Any) -> dict[str, Any]:
        """Return the row of a part of a line, the one at this place."""
        given = {column: getattr(part, name) for column, name in self.names.items()}
        row = {"position": place, **vars(part), **given, self.owner: owner_id}
        if self.table == "turns":
            row["id"] = turn_id(owner_id, part.position)
            # Older releases did not search turns that a memory cites ("covered").
            row["state"] = "open" if part.state == "covered" else part.state
        return row


_SPAN = {"span_start": "start", "span_end": "end"}
_QUESTION = {"question_id": "question_id"}
_PARTS: Mapping[str, tuple[_Part, ...]] = {
    "episodes": (
        _Part("turns", "episode_id", _SPAN, "turns"),
        _Part("forgotten", "episode_id", {"item_id": "id", **_SPAN}, "forgotten"),
    ),
    "memories": (
        _Part("citations", "memory_id", _SPAN, "citations"),
        _Part("decisions", "memory_id", _QUESTION, "decisions"),
        _Part("disputes", "memory_id", _QUESTION, "disputes"),
        _Part("relations", "from_id", {"to_id": "to_id", "kind": "relation"}, "relations"),
        _Part("proposals", "memory_id", {"id": "id", "kind": "proposal"}, "proposals"),
    ),
    "runs": (_Part("run_events", "run_id", {"seq": "seq"}, "events"),),
}


def _extraction(job: Row) -> dict[str, Any] | None:
    if job["state"] == "complete":
        return None
    return {
        "state": "failed" if job["state"] == "failed" else "pending",
        "next": document(job["payload"]).get("next", 0),
        "error_code": job["error_code"],
    }


def _recipient(row: Row) -> dict[str, Any]:
    # The query, and what stands before the host, may hold a secret.
    url = urlsplit(row["url"])
    host = url.netloc.rpartition("@")[2]
    return {
        **_record("push_configs", row),
        "kind": "recipient",
        "task_id": row["run_id"],
        "id": row["id"],
        "url": f"{url.scheme}://{host}{url.path}",
    }
