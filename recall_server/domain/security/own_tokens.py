"""The tokens of this server: their form, and where one stands in a text, also in disguise. Pure."""

import re
import zlib
from collections.abc import Iterator

PREFIX = "rcl_"
ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
RANDOM_CHARS = 32
_SHAPE = re.compile(r"rcl_([0-9A-Za-z]{32})([0-9A-Za-z]{6})", re.ASCII)
# The underscore as it is escaped in addresses, Markdown and HTML; then the characters, with what a
# mail program puts where it breaks a line.
_ANYWHERE = re.compile(r"rcl(?:_|%5[Ff]|\\_|&#95;)((?:[\s>|=\\-]{0,4}[0-9A-Za-z]){38})", re.ASCII)
_BETWEEN = re.compile(r"[^0-9A-Za-z]+", re.ASCII)


def well_formed(token: str) -> bool:
    """Whether `token` has the form and checksum of ours."""
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
    """Where tokens with the right checksum begin and end in `text`, whole or broken over lines."""
    for found in _ANYWHERE.finditer(text):
        if well_formed(PREFIX + _BETWEEN.sub("", found[1])):
            yield found.span()
