"""What is held in memory of the vectors of one namespace and model, and what is near to a query."""

import asyncio
from collections.abc import Sequence

import numpy as np

from recall_server.storage.driver import Row
from recall_server.storage.index.codes import Codes, Flags, Floats, Positions, code_chars
from recall_server.storage.index.ivf import IvfIndex
from recall_server.storage.index.vector_store import Cosines, Rounded, Whole

# Up to here every vector is compared; above it only those whose codes agree best with the query.
EXACT_UP_TO = 4_096
# Up to here the vectors themselves are held, 1 KB each at 256 dimensions; above it those that a
# search finds are read from the database.
ROWS_UP_TO = 16_384
# Up to here all are held rounded (256 bytes), which tells well enough which of them to read; above
# it only their codes are (32 bytes).
ROUNDED_UP_TO = 131_072
# So many of those that are held are compared, for each hit and at least: chosen by their bits
# alone. Of texts of the bench 99.6 % of the ten nearest of 100,000 are among them.
ALIKE_MIN = 1_600
ALIKE_PER_HIT = 3
# Of which only codes are held so many are read to be compared: as many for each hit, and more the
# more lie as close together. Measured on texts of the bench, of which many say nearly the same: of
# the ten nearest there are among 320 of 100,000 98.8 %, of 1,000,000 98.7 % among 1,500.
SHORTLIST_MIN = 300
SHORTLIST_PER_HIT = 3
# For each of the two-thirds power of how many there are.
SHORTLIST_PER_POWER = 0.15
# So many times as many are chosen by their bits alone, which are quicker to compare.
FIRST_PER_LAST = 8
# Out of so many times as many, which lie in the cells nearest to the query: 144,000 of a million,
# among which are 99.6 % of the ten nearest.
SEEN_PER_LAST = 96
# IvfIndex pay off after some hundred searches: for whoever asks once none are made.
CELLS_AFTER = 16
# They are made anew when so large a share of all came since.
STRAYS_MAX = 1 / 16


class VectorCache:
    """The vectors of one namespace and model, as far as they are held. Which of them may be found
    is told by their documents.
    """

    def __init__(self, dimensions: int) -> None:
        self.version = 0
        self.dimensions = dimensions
        self.loading = asyncio.Lock()
        self.codes = Codes(dimensions)
        self._held: Whole | Rounded | None = Whole(dimensions)
        self._searches = 0
        # Those that a search looks into, and those that are being made.
        self._cells: IvfIndex | None = None
        self._next: IvfIndex | None = None
        self.making: asyncio.Future[None] | None = None

    @property
    def holds_rows(self) -> bool:
        """Whether the vectors are here as they are stored."""
        return isinstance(self._held, Whole)

    @property
    def holds_codes_only(self) -> bool:
        """Whether they are not even here rounded."""
        return self._held is None

    @property
    def bytes(self) -> int:
        held = (self._held, self._cells, self._next)
        return self.codes.bytes + sum(0 if one is None else one.bytes for one in held)

    def expect(self, count: int) -> None:
        """Make room for so many, and hold of each what is held of so many."""
        self.codes.reserve(count)
        if count > ROUNDED_UP_TO:
            self._held = None
        elif count > ROWS_UP_TO and isinstance(self._held, Whole):
            self._held = Rounded.of(self._held, count)

    def apply(self, changes: Sequence[Row]) -> None:
        """Take in vectors with their slots and documents."""
        size = 4 * self.dimensions
        rows = sorted(
            (row for row in changes if len(row["vector"]) == size), key=lambda row: row["slot"]
        )
        positions = self.apply_codes(rows)
        self.expect(self.codes.count)
        if self._held is not None and rows:
            vectors = np.frombuffer(b"".join(row["vector"] for row in rows), dtype="<f4")
            self._held.put(positions, vectors.reshape(len(rows), self.dimensions))

    def apply_codes(self, changes: Sequence[Row]) -> Positions:
        """Take in codes with their slots and documents, in the order of the slots; where they
        stand.
        """
        chars = code_chars(self.dimensions)
        rows = [row for row in changes if len(row["code"]) == chars]
        positions = self.codes.put(
            np.array([row["slot"] for row in rows], dtype=np.uint32),
            "".join(row["code"] for row in rows),
            np.array([row["document"] for row in rows], dtype=np.uint32),
        )
        for cells in (self._cells, self._next):
            if cells is not None:
                cells.stray(positions)
        return positions

    def cells_to_make(self) -> IvfIndex | None:
        """Cells that it is time to make, in a thread: what it takes grows with all there is. Until
        they are made, searches compare all codes.
        """
        self._searches += 1
        if self._next is not None and self._next.made:
            self._cells, self._next = self._next, None
            self._cells.open()
        if not (self.holds_codes_only and self.codes.count):
            return None
        if self._next is not None or self._searches < CELLS_AFTER:
            return None
        if self._cells is not None and self._cells.strays <= STRAYS_MAX * self.codes.count:
            return None
        self._next = IvfIndex(self.codes)
        return self._next

    def candidates(self, query: Floats, limit: int, allowed: Flags) -> Positions:
        """The positions worth comparing: all that are of `allowed` documents, or of these those
        nearest by their codes.
        """
        if self._held is None:
            more = SHORTLIST_PER_POWER * self.codes.count ** (2 / 3)
            last = max(SHORTLIST_MIN, SHORTLIST_PER_HIT * limit, int(more))
            return self.codes.agreeing(query, self._alike(query, allowed, last), last)
        findable = self.codes.of(allowed)
        if np.count_nonzero(findable) <= EXACT_UP_TO:
            return np.flatnonzero(findable)
        return self.codes.alike(query, findable, max(ALIKE_MIN, ALIKE_PER_HIT * limit))

    def _alike(self, query: Floats, allowed: Flags, last: int) -> Positions:
        """Those nearest by their bits, of all or of those in the nearest cells."""
        first = FIRST_PER_LAST * last
        if self._cells is None:
            return self.codes.alike(query, self.codes.of(allowed), first)
        return self._cells.alike(query, allowed, SEEN_PER_LAST * last, first)

    def cosines(self, query: Floats, positions: Positions) -> Cosines | None:
        """Of the vectors at these positions, nearly where they are rounded; None where there are
        codes only.
        """
        return None if self._held is None else self._held.cosines(query, positions)

    def rows(self, positions: Positions) -> Floats:
        """The vectors at these positions: none where they are not here as they are stored."""
        if isinstance(self._held, Whole):
            return self._held.at(positions)
        return np.zeros((0, self.dimensions), dtype=np.float32)
