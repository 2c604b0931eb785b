"""The tables of disputes, which wait for an answer, and of relations between memories."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from recall_server.domain.memory import Status, before
from recall_server.domain.memory_event import EventKind, Histories
from recall_server.domain.relations import Reason, Relation, RelationKind
from recall_server.domain.webhook import WebhookKind
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Row, moment
from recall_server.storage.tables.memory_events import MemoryEvents


@dataclass(frozen=True)
class OpenDispute:
    """A dispute: the ids of its new and its existing memories."""

    question_id: str
    new: str
    existing: tuple[str, ...]
    opened_at: datetime


class Disputes(BoundTable):
    """One row for each side of a dispute."""

    async def open(
        self, question_id: str, new: str, existing: Sequence[str], now: datetime
    ) -> bool:
        """Open a dispute and mark its memories. Return False if one is not believed any more."""
        ids = [new, *existing]
        marked = await self._bound.fetch(
            "mark_disputed", ids=ids, before=[*before(Status.DISPUTED), Status.DISPUTED]
        )
        for one in ids:
            self._bound.note(one, EventKind.DISPUTED, now)
        self._bound.tell(WebhookKind.CONFLICT_OPENED, question_id, now)
        await self._bound.many(
            "open_dispute",
            [
                {
                    "question_id": question_id,
                    "memory_id": one,
                    "side": "new" if one == new else "existing",
                    "now": now,
                }
                for one in ids
            ],
        )
        return len(marked) == len(ids)

    async def close(self, question_id: str, now: datetime) -> bool:
        """End a dispute. Return False if it is not open."""
        rows = await self._bound.fetch("close_dispute", question_id=question_id, now=now)
        if rows:
            self._bound.tell(WebhookKind.CONFLICT_SETTLED, question_id, now)
            ids = [row["memory_id"] for row in rows]
            for row in await self._bound.fetch("believe_undisputed", ids=ids):
                self._bound.note(row["id"], EventKind.SETTLED, now)
        return bool(rows)

    async def withdraw(self, memory_id: str, opened_at: datetime, now: datetime) -> None:
        """Close the disputes of a memory that were opened at this moment, to undo them."""
        await self._bound.send(
            "withdraw_disputes", memory_id=memory_id, opened_at=opened_at, now=now
        )

    async def withdraw_of(self, memory_ids: Sequence[str], now: datetime) -> None:
        """Close the open disputes of memories that are disputed no more."""
        await self._bound.send("withdraw_disputes_of", ids=list(memory_ids), now=now)

    async def reopen(self, memory_id: str, closed_at: datetime) -> None:
        """Reopen the disputes of a memory that were closed at this moment."""
        await self._bound.send("reopen_disputes", memory_id=memory_id, closed_at=closed_at)

    async def get(self, question_id: str) -> OpenDispute | None:
        """Return the open dispute of this id."""
        found = _disputes(await self._bound.fetch("dispute", question_id=question_id))
        return found[0] if found else None

    async def sides(self, question_id: str) -> list[tuple[str, str]]:
        """Return the memories of a dispute, open or settled, each with its side."""
        rows = await self._bound.fetch("sides_of_dispute", question_id=question_id)
        return [(row["memory_id"], row["side"]) for row in rows]

    async def page(self, *, limit: int, offset: int) -> list[OpenDispute]:
        """Return a page of the open disputes, the longest waiting first."""
        return _disputes(await self._bound.fetch("open_disputes", limit=limit, offset=offset))

    async def ended(self) -> list[str]:
        """Return the open disputes of which one whole side is not believed any more."""
        return [row["question_id"] for row in await self._bound.fetch("ended_disputes")]

    async def members(self, question_id: str) -> list[str]:
        """Return the memories that a dispute, open or settled, is about."""
        rows = await self._bound.fetch("dispute_members", question_id=question_id)
        return [row["memory_id"] for row in rows]

    async def answer(self, question_id: str) -> tuple[str, datetime] | None:
        """Return who answered a dispute, and when; None if nobody did."""
        rows = await self._bound.fetch("answer_given", question_id=question_id)
        return (rows[0]["decided_by"], moment(rows[0]["decided_at"])) if rows else None

    async def others(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the memories that contradict each of these in open disputes."""
        found: dict[str, list[str]] = {}
        for row in await self._bound.fetch("disputed_with", ids=list(ids)):
            found.setdefault(row["memory_id"], []).append(row["other_id"])
        return found


def _disputes(rows: Sequence[Row]) -> list[OpenDispute]:
    sides: dict[str, list[Row]] = {}
    for row in rows:
        sides.setdefault(row["question_id"], []).append(row)
    found = []
    for question_id, of_one in sides.items():
        new = [row["memory_id"] for row in of_one if row["side"] == "new"]
        existing = tuple(row["memory_id"] for row in of_one if row["side"] == "existing")
        if new and existing:
            opened_at = moment(of_one[0]["opened_at"])
            found.append(OpenDispute(question_id, new[0], existing, opened_at))
    return found


class Relations(BoundTable):
    """Relations between memories. A row stays when its change is undone: the events tell whether
    the relation stands.
    """

    async def add(self, relations: Sequence[Relation], new: Collection[str] = ()) -> None:
        """State relations, except those that stand already. Each has an event at both ends, unless
        one end is a `new` memory of this change: the relation then depends on that memory.
        """
        between = [one for one in relations if one.from_id not in new and one.to_id not in new]
        stand = {_key(one) for one in await self._between(between)} if between else set()
        stated = [one for one in relations if _key(one) not in stand]
        for one in stated:
            if one in between:
                self._bound.note(one.from_id, EventKind.RELATED, one.made_at, reason=one.kind)
                self._bound.note(one.to_id, EventKind.RELATED, one.made_at, reason=one.inbound)
        await self._bound.many("relate", [vars(one) for one in stated])

    async def _between(self, relations: Sequence[Relation]) -> list[Relation]:
        """Return the relations that stand already between the ends of these."""
        from_ids, to_ids = {one.from_id for one in relations}, {one.to_id for one in relations}
        rows = await self._bound.fetch(
            "relations_between", from_ids=sorted(from_ids), to_ids=sorted(to_ids)
        )
        return await self.standing([_relation(row) for row in rows])

    async def of_memories(self, ids: Sequence[str], *, limit: int) -> list[Relation]:
        """Return those of the newest `limit` relations from and to these memories that stand at the
        moment that is read.
        """
        rows = await self._bound.fetch("relations_of", ids=list(ids), limit=limit)
        return await self.standing([_relation(row) for row in rows])

    async def standing_rows(self, rows: Sequence[Row]) -> list[Row]:
        """Return the rows of the relations that stand."""
        stand = {_key(one) for one in await self.standing([_relation(row) for row in rows])}
        return [row for row in rows if _key(_relation(row)) in stand]

    async def standing(self, relations: Sequence[Relation]) -> list[Relation]:
        """Return those of these relations that stand at the moment that is read."""
        ends = {end for one in relations for end in (one.from_id, one.to_id)}
        histories = Histories(await MemoryEvents(self._bound).related(ends))
        known_at = self._bound.past.known_at
        return [
            one
            for one in (one.standing(histories) for one in relations)
            if one and (known_at is None or one.made_at <= known_at)
        ]

    def undone(self, memory_ids: Sequence[str], change_id: str, now: datetime) -> None:
        """Note that a change was undone that only stated relations of these memories."""
        for one in memory_ids:
            self._bound.note(one, EventKind.UNDONE, now, reason=change_id)


def _key(one: Relation) -> tuple[str, str, RelationKind]:
    return one.from_id, one.to_id, one.kind


def _relation(row: Row) -> Relation:
    return Relation(
        row["from_id"],
        row["to_id"],
        RelationKind(row["kind"]),
        Reason(row["reason"]),
        moment(row["made_at"]),
        row["confidence"],
        row["made_by"],
    )
