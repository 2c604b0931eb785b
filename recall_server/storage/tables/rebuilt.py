"""The batches that a rebuild has derived so far, and the rows that they are compared with."""

from collections.abc import AsyncIterator, Collection, Mapping
from typing import NamedTuple

from recall_server.domain.episode import episode_of
from recall_server.domain.memory_event import MemoryState
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Row
from recall_server.storage.index.words import Statistics
from recall_server.storage.tables.memories import state_of


class Cursor(NamedTuple):
    """How far a rebuild has come: the last memory, and after all of these the last text."""

    memory_id: str = ""
    episode_id: str = ""


class Moment(NamedTuple):
    """The last event and the version of the index at a moment."""

    last_event: int
    version: int


class Rebuilt(BoundTable):
    """The batches of one rebuild. Erasures discard them."""

    async def cursor(self, release: str) -> Cursor | None:
        """Return how far this release has come; None if another release has made the batches."""
        rows = await self._bound.fetch("last_rebuilt")
        if rows and rows[0]["release"] != release:
            return None
        return Cursor(rows[0]["memory_id"], rows[0]["episode_id"]) if rows else Cursor()

    async def keep(self, release: str, cursor: Cursor, derived: str, now: Statistics) -> bool:
        """Keep the next batch, as of `now`. Return False if something was erased since."""
        return await self._bound.touched(
            "keep_rebuilt",
            release=release,
            **cursor._asdict(),
            derived=derived,
            last_event=now.last_event,
            index_version=now.version,
            erase_epoch=now.erase_epoch,
        )

    async def batches(self) -> AsyncIterator[tuple[Moment, str]]:
        """Yield each batch, the oldest first, with the moment of which it is."""
        for row in await self._bound.fetch("numbers_of_rebuilt"):
            for one in await self._bound.fetch("rebuilt_batch", number=row["number"]):
                yield Moment(one["last_event"], one["index_version"]), one["derived"]

    async def discard(self) -> None:
        await self._bound.send("discard_rebuilt")

    async def memories(self, after: str, limit: int) -> list[str]:
        """Return the next memories, in any state, in the order of their ids."""
        rows = await self._bound.fetch("page_of_memory_ids", after=after, limit=limit)
        return [row["id"] for row in rows]

    async def texts(self, after: str, limit: int) -> list[str]:
        """Return the next texts, in the order of their ids."""
        rows = await self._bound.fetch("episodes_to_index", after=after, limit=limit)
        return [row["id"] for row in rows]

    async def states(self, ids: Collection[str]) -> Mapping[str, MemoryState]:
        """Return the states of these memories."""
        rows = await self._bound.fetch("states_now", ids=sorted(ids)) if ids else []
        return {row["id"]: state_of(row) for row in rows}

    async def last_states(self, ids: Collection[str]) -> Mapping[str, MemoryState]:
        """Return the states that the last events of these memories left; those that release 0.1.0
        made and nothing changed since have no event.
        """
        rows = await self._bound.fetch("last_states", ids=sorted(ids)) if ids else []
        return {row["id"]: state_of(row) for row in rows}

    async def changed_after(self, moment: Moment) -> dict[str, Moment]:
        """Return the memories and texts that have changed after a moment, each with the last event
        and version. An event of a memory does not tell which texts lose words with it, but then
        they get other entries.
        """
        found: dict[str, Moment] = {}
        events = await self._bound.fetch("changed_by_events", seq=moment.last_event)
        entries = await self._bound.fetch("changed_entries", version=moment.version)
        changed = [(one["item_id"], Moment(one["seq"], 0)) for one in events]
        changed += [(one["episode_id"], Moment(one["seq"], 0)) for one in events]
        changed += [(episode_of(one["item_id"]), Moment(0, one["version"])) for one in entries]
        for one, last in changed:
            before = found.get(one, Moment(0, 0))
            found[one] = Moment(*map(max, before, last))
        return found

    async def entries(self, ids: Collection[str]) -> list[Row]:
        """Return the index entries by which search finds these items."""
        return list(await self._bound.fetch("entries_of", ids=sorted(ids))) if ids else []
