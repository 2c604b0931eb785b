"""The table of erasures: what was erased, in numbers; the digests of texts that must not come back;
deleting and redacting rows of the tables that the table registry names; and the rows of a source.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, NamedTuple

from recall_server.domain import record
from recall_server.domain.erasure import BLOCK, EVERYWHERE, ErasedPlaces, ErasedText, Kind, Stage
from recall_server.domain.ids import Namespace
from recall_server.domain.memory_event import EventKind
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import (
    Document,
    Failure,
    Row,
    batches,
    document,
    fitting,
    grouped,
    reader,
)
from recall_server.storage.tables import registry
from recall_server.storage.tables.access import EVENT_BYTES, bytes_of, return_quota, take_quota
from recall_server.storage.tables.memory_events import MemoryEvents
from recall_server.storage.tables.registry import Part

# The kind of the job that continues an erasure after its call has ended.
PURGE = "purge"
# While a namespace is being erased, no token opens it, whenever it was made.
NEVER = datetime.max.replace(tzinfo=UTC, hour=0)


@dataclass(frozen=True)
class Erasure:
    """One erasure and how far it has come; `claims` are the claims of its receipt."""

    namespace: Namespace
    id: str
    kind: Kind
    requested_at: datetime
    stage: Stage
    claims: Mapping[str, Any]
    left_behind: str
    purged_at: datetime | None
    secret_hash: str | None = field(repr=False)
    receipt: str = field(repr=False)
    sealed: str | None = field(repr=False)
    # The erase epoch of the namespace after it. Rows from before have a smaller one.
    epoch: int | None


class Hold(NamedTuple):
    """An order that nothing of a namespace is erased: since when, and why."""

    namespace: Namespace
    at: datetime
    because: str


class Erasures(BoundTable):
    """Erasures and what they change. Deleting and redacting need an erasing transaction."""

    async def begin(self, erasure_id: str, kind: Kind, by: str, now: datetime) -> None:
        """Add an erasure. Until it has ended, texts may be redacted."""
        await self._bound.send(
            "begin_erasure",
            id=erasure_id,
            kind=kind,
            requested_by=by,
            now=now,
            claims=Document({}),
        )

    async def settle(
        self,
        erasure_id: str,
        claims: Mapping[str, Any],
        receipt: str,
        secret_hash: str,
        *,
        sealed: str,
        stage: Stage,
    ) -> int:
        """Store the receipt of an erasure, and how far it has come (`stage`). `sealed` is its
        request, encrypted for the ledger. Return the bytes that are kept of it.
        """
        await self._bound.send(
            "settle_erasure",
            id=erasure_id,
            claims=Document(dict(claims)),
            receipt=receipt,
            secret_hash=secret_hash,
            sealed=sealed,
            state=stage,
        )
        return bytes_of((Document(dict(claims)), receipt, secret_hash, sealed))

    async def count(self, size: int, *, refused_if_full: bool) -> None:
        """Count bytes that are kept of an erasure. A full namespace may raise `QuotaExceeded`."""
        if refused_if_full:
            await take_quota(self._bound, size)
        else:
            await return_quota(self._bound, -size)

    async def known(self, ids: Sequence[str]) -> set[str]:
        """Return those of these ids that exist. Needs a connection for all namespaces."""
        return set(await self._column("id", "known_erasures", ids=list(ids)))

    async def hold(self) -> Hold | None:
        return await self._first(_hold, "hold")

    async def set_hold(self, hold: Hold | None) -> bool:
        """Place a hold, or lift it with None. Return False if there is no such namespace."""
        at, because = (hold.at, hold.because) if hold else (None, None)
        return await self._bound.touched("set_hold", at=at, because=because)

    async def holds(self) -> list[Hold]:
        """Return all holds. Needs a connection for all namespaces."""
        return await self._all(_hold, "holds")

    async def begin_purge(self, erasure_id: str) -> None:
        await self._bound.send("begin_purge", id=erasure_id)

    async def keep_unpurged(self) -> None:
        """Note for all erasures without a final receipt that rows were changed: files hold the old
        ones until `end_purge`.
        """
        await self._bound.send("keep_unpurged")

    async def end_purge(
        self, erasure_id: str, left_behind: str, receipt: str, now: datetime
    ) -> bool:
        """Store the final receipt of an erasure. Return False if it was stored before."""
        return await self._bound.touched(
            "end_purge", id=erasure_id, left_behind=left_behind, receipt=receipt, now=now
        )

    async def get(self, erasure_id: str) -> Erasure | None:
        return await self._first(_erasure, "erasure", id=erasure_id)

    async def find(self, erasure_id: str) -> Erasure | None:
        """Return the erasure of this id in any namespace. Needs a connection for all."""
        return await self._first(_erasure, "erasure_by_id", id=erasure_id)

    async def unpurged(self, most: int, also: str = "") -> list[Erasure]:
        """Return the erasures that wait for a purge: of each namespace the oldest, at most so many,
        and `also` the one with this id. Needs a connection for all namespaces.
        """
        return await self._all(_erasure, "unpurged_erasures", most=most, also=also)

    async def count_unpurged(self) -> int:
        """Return how many erasures wait for a purge. Needs a connection for all namespaces."""
        return await self._int("erasures", "count_unpurged_erasures")

    async def namespaces(self) -> list[Namespace]:
        """Return all namespaces. Needs a connection for all."""
        return await self._column("namespace", "names_of_namespaces")

    async def acknowledge(self, erasure_id: str, now: datetime) -> None:
        """Use up the secret of a final receipt."""
        await self._bound.send("acknowledge_receipt", id=erasure_id, now=now)

    async def remember(self, erased: Iterable[ErasedText]) -> None:
        """Refuse these texts from now on."""
        await self._bound.send("add_erased", erased=Document([list(one) for one in sorted(erased)]))

    async def erased(self, digests: Sequence[str], places: ErasedPlaces = EVERYWHERE) -> set[str]:
        """Return those of these digests whose text was erased in one of the places."""
        within = _within(places)
        return set(await self._column("digest", "erased_among", digests=list(digests), **within))

    async def refuse(
        self, digests: Sequence[str], places: ErasedPlaces, otherwise: Failure
    ) -> None:
        """Roll the transaction back if a text of these digests was erased in one of the places:
        `otherwise` is raised here or later (see `Connection.expect`).
        """
        await self._bound.expect("none_erased", otherwise, digests=list(digests), **_within(places))

    async def allow(self, digests: Sequence[str]) -> int:
        """Accept texts of these digests again. Return how many were refused so far."""
        return len({*await self._column("digest", "allow_erased", digests=list(digests))})

    async def counts(self) -> dict[str, int]:
        """Return the number of rows in each table that an erasure of the namespace deletes from."""
        (row,) = await self._bound.fetch("erasure_counts")
        return {table: int(row[table]) for table in registry.DELETED}

    async def close_namespace(self, now: datetime) -> int:
        """End all work for the namespace, and refuse all tokens until it is erased. Return how many
        tokens were revoked.
        """
        for table in registry.ENDS_WORK:
            await self._bound.send(f"erase_all_{table}")
        return await self._revoke(now, until=NEVER)

    async def erase_some(self, table: str, limit: int) -> int:
        """Delete rows of one of `SOME_AT_A_TIME`. Return how many; 0 when none are left."""
        return len(await self._bound.fetch(f"erase_some_{table}", limit=limit))

    async def erase_rest(self, now: datetime) -> int:
        """Delete all remaining rows of the namespace except purge jobs under way, and accept tokens
        that are made from now on. Return how many tokens were revoked.
        """
        for table in registry.DELETED:
            await self._bound.send(f"erase_all_{table}")
        return await self._revoke(now, until=now)

    async def _revoke(self, now: datetime, *, until: datetime) -> int:
        await self._bound.send("reset_namespace", until=until)
        await self._bound.send("redact_tokens", nothing=Document([]))
        revoked = await self._bound.fetch("revoke_all_tokens", now=now)
        await self.next_epoch()
        return len(revoked)

    async def close_container(self, erasure_id: str, container: str) -> None:
        """Hide everything of a container from callers until its erasure ends."""
        await self._bound.send("close_container", id=erasure_id, container=container)

    async def end_erasing(self, erasure_id: str) -> None:
        """Note that the rows of an erasure are gone, so that only files may hold traces."""
        await self._bound.send("open_container", id=erasure_id)
        await self._bound.send("end_erasing", id=erasure_id)

    async def namespace_is_erased(self) -> bool:
        return await self._bound.touched("erasure_under_way")

    async def first_memories(self, limit: int) -> Sequence[Row]:
        return await self._bound.fetch("memories_to_erase", after="", limit=limit)

    async def first_episodes(self, limit: int) -> list[tuple[Row, list[Row]]]:
        rows = await self._bound.fetch("episodes_to_erase", after="", limit=limit)
        return await self.with_turns(rows)

    async def remove(self, part: Part, ids: Iterable[str]) -> None:
        """Delete the rows that belong to these memories, episodes, passages or tasks."""
        wanted = sorted(ids)
        if wanted:
            tables = registry.with_part(part)
            if "memory_events" in tables:
                (kept,) = await self._bound.fetch(f"count_events_of_{part}", ids=wanted)
                size = int(kept["events"]) * EVENT_BYTES + int(kept["bytes"])
                await return_quota(self._bound, size)
            if part is Part.MEMORY:
                (kept,) = await self._bound.fetch("stored_bytes_of_memories", ids=wanted)
                await return_quota(self._bound, int(kept["bytes"]))
            for table in tables:
                await self._bound.send(f"erase_{table}_of_{part}", ids=wanted)

    async def remove_details(self, record_ids: Iterable[str]) -> None:
        """Delete the details of audit records; the chain keeps their digest."""
        await self._bound.send("erase_details", ids=sorted(record_ids))

    async def redact_job(self, job_id: str, payload: Mapping[str, Any]) -> None:
        await self._bound.send("redact_job", id=job_id, payload=Document(dict(payload)))

    async def redact_judgement(self, memory_id: str, question_id: str) -> None:
        """Delete the reason of a judge."""
        await self._bound.send("redact_judgement", memory_id=memory_id, question_id=question_id)

    async def next_epoch(self) -> None:
        """Make all caches of this namespace's index drop what they hold, and discard what a rebuild
        has derived.
        """
        await self._bound.send("next_erase_epoch")
        await self._bound.send("discard_rebuilt")

    async def fence(self, now: datetime) -> None:
        """Take the namespace's jobs, except purges, from their workers, to begin again."""
        await self._bound.send("fence_jobs", now=now, purge=PURGE)
        for pushes in (False, True):
            self._bound.note_due(now, pushes=pushes)

    async def episodes_of(self, ids: Iterable[str]) -> list[tuple[Row, list[Row]]]:
        return await self.with_turns(await self._by_ids("episodes_to_erase_by_id", ids))

    async def with_turns(self, episodes: Sequence[Row]) -> list[tuple[Row, list[Row]]]:
        rows = await self._by_ids("turns_of_episodes", (row["id"] for row in episodes))
        turns = grouped((turn["episode_id"], turn) for turn in rows)
        return [(row, turns.get(row["id"], [])) for row in episodes]

    async def turn(self, turn_id: str) -> Row | None:
        return await self._first(lambda row: row, "turn_by_id", id=turn_id)

    async def memories_of(self, ids: Iterable[str]) -> Sequence[Row]:
        """Return these memories, in any state."""
        return await self._by_ids("memories_to_erase_by_id", ids)

    async def citations(self, ids: Iterable[str]) -> Sequence[Row]:
        return await self._by_ids("citations", ids)

    async def hidden_by(self, ids: Iterable[str]) -> Sequence[Row]:
        """Return the words that these items hide, as they were forgotten."""
        return await self._by_ids("words_hidden_by", ids)

    async def citations_in(self, episode_ids: Iterable[str]) -> Sequence[Row]:
        return await self._by_ids("citations_of_episodes", episode_ids)

    async def standing_citations_in(self, episode_ids: Iterable[str]) -> Sequence[Row]:
        """Like `citations_in`, without those of memories in quarantine."""
        return await self._by_ids("standing_citations_of_episodes", episode_ids)

    async def remove_tasks(self, ids: Iterable[str]) -> None:
        """Delete tasks with all their rows, end their jobs, and return their quota."""
        wanted = sorted(ids)
        rows = await self._bound.fetch("stored_bytes_of_runs", ids=wanted)
        await return_quota(self._bound, sum(row["stored_bytes"] for row in rows))
        await self.remove(Part.TASK, wanted)
        if wanted:
            await self._bound.send("end_jobs_of_runs", ids=wanted, nothing=Document({}))

    async def remove_memories(self, ids: Iterable[str]) -> None:
        """Delete memories with all their rows and the links to them."""
        wanted = sorted(ids)
        await MemoryEvents(self._bound).count(wanted, erased=True)
        for query in ("unlink_memories", "unlink_events", "redact_judgements_about"):
            await self._bound.send(query, ids=wanted)
        await self.remove(Part.MEMORY, wanted)

    async def remove_turns(self, ids: Sequence[str]) -> None:
        """Delete turns of episodes that are being deleted."""
        if ids:
            await self._bound.send("erase_turns", ids=list(ids))

    async def remove_episodes(self, episodes: Sequence[Row], passage_ids: Iterable[str]) -> None:
        """Delete episodes with all of their turns. No memory may cite them any more."""
        await self.remove(Part.PASSAGE, passage_ids)
        await self.remove(Part.EPISODE, [row["id"] for row in episodes])
        await return_quota(self._bound, sum(map(_counted_bytes, episodes)))

    async def drop_answers(self, memory_ids: Collection[str]) -> None:
        """Delete the copies of what models and persons worded of these memories."""
        if wanted := sorted(memory_ids):
            (kept,) = await self._bound.fetch("count_events_of_memory", ids=wanted)
            await return_quota(self._bound, int(kept["bytes"]))
            await self._bound.send("drop_answers", ids=wanted)

    async def redact(self, table: registry.Table, rows: Sequence[Mapping[str, Any]]) -> None:
        """Overwrite rows: each has new values of the redacted columns and labels, and its `id`."""
        await self._bound.many(f"redact_{table.name}", [table.stored(row) for row in rows])


def _counted_bytes(episode: Row) -> int:
    """Return the bytes that an episode counts. For an episode of an older release this is a lower
    bound: a redacted character counts as one byte.
    """
    text = str(episode["text"]).replace(BLOCK, "x")
    return episode["stored_bytes"] or len(text.encode("utf-8", "surrogatepass"))


_hold = reader(Hold, at="held_at", because="held_because")
_erasure = reader(Erasure, stage="state", epoch="erase_epoch")


PAGE = 50
PAGE_OF_LABELS = 200
Table = Literal["memories", "episodes"]
Paged = Table | Literal["runs"]

_DOCUMENTS_OF_TASK = ("request", "work", "status", "messages", "outcome")


class TaskDocuments(NamedTuple):
    """A task: its version, and all its documents, beginning with its request."""

    id: str
    version: int
    documents: list[Any]


# The columns of a memory that an erasure reads, if nothing is kept of them.
_LOST: dict[str, Any] = dict.fromkeys(("text", "topic", "container"), "") | dict.fromkeys(
    (*record.FACT, "session_id", "agent_id", "tags", "metadata", "extractor")
)
_LOST["erase_epoch"] = 0


class ErasureScan(BoundTable):
    """Reads what an erasure looks at. It works without a shared transaction too."""

    async def relabelled(self, after: int) -> set[str]:
        """Return the texts and memories that were relabelled after the event of this number."""
        return set(await self._column("item_id", "relabelled_after", seq=after))

    async def lost(self, memory_id: str = "") -> dict[str, dict[str, Any]]:
        """Return this memory if its row is lost, or all such memories of which words are kept: each
        as a row with the words that are kept, and the places that it `cited`.
        """
        found: dict[str, dict[str, Any]] = {}
        for row in await self._bound.fetch("kept_of_lost", id=memory_id):
            words, cited, *rest = json.loads(row["answer"] or "[[], []]")
            one = found.setdefault(row["id"], {**_LOST, "id": row["id"], "cited": []})
            one |= dict(zip(record.FIELDS, words, strict=False)) | (rest[0] if rest else {})
            one["cited"] += cited
        return found

    async def count(self, table: Table) -> int:
        return await self._int("rows", f"count_{table}")

    async def ids(self, table: Table) -> list[str]:
        return await self._column("id", f"ids_of_{table}")

    def pages(self, table: Paged, after: str = "") -> AsyncIterator[Sequence[Row]]:
        """Yield all rows after an id, in the order of the ids."""
        return self._pages(f"{table}_to_erase", PAGE, after=after)

    async def rows(self, table: Paged, ids: Collection[str]) -> AsyncIterator[Sequence[Row]]:
        """Yield the rows with these ids, page by page."""
        for some in batches(sorted(ids), PAGE):
            yield await self._bound.fetch(f"{table}_to_erase_by_id", ids=some)

    async def task_versions(self) -> dict[str, int]:
        return {row["id"]: int(row["version"]) for row in await self._bound.fetch("run_versions")}

    async def tasks(self) -> AsyncIterator[TaskDocuments]:
        async for page in self.pages("runs"):
            for task in await self._with_events(page):
                yield task

    async def tasks_of(self, ids: Collection[str]) -> AsyncIterator[list[TaskDocuments]]:
        """Yield these tasks, page by page."""
        async for page in self.rows("runs", ids):
            yield await self._with_events(page)

    async def _with_events(self, page: Sequence[Row]) -> list[TaskDocuments]:
        events = await self._bound.fetch("events_of_runs", ids=sorted(row["id"] for row in page))
        # A task may be large.
        return await asyncio.to_thread(_tasks_of, page, events)

    async def begun(self, task_ids: Collection[str], at: datetime) -> list[str]:
        """Return those of these tasks that existed then."""
        return [row["id"] for row in await self._by_ids("runs_begun", task_ids, at=at)]

    async def rows_before(self, epoch: int) -> dict[str, int]:
        """Return the number of rows from before an erasure, by table."""
        (row,) = await self._bound.fetch("rows_begun", epoch=epoch)
        return {table: int(row[table]) for table in ("memories", "episodes")}

    async def place_of(self, record_id: str) -> int:
        """Return the place of a record in the audit log; 0 if it was cut, with all before it."""
        return await self._first(lambda row: int(row["seq"]), "place_of_record", id=record_id) or 0

    def details(self) -> AsyncIterator[Sequence[Row]]:
        """Yield the details of all audit records, each with the place of its record."""
        return self._pages("audit_details_to_erase", PAGE_OF_LABELS)

    async def jobs(self, after: str) -> Sequence[Row]:
        """Return a page of the jobs that may hold words, each with its text if there is one."""
        return await self._bound.fetch("jobs_to_erase", after=after, limit=PAGE_OF_LABELS)

    def judgements(self) -> AsyncIterator[Sequence[Row]]:
        """Yield the reasons of judges, each with the key of its decision."""
        keys = {"after": "memory_id", "after_id": "question_id"}
        return self._pages("judgements_to_erase", PAGE_OF_LABELS, keys)

    def pushes(self) -> AsyncIterator[Sequence[Row]]:
        """Yield the push configurations, each with its key."""
        keys = {"after": "run_id", "after_id": "id"}
        return self._pages("pushes_to_erase", PAGE_OF_LABELS, keys)

    async def in_container(
        self, table: Table, container: str, *, erasure_id: str, limit: int
    ) -> list[str]:
        """Return the ids of what is in a container; if this erasure has begun, of what was there
        then.
        """
        given = {"container": container, "erasure_id": erasure_id, "limit": limit}
        return await self._column("id", f"{table}_of_container", **given)

    async def up_to(self, episode_ids: Collection[str], rows_max: int) -> list[str]:
        """Return the first of these episodes that have at most `rows_max` rows together, with their
        turns and citations; at least one.
        """
        rows = await self._bound.fetch("rows_of_episodes", ids=sorted(episode_ids))
        return fitting(((row["id"], int(row["rows"]) + 1) for row in rows), rows_max)

    async def size(self, container: str) -> dict[str, int]:
        """Return the number of rows of a container, by table."""
        (row,) = await self._bound.fetch("rows_of_container", container=container)
        return {table: int(row[table]) for table in ("memories", "episodes", "turns")}


def _tasks_of(page: Sequence[Row], events: Sequence[Row]) -> list[TaskDocuments]:
    found = {
        row["id"]: TaskDocuments(
            row["id"],
            int(row["version"]),
            [*(document(row[one]) for one in _DOCUMENTS_OF_TASK), row["context_id"]],
        )
        for row in page
    }
    for event in events:
        documents = (document(event["status"]), document(event["outcome"]))
        found[event["run_id"]].documents.extend(documents)
    return list(found.values())


def _within(places: ErasedPlaces) -> dict[str, Any]:
    """Return the parameters of a query that looks in these places."""
    return {
        "all_topics": places.topics is None,
        "of_topics": list(places.topics or ()),
        "all_containers": places.containers is None,
        "of_containers": list(places.containers or ()),
        "all_agents": places.agents is None,
        "of_agents": list(places.agents or ()),
    }


class Sources(BoundTable):
    """The rows of a source, for its purge. Writing needs an erasing transaction."""

    async def episodes(self, *, episode_id: str, session_id: str, agent_id: str) -> list[str]:
        """Return the ids of the texts of a source; "" stands for any."""
        named = {"episode_id": episode_id, "session_id": session_id, "agent_id": agent_id}
        return await self._column("id", "episodes_of_source", **named)

    async def turns(self, episode_ids: Collection[str]) -> list[Row]:
        """Return the turns of these episodes, each with its id, span and state."""
        return list(await self._by_ids("turns_of_episodes", episode_ids))

    async def given_way(self, memory_ids: Collection[str]) -> dict[str, list[str]]:
        """Return the memories that each of these has superseded."""
        rows = await self._by_ids("superseded_by", memory_ids)
        return grouped((row["superseded_by"], row["id"]) for row in rows)

    async def believe(self, memory_ids: Collection[str], now: datetime) -> None:
        """Make these superseded memories active again, as if nothing had superseded them."""
        await self._bound.send("believe_again", ids=sorted(memory_ids))
        self._bound.note_each(memory_ids, EventKind.RESTORED, now)

    async def relink(self, links: Mapping[str, str], now: datetime) -> None:
        """Set for each memory another one that supersedes it."""
        await self._bound.many(
            "relink_memory", [{"id": one, "by": by} for one, by in links.items()]
        )
        self._bound.note_each(links, EventKind.SUPERSEDED, now)

    async def forget_citations(self, rows: Sequence[Row], now: datetime) -> None:
        place = ("position", "episode_id", "span_start", "span_end")
        dropped = grouped((row["memory_id"], tuple(row[one] for one in place)) for row in rows)
        for memory_id, citations in dropped.items():
            self._bound.note(memory_id, EventKind.UNCITED, now, dropped=sorted(citations))
        await self._bound.many(
            "drop_citation",
            [{"id": row["memory_id"], "position": row["position"]} for row in rows],
        )

    async def recount(self, reinforcements: Mapping[str, int]) -> None:
        """Set how often each memory was reinforced."""
        await self._bound.many(
            "set_reinforcements",
            [{"id": one, "reinforcements": count} for one, count in reinforcements.items()],
        )

    async def quarantine(self, memory_ids: Collection[str], reason: str, now: datetime) -> None:
        """Hide these memories, none of which is in quarantine, from everybody; their rows and
        events stay.
        """
        await self._bound.send("quarantine_memories", ids=sorted(memory_ids), now=now)
        self._bound.note_each(memory_ids, EventKind.QUARANTINED, now, reason=reason)

    async def turns_to_reject(self, episode_ids: Collection[str]) -> Sequence[Row]:
        """Return those turns of these texts that `reject` hides, each with its text and span."""
        return await self._by_ids("turns_to_reject", episode_ids)

    async def reject(self, turns: Sequence[Row], reason: str, by: str, now: datetime) -> None:
        """Hide these turns, as `turns_to_reject` returns them, with the reason; the texts stay."""
        ids = [row["id"] for row in turns]
        await self._bound.send(
            "reject_turns", turns=ids, reasons=Document([reason]), decided_by=by, now=now
        )
        await self._bound.send("hide_turns", ids=ids)
        for row in turns:
            of_text = {"episode_id": row["episode_id"], "reason": reason}
            self._bound.note(row["id"], EventKind.REJECTED, now, **of_text)

    async def forget_events(self, task_id: str, seqs: Collection[int]) -> None:
        if seqs:
            await self._bound.send("forget_run_events", id=task_id, seqs=sorted(seqs))
