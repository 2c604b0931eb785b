"""The form of a token: `rcl_`, 32 random base62 characters, and their CRC32 as six more, so that a
scanner, and the server before it queries the database, can tell a real one from a look-alike.
"""

import hashlib
import re
import secrets
import zlib
from collections.abc import Callable

PREFIX = "rcl_"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RANDOM_CHARS = 32
_SHAPE = re.compile(r"rcl_([0-9A-Za-z]{32})([0-9A-Za-z]{6})", re.ASCII)


def new_token(choice: Callable[[str], str] = secrets.choice) -> str:
    """Return a new token with 190 random bits."""
    body = "".join(choice(ALPHABET) for _ in range(RANDOM_CHARS))
    return PREFIX + body + checksum(body)


def well_formed(token: str) -> bool:
    """Whether `token` has the form and checksum of ours."""
    match = _SHAPE.fullmatch(token)
    return match is not None and checksum(match[1]) == match[2]


def token_hash(token: str) -> str:
    """Return the hash to store. One SHA-256 is enough for 190 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits
