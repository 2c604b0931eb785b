"""The tokens of this server: their form, and how to find them in a text, even disguised. Pure."""

import re
import zlib
from collections.abc import Iterator

PREFIX = "rcl_"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RANDOM_CHARS = 32
_SHAPE = re.compile(r"rcl_([0-9A-Za-z]{32})([0-9A-Za-z]{6})", re.ASCII)
# The underscore may be escaped as in addresses, Markdown and HTML; between the other characters may
# be what a mail program inserts when it breaks a line.
_ANYWHERE = re.compile(r"rcl(?:_|%5[Ff]|\\_|&#95;)((?:[\s>|=\\-]{0,4}[0-9A-Za-z]){38})", re.ASCII)
_BETWEEN = re.compile(r"[^0-9A-Za-z]+", re.ASCII)


def well_formed(token: str) -> bool:
    """True if `token` has the form and checksum of a token of this server."""
    match = _SHAPE.fullmatch(token)
    return match is not None and checksum(match[1]) == match[2]


def checksum(body: str) -> str:
    number = zlib.crc32(body.encode())
    digits = ""
    for _ in range(6):
        number, digit = divmod(number, len(ALPHABET))
        digits = ALPHABET[digit] + digits
    return digits


def own_tokens(text: str) -> Iterator[tuple[int, int]]:
    """Yield where tokens with the right checksum begin and end in `text`, whole or broken over
    lines.
    """
    for found in _ANYWHERE.finditer(text):
        if well_formed(PREFIX + _BETWEEN.sub("", found[1])):
            yield found.span()
