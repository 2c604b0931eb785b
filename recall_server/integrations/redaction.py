"""Finds secrets in text with the rules of Kingfisher (and a few of ours) and replaces them.

No secret is verified with its issuer: the text stays here. Measured: 0.02 to 0.04 ms a kilobyte, 10
µs for a short turn, no false positive in 3,000 turns of talk. The rules take 0.3 s to load; the
first time on a machine, 3 to 6 s of one processor to compile them into its cache.
"""

import asyncio
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import cache
from importlib import resources
from itertools import accumulate
from threading import Lock
from typing import TYPE_CHECKING, NamedTuple

from recall_server.domain.permissions import own_tokens
from recall_server.domain.text.cleaning import decoded_at, undisguised

if TYPE_CHECKING:
    from kingfisher_sdk import Scanner

# Text is scanned in pieces, as some patterns are slow on long adversarial text. The overlap is
# longer than any secret except the longest certificates.
PIECE_BYTES = 65_536
OVERLAP_BYTES = 8_192
# Scanning a longer text would delay other callers: 1,000 characters of a hostile text take 3 ms.
INLINE_CHARS_MAX = 4_096
# The fixed cost of one text, however short, as a number of characters.
CHARS_OF_A_CALL = 10

_LOADING = Lock()


class Secret(NamedTuple):
    """Where a secret begins and ends in a text, in characters, and its kind."""

    start: int
    end: int
    kind: str


class SecretRedactor:
    """Replaces secrets in text. The rules are loaded with the first text, or by `ready`."""

    def __init__(self) -> None:
        self._inline_chars = 0

    async def ready(self) -> None:
        await asyncio.to_thread(load_rules)

    async def redact(self, parts: Sequence[str]) -> tuple[list[str], int]:
        """Return consecutive texts with "[secret: KIND]" for each secret, and the number of
        secrets: one may begin in a text and end in another.
        """
        length = sum(map(len, parts))
        if length > INLINE_CHARS_MAX or not loaded():
            return await asyncio.to_thread(redacted, parts)
        self._inline_chars += length + CHARS_OF_A_CALL
        if self._inline_chars > INLINE_CHARS_MAX:
            # Many short texts take as long as one long text, so let other calls run in between.
            self._inline_chars = 0
            await asyncio.sleep(0)
        return redacted(parts)


def loaded() -> bool:
    return _loaded.cache_info().currsize > 0


def load_rules() -> "Scanner":
    """Return the scanner. Concurrent callers wait for one load."""
    with _LOADING:
        return _loaded()


@cache
def _loaded() -> "Scanner":
    # Imported on first use: most commands scan no text.
    from kingfisher_sdk import Rules, Scanner  # noqa: PLC0415

    own = resources.files(__package__).joinpath("redaction.yml")
    with resources.as_file(own) as path:
        return Scanner(Rules([path]), base64=False)


def redacted(parts: Sequence[str]) -> tuple[list[str], int]:
    """Return consecutive texts, with "[secret: KIND]" for each secret or piece of one, and the
    number of secrets.
    """
    found = secrets_in("".join(parts))
    starts = list(accumulate(map(len, parts), initial=0))
    masked = list(parts)
    of_part: dict[int, list[Secret]] = {}
    for start, end, kind in found:
        for place in range(bisect_right(starts, start) - 1, bisect_left(starts, end)):
            begin, stop = max(start, starts[place]), min(end, starts[place + 1])
            if begin < stop:
                here = Secret(begin - starts[place], stop - starts[place], kind)
                of_part.setdefault(place, []).append(here)
    for place, secrets in of_part.items():
        masked[place] = replaced(parts[place], secrets)
    return masked, len(found)


def replaced(text: str, found: Sequence[Secret]) -> str:
    parts, at = [], 0
    for start, end, kind in found:
        parts += [text[at:start], f"[secret: {kind}]"]
        at = end
    return "".join([*parts, text[at:]])


def secrets_in(text: str) -> list[Secret]:
    """Return the secrets in a text, in order; overlapping ones are merged. Secrets disguised with
    zero-width or full-width characters, or in base64, are found too.
    """
    plain, places = undisguised(text)
    found = [*_scanned(plain), *_encoded(plain)]
    merged: list[Secret] = []
    for start, end, kind in sorted(found, key=lambda one: (one.start, -one.end)):
        if merged and start < merged[-1].end:
            first, last, earlier = merged[-1]
            merged[-1] = Secret(first, max(last, end), earlier)
        else:
            merged.append(Secret(start, end, kind))
    return [Secret(places(one.start), places(one.end - 1) + 1, one.kind) for one in merged]


def _scanned(text: str) -> list[Secret]:
    """Return what the rules find in a text, and our own tokens in it."""
    own = [Secret(*span, "token") for span in own_tokens(text)]
    data, scanner = text.encode(), load_rules()
    spans = set()
    for begin in range(0, max(len(data), 1), PIECE_BYTES):
        piece = data[begin : begin + PIECE_BYTES + OVERLAP_BYTES]
        for finding in scanner.scan(piece):
            if finding.visible:
                place = finding.location
                start, end = begin + place["start_offset"], begin + place["end_offset"]
                spans.add((start, end, _kind(finding.rule_id)))
    if text.isascii() or not spans:
        return [*(Secret(*one) for one in spans), *own]
    chars, at, count = {0: 0}, 0, 0
    for offset in sorted({offset for start, end, _ in spans for offset in (start, end)}):
        count += len(data[at:offset].decode(errors="ignore"))
        chars[offset], at = count, offset
    return [*(Secret(chars[start], chars[end], kind) for start, end, kind in spans), *own]


def _encoded(text: str) -> Iterator[Secret]:
    """Yield the pieces of base64 that contain a secret. All pieces are scanned at once."""
    found = list(decoded_at(text, spaced=False))
    if not found:
        return
    inner = [f"{text}\n\n" for _, _, text in found]
    starts = list(accumulate(map(len, inner[:-1]), initial=0))
    seen: set[int] = set()
    for one in _scanned("".join(inner)):
        place = bisect_right(starts, one.start) - 1
        if place not in seen:
            seen.add(place)
            yield Secret(*found[place][:2], one.kind)


def _kind(rule_id: str) -> str:
    """Return the kind of a rule: `betterleaks.github-pat` is a github pat."""
    return rule_id.replace("/", ".").rsplit(".", 1)[-1].replace("-", " ")
