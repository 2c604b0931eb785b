"""What is held in memory of the vectors of one namespace and model, and what is near to a query."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

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
# Measured on texts of the bench, of which many say nearly the same: of the 10 nearest there are
# among 320 of 100,000 98.8 %, of 1,000,000 97.7 % among 1,000, and 98.8 % among 1,400.
SHORTLIST_MIN = 300
# Of vectors that are held here many more cost next to nothing.
SHORTLIST_HELD = 1_600
SHORTLIST_PER_HIT = 3
# For each of the two-thirds power of how many there are.
SHORTLIST_PER_POWER = 0.15
# So many times as many are chosen by their bits alone, which are quicker to compare.
FIRST_PER_LAST = 8

Cosines = NDArray[np.float64]


class Near(NamedTuple):
    """Documents by their slots, and the cosine of each, the greatest first."""

    slots: NDArray[np.int64]
    cosines: Cosines


class Matrix:
    """The vectors of one namespace and model, as far as they are held. Which of them may be found
    is told by their documents.
    """

    def __init__(self, dimensions: int) -> None:
        self.version = 0
        self.dimensions = dimensions
        self.loading = asyncio.Lock()
        self.codes = Codes(dimensions)
        self._rows: Floats | None = np.zeros((0, dimensions), dtype=np.float32)

    @property
    def holds_rows(self) -> bool:
        """Whether the vectors are here, and not only their codes."""
        return self._rows is not None

    @property
    def bytes(self) -> int:
        return self.codes.bytes + (0 if self._rows is None else self._rows.nbytes)

    def forget_rows(self) -> None:
        """Hold codes only from now on."""
        self._rows = None

    def apply(self, changes: Sequence[Row]) -> None:
        """Take in vectors with their slots and documents."""
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

    def apply_codes(self, changes: Sequence[Row]) -> Positions:
        """Take in codes with their slots and documents, in the order of the slots; where they
        stand.
        """
        chars = code_chars(self.dimensions)
        rows = [row for row in changes if len(row["code"]) == chars]
        return self.codes.put(
            np.array([row["slot"] for row in rows], dtype=np.uint32),
            "".join(row["code"] for row in rows),
            np.array([row["document"] for row in rows], dtype=np.uint32),
        )

    def candidates(self, query: Floats, limit: int, allowed: Flags) -> Positions:
        """The positions worth comparing: all that are of `allowed` documents, or of these those
        nearest by their codes.
        """
        findable = self.codes.of(allowed)
        if np.count_nonzero(findable) <= EXACT_UP_TO:
            return np.flatnonzero(findable)
        if self.holds_rows:
            last = max(SHORTLIST_HELD, SHORTLIST_PER_HIT * limit)
            return self.codes.narrowed(query, findable, last, last)
        more = SHORTLIST_PER_POWER * len(findable) ** (2 / 3)
        last = max(SHORTLIST_MIN, SHORTLIST_PER_HIT * limit, int(more))
        return self.codes.narrowed(query, findable, FIRST_PER_LAST * last, last)

    def rows(self, positions: Positions) -> Floats:
        """The vectors at these positions: none where it holds codes only."""
        if self._rows is None:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        return self._rows[positions]


def cosines_to(query: Floats, rows: Floats) -> Cosines:
    """The cosine of each vector (of length 1) to `query`: row by row, so that none depends on which
    others stand beside it; a product of matrices would also wake threads that cost more than they
    save. Six places: beyond them is noise.
    """
    cosines: Cosines = np.vecdot(rows, query).astype(np.float64)
    return np.round(cosines, 6)
