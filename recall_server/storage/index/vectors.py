"""The shelf of vectors; a search reads only those that changed since it looked last.

Every change of a namespace's index takes the next version under that namespace's lock, so what has
seen version n misses exactly the rows with a greater one.
"""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np

from recall_server.domain.search.candidates import best
from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.index.cache import Cache
from recall_server.storage.index.codes import Flags, Floats, Positions, code, code_chars
from recall_server.storage.index.documents import Slots
from recall_server.storage.index.vector_cache import VectorCache
from recall_server.storage.index.vector_store import Cosines, cosines_to
from recall_server.storage.index.words import Statistics

# Codes that are read at a time: about 5 MB of text.
PAGE = 65_536
# Vectors, of 1 KB each at 256 dimensions.
VECTORS_PAGE = 4_096
# Up to here codes are compared at once (2 ms); more of them in a thread, beside other calls.
INLINE_UP_TO = 262_144


class Vectors:
    """Vectors keyed by (item, model) (FEATURES C12)."""

    def __init__(self, handle: BoundConnection, cache: Cache) -> None:
        self._handle = handle
        self._cache = cache

    async def put(self, model: str, vectors: Mapping[str, Floats]) -> None:
        """Store one vector per item id."""
        if not vectors:
            return
        await self._handle.send("next_index_version")
        await self._handle.many(
            "put_vector",
            [
                {
                    "model": model,
                    "item_id": item_id,
                    "vector": vector.astype("<f4").tobytes(),
                    "code": code(vector),
                }
                for item_id, vector in vectors.items()
            ],
        )

    async def link(self, ids: Sequence[str]) -> None:
        """Let the search find by their vectors what it finds again by its words."""
        if ids:
            await self._handle.send("next_index_version")
            await self._handle.send("link_vectors", ids=list(ids))

    async def of_search(self, model: str, dimensions: int, statistics: Statistics) -> "Searched":
        """What is held of the vectors of this namespace, as of `statistics` or later: reads only
        what changed since.
        """
        assert self._handle.namespace is not None
        held = self._cache.of(self._handle.namespace, statistics.erase_epoch)
        matrix = held.matrix(model, dimensions)
        if matrix.version < statistics.version:
            async with matrix.loading:
                # Another search may have taken it in while this one waited.
                if matrix.version < statistics.version:
                    await self._read(matrix, model)
                    matrix.version = statistics.version
        return Searched(self._handle, matrix, model)

    async def of(self, model: str, ids: Sequence[str]) -> dict[str, Floats]:
        """The stored vectors of those of `ids` that have one."""
        rows = await self._handle.fetch("vectors_of", model=model, ids=list(ids)) if ids else []
        return {row["item_id"]: np.frombuffer(row["vector"], dtype="<f4") for row in rows}

    async def lacking(self, model: str, ids: Sequence[str]) -> list[str]:
        """Those of `ids` that have no vector of the model."""
        rows = await self._handle.fetch("having_vectors", model=model, ids=list(ids)) if ids else []
        having = {row["item_id"] for row in rows}
        return [i for i in ids if i not in having]

    async def count(self, model: str) -> int:
        """How many vectors of the model a search looks at."""
        (row,) = await self._handle.fetch("count_vectors", model=model)
        return int(row["vectors"])

    async def models(self) -> list[str]:
        """Of what models there are vectors here."""
        return [row["model"] for row in await self._handle.fetch("models_of_vectors")]

    async def drop(self, model: str, limit: int) -> int:
        """Delete vectors of a model, `limit` at most; how many those were."""
        return len(await self._handle.fetch("drop_vectors", model=model, limit=limit))

    async def _read(self, matrix: VectorCache, model: str) -> None:
        """Take in all that this transaction sees and the matrix does not."""
        if matrix.version == 0:
            (last,) = await self._handle.fetch("last_slot", model=model)
            matrix.expect(last["slot"])
            read = self._read_codes if matrix.holds_codes_only else self._read_vectors
            await read(matrix, model)
        elif matrix.holds_codes_only:
            matrix.apply_codes(
                await self._handle.fetch("codes_since", model=model, version=matrix.version)
            )
        else:
            matrix.apply(
                await self._handle.fetch("vectors_since", model=model, version=matrix.version)
            )

    async def _read_vectors(self, matrix: VectorCache, model: str) -> None:
        after = 0
        while page := await self._handle.fetch(
            "page_of_vectors", model=model, after=after, limit=VECTORS_PAGE
        ):
            matrix.apply(page)
            after = page[-1]["slot"]

    async def _read_codes(self, matrix: VectorCache, model: str) -> None:
        after = 0
        chars = code_chars(matrix.dimensions)
        items = PAGE
        while items == PAGE:
            (page,) = await self._handle.fetch(
                "page_of_codes", model=model, after=after, code_chars=chars, limit=PAGE
            )
            items = page["items"]
            if not items:
                return
            after = page["last"]
            matrix.codes.put(
                np.fromstring(page["slots"], dtype=np.uint32, sep=" "),
                page["codes"],
                np.fromstring(page["documents"], dtype=np.uint32, sep=" "),
            )


class Searched:
    """The vectors that one search compares. What it has read is not read again."""

    def __init__(self, handle: BoundConnection, matrix: VectorCache, model: str) -> None:
        self._handle = handle
        self._matrix = matrix
        self._model = model
        self._read: dict[int, Floats] = {}

    async def nearest(self, query: Floats, allowed: Flags, limit: int) -> Slots:
        """The `limit` of the `allowed` documents that are likely to have the greatest cosines to
        `query`, in this order. Above `EXACT_UP_TO` vectors one of the nearest may be missing, and
        above `ROWS_UP_TO` two that are nearly as near may have changed places.
        """
        matrix = self._matrix
        if (cells := matrix.cells_to_make()) is not None:
            matrix.making = asyncio.get_running_loop().run_in_executor(None, cells.make)
        if matrix.codes.count <= INLINE_UP_TO:
            positions = matrix.candidates(query, limit, allowed)
        else:
            positions = await asyncio.to_thread(matrix.candidates, query, limit, allowed)
        cosines = matrix.cosines(query, positions)
        if cosines is not None:
            return best(matrix.codes.documents(positions).astype(np.int64), cosines, limit)[0]
        slots, rows = await self._rows(positions)
        # The database knows of some by a later number already, which is none of those allowed.
        known = slots < len(allowed)
        known[known] = allowed[slots[known]]
        slots, rows = slots[known], rows[known]
        nearest, _ = best(slots, cosines_to(query, rows), limit)
        chosen = np.flatnonzero(np.isin(slots, nearest))
        self._read |= {int(slots[place]): rows[place] for place in chosen}
        return nearest

    async def nearly(self, query: Floats, slots: Slots) -> tuple[Cosines, Flags]:
        """The cosine of each of these documents, not a number where it has no vector; and whether
        it is only nearly that, since only rounded vectors are held.
        """
        held = self._held_cosines(query, slots)
        if held is None:
            return await self.cosines(query, slots), np.zeros(len(slots), np.bool_)
        return held, ~np.isnan(held) & (not self._matrix.holds_rows)

    async def cosines(self, query: Floats, slots: Slots) -> Cosines:
        """The cosine of each of these documents, not a number where it has no vector."""
        held = self._held_cosines(query, slots) if self._matrix.holds_rows else None
        if held is not None:
            return held
        cosines = np.full(len(slots), np.nan)
        found = await self.at(slots.tolist())
        having = np.isin(slots, list(found))
        if found:
            rows = np.array([found[slot] for slot in slots[having].tolist()])
            cosines[having] = cosines_to(query, rows)
        return cosines

    def _held_cosines(self, query: Floats, slots: Slots) -> Cosines | None:
        """Those that memory tells, if it does."""
        positions = self._matrix.codes.at(slots)
        having = positions >= 0
        held = self._matrix.cosines(query, positions[having])
        if held is None:
            return None
        cosines = np.full(len(slots), np.nan)
        cosines[having] = held
        return cosines

    async def at(self, slots: Sequence[int]) -> dict[int, Floats]:
        """The stored vectors of those of these documents that have one."""
        if self._matrix.holds_rows:
            return await self._of(slots)
        missing = [slot for slot in slots if slot not in self._read]
        self._read |= await self._of(missing)
        return {slot: self._read[slot] for slot in slots if slot in self._read}

    async def _of(self, slots: Sequence[int]) -> dict[int, Floats]:
        positions = self._matrix.codes.at(np.array(slots, np.int64))
        found, rows = await self._rows(positions[positions >= 0])
        return dict(zip(found.tolist(), rows, strict=True))

    async def _rows(self, positions: Positions) -> tuple[Slots, Floats]:
        """The documents and vectors at these positions: where only codes are held, of those that
        the database has.
        """
        matrix = self._matrix
        if matrix.holds_rows or not len(positions):
            return matrix.codes.documents(positions).astype(np.int64), matrix.rows(positions)
        read = await self._handle.fetch(
            "vectors_at", model=self._model, slots=matrix.codes.slots(positions).tolist()
        )
        read = [row for row in read if len(row["vector"]) == 4 * matrix.dimensions]
        slots = np.array([row["document"] for row in read], np.int64)
        joined = np.frombuffer(b"".join(row["vector"] for row in read), dtype="<f4")
        return slots, joined.reshape(len(read), matrix.dimensions)
