"""One bit for each dimension of a vector: what a search holds in memory of a large namespace."""

from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

WORD_BITS = 64
# So much of the codes is compared at a time that it stays in the cache of the processor.
CHUNK = 65_536
# A room that is full grows by a quarter: doubled, a million codes would leave 32 MB unused.
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
    document is the number of what it is of. In how many bits two codes differ approximates the
    angle between their vectors (Charikar 2002); against a query of which all numbers are known the
    sum of those with the sign that the code says is closer (Dong, Charikar & Li 2008). Both depend
    on the vectors alone, not on their order.
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
        """Take in codes, one after the other in `codes`, in the order of their slots, and what
        documents they are of; where they stand. A slot that is new here is greater than all that
        are not.
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
        known = documents < len(self._position)
        found[known] = self._position[documents[known]]
        return found

    def of(self, allowed: Flags) -> Flags:
        """For each position whether its document is one of `allowed`."""
        # A copy, and before it is told how many there are: others may be taken in beside a thread.
        documents = self._documents[: self.count].copy()
        # In half the time of an index in brackets.
        return self.all_of(allowed).take(documents)

    def all_of(self, allowed: Flags) -> Flags:
        """`allowed`, with a flag for each document that is known here: others are none of it."""
        missing = len(self._position) - len(allowed)
        return np.pad(allowed, (0, missing)) if missing > 0 else allowed

    def agreeing(self, query: Floats, positions: Positions, wanted: int) -> Positions:
        """Those about `wanted` of these that agree most with the numbers of `query`."""
        if len(positions) <= wanted:
            return positions
        agreement = self._agreement(query, positions)
        return positions[np.argsort(-agreement, kind="stable")[:wanted]]

    def alike(self, query: Floats, findable: Flags, wanted: int) -> Positions:
        """The about `wanted` positions among `findable` that differ from `query` in the fewest
        bits.
        """
        return alike(self._words[:, : self.count], query, findable, wanted)

    def words(self, positions: Positions) -> Words:
        """The codes at these positions: a column for each."""
        return self._words[:, positions]

    def signs(self, positions: Positions) -> Floats:
        """The codes at these positions as rows of 1 and -1."""
        signs: Floats = self._ones(positions).astype(np.float32) * 2 - 1
        return signs

    def _ones(self, positions: Positions) -> NDArray[np.uint8]:
        read = self._words[:, positions].T.copy().view(np.uint8)
        return np.unpackbits(read, axis=1, count=self._dimensions)

    def _agreement(self, query: Floats, positions: Positions) -> Floats:
        """The sum of those of the query's numbers where the code has a 1: it grows with the sum of
        all of them, each with the sign of the code.
        """
        agreement: Floats = np.vecdot(self._ones(positions).astype(np.float32), query)
        return agreement


def alike(words: Words, query: Floats, findable: Flags, wanted: int) -> Positions:
    """Of the codes that are the columns of `words` the places of the about `wanted` among
    `findable` that differ from `query` in the fewest bits.
    """
    count = len(findable)
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


def grown(array: NDArray[Kind], wanted: int, *, axis: int = 0, fill: int = 0) -> NDArray[Kind]:
    """The array with room for at least so many along an axis, the new ones filled."""
    had = array.shape[axis]
    if wanted <= had:
        return array
    room = [(0, 0)] * array.ndim
    room[axis] = (0, max(wanted, int(GROWTH * had)) - had)
    return np.pad(array, room, constant_values=fill)


def _words(codes: bytes, count: int) -> Words:
    """Codes as rows of words, filled up with zeros."""
    rows = np.frombuffer(codes, dtype=np.uint8).reshape(count, -1)
    width = WORD_BITS // 8
    return np.pad(rows, ((0, 0), (0, -rows.shape[1] % width))).view(np.uint64)
