"""The table of turns that are held back, and of the decisions about them."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from recall_server.domain.episode import Citation
from recall_server.domain.security.quarantine import Decided, Held, Place, Suspect
from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Document, Row
from recall_server.storage.rows import document, moment, moment_or_none, span


class Quarantine:
    """A suspect is decided about once; a later decision gets False."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def hold(
        self, episode_id: str, reasons: Mapping[str, Sequence[str]], at: datetime
    ) -> None:
        """Note why turns (id to reasons) of an episode are hidden."""
        await self._handle.many(
            "hold_turn",
            [
                {
                    "item_id": item_id,
                    "episode_id": episode_id,
                    "reasons": Document(list(why)),
                    "held_at": at,
                }
                for item_id, why in reasons.items()
            ],
        )

    async def page(self, state: Held, *, limit: int, offset: int) -> list[Suspect]:
        """The suspects in this state with their words, newest first."""
        rows = await self._handle.fetch("quarantined", state=state, limit=limit, offset=offset)
        return [_suspect(row) for row in rows]

    async def count(self, state: Held) -> int:
        rows = await self._handle.fetch("quarantined_count", state=state)
        return int(rows[0]["turns"])

    async def place(self, item_id: str) -> Place | None:
        rows = await self._handle.fetch("quarantined_turn", item_id=item_id)
        if not rows:
            return None
        row = rows[0]
        return Place(row["item_id"], row["episode_id"], row["position"], _decided(row))

    async def decide(self, item_id: str, state: Held, by: str, at: datetime) -> bool:
        rows = await self._handle.fetch(
            "decide_quarantined", item_id=item_id, state=state, decided_by=by, decided_at=at
        )
        return bool(rows)


def _decided(row: Row) -> Decided:
    return Decided(Held(row["state"]), row["decided_by"], moment_or_none(row["decided_at"]))


def _suspect(row: Row) -> Suspect:
    said_at = moment_or_none(row["said_at"])
    return Suspect(
        item_id=row["item_id"],
        topic=row["topic"],
        citation=Citation(row["episode_id"], span(row), row["text"], row["speaker"], said_at),
        reasons=tuple(document(row["reasons"])),
        held_at=moment(row["held_at"]),
        decided=_decided(row),
        agent_id=row["agent_id"],
        client=row["source"],
    )
