"""The tables of disputes, which wait for an answer, and of relations between memories."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from recall_server.domain.memory import Status, before
from recall_server.domain.memory_event import EventKind
from recall_server.domain.relations import Reason, Relation, RelationKind
from recall_server.domain.webhook import WebhookKind
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Row, moment


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
    """Relations between memories."""

    async def add(self, relations: Sequence[Relation]) -> None:
        await self._bound.many("relate", [vars(one) for one in relations])

    async def of_memories(self, ids: Sequence[str], *, limit: int) -> list[Relation]:
        """Return the newest `limit` relations from and to these memories."""
        return [
            Relation(
                row["from_id"],
                row["to_id"],
                RelationKind(row["kind"]),
                Reason(row["reason"]),
                moment(row["made_at"]),
                row["confidence"],
                row["made_by"],
            )
            for row in await self._bound.fetch("relations_of", ids=list(ids), limit=limit)
        ]
