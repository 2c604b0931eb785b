"""The vectors of one namespace and model in memory: as stored, rounded, or only their codes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from recall_server.storage.driver import Row
from recall_server.storage.index.codes import Codes, Flags, Floats, Positions, code_chars, grown

Cosines = NDArray[np.float64]

# Up to so many vectors are held as stored, 1 KB each at 256 dimensions.
WHOLE_UP_TO = 16_384
# Up to so many they are held rounded, in 300 bytes each, which tells the nearest well enough; only
# those that may become hits are read from the database. Above it codes alone are held, 45 bytes
# each, and a search reads hundreds: at 100,000 that would cost it 4 ms more.
ROUNDED_UP_TO = 131_072
# Up to so many every vector is compared; above it only those whose codes are nearest.
EXACT_UP_TO = 4_096
# The number compared of those held: among them are 99.9 % of the ten nearest of 100,000.
NEAREST_MIN = 1_600
NEAREST_PER_HIT = 3
# The number read from the database where only codes are held: so many for each two-thirds power of
# the number of vectors. Among them are 98 % of the ten nearest of a million.
READ_MIN = 300
READ_PER_HIT = 3
READ_PER_POWER = 0.15
# So many times as many are chosen by their bits alone, which are quicker to compare.
CHOSEN_PER_READ = 4
# The greatest number of a vector becomes this one.
ROUNDED_MAX = 127


class WholeVectors:
    """Vectors as they are stored, each at its position."""

    def __init__(self, dimensions: int) -> None:
        self.rows: Floats = np.zeros((0, dimensions), np.float32)

    @property
    def bytes(self) -> int:
        return self.rows.nbytes

    def put(self, positions: Positions, vectors: Floats) -> None:
        """Set the vectors at these positions."""
        self.rows = grown(self.rows, int(positions.max(initial=-1)) + 1)
        self.rows[positions] = vectors

    def at(self, positions: Positions) -> Floats:
        return self.rows[positions]

    def cosines(self, query: Floats, positions: Positions) -> Cosines:
        return cosines_to(query, self.rows[positions])


class RoundedVectors:
    """Vectors in steps of a 127th of their greatest number, each at its position. A product with a
    query of length 1 is wrong by less than a thousandth, as a rule.
    """

    def __init__(self, dimensions: int, capacity: int) -> None:
        self._rows: NDArray[np.int8] = np.zeros((capacity, dimensions), np.int8)
        self._step: Floats = np.zeros(capacity, np.float32)

    @classmethod
    def of(cls, whole: WholeVectors, capacity: int) -> RoundedVectors:
        """The same vectors, rounded, with room for so many."""
        made = cls(whole.rows.shape[1], capacity)
        made.put(np.arange(len(whole.rows)), whole.rows)
        return made

    @property
    def bytes(self) -> int:
        return self._rows.nbytes + self._step.nbytes

    def put(self, positions: Positions, vectors: Floats) -> None:
        """Set the vectors at these positions."""
        wanted = int(positions.max(initial=-1)) + 1
        self._rows, self._step = grown(self._rows, wanted), grown(self._step, wanted)
        step = np.abs(vectors).max(axis=1, initial=0.0) / np.float32(ROUNDED_MAX)
        # A vector of zeros is not rounded.
        self._rows[positions] = np.rint(vectors / np.where(step > 0, step, 1)[:, None])
        self._step[positions] = step

    def cosines(self, query: Floats, positions: Positions) -> Cosines:
        products = np.vecdot(self._rows[positions].astype(np.float32), query)
        cosines: Cosines = (products * self._step[positions]).astype(np.float64)
        return np.round(cosines, 6)


class VectorCache:
    """The vectors of one namespace and model, as far as they are in memory. Their documents tell
    which of them may be found.
    """

    def __init__(self, dimensions: int) -> None:
        self.version = 0
        self.dimensions = dimensions
        self.loading = asyncio.Lock()
        self.codes = Codes(dimensions)
        # None: only codes are held.
        self.vectors: WholeVectors | RoundedVectors | None = WholeVectors(dimensions)

    @property
    def stored(self) -> WholeVectors | None:
        """The vectors as they are stored, where they are held so."""
        return self.vectors if isinstance(self.vectors, WholeVectors) else None

    @property
    def bytes(self) -> int:
        return self.codes.bytes + (self.vectors.bytes if self.vectors is not None else 0)

    def reserve(self, count: int) -> None:
        """Make room for so many vectors, in the form in which so many are held."""
        self.codes.reserve(count)
        if count > ROUNDED_UP_TO:
            self.vectors = None
        elif count > WHOLE_UP_TO and isinstance(self.vectors, WholeVectors):
            self.vectors = RoundedVectors.of(self.vectors, count)

    def apply(self, changes: Sequence[Row]) -> None:
        """Take in vectors with their codes, slots and documents."""
        size = 4 * self.dimensions
        rows = sorted(
            (row for row in changes if len(row["vector"]) == size), key=lambda row: row["slot"]
        )
        positions = self.apply_codes(rows)
        self.reserve(self.codes.count)
        if self.vectors is not None and rows:
            vectors = np.frombuffer(b"".join(row["vector"] for row in rows), dtype="<f4")
            self.vectors.put(positions, vectors.reshape(len(rows), self.dimensions))

    def apply_codes(self, changes: Sequence[Row]) -> Positions:
        """Take in codes with their slots and documents, in the order of the slots; their
        positions.
        """
        chars = code_chars(self.dimensions)
        rows = [row for row in changes if len(row["code"]) == chars]
        return self.codes.put(
            np.array([row["slot"] for row in rows], dtype=np.uint32),
            "".join(row["code"] for row in rows),
            np.array([row["document"] for row in rows], dtype=np.uint32),
        )

    def candidates(self, query: Floats, limit: int, allowed: Flags) -> Positions:
        """The positions to compare: those of all `allowed` documents, or of these the nearest by
        their codes.
        """
        findable = self.codes.of(allowed)
        if self.vectors is None:
            power = int(READ_PER_POWER * self.codes.count ** (2 / 3))
            wanted = max(READ_MIN, READ_PER_HIT * limit, power)
            chosen = self.codes.nearest(query, findable, CHOSEN_PER_READ * wanted)
            return self.codes.agreeing(query, chosen, wanted)
        if np.count_nonzero(findable) <= EXACT_UP_TO:
            return np.flatnonzero(findable)
        return self.codes.nearest(query, findable, max(NEAREST_MIN, NEAREST_PER_HIT * limit))


def cosines_to(query: Floats, rows: Floats) -> Cosines:
    """The cosine of each vector (of length 1) to `query`: row by row, so that none depends on which
    others stand beside it; a product of matrices would also wake threads that cost more than they
    save. Six places: beyond them is noise.
    """
    cosines: Cosines = np.vecdot(rows, query).astype(np.float64)
    return np.round(cosines, 6)
