"""Memories and passages in the form that the index needs."""

from collections.abc import AsyncIterator, Collection

from recall_server.domain.episode import Span
from recall_server.domain.memory import searchable
from recall_server.domain.search.index_entry import Findable
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import span

PAGE_OF_ITEMS = 500


class Findables(BoundTable):
    """Memories and passages, in the form that the index needs."""

    async def memories(self, ids: Collection[str]) -> dict[str, Findable]:
        """Return the index entries of these memories, in any state."""
        return {
            row["id"]: Findable(searchable(row["text"], row["attribute"]), row["speaker"])
            for row in await self._by_ids("findable_memories", ids)
        }

    async def found(self, ids: Collection[str]) -> set[str]:
        """Return those of `ids` that search finds."""
        return {row["id"] for row in await self._by_ids("found_among", ids)}

    async def places(self, ids: Collection[str]) -> dict[str, Span]:
        """Return where these passages stand in their texts, whether search finds them or not."""
        return {row["item_id"]: span(row) for row in await self._by_ids("places_of_items", ids)}

    async def memories_of_episodes(self, episode_ids: Collection[str]) -> list[str]:
        """Return the memories whose first citation is in these episodes, in any state."""
        return [row["id"] for row in await self._by_ids("items_of_episodes", episode_ids)]

    async def to_index(self) -> AsyncIterator[tuple[list[str], list[str]]]:
        """Yield pages of everything to be indexed: ids of memories, then ids of episodes."""
        for query in ("memories_to_index", "episodes_to_index"):
            async for rows in self._pages(query, PAGE_OF_ITEMS):
                ids = [row["id"] for row in rows]
                yield (ids, []) if query == "memories_to_index" else ([], ids)

    async def page(self, after: int) -> tuple[list[str], int]:
        """Return the ids of the next findable items after the slot `after`, and their last slot."""
        rows = await self._bound.fetch("page_of_items", after=after, limit=PAGE_OF_ITEMS)
        return [row["item_id"] for row in rows], rows[-1]["slot"] if rows else after
