"""The shelf of vectors, and the matrices kept in memory so that a search reads only what changed.

Every change of a namespace's vectors takes the next version under that namespace's lock, so a
cache that has seen version n misses exactly the rows with a greater one.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np

from recall_server.domain.model import Namespace
from recall_server.storage.handle import Handle
from recall_server.storage.matrix import Floats, Matrix


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
        while len(self._matrices) > 1 and self._total() > self._bytes_max:
            self._matrices.popitem(last=False)
        return matrix

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

    async def matrix(self, model: str, dimensions: int, version: int, epoch: int) -> Matrix:
        """The matrix of this namespace as of `version` or later, reading only what changed since;
        all, where something was erased.
        """
        assert self._handle.namespace is not None
        matrix = self._index.matrix(self._handle.namespace, model, dimensions, epoch)
        if matrix.version < version:
            changes = await self._handle.fetch("vectors_since", model=model, version=matrix.version)
            # Another search may have taken in some of them while this one waited.
            matrix.apply([row for row in changes if row["version"] > matrix.version])
        return matrix

    async def of(self, model: str, ids: Sequence[str]) -> dict[str, Floats]:
        """The vectors of those of `ids` that have one, by id."""
        rows = await self._handle.fetch("vectors_of", model=model, ids=list(ids))
        return {row["item_id"]: np.frombuffer(row["vector"], dtype="<f4") for row in rows}

    async def bare(self, model: str, episode_ids: Sequence[str]) -> dict[str, str]:
        """What search finds of these episodes and has no vector of the model: id to episode."""
        rows = await self._handle.fetch("bare_of_episodes", model=model, episodes=list(episode_ids))
        return {row["id"]: row["episode_id"] for row in rows}

    async def findable(self, ids: Sequence[str]) -> set[str]:
        """Those of `ids` that search finds."""
        rows = await self._handle.fetch("findable_among", ids=list(ids)) if ids else []
        return {row["id"] for row in rows}
