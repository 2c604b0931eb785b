"""The shelf of vectors, and the matrices kept in memory so that a search reads only what changed.

Every change of a namespace's vectors takes the next version under that namespace's lock, so a
cache that has seen version n misses exactly the rows with a greater one.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.model import Namespace
from recall_server.storage.driver import Row
from recall_server.storage.handle import Handle

Floats = NDArray[np.float32]


class Matrix:
    """The findable vectors of one namespace and model, as rows."""

    def __init__(self, dimensions: int) -> None:
        self.version = 0
        self._dimensions = dimensions
        self._ids: list[str] = []
        self._position: dict[str, int] = {}
        self._rows: Floats = np.zeros((64, dimensions), dtype=np.float32)
        self._findable: NDArray[np.bool_] = np.zeros(64, dtype=np.bool_)

    @property
    def bytes(self) -> int:
        return self._rows.nbytes

    def apply(self, changes: Sequence[Row]) -> None:
        """Take in rows in the order of their versions."""
        self._grow(len(self._ids) + len(changes))
        for row in changes:
            vector = np.frombuffer(row["vector"], dtype="<f4")
            if vector.shape != (self._dimensions,):
                continue
            position = self._position.setdefault(row["item_id"], len(self._ids))
            if position == len(self._ids):
                self._ids.append(row["item_id"])
            self._rows[position] = vector
            self._findable[position] = bool(row["findable"])
        if changes:
            self.version = changes[-1]["version"]

    def _grow(self, wanted: int) -> None:
        capacity = len(self._rows)
        if wanted <= capacity:
            return
        while capacity < wanted:
            capacity *= 2
        rows = np.zeros((capacity, self._dimensions), dtype=np.float32)
        rows[: len(self._rows)] = self._rows
        findable = np.zeros(capacity, dtype=np.bool_)
        findable[: len(self._findable)] = self._findable
        self._rows, self._findable = rows, findable

    def nearest(self, query: Floats, limit: int) -> dict[str, float]:
        """The ids of the `limit` rows with the greatest cosine to `query`, with it.

        Rounded to six places: what is beyond differs with the order of the rows.
        """
        count = len(self._ids)
        if not count or not np.any(query):
            return {}
        cosines = self._rows[:count] @ query
        cosines[~self._findable[:count]] = -np.inf
        last = count - min(limit, count)
        # Rows as close as the last one are all candidates; which stay is decided by id.
        best = np.flatnonzero(cosines >= np.partition(cosines, last)[last] - 1e-6)
        found = {self._ids[i]: round(float(cosines[i]), 6) for i in best if cosines[i] > -np.inf}
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:limit])

    def rows(self, ids: Sequence[str]) -> dict[str, Floats]:
        """The stored vectors of those of `ids` that have one."""
        return {i: self._rows[self._position[i]] for i in ids if i in self._position}


class VectorIndex:
    """Matrices of the namespaces searched last, within `bytes_max`."""

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._matrices: OrderedDict[tuple[Namespace, str], Matrix] = OrderedDict()

    def matrix(self, namespace: Namespace, model: str, dimensions: int) -> Matrix:
        key = (namespace, model)
        matrix = self._matrices.setdefault(key, Matrix(dimensions))
        self._matrices.move_to_end(key)
        while len(self._matrices) > 1 and self._total() > self._bytes_max:
            self._matrices.popitem(last=False)
        return matrix

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
        version = await self._next_version()
        await self._handle.many(
            "put_vector",
            [
                {
                    "model": model,
                    "item_id": item_id,
                    "vector": vector.astype("<f4").tobytes(),
                    "version": version,
                }
                for item_id, vector in vectors.items()
            ],
        )

    async def conceal(self, ids: Sequence[str]) -> None:
        """Take items out of the vector search; their vectors stay."""
        if not ids:
            return
        version = await self._next_version()
        await self._handle.many(
            "conceal_vector", [{"item_id": item_id, "version": version} for item_id in ids]
        )

    async def _next_version(self) -> int:
        rows = await self._handle.fetch("next_vector_version")
        return int(rows[0]["vector_version"])

    async def matrix(self, model: str, dimensions: int, version: int) -> Matrix:
        """The matrix of this namespace as of `version` or later, reading only what changed."""
        assert self._handle.namespace is not None
        matrix = self._index.matrix(self._handle.namespace, model, dimensions)
        if matrix.version < version:
            changes = await self._handle.fetch("vectors_since", model=model, version=matrix.version)
            # Another search may have taken in some of them while this one waited.
            matrix.apply([row for row in changes if row["version"] > matrix.version])
        return matrix
