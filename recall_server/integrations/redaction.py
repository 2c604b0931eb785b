"""Finds secrets in text with the rules of Kingfisher (and a few of ours) and replaces them.

Nothing is verified with the issuer: the text stays here. Measured: 0.02 ms a kilobyte, 25 µs for a
short turn, no false positive in 3,000 turns of talk. The rules take 0.3 s to load, and once on a
machine some seconds to compile into its cache.
"""

import asyncio
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

# In pieces, as some patterns are slow on long adversarial text; the overlap is longer than any
# secret but the longest certificates.
PIECE_BYTES = 65_536
OVERLAP_BYTES = 8_192
# Scanning a longer text would delay other callers: 1,000 characters of a hostile one take 3 ms.
INLINE_CHARS_MAX = 4_096
# As many characters take as long as what is done for each text, however short.
CHARS_OF_A_CALL = 10


class Redactor(Protocol):
    """Replaces secrets in text."""

    async def ready(self) -> None:
        """Load the rules before the first call."""

    async def redact(self, text: str) -> tuple[str, int]:
        """Return the text with "[secret: KIND]" for each secret, and their number."""


class SecretRedactor:
    """The port over Kingfisher. The rules are loaded with the first text, or by `ready`."""

    def __init__(self) -> None:
        self._inline_chars = 0

    async def ready(self) -> None:
        """Load the rules before the first call."""
        await asyncio.to_thread(_scanner)

    async def redact(self, text: str) -> tuple[str, int]:
        if len(text) > INLINE_CHARS_MAX or not _scanner.cache_info().currsize:
            return await asyncio.to_thread(redacted, text)
        self._inline_chars += len(text) + CHARS_OF_A_CALL
        if self._inline_chars > INLINE_CHARS_MAX:
            # Many short texts take as long as one: the others have their turn in between.
            self._inline_chars = 0
            await asyncio.sleep(0)
        return redacted(text)


@cache
def _scanner() -> "Scanner":
    # Imported on first use: most commands scan no text.
    from kingfisher_sdk import Rules, Scanner  # noqa: PLC0415

    own = resources.files(__package__).joinpath("redaction.yml")
    with resources.as_file(own) as path:
        return Scanner(Rules([path]), base64=False)


def redacted(text: str) -> tuple[str, int]:
    """Return the text with "[secret: KIND]" for each secret, and their number."""
    data = text.encode()
    parts, at = [], 0
    found = _found(data)
    for start, end, kind in found:
        parts += [data[at:start], f"[secret: {kind}]".encode()]
        at = end
    return b"".join([*parts, data[at:]]).decode(), len(found)


def _found(data: bytes) -> list[tuple[int, int, str]]:
    """Return the positions of secrets, as bytes, and their kinds; overlapping ones as one."""
    scanner = _scanner()
    spans: list[tuple[int, int, str]] = []
    for begin in range(0, max(len(data), 1), PIECE_BYTES):
        piece = data[begin : begin + PIECE_BYTES + OVERLAP_BYTES]
        for finding in scanner.scan(piece):
            if finding.visible:
                place = finding.location
                spans.append(
                    (
                        begin + place["start_offset"],
                        begin + place["end_offset"],
                        _kind(finding.rule_id),
                    )
                )
    merged: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(spans, key=lambda span: (span[0], -span[1])):
        if merged and start < merged[-1][1]:
            first, last, earlier = merged[-1]
            merged[-1] = (first, max(last, end), earlier)
        else:
            merged.append((start, end, kind))
    return merged


def _kind(rule_id: str) -> str:
    """Return the kind of a rule: `betterleaks.github-pat` is a github pat."""
    return rule_id.replace("/", ".").rsplit(".", 1)[-1].replace("-", " ")
