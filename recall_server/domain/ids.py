"""Ids that sort by the time they were made (ULID), and ids that follow from content."""

import hashlib
from datetime import datetime

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
# Two characters are ten bits: looked up, they take a fifth of the time of base64.b32encode.
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_SHIFTS = range(120, -1, -10)


def new_id(prefix: str, now: datetime, random_bytes: bytes) -> str:
    """`prefix_` and 26 characters: 48 bits of milliseconds, then the 80 bits of `random_bytes`."""
    return (
        f"{prefix}_{_spelled(int(now.timestamp() * 1000).to_bytes(6, 'big') + random_bytes[:10])}"
    )


def derived_id(prefix: str, origin_id: str, *parts: object) -> str:
    """The id of what follows from `origin_id` and `parts`: made again, it is the same."""
    digest = hashlib.sha256("\x1f".join([origin_id, *map(str, parts)]).encode()).digest()
    return f"{prefix}_{_spelled(digest[:16])}"


def _spelled(data: bytes) -> str:
    """16 bytes in base 32, most significant bit first, two bits of nothing at the end."""
    bits = int.from_bytes(data, "big") << 2
    return "".join([_PAIRS[bits >> shift & 1023] for shift in _SHIFTS])
