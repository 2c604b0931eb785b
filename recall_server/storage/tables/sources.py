"""The rows that came from a source, to purge them."""

from collections.abc import Collection, Mapping
from datetime import datetime

from recall_server.domain.memory import Status, before
from recall_server.domain.memory_event import EventKind
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Document, Row


class Sources(BoundTable):
    """The rows of a source, for its purge. Writing needs an erasing transaction."""

    async def episodes(self, *, episode_id: str, session_id: str, agent_id: str) -> list[str]:
        """Return the ids of the texts of a source; "" stands for any."""
        named = {"episode_id": episode_id, "session_id": session_id, "agent_id": agent_id}
        return await self._column("id", "episodes_of_source", **named)

    async def turns(self, episode_ids: Collection[str]) -> list[Row]:
        """Return the turns of these episodes, each with its id, span and state."""
        return list(await self._by_ids("turns_of_episodes", episode_ids))

    async def given_way(self, memory_ids: Collection[str]) -> list[str]:
        """Return the memories that one of these has superseded."""
        return [row["id"] for row in await self._by_ids("superseded_by", memory_ids)]

    async def believe(self, memory_ids: Collection[str], now: datetime) -> None:
        """Make these memories active again, as if nothing had superseded them."""
        for row in await self._bound.fetch("believe_again", ids=sorted(memory_ids)):
            self._bound.note(row["id"], EventKind.RESTORED, now)

    async def relink(self, links: Mapping[str, str], now: datetime) -> None:
        """Set for each memory another one that supersedes it."""
        await self._bound.many(
            "relink_memory", [{"id": one, "by": by} for one, by in links.items()]
        )
        for one in links:
            self._bound.note(one, EventKind.SUPERSEDED, now)

    async def forget_citations(
        self, memory_ids: Collection[str], episode_ids: Collection[str], now: datetime
    ) -> None:
        rows = await self._bound.fetch(
            "drop_citations", ids=sorted(memory_ids), episodes=sorted(episode_ids)
        )
        dropped: dict[str, list[tuple[int, str, int, int]]] = {}
        for memory_id, *citation in sorted(tuple(row.values()) for row in map(dict, rows)):
            dropped.setdefault(memory_id, []).append(tuple(citation))
        for memory_id, citations in dropped.items():
            self._bound.note(memory_id, EventKind.UNCITED, now, dropped=citations)

    async def recount(self, reinforcements: Mapping[str, int]) -> None:
        """Set how often each memory was reinforced."""
        await self._bound.many(
            "set_reinforcements",
            [{"id": one, "reinforcements": count} for one, count in reinforcements.items()],
        )

    async def quarantine(self, memory_ids: Collection[str], reason: str, now: datetime) -> None:
        """Hide these memories from everybody; their rows and events stay."""
        for row in await self._bound.fetch(
            "quarantine_memories",
            ids=sorted(memory_ids),
            before=before(Status.QUARANTINED),
            now=now,
        ):
            self._bound.note(row["id"], EventKind.QUARANTINED, now, reason=reason)

    async def reject(
        self, episode_ids: Collection[str], reason: str, by: str, now: datetime
    ) -> None:
        """Hide all turns of these texts, with the reason; the texts themselves stay."""
        rows = await self._bound.fetch(
            "reject_turns",
            episodes=sorted(episode_ids),
            reasons=Document([reason]),
            decided_by=by,
            now=now,
        )
        await self._bound.send("hide_turns", ids=[row["item_id"] for row in rows])
        for row in rows:
            self._bound.note(
                row["item_id"],
                EventKind.REJECTED,
                now,
                episode_id=row["episode_id"],
                reason=reason,
            )

    async def forget_events(self, task_id: str, seqs: Collection[int]) -> None:
        if seqs:
            await self._bound.send("forget_run_events", id=task_id, seqs=sorted(seqs))
