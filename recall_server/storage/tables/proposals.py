"""The table of proposals: changes that wait until somebody accepts them."""

from collections.abc import Collection, Sequence
from datetime import datetime
from itertools import groupby

from recall_server.domain.proposal import Proposal, ProposalKind
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Row, moment, moment_or_none


class Proposals(BoundTable):
    """One row for each memory that a proposal is about."""

    async def open(self, proposal: Proposal) -> None:
        sides = [
            *((one, "target") for one in proposal.targets),
            *((i, "new") for i in proposal.new),
        ]
        await self._bound.many(
            "open_proposal",
            [
                {
                    "id": proposal.id,
                    "memory_id": memory_id,
                    "side": side,
                    "kind": proposal.kind,
                    "made_by": proposal.made_by,
                    "now": proposal.opened_at,
                }
                for memory_id, side in sides
            ],
        )

    async def close(self, proposal_id: str, choice: str, by: str, now: datetime) -> bool:
        """Answer a proposal. Return False if it is not open."""
        return await self._bound.touched(
            "close_proposal", id=proposal_id, choice=choice, decided_by=by, now=now
        )

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

    async def get(self, proposal_id: str) -> Proposal | None:
        found = _proposals(await self._bound.fetch("proposal", id=proposal_id))
        return found[0] if found else None

    async def page(self, *, limit: int, offset: int) -> list[Proposal]:
        """Return a page of the open proposals, the longest waiting first."""
        return _proposals(await self._bound.fetch("open_proposals", limit=limit, offset=offset))

    async def unaccepted(self, memory_id: str) -> bool:
        """Return whether a memory was proposed and has not been accepted."""
        return await self._bound.touched("unaccepted_memory", memory_id=memory_id)


def _proposals(rows: Sequence[Row]) -> list[Proposal]:
    return [_proposal(list(of_one)) for _, of_one in groupby(rows, key=lambda row: row["id"])]


def _proposal(rows: Sequence[Row]) -> Proposal:
    first = rows[0]
    return Proposal(
        first["id"],
        ProposalKind(first["kind"]),
        tuple(row["memory_id"] for row in rows if row["side"] == "new"),
        tuple(row["memory_id"] for row in rows if row["side"] == "target"),
        first["made_by"],
        moment(first["opened_at"]),
        moment_or_none(first["closed_at"]),
        first["choice"],
        first["decided_by"],
    )
