"""The rows of a source: finding them, and taking back what came of it."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

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

    async def given_way(self, memory_ids: Collection[str]) -> dict[str, list[str]]:
        """Return the memories that each of these has superseded."""
        found: dict[str, list[str]] = {}
        for row in await self._by_ids("superseded_by", memory_ids):
            found.setdefault(row["superseded_by"], []).append(row["id"])
        return found

    async def believe(self, memory_ids: Collection[str], now: datetime) -> None:
        """Make these superseded memories active again, as if nothing had superseded them."""
        await self._bound.send("believe_again", ids=sorted(memory_ids))
        for one in memory_ids:
            self._bound.note(one, EventKind.RESTORED, now)

    async def relink(self, links: Mapping[str, str], now: datetime) -> None:
        """Set for each memory another one that supersedes it."""
        await self._bound.many(
            "relink_memory", [{"id": one, "by": by} for one, by in links.items()]
        )
        for one in links:
            self._bound.note(one, EventKind.SUPERSEDED, now)

    async def forget_citations(self, rows: Iterable[Row], now: datetime) -> None:
        dropped: dict[str, list[tuple[int, str, int, int]]] = {}
        for row in rows:
            place = (row["position"], row["episode_id"], row["span_start"], row["span_end"])
            dropped.setdefault(row["memory_id"], []).append(place)
        for memory_id, citations in dropped.items():
            self._bound.note(memory_id, EventKind.UNCITED, now, dropped=sorted(citations))
        await self._bound.many(
            "drop_citation",
            [
                {"id": memory_id, "position": position}
                for memory_id, citations in dropped.items()
                for position, *_ in citations
            ],
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
        for one in memory_ids:
            self._bound.note(one, EventKind.QUARANTINED, now, reason=reason)

    async def turns_to_reject(self, episode_ids: Collection[str]) -> Sequence[Row]:
        """Return those turns of these texts that `reject` hides, each with its text and span."""
        return await self._by_ids("turns_to_reject", episode_ids)

    async def reject(self, turns: Sequence[Row], reason: str, by: str, now: datetime) -> None:
        """Hide these turns, as `turns_to_reject` returns them, with the reason; the texts stay."""
        ids = [row["id"] for row in turns]
        await self._bound.send(
            "reject_turns",
            turns=ids,
            reasons=Document([reason]),
            decided_by=by,
            now=now,
        )
        await self._bound.send("hide_turns", ids=ids)
        for row in turns:
            self._bound.note(
                row["id"],
                EventKind.REJECTED,
                now,
                episode_id=row["episode_id"],
                reason=reason,
            )

    async def forget_events(self, task_id: str, seqs: Collection[int]) -> None:
        if seqs:
            await self._bound.send("forget_run_events", id=task_id, seqs=sorted(seqs))
