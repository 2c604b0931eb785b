"""The shelf of vectors, and what is held of them in memory: a search reads only what changed.

Every change of a namespace's vectors takes the next version under that namespace's lock, so a
cache that has seen version n misses exactly the rows with a greater one.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from recall_server.domain.model import Namespace
from recall_server.storage.codes import Floats, Positions, code, code_chars
from recall_server.storage.handle import Handle
from recall_server.storage.index import Statistics
from recall_server.storage.matrix import ROWS_UP_TO, Matrix, best

# Codes that are read at a time: about 5 MB of text.
PAGE = 65_536
# Up to here codes are compared at once (2 ms); more of them in a thread, beside other calls.
INLINE_UP_TO = 262_144


class VectorIndex:
    """Matrices of the namespaces searched last, within `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._matrices: OrderedDict[tuple[Namespace, str], Matrix] = OrderedDict()

    def matrix(self, namespace: Namespace, model: str, dimensions: int, epoch: int) -> Matrix:
        """What is held of a namespace as of `epoch`: nothing that was erased before it."""
        key = (namespace, model)
        matrix = self._matrices.setdefault(key, Matrix(dimensions, epoch))
        if matrix.epoch > epoch:
            # Who still sees the state before the erasure must not put it back for the others.
            return Matrix(dimensions, epoch)
        if matrix.epoch < epoch:
            matrix = self._matrices[key] = Matrix(dimensions, epoch)
        self._matrices.move_to_end(key)
        return matrix

    def trim(self) -> None:
        """Hold no more than the budget, but for the one that was searched last."""
        while len(self._matrices) > 1 and self._total() > self._bytes_max:
            self._matrices.popitem(last=False)

    def drop(self, namespace: Namespace) -> None:
        """Hold nothing of a namespace."""
        for key in [key for key in self._matrices if key[0] == namespace]:
            del self._matrices[key]

    def _total(self) -> int:
        return sum(matrix.bytes for matrix in self._matrices.values())


class Vectors:
    """Vectors keyed by (item, model) (FEATURES C12)."""

    def __init__(self, handle: Handle, index: VectorIndex) -> None:
        self._handle = handle
        self._index = index
        # What the search has looked at is what is asked for next.
        self._searched: Matrix | None = None
        self._read_now: dict[str, Floats] = {}

    async def put(self, model: str, vectors: Mapping[str, Floats]) -> None:
        """Store one vector per item id."""
        if not vectors:
            return
        await self._handle.send("next_vector_version")
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

    async def conceal(self, ids: Sequence[str]) -> None:
        """Take items out of the vector search; their vectors stay."""
        if not ids:
            return
        await self._handle.send("next_vector_version")
        await self._handle.many("conceal_vector", [{"item_id": item_id} for item_id in ids])

    async def reveal(self, item_id: str) -> None:
        """Undo `conceal`."""
        await self._handle.send("next_vector_version")
        await self._handle.send("reveal_vector", item_id=item_id)

    async def nearest(
        self,
        model: str,
        dimensions: int,
        statistics: Statistics,
        query: Floats,
        *,
        limit: int,
        within: Sequence[str] | None = None,
    ) -> dict[str, float]:
        """The ids of the `limit` findable items with the greatest cosine to `query`, with it; of
        those `within`, if given. As of `statistics` or later.

        Above `EXACT_UP_TO` vectors one of the nearest may be missing; what is found has the cosine
        of the stored vectors in any case.
        """
        if not np.any(query):
            return {}
        matrix = self._searched = await self._matrix(model, dimensions, statistics)
        if matrix.holds_rows:
            return matrix.nearest(query, limit, within)
        inside = None if within is None else await self._positions(matrix, model, within)
        candidates = await _candidates(matrix, query, limit, inside)
        slots = matrix.codes.slots(candidates).tolist()
        rows = await self._handle.fetch("vectors_at", model=model, slots=slots)
        rows = [row for row in rows if len(row["vector"]) == 4 * dimensions]
        vectors = np.frombuffer(b"".join(row["vector"] for row in rows), dtype="<f4")
        read = vectors.reshape(len(rows), dimensions)
        ids = [row["item_id"] for row in rows]
        self._read_now = dict(zip(ids, read, strict=True))
        return best(ids.__getitem__, read, query, limit)

    async def of(self, model: str, ids: Sequence[str]) -> dict[str, Floats]:
        """The stored vectors of those of `ids` that have one."""
        if self._searched is not None and self._searched.holds_rows:
            return self._searched.rows(ids)
        missing = [i for i in ids if i not in self._read_now]
        if missing:
            rows = await self._handle.fetch("vectors_of", model=model, ids=missing)
            self._read_now |= {r["item_id"]: np.frombuffer(r["vector"], dtype="<f4") for r in rows}
        return {i: self._read_now[i] for i in ids if i in self._read_now}

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

    async def _positions(self, matrix: Matrix, model: str, ids: Sequence[str]) -> Positions:
        rows = await self._handle.fetch("slots_of", model=model, ids=list(ids))
        return matrix.codes.at(np.array([row["slot"] for row in rows], dtype=np.uint32))

    async def _matrix(self, model: str, dimensions: int, statistics: Statistics) -> Matrix:
        """What is held of this namespace as of `statistics` or later, reading only what changed
        since; all, where something was erased.
        """
        assert self._handle.namespace is not None
        matrix = self._index.matrix(
            self._handle.namespace, model, dimensions, statistics.erase_epoch
        )
        if matrix.version < statistics.vector_version:
            async with matrix.loading:
                # Another search may have taken it in while this one waited.
                if matrix.version < statistics.vector_version:
                    await self._read(matrix, model)
                    matrix.version = statistics.vector_version
            self._index.trim()
        return matrix

    async def _read(self, matrix: Matrix, model: str) -> None:
        """Take in all that this transaction sees and the matrix does not."""
        if matrix.version == 0:
            (last,) = await self._handle.fetch("last_slot", model=model)
            if last["slot"] > ROWS_UP_TO:
                await self._read_codes(matrix, model)
                return
        if matrix.holds_rows:
            matrix.apply(
                await self._handle.fetch("vectors_since", model=model, version=matrix.version)
            )
        else:
            matrix.apply_codes(
                await self._handle.fetch("codes_since", model=model, version=matrix.version)
            )

    async def _read_codes(self, matrix: Matrix, model: str) -> None:
        matrix.forget_rows()
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
                np.fromstring(page["slots"], dtype=np.uint32, sep=","),
                page["codes"],
                np.frombuffer(page["findable"].encode(), dtype=np.uint8) == ord("1"),
            )


async def _candidates(
    matrix: Matrix, query: Floats, limit: int, inside: Positions | None
) -> Positions:
    findable = matrix.codes.findable(inside)
    if len(findable) <= INLINE_UP_TO:
        return matrix.candidates(query, limit, findable)
    return await asyncio.to_thread(matrix.candidates, query, limit, findable)
