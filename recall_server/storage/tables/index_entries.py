"""What items are found by, read from where it is kept: the word index is made of it, and what was
put into the index can be taken out of it by the same.
"""

from collections.abc import AsyncIterator, Collection
from typing import Literal

from recall_server.domain.memory import searchable
from recall_server.domain.search.index_entry import Findable
from recall_server.storage.bound_connection import BoundConnection

PAGE = 500
Kind = Literal["memories", "turns"]
KINDS: tuple[Kind, ...] = ("memories", "turns")


class Findables:
    """Memories and turns, as the word index needs them."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def of(self, ids: Collection[str]) -> dict[str, Findable]:
        """What these are found by, in whatever state they are."""
        if not ids:
            return {}
        return {
            row["id"]: Findable(
                searchable(row["text"], row["attribute"]) if row["text"] is not None else "",
                row["speaker"],
                row["said"] or "",
            )
            for row in await self._handle.fetch("findable", ids=sorted(ids))
        }

    async def resting_on(self, turn_ids: Collection[str]) -> set[str]:
        """The active memories that are found by the words of one of these turns too."""
        rows = await self._handle.fetch("memories_resting_on", ids=sorted(turn_ids))
        return {row["id"] for row in rows}

    async def found(self, ids: Collection[str]) -> set[str]:
        """Those of `ids` that search finds."""
        rows = await self._handle.fetch("found_among", ids=sorted(ids)) if ids else []
        return {row["id"] for row in rows}

    async def pages(self) -> AsyncIterator[list[str]]:
        """The ids of all that search finds."""
        for what in KINDS:
            after = ""
            while page := await self.page(what, after):
                yield page
                after = page[-1]

    async def page(self, what: Kind, after: str) -> list[str]:
        """The ids of the next ones behind `after` that search finds."""
        rows = await self._handle.fetch(f"found_{what}", after=after, limit=PAGE)
        return [row["id"] for row in rows]

    async def of_episode(self, episode_id: str) -> list[str]:
        """The ids of the turns of an episode that search finds, and of the memories in whatever
        state that were first found there.
        """
        rows = await self._handle.fetch("items_of_episode", episode_id=episode_id)
        return [row["id"] for row in rows]
