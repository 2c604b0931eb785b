"""Read a namespace in pages, as the records of `domain/export_format.py`."""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlsplit

from recall_server.domain.attributes import normal_attribute, normal_entity
from recall_server.domain.export_format import Episode, Memory, spelled
from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Document, Row
from recall_server.storage.rows import document, moment, moment_or_none
from recall_server.storage.tables.episodes import intact, turn_id
from recall_server.storage.tables.usage import take_room

# Rows of a page; those that hold whole texts, or hundreds of ids, are few: they may be long.
PAGE = 200
PAGE_OF_TEXTS = 16

Records = list[dict[str, Any]]
_EPISODE = (
    "name session_id agent_id group_id source source_model source_description".split()  # noqa: SIM905
)


class ExportTable:
    """Reads in pages by key, so that nothing grows with the whole; writes rows as they were."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def exists(self) -> bool:
        """Whether there is such a namespace."""
        return bool(await self._handle.fetch("has_namespace"))

    async def make(self, now: datetime) -> None:
        """The namespace, where it is new."""
        await self._handle.send("add_namespace", now=now)

    async def episodes(self) -> AsyncIterator[Records]:
        async for rows in self._pages("portable_episodes", PAGE_OF_TEXTS):
            yield await self._episodes(rows)

    async def episodes_of(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Those of these episodes that there are."""
        rows = await self._handle.fetch("portable_episodes_of", ids=list(ids))
        return {record["id"]: record for record in await self._episodes(rows)}

    async def _episodes(self, rows: Sequence[Row]) -> Records:
        turns: dict[str, list[dict[str, Any]]] = {row["id"]: [] for row in rows}
        for row in await self._handle.fetch("portable_turns", ids=list(turns)):
            turns[row["episode_id"]].append(_turn(row))
        return [_episode(row, turns[row["id"]]) for row in rows]

    async def memories(self) -> AsyncIterator[Records]:
        async for rows in self._pages("portable_memories", PAGE):
            yield await self._memories(rows)

    async def memories_of(self, ids: Iterable[str]) -> dict[str, dict[str, Any]]:
        """Those of these memories that there are, in any state."""
        rows = await self._handle.fetch("portable_memories_of", ids=list(ids))
        return {record["id"]: record for record in await self._memories(rows)}

    async def _memories(self, rows: Sequence[Row]) -> Records:
        ids = [row["id"] for row in rows]
        cited = await self._handle.fetch("citations", ids=ids)
        decided = await self._handle.fetch("decisions", ids=ids)
        citations = _grouped(sorted(cited, key=lambda row: row["position"]), "memory_id", _cited)
        decisions = _grouped(
            sorted(decided, key=lambda row: row["question_id"]), "memory_id", _decided
        )
        return [
            _memory(row, citations.get(row["id"], []), decisions.get(row["id"], [])) for row in rows
        ]

    async def tasks(self) -> AsyncIterator[Records]:
        async for rows in self._pages("portable_runs", PAGE_OF_TEXTS):
            ids = [row["id"] for row in rows]
            happened = await self._handle.fetch("portable_run_events", ids=ids)
            events = _grouped(happened, "run_id", _event)
            yield [_task(row, events.get(row["id"], [])) for row in rows]

    async def recipients(self) -> AsyncIterator[Records]:
        async for told in self._pages("portable_runs_told", PAGE, key="run_id"):
            rows = await self._handle.fetch(
                "portable_recipients", ids=[row["run_id"] for row in told]
            )
            yield [_recipient(row) for row in sorted(rows, key=lambda r: (r["run_id"], r["id"]))]

    async def audit(self) -> AsyncIterator[Records]:
        async for rows in self._pages("portable_records", PAGE_OF_TEXTS):
            yield [_line_of_the_book(row) for row in rows]

    async def _pages(self, query: str, size: int, key: str = "id") -> AsyncIterator[Sequence[Row]]:
        after = ""
        while rows := await self._handle.fetch(query, after=after, limit=size):
            yield rows
            after = rows[-1][key]

    async def keys_taken(self, keys: Iterable[str]) -> dict[str, str]:
        """Which of these idempotency keys are used, and by which episode."""
        rows = await self._handle.fetch("keys_taken", keys=list(keys))
        return {row["idempotency_key"]: row["id"] for row in rows}

    async def lengths(self, episode_ids: Iterable[str]) -> dict[str, int]:
        """How many characters each of these episodes has, of those that there are."""
        rows = await self._handle.fetch("lengths_of_episodes", ids=list(episode_ids))
        return {row["id"]: int(row["chars"]) for row in rows}

    async def add_episode(self, episode: Episode, now: datetime) -> None:
        """The episode with its turns, and the promise to make memories of it, if it still waits.
        Raises `QuotaExceeded`.
        """
        await take_room(self._handle, episode.text)
        fields = "id idempotency_key request_digest job_id text content_hash topic".split()  # noqa: SIM905
        await self._handle.send(
            "import_episode",
            **{name: getattr(episode, name) for name in (*fields, *_EPISODE, "container")},
            tags=None if episode.tags is None else Document(episode.tags),
            metadata=None if episode.metadata is None else Document(episode.metadata),
            occurred_at=episode.occurred_at,
            recorded_at=episode.recorded_at,
            expired_at=episode.expired_at,
        )
        await self._handle.many(
            "import_turn",
            [
                {
                    "id": turn_id(episode.id, turn.position),
                    "episode_id": episode.id,
                    "span_start": turn.start,
                    "span_end": turn.end,
                    **turn.model_dump(exclude={"start", "end"}),
                }
                for turn in episode.turns
            ],
        )
        if waits := episode.extraction:
            failed = waits.state == "failed"
            await self._handle.send(
                "import_extraction",
                id=episode.job_id,
                kind="extract",
                payload=Document({"episode_id": episode.id, "next": waits.next}),
                state="failed" if failed else "queued",
                now=now,
                finished_at=now if failed else None,
                error_code=waits.error_code,
            )

    async def add_memory(self, memory: Memory) -> None:
        """The memory in the state that it is in, with its citations and decisions."""
        known = memory.entity is not None
        await self._handle.send(
            "import_memory",
            **memory.model_dump(exclude={"kind", "citations", "decisions"}),
            entity_key=normal_entity(memory.entity or "") if known else None,
            attribute_key=normal_attribute(memory.attribute or "") if known else None,
        )
        await self._handle.many(
            "import_citation",
            [
                {
                    "memory_id": memory.id,
                    "position": position,
                    "episode_id": cited.episode_id,
                    "span_start": cited.start,
                    "span_end": cited.end,
                }
                for position, cited in enumerate(memory.citations)
            ],
        )
        await self._handle.many(
            "add_decision",
            [{"memory_id": memory.id, **made.model_dump()} for made in memory.decisions],
        )

    async def without_vectors(
        self, what: Literal["memories", "turns"], model: str, after: str
    ) -> tuple[set[str], str]:
        """Of a page of what search finds, behind the id `after`: the episodes of which something
        has no vector of the model, and the last id ("" where there is none left).
        """
        rows = await self._handle.fetch(f"{what}_and_vectors", model=model, after=after, limit=PAGE)
        bare = {row["episode_id"] for row in rows if row["item_id"] is None}
        return bare, rows[-1]["id"] if rows else ""

    async def promise(
        self, job_id: str, kind: str, payload: Mapping[str, Any], now: datetime
    ) -> None:
        """A job of this id to be done, unless it waits or is at work already."""
        await self._handle.send(
            "promise_again", id=job_id, kind=kind, payload=Document(dict(payload)), now=now
        )


def _grouped(
    rows: Iterable[Row], key: str, shown: Callable[[Row], dict[str, Any]]
) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row[key], []).append(shown(row))
    return found


def _at(value: Any) -> str | None:
    found = moment_or_none(value)
    return None if found is None else spelled(found)


def _turn(row: Row) -> dict[str, Any]:
    return {
        "position": row["position"],
        "start": row["span_start"],
        "end": row["span_end"],
        "speaker": row["speaker"],
        "session": row["session"],
        "said_at": _at(row["said_at"]),
        "importance": row["importance"],
        "state": row["state"],
        "access_count": row["access_count"],
        "last_accessed_at": _at(row["last_accessed_at"]),
    }


def _episode(row: Row, turns: list[dict[str, Any]]) -> dict[str, Any]:
    waits = None
    if row["job_state"] not in (None, "complete"):
        waits = {
            "state": "failed" if row["job_state"] == "failed" else "pending",
            "next": document(row["job_payload"]).get("next", 0),
            "error_code": row["error_code"],
        }
    return {
        "kind": "episode",
        "id": row["id"],
        "text": intact(row),
        "content_hash": row["content_hash"],
        "topic": row["topic"],
        **{name: row[name] for name in _EPISODE},
        "tags": document(row["tags"]),
        "metadata": document(row["metadata"]),
        "occurred_at": _at(row["occurred_at"]),
        "recorded_at": _at(row["recorded_at"]),
        "expired_at": _at(row["expired_at"]),
        "idempotency_key": row["idempotency_key"],
        "request_digest": row["request_digest"],
        "job_id": row["job_id"],
        "extraction": waits,
        "turns": turns,
        "container": row["container"],
    }


def _memory(
    row: Row, citations: list[dict[str, Any]], decisions: list[dict[str, Any]]
) -> dict[str, Any]:
    return {
        "kind": "memory",
        "id": row["id"],
        "text": row["text"],
        "type": row["type"],
        "topic": row["topic"],
        "entity": row["entity"],
        "attribute": row["attribute"],
        "value": row["value"],
        "negated": bool(row["negated"]),
        "status": row["status"],
        "said_at": _at(row["said_at"]),
        "valid_from": _at(row["valid_from"]),
        "valid_until": _at(row["valid_until"]),
        "recorded_at": _at(row["recorded_at"]),
        "retired_at": _at(row["retired_at"]),
        "superseded_by": row["superseded_by"],
        "importance": row["importance"],
        "confidence": row["confidence"],
        "reinforcements": row["reinforcements"],
        "access_count": row["access_count"],
        "last_accessed_at": _at(row["last_accessed_at"]),
        "session_id": row["session_id"],
        "agent_id": row["agent_id"],
        "extractor": row["extractor"],
        "citations": citations,
        "decisions": decisions,
        "container": row["container"],
    }


def _cited(row: Row) -> dict[str, Any]:
    return {"episode_id": row["episode_id"], "start": row["span_start"], "end": row["span_end"]}


def _decided(row: Row) -> dict[str, Any]:
    return {
        "question_id": row["question_id"],
        "choice": row["choice"],
        "decided_by": row["decided_by"],
        "decided_at": spelled(moment(row["decided_at"])),
    }


def _task(row: Row, events: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "kind": "task",
        "id": row["id"],
        "context_id": row["context_id"],
        "state": row["state"],
        "accessor": row["accessor"],
        "created_at": _at(row["created_at"]),
        "changed_at": _at(row["changed_at"]),
        "expires_at": _at(row["expires_at"]),
        **{
            name: document(row[name])
            for name in ("request", "work", "status", "messages", "outcome")
        },
        "events": events,
    }


def _event(row: Row) -> dict[str, Any]:
    return {
        "seq": row["seq"],
        "status": document(row["status"]),
        "outcome": document(row["outcome"]),
    }


def _recipient(row: Row) -> dict[str, Any]:
    # What stands behind the path, or before the host, may be a secret.
    url = urlsplit(row["url"])
    host = url.netloc.rpartition("@")[2]
    return {
        "kind": "recipient",
        "task_id": row["run_id"],
        "id": row["id"],
        "url": f"{url.scheme}://{host}{url.path}",
        "created_at": _at(row["created_at"]),
    }


def _line_of_the_book(row: Row) -> dict[str, Any]:
    names = "milliseconds model input_tokens output_tokens cost_usd".split()  # noqa: SIM905
    return {
        "kind": "audit",
        "id": row["id"],
        "at": _at(row["at"]),
        "door": row["door"],
        "operation": row["operation"],
        "accessor": row["accessor"],
        "request_id": row["request_id"],
        "ids": document(row["ids"]),
        "counts": document(row["counts"]),
        "outcome": row["outcome"],
        "code": row["code"],
        **{name: row[name] for name in names},
    }
