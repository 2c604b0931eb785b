"""Vectors in memory, each at its position: as they are stored, or rounded to a quarter of that."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from recall_server.storage.index.codes import Floats, Positions, grown

Cosines = NDArray[np.float64]

# Of the greatest number of a vector.
STEPS = 127


class Whole:
    """Vectors as they are stored."""

    def __init__(self, dimensions: int) -> None:
        self.rows: Floats = np.zeros((0, dimensions), np.float32)

    @property
    def bytes(self) -> int:
        return self.rows.nbytes

    def put(self, positions: Positions, vectors: Floats) -> None:
        """Take in vectors at these positions, of which there may be more than there were."""
        self.rows = grown(self.rows, int(positions.max(initial=-1)) + 1)
        self.rows[positions] = vectors

    def at(self, positions: Positions) -> Floats:
        return self.rows[positions]

    def cosines(self, query: Floats, positions: Positions) -> Cosines:
        """Of the vectors at these positions."""
        return cosines_to(query, self.rows[positions])


class Rounded:
    """Vectors of which each number is rounded to a 127th of the greatest one. A product with a
    query of length 1 is then wrong by less than a thousandth, as a rule.
    """

    def __init__(self, dimensions: int, room: int) -> None:
        self._rows: NDArray[np.int8] = np.zeros((room, dimensions), np.int8)
        self._step: Floats = np.zeros(room, np.float32)

    @classmethod
    def of(cls, whole: Whole, room: int) -> Rounded:
        """The same vectors, rounded, with room for so many."""
        made = cls(whole.rows.shape[1], room)
        made.put(np.arange(len(whole.rows)), whole.rows)
        return made

    @property
    def bytes(self) -> int:
        return self._rows.nbytes + self._step.nbytes

    def put(self, positions: Positions, vectors: Floats) -> None:
        """Take in vectors at these positions, of which there may be more than there were."""
        wanted = int(positions.max(initial=-1)) + 1
        self._rows, self._step = grown(self._rows, wanted), grown(self._step, wanted)
        step = np.abs(vectors).max(axis=1, initial=0.0) / np.float32(STEPS)
        # Of nothing but zeros nothing is rounded.
        self._rows[positions] = np.rint(vectors / np.where(step > 0, step, 1)[:, None])
        self._step[positions] = step

    def cosines(self, query: Floats, positions: Positions) -> Cosines:
        """Of the vectors at these positions, nearly."""
        products = np.vecdot(self._rows[positions].astype(np.float32), query)
        cosines: Cosines = (products * self._step[positions]).astype(np.float64)
        return np.round(cosines, 6)


def cosines_to(query: Floats, rows: Floats) -> Cosines:
    """The cosine of each vector (of length 1) to `query`: row by row, so that none depends on which
    others stand beside it; a product of matrices would also wake threads that cost more than they
    save. Six places: beyond them is noise.
    """
    cosines: Cosines = np.vecdot(rows, query).astype(np.float64)
    return np.round(cosines, 6)
