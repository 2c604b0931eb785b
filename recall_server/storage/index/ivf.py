"""The codes of a large namespace in cells, each around a centre: a search looks into the nearest of
them instead of going through all (an inverted file; Jegou, Douze & Schmid 2011).
"""

from __future__ import annotations

from math import isqrt

import numpy as np

from recall_server.storage.index.codes import Codes, Flags, Floats, Positions, Words, alike

# So many centres for each square root of how many codes there are: at a million 500 cells of some
# 2,000.
CENTRES_PER_ROOT = 0.5
# Codes that the centres are taken from, and how often they are moved into the middle of theirs.
SAMPLE = 16_384
ROUNDS = 6
# Codes that are compared with all centres at a time: 8 MB.
AT_ONCE = 4_096


class IvfIndex:
    """Which of the codes that were there once lie nearest to which centre (k-means, Lloyd 1982).
    What came, or was another, since then is a stray, which every search looks at.

    The centres are taken from codes at fixed places, without chance: whoever holds the same codes
    makes the same cells.
    """

    def __init__(self, codes: Codes) -> None:
        self._codes = codes
        self._count = codes.count
        self._strays: Positions = np.zeros(0, np.intp)
        self._centres: Floats = np.zeros((0, 0), np.float32)
        # Cell after cell: the positions, what is there, of what that is, and whether it still is.
        self._positions = np.zeros(0, np.uint32)
        self._words: Words = np.zeros((0, 0), np.uint64)
        self._documents = np.zeros(0, np.uint32)
        self._still: Flags = np.zeros(0, np.bool_)
        self._starts: Positions = np.zeros(1, np.intp)
        # Where each position is among them.
        self._places = np.zeros(0, np.uint32)
        self.made = False

    @property
    def bytes(self) -> int:
        of_each = (self._positions, self._words, self._documents, self._still, self._places)
        return sum(array.nbytes for array in (*of_each, self._strays, self._centres, self._starts))

    @property
    def strays(self) -> int:
        return len(self._strays)

    def stray(self, positions: Positions) -> None:
        """These came, or are others, since it was begun."""
        self._strays = np.union1d(self._strays, positions)
        if self.made:
            self._leave(positions)

    def make(self) -> None:
        """Find the centres, and what lies nearest to each: 2 s for a million, on two processors.
        In a thread: what is put in meanwhile is a stray.
        """
        chosen = np.linspace(0, self._count - 1, min(self._count, SAMPLE)).astype(np.intp)
        sample = self._codes.signs(chosen)
        wanted = max(1, int(CENTRES_PER_ROOT * isqrt(self._count)))
        centres = _unit(sample[:: -(-len(sample) // wanted)])
        for _ in range(ROUNDS):
            sums = np.zeros_like(centres)
            np.add.at(sums, self._nearest(chosen, centres), sample)
            # Around which there is nothing any more stays where it is.
            centres = np.where(sums.any(axis=1, keepdims=True), _unit(sums), centres)
        cells = self._nearest(np.arange(self._count), centres)
        order = np.argsort(cells, kind="stable")
        self._centres = centres
        self._starts = np.searchsorted(cells[order], np.arange(len(centres) + 1))
        self._positions = order.astype(np.uint32)
        self._words = self._codes.words(order)
        self._documents = self._codes.documents(order)
        self._still = np.ones(self._count, np.bool_)
        self._places = np.empty(self._count, np.uint32)
        self._places[order] = np.arange(self._count, dtype=np.uint32)
        self.made = True

    def _nearest(self, positions: Positions, centres: Floats) -> Positions:
        """The centre nearest to the code at each position."""
        parts = np.split(positions, range(AT_ONCE, len(positions), AT_ONCE))
        return np.concatenate(
            [(self._codes.signs(part) @ centres.T).argmax(axis=1) for part in parts]
        )

    def open(self) -> None:
        """Let searches look into what was made, and not where strays were."""
        self._leave(self._strays)

    def _leave(self, positions: Positions) -> None:
        self._still[self._places[positions[positions < self._count]]] = False

    def alike(self, query: Floats, allowed: Flags, seen: int, wanted: int) -> Positions:
        """The about `wanted` positions that differ from `query` in the fewest bits, of the strays
        and of those in the cells nearest to it: so many that about `seen` of them are `allowed`, or
        all of the cells.
        """
        strays = self._strays
        # Before it is told how many documents there are: others may come beside a thread.
        of_strays = self._codes.documents(strays)
        allowed = self._codes.all_of(allowed)
        order = np.argsort(-(self._centres @ query), kind="stable")
        firsts, lasts = self._starts[order], self._starts[order + 1]
        held = np.cumsum(lasts - firsts)
        positions = [strays]
        words = [self._codes.words(strays)]
        findable = [allowed.take(of_strays)]
        count, cell = 0, 0
        while count < seen and cell < len(order):
            # As many as are missing, as if all of them were allowed.
            before = held[cell - 1] if cell else 0
            end = int(np.searchsorted(held, before + seen - count)) + 1
            for first, last in zip(firsts[cell:end], lasts[cell:end], strict=True):
                inside = slice(first, last)
                positions.append(self._positions[inside].astype(np.intp))
                words.append(self._words[:, inside])
                findable.append(allowed.take(self._documents[inside]) & self._still[inside])
                count += int(np.count_nonzero(findable[-1]))
            cell = end
        near = alike(np.concatenate(words, axis=1), query, np.concatenate(findable), wanted)
        return np.sort(np.concatenate(positions).take(near))


def _unit(rows: Floats) -> Floats:
    unit: Floats = rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1.0)
    return unit.astype(np.float32)
