"""What is held in memory of the vectors of one namespace and model, and what is near to a query."""

import asyncio
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from recall_server.storage.codes import GROWTH, Codes, Flags, Floats, Positions, code_chars
from recall_server.storage.driver import Row

# Up to here every vector is compared; above it only those whose codes agree best with the query.
EXACT_UP_TO = 4_096
# Up to here the vectors themselves are held, 1 KB each at 256 dimensions; above it only their codes
# (32 bytes), and those of the shortlist are read from the database.
ROWS_UP_TO = 16_384
# How many are compared exactly: as many for each hit, and more the more lie as close together.
# Measured on texts of the bench, of which many say nearly the same: of the 10 nearest 99.5 % are
# among 400 of 100,000, 98.8 % among 1,400 of 1,000,000.
SHORTLIST_MIN = 400
# Of vectors that are held here many more cost next to nothing.
SHORTLIST_HELD = 1_600
SHORTLIST_PER_HIT = 3
SHORTLIST_PER_ROOT = 1.4
# So many times as many are chosen by their bits alone, which are quicker to compare.
FIRST_PER_LAST = 6
# What Python takes to hold an id of 30 characters, in a list and as a key.
ID_BYTES = 200


class Matrix:
    """The findable vectors of one namespace and model, as far as they are held."""

    def __init__(self, dimensions: int, epoch: int = 0) -> None:
        self.version = 0
        self.epoch = epoch
        self.dimensions = dimensions
        self.loading = asyncio.Lock()
        self.codes = Codes(dimensions)
        self._ids: list[str] = []
        self._position: dict[str, int] = {}
        self._rows: Floats | None = np.zeros((0, dimensions), dtype=np.float32)

    @property
    def holds_rows(self) -> bool:
        """Whether the vectors are here, and not only their codes."""
        return self._rows is not None

    @property
    def bytes(self) -> int:
        rows = 0 if self._rows is None else self._rows.nbytes + ID_BYTES * len(self._ids)
        return rows + self.codes.bytes

    def forget_rows(self) -> None:
        """Hold codes only from now on."""
        self._rows, self._ids, self._position = None, [], {}

    def apply(self, changes: Sequence[Row]) -> None:
        """Take in vectors with their ids, slots and whether they are findable."""
        size = 4 * self.dimensions
        rows = sorted(
            (row for row in changes if len(row["vector"]) == size), key=lambda row: row["slot"]
        )
        positions = self.apply_codes(rows)
        if self.codes.count > ROWS_UP_TO:
            self.forget_rows()
        if self._rows is None or not rows:
            return
        if self.codes.count > len(self._rows):
            more = max(self.codes.count, int(GROWTH * len(self._rows))) - len(self._rows)
            self._rows = np.pad(self._rows, ((0, more), (0, 0)))
        vectors = np.frombuffer(b"".join(row["vector"] for row in rows), dtype="<f4")
        self._rows[positions] = vectors.reshape(len(rows), self.dimensions)
        for position, row in zip(positions.tolist(), rows, strict=True):
            if position == len(self._ids):
                self._ids.append(row["item_id"])
                self._position[row["item_id"]] = position

    def apply_codes(self, changes: Sequence[Row]) -> Positions:
        """Take in codes with their slots and whether they are findable, in the order of the slots;
        where they stand.
        """
        chars = code_chars(self.dimensions)
        rows = [row for row in changes if len(row["code"]) == chars]
        return self.codes.put(
            np.array([row["slot"] for row in rows], dtype=np.uint32),
            "".join(row["code"] for row in rows),
            np.array([row["findable"] for row in rows], dtype=np.bool_),
        )

    def nearest(
        self, query: Floats, limit: int, within: Sequence[str] | None = None
    ) -> dict[str, float]:
        """The ids of the `limit` rows with the greatest cosine to `query`, with it; of those
        `within`, if given. Only where it holds rows.

        Above `EXACT_UP_TO` rows one of the nearest may be missing, if its code tells too little.
        """
        assert self._rows is not None
        inside = None
        if within is not None:
            inside = np.array([self._position[i] for i in within if i in self._position], np.intp)
        candidates = self.candidates(query, limit, self.codes.findable(inside))
        return best(lambda i: self._ids[candidates[i]], self._rows[candidates], query, limit)

    def candidates(self, query: Floats, limit: int, findable: Flags) -> Positions:
        """The positions worth comparing: all findable ones, or those nearest by their codes."""
        if np.count_nonzero(findable) <= EXACT_UP_TO:
            return np.flatnonzero(findable)
        if self.holds_rows:
            last = max(SHORTLIST_HELD, SHORTLIST_PER_HIT * limit)
            return self.codes.narrowed(query, findable, last, last)
        root = SHORTLIST_PER_ROOT * math.sqrt(len(findable))
        last = max(SHORTLIST_MIN, SHORTLIST_PER_HIT * limit, int(root))
        return self.codes.narrowed(query, findable, FIRST_PER_LAST * last, last)

    def rows(self, ids: Sequence[str]) -> dict[str, Floats]:
        """The vectors of those of `ids` that are held here."""
        if self._rows is None:
            return {}
        return {i: self._rows[self._position[i]] for i in ids if i in self._position}


def best(id_at: Callable[[int], str], rows: Floats, query: Floats, limit: int) -> dict[str, float]:
    """The ids of the `limit` rows with the greatest cosine to `query`, with it; of equal ones the
    lesser ids.
    """
    if not len(rows):
        return {}
    cosines = _cosines(rows, query)
    last = len(rows) - min(limit, len(rows))
    chosen = np.flatnonzero(cosines >= np.partition(cosines, last)[last]).tolist()
    found = {id_at(i): float(cosines[i]) for i in chosen}
    return dict(sorted(found.items(), key=lambda pair: (-pair[1], pair[0]))[:limit])


def cosines_to(query: Floats, vectors: Sequence[Floats]) -> list[float]:
    """The cosine of each vector (of length 1) to `query`."""
    return _cosines(np.array(vectors), query).tolist() if vectors else []


def _cosines(rows: Floats, query: Floats) -> NDArray[np.float64]:
    """Row by row, so that none depends on which others stand beside it; a product of matrices
    would also wake threads that cost more than they save. Six places: beyond them is noise.
    """
    cosines: NDArray[np.float64] = np.vecdot(rows, query).astype(np.float64)
    return np.round(cosines, 6)
