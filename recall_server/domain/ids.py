"""Names: of tenants and the parts (containers) of their namespaces, ids that sort by creation time
(ULID), and ids derived from content.
"""

import hashlib
import re
from datetime import datetime
from typing import NewType

from recall_server.domain.errors import Invalid

PROPOSAL = "prop"
"""The prefix of the ids of proposals."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
# A table of two characters (ten bits) takes a fifth of the time of base64.b32encode.
_PAIRS = tuple(first + second for first in _ALPHABET for second in _ALPHABET)
_SHIFTS = range(120, -1, -10)
_BODY = f"[{_ALPHABET}]{{26}}"
_CHILD = re.compile(f"child_{_BODY}")
_OURS = re.compile(
    rf"(?:acc|ctx|ep|ers|job|mem|prop|push|q|rec|req|task)_{_BODY}(?:\.[0-9]+)*(?:/{_CHILD.pattern})?"
)


def new_id(prefix: str, now: datetime, random_bytes: bytes) -> str:
    """Return `prefix_` and 26 characters: 48 bits of milliseconds, then the first 80 `random_bytes`
    bits.
    """
    return f"{prefix}_{_base32(int(now.timestamp() * 1000).to_bytes(6, 'big') + random_bytes[:10])}"


def is_ours(text: str) -> bool:
    """True if it is an id that this server makes, and none that a caller may choose."""
    return _OURS.fullmatch(text) is not None


def is_proposal(review_id: str) -> bool:
    return review_id.startswith(f"{PROPOSAL}_")


def is_child(text: str) -> bool:
    return _CHILD.fullmatch(text) is not None


def derived_id(prefix: str, origin_id: str, *parts: object) -> str:
    """Return the id that follows from `origin_id` and `parts`; the same input gives the same id."""
    digest = hashlib.sha256("\x1f".join([origin_id, *map(str, parts)]).encode()).digest()
    return f"{prefix}_{_base32(digest[:16])}"


def _base32(data: bytes) -> str:
    """Encode 16 bytes in base 32, most significant bit first, padded with two zero bits."""
    bits = int.from_bytes(data, "big") << 2
    return "".join([_PAIRS[bits >> shift & 1023] for shift in _SHIFTS])


Namespace = NewType("Namespace", str)
"""The tenant. It comes from the bearer token, never from an argument."""

_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9._:-]{0,62}[a-z0-9])?", re.ASCII)


def namespace(text: str) -> Namespace:
    """Check a namespace: 1-64 of a-z 0-9 . _ : - with a letter or digit at both ends."""
    if not _NAMESPACE.fullmatch(text):
        raise Invalid(
            "A namespace is 1 to 64 characters of a-z, 0-9, '.', '_', ':' and '-', "
            "starting and ending with a letter or digit."
        )
    return Namespace(text)


NONE = ""
"""The container of everything that is in none."""

_CONTAINER = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._:/-]{0,126}[A-Za-z0-9])?", re.ASCII)


def container(text: str) -> str:
    """Check a container's name: 1-128 letters, digits and . _ : / - with a letter or digit at both
    ends, compared exactly; `NONE` is valid too. Raises `Invalid`.
    """
    if text != NONE and not _CONTAINER.fullmatch(text):
        raise Invalid(
            "A container is 1 to 128 characters of A-Z, a-z, 0-9, '.', '_', ':', '/' and '-', "
            "starting and ending with a letter or digit; none is the empty string."
        )
    return text
