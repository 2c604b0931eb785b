"""What a token looks like: `rcl_`, 32 random base62 characters, and their CRC32 as six more, so
that a scanner (and the server, before it asks the database) knows a real one from a look-alike.
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
    """A new token: 190 bits that nobody can guess."""
    body = "".join(choice(ALPHABET) for _ in range(RANDOM_CHARS))
    return PREFIX + body + checksum(body)


def well_formed(token: str) -> bool:
    """Whether `token` is one that we could have made."""
    match = _SHAPE.fullmatch(token)
    return match is not None and checksum(match[1]) == match[2]


def token_hash(token: str) -> str:
    """What the database keeps. One SHA-256 is enough for 190 random bits."""
    return hashlib.sha256(token.encode()).hexdigest()


def checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits
