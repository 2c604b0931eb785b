"""The items of the index, and the table of their vectors; a search reads only the vectors that
changed since the last one.

Every change of a namespace's index takes the next version under that namespace's lock, so a reader
that has seen version n lacks exactly the rows with a greater version.
"""

import asyncio
from collections.abc import AsyncIterator, Collection, Mapping, Sequence

import numpy as np

from recall_server.domain.episode import Span
from recall_server.domain.memory import searchable
from recall_server.domain.search.index_entry import Findable
from recall_server.domain.search.ranking import best
from recall_server.storage.bound_connection import BoundConnection, BoundTable
from recall_server.storage.driver import span
from recall_server.storage.index.documents import Slots
from recall_server.storage.index.vector_cache import (
    Cosines,
    Flags,
    Floats,
    Positions,
    RoundedVectors,
    VectorCache,
    WholeVectors,
    code,
    code_chars,
    cosines_to,
    damaged,
    packed,
    stored_bytes,
    unpacked,
)
from recall_server.storage.index.words import Statistics

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

    async def memories_from(self, episode_id: str) -> list[str]:
        """Return the memories whose first citation is in this episode, in any state."""
        return await self._column("id", "memories_from_episode", id=episode_id)

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


# Codes read at a time: about 5 MB of text.
PAGE = 65_536
# Vectors read at a time, 1 KB each at 256 dimensions.
VECTORS_PAGE = 4_096
# Up to this many codes are compared on the event loop (2 ms); more of them in a thread.
INLINE_UP_TO = 262_144


class Vectors(BoundTable):
    """Vectors, keyed by model, item, and the entry of the index that they belong to."""

    async def put(self, model: str, vectors: Mapping[str, Floats]) -> None:
        """Store one vector per item id."""
        if not vectors:
            return
        await self._bound.send("next_index_version")
        await self._bound.many(
            "put_vector",
            [
                {
                    "model": model,
                    "item_id": item_id,
                    "vector": packed(vector),
                    "code": code(vector),
                }
                for item_id, vector in vectors.items()
            ],
        )

    async def copy(self, ids: Sequence[str]) -> None:
        """Give these items, which are in the word index again, the vectors that they had when they
        were last found.
        """
        if ids:
            await self._bound.send("next_index_version")
            await self._bound.send("copy_vectors", ids=list(ids))

    async def move(self, ids: Sequence[str]) -> None:
        """Give entries that were made anew the vectors of their predecessors."""
        if ids:
            await self._bound.send("next_index_version")
            await self._bound.send("move_vectors", ids=list(ids))

    async def remove(self, ids: Collection[str]) -> None:
        if ids:
            await self._bound.send("remove_vectors", ids=sorted(ids))

    async def of_search(self, model: str, dimensions: int, statistics: Statistics) -> "Searched":
        """Return the vectors of this namespace, as of `statistics` or later. Reads only what
        changed since the last search.
        """
        assert self._bound.namespace is not None
        index = self._bound.cache.index(self._bound.namespace, statistics.erase_epoch)
        cache = index.vectors(model, dimensions)
        if cache.version < statistics.version:
            async with cache.loading:
                # Another search may have read it while this one waited.
                if cache.version < statistics.version:
                    await self._read(cache, model)
                    cache.version = statistics.version
        return Searched(self._bound, cache, model)

    async def get(self, model: str, ids: Sequence[str]) -> dict[str, Floats]:
        """Return the stored vectors of those of `ids` that are findable and have one."""
        rows = await self._by_ids("vectors_of", ids, model=model)
        if not rows:
            return {}
        return dict(zip((row["item_id"] for row in rows), unpacked(rows), strict=True))

    async def lacking(self, model: str, ids: Sequence[str]) -> list[str]:
        """Return those of `ids` that search finds by no vector of the model."""
        having = {row["item_id"] for row in await self._by_ids("having_vectors", ids, model=model)}
        return [i for i in ids if i not in having]

    async def lacking_of(self, model: str, after: int) -> tuple[set[str], int]:
        """Read a page of findable items after the slot `after`. Return the episodes with an item
        that has no vector of the model, and the last slot (0 if the page is empty).
        """
        page = {"after": after, "limit": PAGE_OF_ITEMS}
        rows = await self._bound.fetch("items_and_vectors", model=model, **page)
        bare = {row["episode_id"] for row in rows if row["embedded"] is None}
        return bare, rows[-1]["slot"] if rows else 0

    async def broken(self, model: str, ids: Sequence[str]) -> list[str]:
        """Return those of `ids` that search finds by a vector whose numbers are not of length 1, or
        have other signs than its code.
        """
        rows = await self._bound.fetch("codes_of", model=model, ids=list(ids)) if ids else []
        return await asyncio.to_thread(lambda: [row["item_id"] for row in rows if damaged(row)])

    async def remove_found(self, ids: Sequence[str]) -> None:
        """Delete the vectors by which search finds these items now."""
        await self._bound.send("remove_found_vectors", ids=list(ids))

    async def count(self, model: str) -> int:
        """Return the number of vectors of the model that search can find."""
        return await self._int("vectors", "count_vectors", model=model)

    async def models(self) -> list[str]:
        return await self._column("model", "models_of_vectors")

    async def drop(self, model: str, limit: int) -> int:
        """Delete at most `limit` vectors of a model. Return how many were deleted."""
        return len(await self._bound.fetch("drop_vectors", model=model, limit=limit))

    async def _read(self, cache: VectorCache, model: str) -> None:
        """Take in everything that this transaction sees and the cache lacks."""
        if cache.version == 0:
            (last,) = await self._bound.fetch("last_slot", model=model)
            await cache.expect(last["slot"])
            read = self._read_codes if cache.vectors is None else self._read_vectors
            await read(cache, model)
        elif cache.vectors is None:
            cache.apply_codes(
                await self._bound.fetch("codes_since", model=model, version=cache.version)
            )
        else:
            rows = await self._bound.fetch("vectors_since", model=model, version=cache.version)
            await cache.expect(len(rows))
            cache.apply(rows)

    async def _read_vectors(self, cache: VectorCache, model: str) -> None:
        by_slot = {"after": "slot"}
        async for page in self._pages(
            "page_of_vectors", VECTORS_PAGE, by_slot, model=model, after=0
        ):
            await cache.expect(len(page))
            cache.apply(page)

    async def _read_codes(self, cache: VectorCache, model: str) -> None:
        after = 0
        chars = code_chars(cache.dimensions)
        items = PAGE
        while items == PAGE:
            (page,) = await self._bound.fetch(
                "page_of_codes", model=model, after=after, code_chars=chars, limit=PAGE
            )
            items = page["items"]
            if not items:
                return
            after = page["last"]
            cache.codes.put(
                np.fromstring(page["slots"], dtype=np.uint32, sep=" "),
                page["codes"],
                np.fromstring(page["documents"], dtype=np.uint32, sep=" "),
            )


class Searched:
    """The vectors that one search compares. Vectors read from the database are read once."""

    def __init__(self, bound: BoundConnection, cache: VectorCache, model: str) -> None:
        self._bound = bound
        self._cache = cache
        self._model = model
        self._read: dict[int, Floats] = {}

    async def nearest(self, query: Floats, allowed: Flags, limit: int) -> Slots:
        """Return the `limit` of the `allowed` documents with the greatest cosines to `query`,
        greatest first. Above `EXACT_UP_TO` vectors one may be missing, and if vectors are held
        rounded, two with nearly equal cosines may be in the wrong order.
        """
        cache = self._cache
        if cache.codes.count <= INLINE_UP_TO:
            positions = cache.candidates(query, limit, allowed)
        else:
            positions = await asyncio.to_thread(cache.candidates, query, limit, allowed)
        if cache.vectors is not None:
            cosines = cache.vectors.cosines(query, positions)
            return best(cache.codes.documents[positions].astype(np.int64), cosines, limit)[0]
        slots, rows = await self._stored(positions)
        # The database may have later documents, which `allowed` does not cover.
        here = slots < len(allowed)
        here[here] = allowed[slots[here]]
        slots, rows = slots[here], rows[here]
        nearest, _ = best(slots, cosines_to(query, rows), limit)
        chosen = np.flatnonzero(np.isin(slots, nearest))
        self._read |= {int(slots[at]): rows[at] for at in chosen}
        return nearest

    def repeated(self, slots: Slots, allowed: Flags, most: int) -> Slots:
        """Return the `allowed` documents that say what more than `most` of these say, without the
        latest.
        """
        return self._cache.repeated(slots, allowed, most)

    @property
    def estimated(self) -> bool:
        """Whether `estimates` only approximate the cosines, since vectors are held rounded."""
        return isinstance(self._cache.vectors, RoundedVectors)

    async def estimates(self, query: Floats, slots: Slots) -> Cosines:
        """Return the cosine of each of these documents, NaN if it has no vector: the best
        approximation that needs no database, or by stored vectors if only codes are held.
        """
        if self._cache.vectors is None:
            return await self.cosines(query, slots)
        cosines = np.full(len(slots), np.nan)
        positions = self._cache.codes.positions(slots)
        have = positions >= 0
        cosines[have] = self._cache.vectors.cosines(query, positions[have])
        return cosines

    async def cosines(self, query: Floats, slots: Slots) -> Cosines:
        """Return the cosine of each of these documents, NaN if it has no vector: by stored vectors,
        so that the score of a hit does not depend on what is in memory.
        """
        cosines = np.full(len(slots), np.nan)
        found = await self.by_slot(slots.tolist())
        have = np.isin(slots, list(found))
        if found:
            rows = np.array([found[slot] for slot in slots[have].tolist()])
            cosines[have] = cosines_to(query, rows)
        return cosines

    async def by_slot(self, slots: Sequence[int]) -> dict[int, Floats]:
        """Return the stored vectors of those of these documents that have one."""
        missing = [slot for slot in slots if slot not in self._read]
        if missing:
            positions = self._cache.codes.positions(np.array(missing, np.int64))
            found, rows = await self._stored(positions[positions >= 0])
            self._read |= dict(zip(found.tolist(), rows, strict=True))
        return {slot: self._read[slot] for slot in slots if slot in self._read}

    async def _stored(self, positions: Positions) -> tuple[Slots, Floats]:
        """Return the documents and stored vectors at these positions, as far as they exist."""
        cache = self._cache
        if isinstance(cache.vectors, WholeVectors):
            documents = cache.codes.documents[positions].astype(np.int64)
            return documents, cache.vectors.rows[positions]
        slots = cache.codes.slots[positions].tolist()
        read = (
            await self._bound.fetch("vectors_at", model=self._model, slots=slots) if slots else []
        )
        size = stored_bytes(cache.dimensions)
        read = [row for row in read if len(row["vector"]) == size]
        if not read:
            return np.zeros(0, np.int64), np.zeros((0, cache.dimensions), np.float32)
        return np.array([row["document"] for row in read], np.int64), unpacked(read)
