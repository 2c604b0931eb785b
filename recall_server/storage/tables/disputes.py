"""The tables of what waits for an answer: disputes, proposals, and turns in quarantine; of
decisions about memories, and of relations between them.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import groupby

from recall_server.domain.audit import OPERATOR
from recall_server.domain.episode import Citation, episode_of
from recall_server.domain.memory import Status, before
from recall_server.domain.memory_event import EventKind, Histories, MemoryEvent
from recall_server.domain.plan import Decision, Proposal, Relation, RelationKind, Resolution
from recall_server.domain.screening import Decided, Held, Place, Suspect
from recall_server.domain.webhook import WebhookKind
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import (
    Document,
    Row,
    grouped,
    moment,
    moment_or_none,
    reader,
    span,
)
from recall_server.storage.tables.memory_events import MemoryEvents

# How many decisions are read: a trusted memory may have one for each claim against it.
DECISIONS_MAX = 500


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
        self._bound.note_each(ids, EventKind.DISPUTED, now, reason=question_id)
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
        ids = await self._column("memory_id", "close_dispute", question_id=question_id, now=now)
        if ids:
            self._bound.tell(WebhookKind.CONFLICT_SETTLED, question_id, now)
            await self._bound.send("believe_undisputed", ids=ids)
            self._bound.note_each(ids, EventKind.SETTLED, now, reason=question_id)
        return bool(ids)

    async def undo(self, disputes: Mapping[str, bool], now: datetime) -> None:
        """Close those of these disputes that were opened (True), and reopen those that ended. The
        states of their memories are undone with the memories.
        """
        opened = [one for one, was_opened in disputes.items() if was_opened]
        ended = [one for one, was_opened in disputes.items() if not was_opened]
        if opened:
            await self._bound.send("withdraw_disputes", ids=opened, now=now)
        if ended:
            await self._bound.send("reopen_disputes", ids=ended)

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
        return await self._column("question_id", "ended_disputes")

    async def others(self, ids: Sequence[str]) -> dict[str, list[str]]:
        """Return the memories that contradict each of these in disputes that are open at the moment
        that is read.
        """
        rows = await self._bound.fetch("disputed_with", ids=list(ids))
        if self._bound.past.known_at is not None:
            sides = {row[side] for row in rows for side in ("memory_id", "other_id")}
            histories = Histories(await MemoryEvents(self._bound).related(sides))
            opened = {one: histories.open_disputes(one) for one in sides}
            rows = [
                row
                for row in rows
                if row["question_id"] in opened[row["memory_id"]] & opened[row["other_id"]]
            ]
        found: dict[str, dict[str, None]] = {}
        for row in rows:
            found.setdefault(row["memory_id"], {})[row["other_id"]] = None
        return {one: list(others) for one, others in found.items()}


class Decisions(BoundTable):
    """One row for each memory that a decision was about."""

    async def add(self, decision: Decision) -> None:
        """Store a decision with each memory that it was about."""
        made = vars(decision.resolution)
        await self._bound.many(
            "add_decision", [{**made, "memory_id": one} for one in decision.memory_ids]
        )

    async def of_memories(self, ids: Sequence[str]) -> dict[str, list[Resolution]]:
        """Return the last `DECISIONS_MAX` decisions about these memories, by memory, each oldest
        first.
        """
        rows = await self._bound.fetch("decisions", ids=list(ids), limit=DECISIONS_MAX)
        return grouped((row["memory_id"], _resolution(row)) for row in reversed(rows))

    async def answers(self, disputes: Collection[str]) -> dict[str, Resolution]:
        """Return the answers that were given to these disputes, by their ids."""
        rows = await self._by_ids("answers_given", disputes)
        return {row["question_id"]: _resolution(row) for row in rows}


_resolution = reader(
    Resolution, text=lambda _: None, reason="judge_reason", confidence="judge_confidence"
)


def _disputes(rows: Sequence[Row]) -> list[OpenDispute]:
    sides = grouped((row["question_id"], row) for row in rows)
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
            # With the event of the memory that it depends on, or of the one that it is from.
            event = one.from_id if one in between or one.from_id in new else one.to_id
            self._bound.record(event).relations.append(
                [*_key(one), one.reason, one.confidence, one.made_by, one.made_at.isoformat()]
            )
            if one in between:
                self._bound.note(one.from_id, EventKind.RELATED, one.made_at, reason=one.kind)
                self._bound.note(one.to_id, EventKind.RELATED, one.made_at, reason=one.inbound)
        await self._bound.many("relate", [vars(one) for one in stated])

    async def _between(self, relations: Sequence[Relation]) -> list[Relation]:
        """Return the relations that stand already between the ends of these."""
        from_ids, to_ids = {one.from_id for one in relations}, {one.to_id for one in relations}
        ends = {"from_ids": sorted(from_ids), "to_ids": sorted(to_ids)}
        return await self.standing(await self._all(_relation, "relations_between", **ends))

    async def of_memories(self, ids: Sequence[str], *, limit: int) -> list[Relation]:
        """Return those of the newest `limit` relations from and to these memories that stand at the
        moment that is read.
        """
        found = await self._all(_relation, "relations_of", ids=list(ids), limit=limit)
        return await self.standing(found)

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
        self._bound.note_each(memory_ids, EventKind.UNDONE, now, reason=change_id)


def _key(one: Relation) -> tuple[str, str, RelationKind]:
    return one.from_id, one.to_id, one.kind


_relation = reader(Relation)


class Proposals(BoundTable):
    """One row for each memory that a proposal is about."""

    async def open(self, proposal: Proposal) -> None:
        sides = {**dict.fromkeys(proposal.targets, "target"), **dict.fromkeys(proposal.new, "new")}
        await self._bound.many(
            "open_proposal",
            [{**vars(proposal), "memory_id": one, "side": side} for one, side in sides.items()],
        )

    async def close(self, proposal_id: str, choice: str, by: str, now: datetime) -> bool:
        """Answer a proposal. Return False if it is not open."""
        return await self._bound.touched(
            "close_proposal", id=proposal_id, choice=choice, decided_by=by, now=now
        )

    async def edit(self, proposal_id: str, by: str, now: datetime) -> bool:
        """Answer a proposal with other words. Return False if it is not open. The memories that it
        would have added stay as they are: their events tell an undo to reopen it.
        """
        if proposal := await self.get(proposal_id):
            self._bound.note_each(proposal.new, EventKind.SETTLED, now, reason=proposal_id)
        return await self.close(proposal_id, "edit", by, now)

    async def withdraw(self, memory_ids: Sequence[str], now: datetime) -> None:
        """Close, without an answer, the open proposals that would add these memories."""
        await self._bound.send("withdraw_proposals", ids=memory_ids, now=now)

    async def withdraw_text(self, episode_id: str, now: datetime) -> None:
        """Close, without an answer, the open proposals whose new memories cite a text."""
        await self._bound.send("withdraw_proposals_of_text", episode_id=episode_id, now=now)

    async def closed_about(self, memory_ids: Collection[str]) -> list[tuple[str, datetime]]:
        """Return those of these memories that closed proposals are about, each with the moment of
        closing.
        """
        rows = await self._bound.fetch("closed_proposals_about", ids=sorted(memory_ids))
        return [(row["memory_id"], moment(row["closed_at"])) for row in rows]

    async def reopen(self, memory_id: str, closed_at: datetime) -> None:
        """Reopen the proposals about a memory that were closed at this moment."""
        await self._bound.send("reopen_proposals", memory_id=memory_id, closed_at=closed_at)

    async def close_reopened(self, memory_ids: Sequence[str], now: datetime) -> None:
        """Close with their earlier answer the proposals about these memories that an undo has
        reopened.
        """
        await self._bound.send("close_reopened_proposals", ids=memory_ids, now=now)

    async def get(self, proposal_id: str) -> Proposal | None:
        found = _proposals(await self._bound.fetch("proposal", id=proposal_id))
        return found[0] if found else None

    async def forgetting(self, memory_id: str) -> Proposal | None:
        """Return an open proposal to forget a memory."""
        rows = await self._bound.fetch("open_proposal_to_forget", memory_id=memory_id)
        return await self.get(rows[0]["id"]) if rows else None

    async def page(self, *, limit: int, offset: int) -> list[Proposal]:
        """Return a page of the open proposals, the longest waiting first."""
        return _proposals(await self._bound.fetch("open_proposals", limit=limit, offset=offset))

    async def unaccepted(self, memory_id: str) -> bool:
        """Return whether a memory was proposed and has not been accepted."""
        return await self._bound.touched("unaccepted_memory", memory_id=memory_id)


def _proposals(rows: Sequence[Row]) -> list[Proposal]:
    found = []
    for _, of_one in groupby(rows, key=lambda row: row["id"]):
        first, *others = of_one
        sides = grouped((row["side"], row["memory_id"]) for row in (first, *others))
        found.append(_proposal({**first, "new": sides.get("new"), "targets": sides.get("target")}))
    return found


_proposal = reader(Proposal)


class Quarantine(BoundTable):
    """Turns that are held back. Each is decided about once."""

    async def hold(
        self, episode_id: str, reasons: Mapping[str, Sequence[str]], at: datetime
    ) -> None:
        """Store why turns of an episode are hidden. `reasons`: by the id of the turn."""
        # Thousands may have the same reasons.
        alike = grouped((tuple(why), item_id) for item_id, why in reasons.items())
        for why, ids in alike.items():
            document_ = Document(list(why))
            await self._bound.send("hold_turns", ids=ids, reasons=document_, held_at=at)
            reason = ",".join(sorted(why))
            for item_id in ids:
                self._bound.note(
                    item_id, EventKind.QUARANTINED, at, episode_id=episode_id, reason=reason
                )

    async def page(self, state: Held, *, limit: int, offset: int) -> list[Suspect]:
        """Return the suspects in this state with their words, newest first."""
        given = {"state": state, "limit": limit, "offset": offset}
        return await self._all(_suspect, "quarantined", **given)

    async def count(self, state: Held) -> int:
        return await self._int("turns", "quarantined_count", state=state)

    async def place(self, item_id: str) -> Place | None:
        return await self._first(_place, "quarantined_turn", item_id=item_id)

    async def decide(self, item_id: str, state: Held, by: str, at: datetime) -> bool:
        rows = await self._bound.fetch(
            "decide_quarantined", item_id=item_id, state=state, decided_by=by, decided_at=at
        )
        # The event of a release is noted when the turn is shown (`Episodes.show`).
        if rows and state is Held.REJECTED:
            self._bound.note(item_id, EventKind.REJECTED, at, episode_id=episode_of(item_id))
        return bool(rows)

    async def undo(self, decided: Mapping[str, MemoryEvent | None]) -> None:
        """Set turns back to the states that these events left; None: it was not in quarantine."""
        before = {i: (_HELD[one.kind], one) for i, one in decided.items() if one is not None}
        await self._bound.many(
            "undo_decision",
            [
                {
                    "item_id": item_id,
                    "episode_id": episode_of(item_id),
                    "reasons": Document([one.reason]),
                    "state": held,
                    "at": one.at,
                    "decided_by": None if held is Held.HELD else one.accessor or OPERATOR,
                    "decided_at": None if held is Held.HELD else one.at,
                }
                for item_id, (held, one) in before.items()
            ],
        )
        hidden = [i for i, (held, _) in before.items() if held is not Held.RELEASED]
        for query, ids in (
            ("undo_holds", [i for i in decided if i not in before]),
            ("open_turns", [i for i in decided if i not in hidden]),
            ("hide_turns", hidden),
        ):
            if ids:
                await self._bound.send(query, ids=ids)


_HELD = {
    EventKind.QUARANTINED: Held.HELD,
    EventKind.RELEASED: Held.RELEASED,
    EventKind.REJECTED: Held.REJECTED,
}


def _held(row: Row) -> Citation:
    said_at = moment_or_none(row["said_at"])
    return Citation(row["episode_id"], span(row), row["text"], row["speaker"], said_at)


_decided = reader(Decided, by="decided_by", at="decided_at")
_place = reader(Place, decided=_decided)
_suspect = reader(Suspect, citation=_held, decided=_decided, client="source")
