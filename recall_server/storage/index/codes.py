"""Codes of vectors, one bit for each dimension: they tell the nearest without the vectors."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

WORD_BITS = 64
# So many codes are compared at a time that they stay in the cache of the processor.
CHUNK = 65_536
# A full array grows by a quarter: doubled, a million codes would leave 32 MB unused.
GROWTH = 1.25

Floats = NDArray[np.float32]
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Positions = NDArray[np.intp]

Kind = TypeVar("Kind", bound=np.generic)


def code(vector: Floats) -> str:
    """The signs of a vector as hexadecimal digits: a 1 for each number that is not negative."""
    return np.packbits(~np.signbit(vector)).tobytes().hex()


def code_chars(dimensions: int) -> int:
    """How many digits the code of so many dimensions has."""
    return 2 * -(-dimensions // 8)


class Codes:
    """The codes of the vectors of one namespace and model, each at a position.

    A vector's slot is its number in the database; positions are in the order of the slots. Its
    document is the slot of the item that it belongs to. The number of bits in which two codes
    differ approximates the angle between their vectors (Charikar 2002); where all numbers of the
    query are known, their sum with the signs of the code is closer (Dong, Charikar & Li 2008). Both
    depend on the vectors alone, not on their order.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._words: Words = np.zeros((-(-dimensions // WORD_BITS), 0), dtype=np.uint64)
        self._slots: NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)
        self._documents: NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)
        # The position of the vector of a document, -1 where there is none.
        self._position: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.count = 0

    @property
    def bytes(self) -> int:
        arrays = (self._words, self._slots, self._documents, self._position)
        return sum(array.nbytes for array in arrays)

    def put(
        self, slots: NDArray[np.uint32], codes: str, documents: NDArray[np.uint32]
    ) -> Positions:
        """Take in codes, joined in `codes` in the order of their slots, with their documents; their
        positions. A new slot is greater than all that are held.
        """
        held = self._slots[: self.count]
        positions = np.searchsorted(held, slots)
        if not len(slots):
            return positions
        fresh = ~np.isin(slots, held, assume_unique=True)
        positions[fresh] = np.arange(self.count, self.count + np.count_nonzero(fresh))
        self.reserve(self.count + int(np.count_nonzero(fresh)))
        self._slots[positions] = slots
        self._words[:, positions] = _words(bytes.fromhex(codes), len(slots)).T
        last = int(documents.max())
        self._position = grown(self._position, last + 1, fill=-1)
        self._position[documents] = positions
        self._documents[positions] = documents
        self.count += int(np.count_nonzero(fresh))
        return positions

    def reserve(self, wanted: int) -> None:
        """Make room for so many."""
        self._slots = grown(self._slots, wanted)
        self._words = grown(self._words, wanted, axis=1)
        self._documents = grown(self._documents, wanted)

    def slots(self, positions: Positions) -> NDArray[np.uint32]:
        return self._slots[positions]

    def documents(self, positions: Positions) -> NDArray[np.uint32]:
        return self._documents[positions]

    def at(self, documents: NDArray[np.int64]) -> Positions:
        """The position of the vector of each document, -1 where there is none."""
        found = np.full(len(documents), -1)
        inside = documents < len(self._position)
        found[inside] = self._position[documents[inside]]
        return found

    def of(self, allowed: Flags) -> Flags:
        """For each position whether its document is one of `allowed`."""
        # A copy: a search in a thread must not see those that are added meanwhile.
        documents = self._documents[: self.count].copy()
        missing = len(self._position) - len(allowed)
        if missing > 0:
            allowed = np.pad(allowed, (0, missing))
        # Takes half the time of an index in brackets.
        return allowed.take(documents)

    def nearest(self, query: Floats, findable: Flags, wanted: int) -> Positions:
        """About `wanted` positions among `findable`: those that differ from `query` in the fewest
        bits.
        """
        count = len(findable)
        # In a thread: those that are added meanwhile may come with another array.
        words = self._words
        asked = _words(bytes.fromhex(code(query)), 1)[0]
        apart = np.empty(count, dtype=np.uint16)
        for start in range(0, count, CHUNK):
            part = slice(start, min(start + CHUNK, count))
            apart[part] = np.bitwise_count(words[0, part] ^ asked[0])
            for mine, theirs in zip(asked[1:], words[1:, part], strict=True):
                apart[part] += np.bitwise_count(theirs ^ mine)
        apart[~findable] = len(query) + 1
        # All that are as near as the last one, or the order of the rows would decide.
        nearer = np.cumsum(np.bincount(apart, minlength=len(query) + 2))
        furthest = min(int(np.searchsorted(nearer, wanted)), len(query))
        return np.flatnonzero(apart <= furthest)

    def agreeing(self, query: Floats, positions: Positions, wanted: int) -> Positions:
        """About `wanted` of these positions: those whose signs agree most with the numbers of
        `query`.
        """
        if len(positions) <= wanted:
            return positions
        read = self._words[:, positions].T.copy().view(np.uint8)
        ones = np.unpackbits(read, axis=1, count=self._dimensions)
        # The sum over the bits that are 1 grows with the sum over all of them by their signs.
        agreement = np.vecdot(ones.astype(np.float32), query)
        return positions[np.argsort(-agreement, kind="stable")[:wanted]]


def grown(array: NDArray[Kind], wanted: int, *, axis: int = 0, fill: int = 0) -> NDArray[Kind]:
    """The array with a length of at least `wanted` along an axis; new elements are `fill`."""
    had = array.shape[axis]
    if wanted <= had:
        return array
    added = [(0, 0)] * array.ndim
    added[axis] = (0, max(wanted, int(GROWTH * had)) - had)
    return np.pad(array, added, constant_values=fill)


def _words(codes: bytes, count: int) -> Words:
    """Codes as rows of words, filled up with zeros."""
    rows = np.frombuffer(codes, dtype=np.uint8).reshape(count, -1)
    width = WORD_BITS // 8
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % width))).view(np.uint64)
