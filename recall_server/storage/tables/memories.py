"""The tables of memories and of their citations; and the rows of a memory to be added, which
need no database.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import chain
from typing import Any, Self

from recall_server.domain import record
from recall_server.domain.attributes import normal_attribute, normal_entity, value_key
from recall_server.domain.episode import Citation, Source
from recall_server.domain.errors import Stale
from recall_server.domain.memory import (
    BELIEVED,
    FINDABLE,
    TRANSITIONS,
    UNSEEN,
    Memory,
    MemoryType,
    Place,
    Status,
    before,
    oldest_first,
)
from recall_server.domain.memory_event import EventKind, MemoryState, Reversal
from recall_server.domain.moments import PRESENT, passed
from recall_server.domain.permissions import EARLIEST, LATEST
from recall_server.domain.plan import Reinforce
from recall_server.domain.query import Item
from recall_server.domain.record import Recorded
from recall_server.domain.trust import Repetition, Witness, least_trusted
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import (
    Document,
    Row,
    apart,
    cited,
    fact,
    grouped,
    moment,
    reader,
    span,
)
from recall_server.storage.tables.access import label_bytes
from recall_server.storage.tables.episodes import (
    Episodes,
    labels_of,
    memory_item,
    metadata,
    passages_of,
    tags,
    true_at,
)

_NO_FACT = {"entity": None, "attribute": None, "value": None, "negated": False}


@dataclass(frozen=True)
class NewMemory:
    """The rows of a memory to be added, and what its event records of it. It may be computed ahead
    of the transaction.
    """

    row: Mapping[str, Any]
    citations: Sequence[Mapping[str, Any]]
    recorded: Recorded
    reason: str

    @classmethod
    def made_of(cls, memory: Memory, reason: str = "", also: Iterable[Citation] = ()) -> Self:
        """`also`: further citations."""
        known, source = memory.fact, memory.source
        row: dict[str, Any] = {
            **vars(memory),
            **(vars(known) if known else _NO_FACT),
            **keys_of(*((known.entity, known.attribute, known.value) if known else (None,) * 3)),
            "session_id": source.session_id,
            "agent_id": source.agent_id,
            **labels_of(source),
        }
        row["stored_bytes"] = label_bytes(row)
        citations = [memory.citation, *also]
        recorded = Recorded()
        recorded.add(row)
        recorded.citations += map(record.cited, citations)
        cites = [{"memory_id": memory.id, **cited(one)} for one in citations]
        return cls(row, cites, recorded, reason)

    @property
    def id(self) -> str:
        return str(self.row["id"])

    def dated(self, memory: Memory) -> Self:
        """Return the rows with the dates of this memory, which is the same one."""
        dates = {"recorded_at": memory.recorded_at, "retired_at": memory.retired_at}
        return replace(self, row={**self.row, **dates})


def keys_of(entity: str | None, attribute: str | None, value: str | None) -> dict[str, str | None]:
    """Return the columns by which facts are found: none without a fact."""
    return {
        "entity_key": None if entity is None else normal_entity(entity),
        "attribute_key": None if attribute is None else normal_attribute(attribute),
        "value_key": None if value is None else value_key(value),
    }


# How many active memories one claim is compared with, of its value or of its attribute.
RELATED_MAX = 200
LINEAGE_DEPTH = 100
# How many successors of memories are read: those of one attribute that changes daily for years.
SUCCESSORS_MAX = 1_000


class Memories(BoundTable):
    """Only bookkeeping columns of rows change (access, reinforcement, retirement), never texts.
    Each change except an access is a memory event.
    """

    async def add(self, memory: Memory, reason: str = "") -> None:
        await self.add_each([NewMemory.made_of(memory, reason)])

    async def add_each(self, added: Sequence[NewMemory]) -> None:
        """Add memories with their citations."""
        await self._bound.many("add_memories", [one.row for one in added])
        await self._bound.many("add_citation", [row for one in added for row in one.citations])
        for one in added:
            self._bound.recorded[one.id] = one.recorded.copy()
            self._bound.note(one.id, EventKind.ADDED, one.row["recorded_at"], reason=one.reason)

    async def cite(self, memory_id: str, citation: Citation) -> None:
        await self._cite([(memory_id, citation)])

    async def _cite(self, cites: Sequence[tuple[str, Citation]]) -> None:
        for memory_id, citation in cites:
            self._bound.record(memory_id).citations.append(record.cited(citation))
        rows = [{"memory_id": memory_id, **cited(citation)} for memory_id, citation in cites]
        await self._bound.many("add_citation", rows)

    async def citations(self, ids: Sequence[str]) -> list[Citation]:
        """Return all citations of these memories, in the order of the ids."""
        rows = await self._by_ids("citations", ids)
        order = {memory_id: place for place, memory_id in enumerate(ids)}
        rows = sorted(rows, key=lambda row: (order[row["memory_id"]], row["position"]))
        return [Citation(row["episode_id"], span(row)) for row in rows]

    async def reinforce(self, changes: Sequence[Reinforce], now: datetime) -> None:
        """Make these changes. Raises `Stale` if a memory is not in the expected state."""
        given: dict[tuple[str, bool], tuple[int, datetime | None]] = {}
        for one in changes:
            key = one.memory_id, one.superseded
            more, until = given.get(key, (0, EARLIEST))
            given[key] = more + one.counts, until and one.until and max(until, one.until)
        await self._reinforce(
            [
                [memory_id, more, until and until.isoformat(timespec="microseconds"), superseded]
                for (memory_id, superseded), (more, until) in given.items()
            ]
        )
        if expiring := {one.memory_id for one in changes if one.until is not None}:
            # Filters that searches hold in memory go by the expiry.
            await self._bound.send("next_index_version")
            await self._bound.send("relabel_documents", ids=sorted(expiring))
        cites = [(one.memory_id, one.citation) for one in changes if one.citation is not None]
        await self._cite(cites)
        for one in changes:
            self._bound.note(one.memory_id, EventKind.REINFORCED, now)

    async def _reinforce(self, given: Sequence[list[Any]]) -> None:
        statement = {"given": Document(given)}
        if len(given) == 1:
            await self._bound.expect("reinforce_memories", Stale, **statement)
        elif len(await self._bound.fetch("reinforce_memories", **statement)) < len(given):
            raise Stale

    async def repetitions(self, ids: Sequence[str]) -> list[tuple[str, Repetition]]:
        """Return the citations of these memories after the first, in the order in which their words
        were said, each with the id of its memory.
        """
        rows = await self._bound.fetch("repetitions", ids=list(ids))
        return [(row["memory_id"], _repetition(row)) for row in rows]

    async def witnesses(self, ids: Sequence[str]) -> dict[str, list[Witness]]:
        """Return the witnesses of each of these memories, in the order of its citations. For words
        of several speakers it is the least trusted one.
        """
        rows = await self._bound.fetch("witnesses", ids=list(ids))
        return await apart(len(rows) > RELATED_MAX, _witnesses, rows)

    async def retire(
        self,
        ids: Sequence[str],
        status: Status,
        now: datetime,
        *,
        superseded_by: str | None = None,
        valid_until: datetime | None = None,
        reason: str = "",
    ) -> None:
        """Retire active memories. Raises `Stale` if one is not active."""
        ends = {"now": now, "superseded_by": superseded_by, "valid_until": valid_until}
        given = {"ids": ids, "status": status, "before": before(status), **ends}
        if len(ids) == 1:
            await self._bound.expect("retire_memories", Stale, **given)
        elif len(await self._bound.fetch("retire_memories", **given)) < len(ids):
            raise Stale
        self._bound.note_each(ids, EventKind(status), now, reason=reason)

    async def end_earlier(
        self, memory_id: str, by: str, valid_until: datetime, now: datetime, *, reason: str
    ) -> bool:
        """Let `by` take the place of a superseded memory from an earlier moment on. Return False if
        it is not superseded, or ended before.
        """
        if not await self._bound.touched(
            "end_memory_earlier", id=memory_id, by=by, valid_until=valid_until
        ):
            return False
        self._bound.note(memory_id, EventKind.SUPERSEDED, now, reason=reason)
        return True

    async def to_expire(self, episode_id: str, now: datetime, limit: int) -> list[str]:
        """Return the ids of memories that cite this text and whose time is over."""
        given = {"episode_id": episode_id, "before": before(Status.EXPIRED), "limit": limit}
        return await self._column("id", "memories_to_expire", now=now, **given)

    async def expire(self, ids: Sequence[str], now: datetime) -> None:
        """Expire memories whose time is over."""
        await self._bound.send("expire_memories", ids=ids, now=now)
        self._bound.note_each(ids, EventKind.EXPIRED, now)

    async def forget(self, ids: Sequence[str], now: datetime) -> None:
        """Forget memories. Raises `Stale` if the states of all of them do not allow it."""
        given = {"ids": ids, "now": now, "before": before(Status.FORGOTTEN)}
        await self._bound.expect("forget_memories", Stale, **given)
        self._bound.note_each(ids, EventKind.FORGOTTEN, now)

    async def restore(self, memory: Memory, now: datetime) -> None:
        """Set a forgotten or quarantined memory to this state. Raises `Stale` if it is neither."""
        assert memory.status in TRANSITIONS[Status.FORGOTTEN]
        await self._bound.expect(
            "restore_memory",
            Stale,
            id=memory.id,
            status=memory.status,
            retired_at=memory.retired_at,
            superseded_by=memory.superseded_by,
            valid_until=memory.valid_until,
        )
        self._bound.note(memory.id, EventKind.RESTORED, now)

    async def undo(self, change_id: str, reversals: Sequence[Reversal], now: datetime) -> None:
        """Set memories to their states before a change, with the citations that it removed.
        Memories that the change added become forgotten, with their citations.
        """
        states = {one.memory_id: one.state for one in reversals if one.state is not None}
        if added := [one.memory_id for one in reversals if one.state is None]:
            await self._bound.send("undo_added_memories", ids=added, now=now)
        await self.mend(states)
        lost: dict[str, list[tuple[int, str, int, int]]] = {}
        citing = {one.memory_id for one in reversals if one.cited}
        if kept := {one: state.citations for one, state in states.items() if one in citing}:
            taken = {
                "kept": Document(kept),
                "places": [f"{one.memory_id} {at}" for one in reversals for at in one.returned],
            }
            rows = await self._bound.fetch("undo_citations", ids=sorted(kept), **taken)
            for memory_id, *citation in sorted(tuple(dict(row).values()) for row in rows):
                lost.setdefault(memory_id, []).append(tuple(citation))
        await self._bound.many(
            "undo_dropped_citation",
            [
                {"id": memory_id, "position": position, **cited(one)}
                for memory_id, _, dropped, *_ in reversals
                for position, one in dropped
            ],
        )
        for memory_id, *_ in reversals:
            self._bound.note(
                memory_id, EventKind.UNDONE, now, reason=change_id, dropped=lost.get(memory_id)
            )

    async def states_then(self, ids: Sequence[str]) -> dict[str, MemoryState]:
        """Return the states of those of these memories that existed at the requested moment."""
        return {row["item_id"]: state_of(row) for row in await self._by_ids("states_at", ids)}

    async def mend(self, states: Mapping[str, MemoryState]) -> None:
        """Set memories to these states, whatever their states are."""
        if states:
            rows = [_row(one, state) for one, state in states.items()]
            await self._bound.send("undo_memories", states=Document(rows))

    async def about(self, entity: str, attribute: str) -> list[Memory]:
        """Return the newest active memories of an attribute of an entity, at most `RELATED_MAX`."""
        return await self._all(
            _memory,
            "memories_about",
            entity_key=normal_entity(entity),
            attribute_key=normal_attribute(attribute),
            limit=RELATED_MAX,
        )

    async def of_fact(
        self, names: Collection[str], attribute: str, limit: int
    ) -> tuple[list[Memory], bool]:
        """Return the memories of one attribute of a subject, given its normal names, that are not
        forgotten or quarantined, newest first, as of the requested moment; and if there are more.
        """
        given = {"attribute_key": normal_attribute(attribute), "limit": limit + 1}
        found = [
            await self._bound.fetch("memories_of_fact", entity_key=one, **given) for one in names
        ]
        rows = sorted(
            chain(*found), key=lambda row: (moment(row["recorded_at"]), row["id"]), reverse=True
        )
        then = await self._as_then({row["id"]: _memory(row) for row in rows[:limit]})
        return [one for one in then.values() if one.status not in UNSEEN], len(rows) > limit

    async def of_value(self, entity: str, value: str) -> list[Memory]:
        """Return the newest active memories of one entity that may have this value (see
        `value_key`), of any attribute, at most `RELATED_MAX`.
        """
        return await self._all(
            _memory,
            "memories_of_value",
            entity_key=normal_entity(entity),
            value_key=value_key(value),
            limit=RELATED_MAX,
        )

    async def with_terms(self, shared: Mapping[int, int], limit: int) -> list[Memory]:
        """Return the believed memories that share the most terms, with their citations. `shared`:
        how many of the terms each entry of the index has, by slot.
        """
        rows = await self._bound.fetch(
            "memories_with_terms", shared=Document(dict(shared)), limit=limit
        )
        found = await self.get([row["id"] for row in rows])
        return [found[row["id"]] for row in rows]

    async def of_episode(self, episode_id: str) -> list[Memory]:
        """Return the active memories whose first citation is in an episode."""
        return await self._all(_memory, "memories_of_episode", episode_id=episode_id)

    async def of_episode_alone(self, episode_id: str, limit: int) -> list[str]:
        """Return the ids of active memories that no other text than this one states."""
        query = "memories_of_episode_alone"
        return await self._column("id", query, episode_id=episode_id, limit=limit)

    async def of_topic(self, topic: str, limit: int) -> list[str]:
        """Return the ids of the oldest active memories of a topic."""
        return await self._column("id", "memories_of_topic", topic=topic, limit=limit)

    async def get(self, ids: Sequence[str], *, quoted: bool = True) -> dict[str, Memory]:
        """Return memories in any state, as of the requested moment, with what they cite first: also
        with its words and its speaker if `quoted`.
        """
        query = "memories_by_id" if quoted else "memories_by_id_unquoted"
        rows = await self._bound.fetch(query, ids=list(ids))
        return await self._as_then({one.id: one for one in await _made(rows)})

    async def active(self, ids: Sequence[str]) -> list[Memory]:
        return await _made(await self._bound.fetch("active_memories", ids=list(ids)))

    async def believed(self, after: str, limit: int) -> list[Memory]:
        """Return a page of the believed memories that do not expire, in the order of their ids."""
        return await self._all(_memory, "believed_memories", after=after, limit=limit)

    async def found(self, ids: Sequence[str]) -> list[Memory]:
        """Return the memories among `ids` that search can find (`FINDABLE`), without quotes."""
        every = (await self.get(ids, quoted=False)).values()
        return [one for one in every if one.status in FINDABLE]

    async def texts(self, ids: Sequence[str]) -> dict[str, str]:
        """Return the texts of the active memories among `ids`."""
        return {row["id"]: row["text"] for row in await self._by_ids("active_texts", ids)}

    async def beginnings(self, ids: Iterable[str], chars: int) -> dict[str, str]:
        """Return the first `chars` characters of the memories among `ids` that lists show."""
        rows = await self._by_ids("beginnings_of_texts", ids, chars=chars, unseen=sorted(UNSEEN))
        return {row["id"]: row["text"] for row in rows}

    async def items(self, ids: Sequence[str]) -> list[Item]:
        """Return the memories and passages among `ids` that search finds, in this order."""
        past = self._bound.past
        superseded = "superseded_words_at" if past.known_at else "superseded_words"
        passages = [one for one in ids if not one.startswith("mem_")]
        memories = [one for one in ids if one.startswith("mem_")]
        asked = {"memory_items": memories, "passage_items": passages, superseded: passages}
        given = {query: {"ids": sorted(some)} for query, some in asked.items() if some}
        rows = await self._bound.fetch_each(given) if given else {}
        of_memories, of_passages = rows.get("memory_items", ()), rows.get("passage_items", ())
        forgotten = await Episodes(self._bound).forgotten_in([*of_memories, *of_passages])
        found = {
            row["id"]: memory_item(row, forgotten.get(row["episode_id"], ())) for row in of_memories
        }
        if past.known_at:
            states = await self.states_then(list(found))
            found = {
                one: item._replace(
                    disputed=states[one].status is Status.DISPUTED,
                    **{name: getattr(states[one], name) for name in _ENDS},
                )
                for one, item in found.items()
                if _findable(states.get(one), past.known_at)
            }
        if of_passages:
            found |= passages_of(of_passages, forgotten, rows.get(superseded, ()))
        return true_at([found[one] for one in ids if one in found], past.as_of)

    async def page(
        self, *, limit: int, offset: int, type_: str, topic: str, after: Place | None = None
    ) -> list[Memory]:
        """Return a page of the active memories, newest first, or those that follow `after`; ""
        stands for any type or topic.
        """
        given = {"limit": limit, "offset": offset, "type": type_, "topic": topic}
        return await self._all(_memory, "page_of_memories", **given, **_after(after))

    async def counts(self, *, type_: str = "", topic: str = "") -> Mapping[MemoryType, int]:
        """Return the number of active memories of each type."""
        return _by_type(await self._bound.fetch("count_of_memories", type=type_, topic=topic))

    async def by_status(self) -> Mapping[Status, int]:
        """Return the number of memories in each state, as of the requested moment. This reads all
        of them.
        """
        if self._bound.past == PRESENT:
            rows = await self._bound.fetch("count_by_status")
        else:
            given = self._then() | {"statuses": sorted(Status)}
            rows = await self._bound.fetch("count_by_status_then", **given)
        return {Status(row["status"]): int(row["memories"]) for row in rows}

    async def page_then(
        self, *, limit: int, offset: int, after: Place | None, **only: Any
    ) -> list[Memory]:
        """Return a page of the memories in a state, or of the believed ones, as of the requested
        moment. `only`: as for `counts_then`.
        """
        then = self._then(**only)
        ids = await self._column(
            "id", "page_then", limit=limit, offset=offset, **_after(after), **then
        )
        found = await self.get(ids)
        return [found[one] for one in ids]

    async def expired(self, limit: int) -> list[Memory]:
        """Return the memories that have expired, newest first."""
        return await self._all(_memory, "expired_memories", limit=limit)

    async def counts_then(self, **only: Any) -> Mapping[MemoryType, int]:
        """Return the number of memories of each type as of the requested moment, limited by
        `status` (with `include_expired` the expired ones too), `type_`, `topic` or `unreconciled`.
        """
        return _by_type(await self._bound.fetch("counts_then", **self._then(**only)))

    def _then(
        self,
        *,
        status: Status | None = None,
        type_: str = "",
        topic: str = "",
        unreconciled: bool = False,
        include_expired: bool = False,
    ) -> dict[str, Any]:
        as_of = self._bound.past.as_of
        believed = BELIEVED if as_of is None else FINDABLE
        statuses = {status} if status else set(believed)
        if include_expired:
            statuses.add(Status.EXPIRED)
        return {
            "type": type_,
            "topic": topic,
            "statuses": sorted(statuses),
            "unreconciled": unreconciled,
            "any_truth": as_of is None,
            "true_at": as_of or LATEST,
        }

    async def _as_then(self, found: dict[str, Memory]) -> dict[str, Memory]:
        """Return those that existed at the requested moment, in the states that they had then."""
        if self._bound.past.known_at is None:
            return found
        states = await self.states_then(list(found))
        return {
            one: replace(memory, **states[one].fields())
            for one, memory in found.items()
            if one in states
        }

    async def lineage(self, memory_id: str) -> list[Memory]:
        """Return the memory with those that it superseded and those that superseded it, each before
        its successor, ordered by when they began to hold. Memories outside the access scope or in
        quarantine are left out; if the memory itself is one, the list is empty.
        """
        query = "lineage_at" if self._bound.past.known_at else "lineage"
        ids = await self._column("id", query, ids=[memory_id], depth=LINEAGE_DEPTH)
        found = (await self.get(ids)).items()
        chain = {i: one for i, one in found if one.status is not Status.QUARANTINED}
        if memory_id not in chain:
            return []
        return oldest_first(chain)

    async def successors(
        self, ids: Collection[str], *, before: datetime | None = None
    ) -> dict[str, str | None]:
        """Return for each of these memories, and of those that superseded them, directly or not,
        the id of the one that superseded it: of those that search finds as of the requested
        moments and that began to hold before `before`. At most `SUCCESSORS_MAX`.
        """
        if not ids:
            return {}
        past = self._bound.past
        rows = await self._bound.fetch(
            "successors_at" if past.known_at else "successors",
            ids=sorted(ids),
            any_truth=past.as_of is None,
            true_at=past.as_of or LATEST,
            before=before or LATEST,
            limit=SUCCESSORS_MAX,
        )
        return {row["id"]: row["superseded_by"] for row in rows}


_ENDS = ("superseded_by", "valid_until", "expires_at")


def _by_type(rows: Iterable[Row]) -> dict[MemoryType, int]:
    return {MemoryType(row["type"]): int(row["memories"]) for row in rows}


def _row(memory_id: str, state: MemoryState) -> list[Any]:
    """Return a state as a part of a query parameter."""
    moments = (state.retired_at, state.valid_until, state.expires_at)
    retired_at, valid_until, expires_at = (
        at and at.isoformat(timespec="microseconds") for at in moments
    )
    ended = (state.status, retired_at, state.superseded_by, valid_until, expires_at)
    return [memory_id, *ended, state.confidence, state.reinforcements]


def _findable(state: MemoryState | None, at: datetime) -> bool:
    """Return whether search finds a memory in this state at a moment."""
    if state is None or state.status not in FINDABLE:
        return False
    return not passed(state.expires_at, at)


state_of = reader(MemoryState, citations=lambda row: row["citations"] or 0)
"""Returns the state in the columns of a memory or an event."""


def _witness(row: Row) -> Witness:
    said = (row["episode_id"], span(row), row["speaker"])
    return Witness(*said, row["session_id"], row["agent_id"])


def _witnesses(rows: Sequence[Row]) -> dict[str, list[Witness]]:
    spoken = grouped(((row["memory_id"], row["position"]), _witness(row)) for row in rows)
    return grouped((i, least_trusted(said)) for (i, _), said in sorted(spoken.items()))


def _repetition(row: Row) -> Repetition:
    said_at = moment(row["said_at"])
    cited = Citation(row["episode_id"], span(row), row["quote"], row["speaker"], said_at)
    source = (row["session_id"], row["agent_id"])
    return Repetition(cited, said_at, Witness(cited.episode_id, cited.span, cited.speaker, *source))


async def _made(rows: Sequence[Row]) -> list[Memory]:
    """Return the memories of rows. Thousands are made beside the event loop."""
    return await apart(len(rows) > RELATED_MAX, lambda: [_memory(row) for row in rows])


def _cited(row: Row) -> Citation:
    words = row.get("quote", ""), row.get("speaker")
    return Citation(row["episode_id"], span(row), *words, moment(row["said_at"]))


def _labels(row: Row) -> Source:
    return Source(row["session_id"], row["agent_id"], tags=tags(row), metadata=metadata(row))


_memory = reader(
    Memory,
    citation=_cited,
    fact=fact,
    source=_labels,
    unreconciled=lambda row: bool(row.get("unreconciled")),
)


def _after(place: Place | None) -> dict[str, Any]:
    return {"after_at": place and place.recorded_at, "after_id": place.id if place else ""}
