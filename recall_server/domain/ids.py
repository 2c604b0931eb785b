"""Ids that sort by the time they were made (ULID), and ids that follow from content."""

import base64
import hashlib
from datetime import datetime

_ALPHABET = str.maketrans("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", "0123456789abcdefghjkmnpqrstvwxyz")


def new_id(prefix: str, now: datetime, chance: bytes) -> str:
    """`prefix_` and 26 characters: 48 bits of milliseconds, then the 80 bits of `chance`."""
    return f"{prefix}_{_spelled(int(now.timestamp() * 1000).to_bytes(6, 'big') + chance[:10])}"


def derived_id(prefix: str, origin_id: str, *parts: object) -> str:
    """The id of what follows from `origin_id` and `parts`: made again, it is the same."""
    digest = hashlib.sha256("\x1f".join([origin_id, *map(str, parts)]).encode()).digest()
    return f"{prefix}_{_spelled(digest[:16])}"


def is_of(prefix: str, made_id: str) -> bool:
    """Whether an id was made with this prefix."""
    return made_id.startswith(f"{prefix}_")


def _spelled(data: bytes) -> str:
    return base64.b32encode(data).decode().rstrip("=").translate(_ALPHABET)
