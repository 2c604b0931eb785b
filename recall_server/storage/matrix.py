"""The vectors of one namespace and model in memory, and the ones nearest to a query."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recall_server.storage.driver import Row

# Up to here every vector is compared; above it only those whose signs agree best with the query's.
EXACT_UP_TO = 4_096
# Measured: 1,600 of 10,000 hold 99.9 % of the 40 nearest, at a fifth of the bytes read.
SHORTLIST_MIN = 1_600
SHORTLIST_PER_HIT = 40
BITS = 64

Floats = NDArray[np.float32]
Signs = NDArray[np.uint64]


class Matrix:
    """The findable vectors of one namespace and model, as rows.

    Beside each row stand the signs of its numbers, a thirty-second of its size. How many signs
    differ approximates the angle (Charikar 2002), so a large matrix is narrowed by them, and what
    is left is compared exactly. Both depend on the vectors alone, not on the order of the rows.
    """

    def __init__(self, dimensions: int, epoch: int = 0) -> None:
        self.version = 0
        self.epoch = epoch
        self._dimensions = dimensions
        self._ids: list[str] = []
        self._position: dict[str, int] = {}
        self._rows: Floats = np.zeros((64, dimensions), dtype=np.float32)
        # One row per 64 dimensions, so that a scan reads memory in order.
        self._signs: Signs = np.zeros((-(-dimensions // BITS), 64), dtype=np.uint64)
        self._findable: NDArray[np.bool_] = np.zeros(64, dtype=np.bool_)

    @property
    def bytes(self) -> int:
        return self._rows.nbytes + self._signs.nbytes

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
            self._signs[:, position] = _signs(vector)
            self._findable[position] = bool(row["findable"])
        if changes:
            self.version = changes[-1]["version"]

    def _grow(self, wanted: int) -> None:
        capacity = len(self._rows)
        if wanted <= capacity:
            return
        while capacity < wanted:
            capacity *= 2
        more = capacity - len(self._rows)
        self._rows = np.pad(self._rows, ((0, more), (0, 0)))
        self._signs = np.pad(self._signs, ((0, 0), (0, more)))
        self._findable = np.pad(self._findable, (0, more))

    def nearest(
        self, query: Floats, limit: int, within: Sequence[str] | None = None
    ) -> dict[str, float]:
        """The ids of the `limit` rows with the greatest cosine to `query`, with it; of those
        `within`, if given.

        Above `EXACT_UP_TO` rows one of the nearest may be missing, if its signs tell too little.
        """
        if not np.any(query):
            return {}
        candidates = self._candidates(query, limit, self._open(within))
        if not len(candidates):
            return {}
        cosines = _cosines(self._rows[candidates], query)
        last = len(candidates) - min(limit, len(candidates))
        # All that are as close as the last one are candidates; which stay is decided by id.
        best = np.flatnonzero(cosines >= np.partition(cosines, last)[last])
        found = {self._ids[candidates[i]]: float(cosines[i]) for i in best}
        return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:limit])

    def _open(self, within: Sequence[str] | None) -> NDArray[np.bool_]:
        """Which rows may be found at all."""
        findable = self._findable[: len(self._ids)]
        if within is None:
            return findable
        inside = np.zeros(len(self._ids), dtype=np.bool_)
        inside[[self._position[i] for i in within if i in self._position]] = True
        return inside & findable

    def _candidates(
        self, query: Floats, limit: int, findable: NDArray[np.bool_]
    ) -> NDArray[np.intp]:
        """The positions worth comparing: all findable ones, or those nearest by their signs."""
        count = int(np.count_nonzero(findable))
        if count <= EXACT_UP_TO:
            return np.flatnonzero(findable)
        count = len(self._ids)
        asked = _signs(query)
        apart = np.zeros(count, dtype=np.uint16)
        for mine, theirs in zip(asked, self._signs, strict=True):
            apart += np.bitwise_count(theirs[:count] ^ mine)
        apart[~findable] = np.iinfo(np.uint16).max
        wanted = min(max(SHORTLIST_MIN, SHORTLIST_PER_HIT * limit), count)
        # All that are as close as the last one, or the order of the rows would decide.
        furthest = np.partition(apart, wanted - 1)[wanted - 1]
        return np.flatnonzero((apart <= furthest) & findable)

    def rows(self, ids: Sequence[str]) -> dict[str, Floats]:
        """The stored vectors of those of `ids` that have one."""
        return {i: self._rows[self._position[i]] for i in ids if i in self._position}


def cosines_to(query: Floats, vectors: Sequence[Floats]) -> list[float]:
    """The cosine of each vector (of length 1) to `query`."""
    return _cosines(np.array(vectors), query).tolist() if vectors else []


def _cosines(rows: Floats, query: Floats) -> NDArray[np.float64]:
    """Row by row, so that none depends on which others stand beside it; a product of matrices
    would also wake threads that cost more than they save. Six places: beyond them is noise.
    """
    cosines: NDArray[np.float64] = np.vecdot(rows, query).astype(np.float64)
    return np.round(cosines, 6)


def _signs(vector: Floats) -> Signs:
    bits = np.packbits(vector > 0)
    return np.pad(bits, (0, -len(bits) % 8)).view(np.uint64)
