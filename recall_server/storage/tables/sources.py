"""Queries about a source: its texts, the memories that gave way to it, and taking it back."""

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime

from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Document, Row


class Sources:
    """Writing takes a transaction that may erase."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def episodes(self, *, episode_id: str, session_id: str, agent_id: str) -> list[str]:
        """The ids of what came from there; "" stands for any."""
        rows = await self._handle.fetch(
            "episodes_of_source", episode_id=episode_id, session_id=session_id, agent_id=agent_id
        )
        return [row["id"] for row in rows]

    async def turns(self, episode_ids: Collection[str]) -> list[Row]:
        """Their turns, each with its id, span and state."""
        if not episode_ids:
            return []
        return list(await self._handle.fetch("turns_of_episodes", ids=sorted(episode_ids)))

    async def given_way(self, memory_ids: Collection[str]) -> list[str]:
        """The memories that gave way to one of these."""
        if not memory_ids:
            return []
        rows = await self._handle.fetch("superseded_by", ids=sorted(memory_ids))
        return [row["id"] for row in rows]

    async def believe(self, memory_ids: Collection[str]) -> None:
        """Make these active again, as if nothing had taken their place."""
        await self._handle.send("believe_again", ids=sorted(memory_ids))

    async def relink(self, links: Mapping[str, str]) -> None:
        """Let each memory have given way to another one than before."""
        await self._handle.many(
            "relink_memory", [{"id": one, "by": by} for one, by in links.items()]
        )

    async def forget_citations(
        self, memory_ids: Collection[str], episode_ids: Collection[str]
    ) -> None:
        """Remove the citations of these episodes by these memories."""
        await self._handle.send(
            "drop_citations", ids=sorted(memory_ids), episodes=sorted(episode_ids)
        )

    async def recount(self, reinforcements: Mapping[str, int]) -> None:
        """Set how often each memory was said again, besides the first time."""
        await self._handle.many(
            "set_reinforcements",
            [{"id": one, "reinforcements": count} for one, count in reinforcements.items()],
        )

    async def reject(self, turns: Iterable[Row], reason: str, by: str, now: datetime) -> None:
        """Hide turns for good, and say why; the words stay where they were said."""
        rows = [(turn["id"], turn["episode_id"]) for turn in turns]
        await self._handle.send("hide_turns", ids=[item_id for item_id, _ in rows])
        await self._handle.many(
            "reject_turn",
            [
                {
                    "item_id": item_id,
                    "episode_id": episode_id,
                    "reasons": Document([reason]),
                    "decided_by": by,
                    "now": now,
                }
                for item_id, episode_id in rows
            ],
        )

    async def uncover(self, turn_ids: Collection[str]) -> list[str]:
        """Open those of these turns that a memory covered, and return their ids."""
        if not turn_ids:
            return []
        rows = await self._handle.fetch("uncover_turns", ids=sorted(turn_ids))
        return [row["id"] for row in rows]

    async def forget_events(self, task_id: str, seqs: Collection[int]) -> None:
        """Remove these events of a task."""
        if seqs:
            await self._handle.send("forget_run_events", id=task_id, seqs=sorted(seqs))
