"""The vectors of one namespace and model in memory: as stored, rounded, or as codes alone."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from copy import copy
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from recall_server.storage.driver import Row, apart

WORD_BITS = 64
# Codes compared at a time: few enough to stay in the cache of the processor.
CHUNK = 65_536
# As many vectors.
ROWS = 256
# A full array grows by a quarter: doubled, a million codes would leave 32 MB unused.
GROWTH = 1.25

Floats = NDArray[np.float32]
# The type of stored vectors. Half precision finds as much of the evidence of LoCoMo as single
# precision, in half the bytes.
_STORED = np.dtype("<f2")
# The length of a stored vector is 1 but for its rounding.
LENGTH_ERROR = 0.01
Words = NDArray[np.uint64]
Flags = NDArray[np.bool_]
Positions = NDArray[np.intp]

Kind = TypeVar("Kind", bound=np.generic)


def stored_bytes(dimensions: int) -> int:
    """Return the length of a stored vector in bytes."""
    return _STORED.itemsize * dimensions


def packed(vector: Floats) -> bytes:
    """Return a vector in the form in which it is stored."""
    return vector.astype(_STORED).tobytes()


def unpacked(rows: Sequence[Row]) -> Floats:
    """Return the vectors of rows, in their order, each scaled to length 1 unless it is zero. There
    must be at least one row, and all must have the same number of dimensions.
    """
    joined = np.frombuffer(b"".join(row["vector"] for row in rows), dtype=_STORED)
    vectors: Floats = joined.reshape(len(rows), -1).astype(np.float32)
    lengths = np.sqrt(np.vecdot(vectors, vectors))[:, None]
    np.divide(vectors, lengths, out=vectors, where=lengths > 0.0)
    return vectors


def code(vector: Floats) -> str:
    """Return the signs of a vector as hexadecimal digits: bit 1 for each number not negative."""
    return np.packbits(~np.signbit(vector)).tobytes().hex()


def damaged(row: Row) -> bool:
    """Return whether a stored vector is not as `packed` and `code` have made it. The sign of a
    number that half precision rounds to zero stays.
    """
    vector = np.frombuffer(row["vector"], dtype=_STORED).astype(np.float32)
    length = float(np.linalg.norm(vector))
    return code(vector) != row["code"] or not (length == 0.0 or abs(length - 1.0) < LENGTH_ERROR)


def code_chars(dimensions: int) -> int:
    """Return the number of digits of a code of this many dimensions."""
    return 2 * -(-dimensions // 8)


class Codes:
    """The codes of the vectors of one namespace and model, each at a position.

    A vector's slot is its number in the database; positions are in the order of the slots. Its
    document is the slot of the item that it belongs to. The number of bits in which two codes
    differ approximates the angle between their vectors (Charikar 2002). The sum of the query's
    numbers, each with the sign in the code, is closer (Dong, Charikar & Li 2008). Both depend on
    the vectors alone, not on their order.
    """

    def __init__(self, dimensions: int) -> None:
        self._dimensions = dimensions
        self._words: Words = np.zeros((-(-dimensions // WORD_BITS), 0), dtype=np.uint64)
        # By position.
        self.slots: NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)
        self.documents: NDArray[np.uint32] = np.zeros(0, dtype=np.uint32)
        # The position of the vector of each document, -1 if it has none.
        self._position: NDArray[np.int32] = np.zeros(0, dtype=np.int32)
        self.count = 0

    def put(
        self, slots: NDArray[np.uint32], codes: str, documents: NDArray[np.uint32]
    ) -> Positions:
        """Take in codes, joined in `codes` in the order of their slots, with their documents.
        Return their positions. A new slot must be greater than all that are held.
        """
        held = self.slots[: self.count]
        positions = np.searchsorted(held, slots)
        if not len(slots):
            return positions
        fresh = ~np.isin(slots, held, assume_unique=True)
        positions[fresh] = np.arange(self.count, self.count + np.count_nonzero(fresh))
        self.reserve(self.count + int(np.count_nonzero(fresh)))
        self.slots[positions] = slots
        self._words[:, positions] = _words(bytes.fromhex(codes), len(slots)).T
        last = int(documents.max())
        self._position = grown(self._position, last + 1, fill=-1)
        self._position[documents] = positions
        self.documents[positions] = documents
        self.count += int(np.count_nonzero(fresh))
        return positions

    def reserve(self, wanted: int) -> None:
        """Grow the capacity to at least `wanted` codes."""
        self.slots = grown(self.slots, wanted)
        self._words = grown(self._words, wanted, axis=1)
        self.documents = grown(self.documents, wanted)

    def positions(self, documents: NDArray[np.int64]) -> Positions:
        """Return the position of the vector of each document, -1 if it has none."""
        found = np.full(len(documents), -1)
        inside = documents < len(self._position)
        found[inside] = self._position[documents[inside]]
        return found

    def allowed(self, allowed: Flags) -> Flags:
        """Return for each position whether its document is one of `allowed`."""
        # A copy: a search in a thread must not see what is added meanwhile.
        documents = self.documents[: self.count].copy()
        if len(allowed) < len(self._position):
            allowed = padded(allowed, len(self._position))
        # `take` needs half the time of `allowed[documents]`.
        return allowed.take(documents)

    def nearest(self, query: Floats, findable: Flags, wanted: int) -> Positions:
        """Return about `wanted` positions among `findable`: those whose codes differ from that of
        `query` in the fewest bits.
        """
        count = len(findable)
        # This may run in a thread, and an addition may replace the array meanwhile.
        words = self._words
        asked = _words(bytes.fromhex(code(query)), 1)[0]
        apart = np.empty(count, dtype=np.uint16)
        for start in range(0, count, CHUNK):
            part = slice(start, min(start + CHUNK, count))
            apart[part] = np.bitwise_count(words[0, part] ^ asked[0])
            for mine, theirs in zip(asked[1:], words[1:, part], strict=True):
                apart[part] += np.bitwise_count(theirs ^ mine)
        if not findable.all():
            apart[~findable] = len(query) + 1
        # Include all that are as near as the last one, or the order of the rows would decide.
        nearer = np.cumsum(np.bincount(apart, minlength=len(query) + 2))
        furthest = min(int(np.searchsorted(nearer, wanted)), len(query))
        return np.flatnonzero(apart <= furthest)

    def shared(self, positions: Positions, most: int) -> list[Positions]:
        """Return for each code that more than `most` of these positions have all positions that
        have it, in the order of their slots.
        """
        words = self._words[:, : self.count]
        firsts = np.sort(words[0, positions])
        if not (firsts[most:] == firsts[:-most]).any():
            return []  # as nearly always: the first word of a code tells most of them apart
        codes, counts = np.unique(words[:, positions], axis=1, return_counts=True)
        return [
            np.flatnonzero((words == one[:, None]).all(axis=0)) for one in codes.T[counts > most]
        ]

    def agreeing(self, query: Floats, positions: Positions, wanted: int) -> Positions:
        """Return at most `wanted` of these positions: those whose signs agree most with the numbers
        of `query`.
        """
        if len(positions) <= wanted:
            return positions
        read = self._words[:, positions].T.copy().view(np.uint8)
        ones = np.unpackbits(read, axis=1, count=self._dimensions)
        # The sum over the bits that are 1 has the same order as the signed sum over all bits.
        agreement = np.vecdot(ones.astype(np.float32), query)
        return positions[np.argsort(-agreement, kind="stable")[:wanted]]


def bytes_of_arrays(*holders: object) -> int:
    """Return the bytes of all arrays that these objects hold."""
    held = (value for one in holders for value in vars(one).values())
    return sum(value.nbytes for value in held if isinstance(value, np.ndarray))


def grown(array: NDArray[Kind], wanted: int, *, axis: int = 0, fill: Any = 0) -> NDArray[Kind]:
    """Return the array with at least `wanted` elements along an axis, new ones set to `fill`."""
    had = array.shape[axis]
    if wanted <= had:
        return array
    added = [(0, 0)] * array.ndim
    added[axis] = (0, max(wanted, int(GROWTH * had)) - had)
    return np.pad(array, added, constant_values=fill)


def padded(flags: Flags, size: int) -> Flags:
    """Return a copy of at least this size, with False at its end. `np.pad` takes much longer."""
    return np.concatenate([flags, np.zeros(max(0, size - len(flags)), np.bool_)])


def _words(codes: bytes, count: int) -> Words:
    """Return codes as rows of words, padded with zeros."""
    rows = np.frombuffer(codes, dtype=np.uint8).reshape(count, -1)
    missing = -rows.shape[1] % (WORD_BITS // 8)
    return (np.pad(rows, ((0, 0), (0, missing))) if missing else rows).view(np.uint64)


Cosines = NDArray[np.float64]

# Up to this many vectors are held as stored, 1 KB each at 256 dimensions.
WHOLE_UP_TO = 16_384
# Up to this many vectors are held rounded, in 300 bytes each, which is exact enough to choose the
# nearest; only possible hits are read from the database. Above it codes alone are held, 45 bytes
# each, and a search reads hundreds of vectors: at 100,000 that would cost 4 ms more.
ROUNDED_UP_TO = 131_072
# Up to this many findable vectors all are compared; above it only those with the nearest codes.
EXACT_UP_TO = 4_096
# Vectors of more bytes are copied in a thread: on the event loop, 16 MB took 40 ms.
COPIED_INLINE_MAX = 1_048_576
# How many held vectors are compared: among them are 99.9 % of the ten nearest of 100,000.
NEAREST_MIN = 1_600
NEAREST_PER_HIT = 3
# How many vectors are read from the database if only codes are held: in proportion to the
# two-thirds power of their number. Among them are 98 % of the ten nearest of a million.
READ_MIN = 300
READ_PER_HIT = 3
READ_PER_POWER = 0.15
# First this many times as many are chosen by their bits alone, which are quicker to compare.
CHOSEN_PER_READ = 4
# The greatest absolute number of a vector is rounded to this.
ROUNDED_MAX = 127


def _labels(rows: NDArray[Any]) -> NDArray[np.intp]:
    """Return a number for each row, the same for equal ones."""
    labels: NDArray[np.intp] = np.unique(rows, axis=0, return_inverse=True)[1].reshape(-1)
    return labels


class WholeVectors:
    """Vectors as they are stored, each at its position."""

    def __init__(self, dimensions: int) -> None:
        self.rows: Floats = np.zeros((0, dimensions), np.float32)

    @property
    def capacity(self) -> int:
        return len(self.rows)

    def grown(self, wanted: int) -> WholeVectors:
        """Return the same vectors with at least this capacity."""
        made = copy(self)
        made.rows = grown(self.rows, wanted)
        return made

    def put(self, positions: Positions, vectors: Floats) -> None:
        self.rows[positions] = vectors

    def labels(self, positions: Positions) -> NDArray[np.intp]:
        """Return a number for each of these vectors, the same for equal ones."""
        return _labels(self.rows[positions])

    def cosines(self, query: Floats, positions: Positions) -> Cosines:
        products = np.empty(len(positions), np.float32)
        for start in range(0, len(positions), ROWS):
            part = slice(start, start + ROWS)
            # A copy of a few: one of all takes longer to get its memory than to be compared.
            np.vecdot(self.rows.take(positions[part], axis=0), query, out=products[part])
        return products.astype(np.float64).round(6)


class RoundedVectors:
    """Vectors rounded to 127ths of their greatest absolute number, each at its position. The error
    of a product with a query of length 1 is usually below a thousandth.
    """

    def __init__(self, dimensions: int, capacity: int) -> None:
        self.rows: NDArray[np.int8] = np.zeros((capacity, dimensions), np.int8)
        self.steps: Floats = np.zeros(capacity, np.float32)

    @classmethod
    def rounded(cls, whole: WholeVectors, capacity: int) -> RoundedVectors:
        """Return the same vectors, rounded, with this capacity."""
        made = cls(whole.rows.shape[1], max(capacity, whole.capacity))
        made.put(np.arange(len(whole.rows)), whole.rows)
        return made

    @property
    def capacity(self) -> int:
        return len(self.rows)

    def grown(self, wanted: int) -> RoundedVectors:
        """Return the same vectors with at least this capacity."""
        made = copy(self)
        made.rows, made.steps = grown(self.rows, wanted), grown(self.steps, wanted)
        return made

    def put(self, positions: Positions, vectors: Floats) -> None:
        step = np.abs(vectors).max(axis=1, initial=0.0) / np.float32(ROUNDED_MAX)
        # Avoid dividing a vector of zeros by zero.
        self.rows[positions] = np.rint(vectors / np.where(step > 0, step, 1)[:, None])
        self.steps[positions] = step

    def labels(self, positions: Positions) -> NDArray[np.intp]:
        """Return a number for each of these vectors, the same for equal ones."""
        return _labels(self.rows[positions])

    def cosines(self, query: Floats, positions: Positions) -> Cosines:
        products = np.vecdot(self.rows[positions].astype(np.float32), query)
        cosines: Cosines = (products * self.steps[positions]).astype(np.float64)
        return np.round(cosines, 6)


class VectorCache:
    """The vectors of one namespace and model, as far as they are in memory. Whether a vector may be
    found depends on its document.
    """

    def __init__(self, dimensions: int) -> None:
        self.version = 0
        self.dimensions = dimensions
        self.loading = asyncio.Lock()
        self.codes = Codes(dimensions)
        # None: only codes are held.
        self.vectors: WholeVectors | RoundedVectors | None = WholeVectors(dimensions)

    @property
    def bytes(self) -> int:
        return bytes_of_arrays(self.codes, *([] if self.vectors is None else [self.vectors]))

    async def expect(self, more: int) -> None:
        """Grow the capacity for so many more vectors, in the form in which that many are held. Much
        is copied in a thread, as it would hold up the event loop; meanwhile nobody else may take in
        any (`loading`).
        """
        count = self.codes.count + more
        self.codes.reserve(count)
        if not self._fits(count):
            large = count * self.dimensions * np.float32().itemsize > COPIED_INLINE_MAX
            self.vectors = await apart(large, self._grown, count)

    def _fits(self, count: int) -> bool:
        vectors = self.vectors
        if isinstance(vectors, WholeVectors) and count > WHOLE_UP_TO:
            return False
        return vectors is None or count <= min(vectors.capacity, ROUNDED_UP_TO)

    def _grown(self, count: int) -> WholeVectors | RoundedVectors | None:
        if count > ROUNDED_UP_TO or self.vectors is None:
            return None
        if count > WHOLE_UP_TO and isinstance(self.vectors, WholeVectors):
            return RoundedVectors.rounded(self.vectors, count)
        return self.vectors.grown(count)

    def apply(self, changes: Sequence[Row]) -> None:
        """Take in vectors with their codes, slots and documents."""
        size = stored_bytes(self.dimensions)
        rows = sorted(
            (row for row in changes if len(row["vector"]) == size), key=lambda row: row["slot"]
        )
        positions = self.apply_codes(rows)
        if not self._fits(self.codes.count):
            self.vectors = self._grown(self.codes.count)
        if self.vectors is not None and rows:
            self.vectors.put(positions, unpacked(rows))

    def apply_codes(self, changes: Sequence[Row]) -> Positions:
        """Take in codes with their slots and documents, in the order of the slots. Return their
        positions.
        """
        chars = code_chars(self.dimensions)
        rows = [row for row in changes if len(row["code"]) == chars]
        return self.codes.put(
            np.array([row["slot"] for row in rows], dtype=np.uint32),
            "".join(row["code"] for row in rows),
            np.array([row["document"] for row in rows], dtype=np.uint32),
        )

    def repeated(
        self, documents: NDArray[np.int64], allowed: Flags, most: int
    ) -> NDArray[np.int64]:
        """Return the `allowed` documents whose vector more than `most` of these have, without the
        `most` latest of each vector: texts that say the same have the same one. None if only codes
        are held.
        """
        positions = self.codes.positions(documents)
        positions, found = positions[positions >= 0], list[Positions]()
        if self.vectors is not None and len(positions) > most:
            for having in self.codes.shared(positions, most):
                # Those added since `allowed` was read may not be found yet.
                here = self.codes.documents[having]
                shared = having[allowed.take(here, mode="clip") & (here < len(allowed))]
                labels = self.vectors.labels(shared)
                for one in np.flatnonzero(np.bincount(labels) > most):
                    found.append(shared[labels == one][:-most])
        return self.codes.documents.take(np.concatenate([*found, positions[:0]])).astype(np.int64)

    def candidates(self, query: Floats, limit: int, allowed: Flags) -> Positions:
        """Return the positions to compare: those of all `allowed` documents, or of those among them
        with the nearest codes.
        """
        findable = self.codes.allowed(allowed)
        if self.vectors is None:
            power = int(READ_PER_POWER * self.codes.count ** (2 / 3))
            wanted = max(READ_MIN, READ_PER_HIT * limit, power)
            chosen = self.codes.nearest(query, findable, CHOSEN_PER_READ * wanted)
            return self.codes.agreeing(query, chosen, wanted)
        if np.count_nonzero(findable) <= EXACT_UP_TO:
            return np.flatnonzero(findable)
        return self.codes.nearest(query, findable, max(NEAREST_MIN, NEAREST_PER_HIT * limit))


def cosines_to(query: Floats, rows: Floats) -> Cosines:
    """Return the cosine of each vector (of length 1) to `query`, to six places: beyond them is
    noise. It is computed row by row, so that none depends on the other rows; a matrix product would
    also start threads that cost more than they save.
    """
    cosines: Cosines = np.vecdot(rows, query).astype(np.float64)
    return cosines.round(6)
