"""Searches the files of the database for stored vectors, since numbers show what was said, too."""

from collections.abc import Iterator, Sequence

from recall_server.services.erasure.leak_scan import WINDOW, LeakPatterns, Scan, scan_for
from recall_server.storage.store import Store

FLOAT_BYTES = 2
PART_BYTES = 8 * FLOAT_BYTES


async def scan_vectors(store: Store, vectors: Sequence[bytes]) -> Scan:
    """Search for any eight consecutive numbers of vectors as they are stored."""
    parts = {
        part.lower(): (number, "vector")
        for number, vector in enumerate(vectors)
        for part in _parts(vector)
    }
    return await scan_for(store, LeakPatterns(parts), [])


def _parts(vector: bytes) -> Iterator[bytes]:
    """Return parts that identify a vector: zeros do not."""
    for start in range(0, len(vector) - PART_BYTES + 1, FLOAT_BYTES):
        part = vector[start : start + PART_BYTES]
        if len(set(part)) >= WINDOW:
            yield part
