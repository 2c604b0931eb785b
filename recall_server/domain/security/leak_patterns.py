"""Byte patterns of a word that should be gone: parts of it, and other cases, encodings, orders and
digests. A search for the whole word alone misses these.
"""

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from recall_server.domain.errors import Invalid
from recall_server.domain.text.cleaning import storable

WINDOW = 8


@dataclass(frozen=True)
class Trace:
    """A match: the index of the word (from 0), its form, and the byte at which it begins."""

    word: int
    form: str
    at: int


class LeakPatterns:
    """Byte strings of `WINDOW` bytes or more, each with the number of its word and its form. Bytes
    are compared without regard to the case of ASCII letters.
    """

    @classmethod
    def of(cls, words: Sequence[str]) -> Self:
        """Build all forms of these words. Raises `Invalid` on a word that is too short."""
        forms: dict[bytes, tuple[int, str]] = {}
        for number, word in enumerate(words):
            storable(word)
            if len(word.encode()) < WINDOW:
                raise Invalid(f"A canary needs {WINDOW} bytes at least, or everything holds it.")
            for form, pattern in _forms(word):
                forms.setdefault(pattern.lower(), (number, form))
        return cls(forms)

    def __init__(self, forms: Mapping[bytes, tuple[int, str]]) -> None:
        self._forms = {pattern.lower(): origin for pattern, origin in forms.items()}
        self._beginning: dict[bytes, list[bytes]] = {}
        # Whether a pair of bytes occurs at this position of any pattern: one look at each byte
        # decides, however many patterns there are.
        self._pairs = np.zeros((WINDOW // 2, 1 << 16), dtype=np.bool_)
        for pattern in self._forms:
            self._beginning.setdefault(pattern[:WINDOW], []).append(pattern)
            self._pairs[np.arange(WINDOW // 2), _pairs_of(pattern[:WINDOW])[::2]] = True

    @property
    def overlap(self) -> int:
        """Bytes of one block that must be searched again with the next."""
        return max(map(len, self._forms)) - 1

    def find(self, block: bytes) -> list[Trace]:
        """Return the first match of each form in a block."""
        lowered = block.lower()
        if len(lowered) < WINDOW:
            return []
        pairs = _pairs_of(lowered)
        places = np.flatnonzero(self._pairs[0][pairs[: 2 - WINDOW]])
        for number in range(1, WINDOW // 2):
            places = places[self._pairs[number][pairs[places + 2 * number]]]
        found: dict[bytes, int] = {}
        for at in places.tolist():
            for pattern in self._beginning.get(lowered[at : at + WINDOW], ()):
                if pattern not in found and lowered.startswith(pattern, at):
                    found[pattern] = at
        return [Trace(*self._forms[pattern], at) for pattern, at in found.items()]


def _pairs_of(text: bytes) -> NDArray[np.uint16]:
    """Return each byte with the next one, as a number."""
    each = np.frombuffer(text, dtype=np.uint8).astype(np.uint16)
    pairs: NDArray[np.uint16] = np.bitwise_or(np.left_shift(each[:-1], np.uint16(8)), each[1:])
    return pairs


def _forms(word: str) -> Iterator[tuple[str, bytes]]:
    for spelled in {word, word.lower(), word.upper(), word.casefold()}:
        plain = spelled.encode()
        for start in range(len(plain) - WINDOW + 1):
            yield "fragment", plain[start : start + WINDOW]
        for encoding in ("utf-16-le", "utf-16-be"):
            wide = spelled.encode(encoding)
            for start in range(0, len(wide) - 2 * WINDOW + 1, 2):
                yield encoding, wide[start : start + 2 * WINDOW]
        yield "reversed", spelled[::-1].encode()
        yield "hex", plain.hex().encode()
        yield "url", "".join(f"%{byte:02x}" for byte in plain).encode()
        yield "json", "".join(f"\\u{unit}" for unit in _units(spelled)).encode()
        if not spelled.isascii():
            yield "json", json.dumps(spelled)[1:-1].encode()
        for offset in range(3):
            yield "base64", _inner_base64(plain, offset)
        yield "sha256", hashlib.sha256(plain).digest()
        yield "sha256", hashlib.sha256(plain).hexdigest().encode()


def _units(text: str) -> list[str]:
    wide = text.encode("utf-16-be").hex()
    return [wide[i : i + 4] for i in range(0, len(wide), 4)]


def _inner_base64(plain: bytes, offset: int) -> bytes:
    """Return the part of the base64 text that does not depend on its neighbours, `offset` bytes
    after a multiple of 3: the characters whose six bits all belong to `plain`.
    """
    encoded = base64.b64encode(b"\x00" * offset + plain)
    return encoded[-(-offset * 8 // 6) : (offset + len(plain)) * 8 // 6]
