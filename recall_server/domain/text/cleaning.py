"""Rules for text of callers and models, and ways to print it so that it can neither act on a
terminal nor hide from a reader.
"""

import base64
import html
import math
import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any

from recall_server.domain.errors import EmptyText, Invalid, InvalidText, TextTooLong


def clean_text(text: str, *, chars_max: int) -> str:
    """Return `text` unchanged. Raises `InvalidText` if it has NUL (Postgres cannot store it) or
    unpaired surrogates, `EmptyText` if it is blank, `TextTooLong` if it has more than `chars_max`
    characters.
    """
    storable(text)
    if not text.strip():
        raise EmptyText
    not_too_long(len(text), chars_max)
    return text


def not_too_long(chars: int, chars_max: int) -> None:
    """Raise `TextTooLong` if there are more than `chars_max` characters."""
    if chars > chars_max:
        raise TextTooLong(
            f"The text has {chars} characters; at most {chars_max} are taken at once. "
            "Send it in parts."
        )


def clean_label(text: str, name: str, *, chars_max: int) -> str:
    """Return a short single-line text, such as a topic or a caller's id, stripped. Raises
    `Invalid`.
    """
    storable(text)
    text = text.strip()
    if not text or len(text) > chars_max or not text.isprintable():
        raise Invalid(f"{name} must be 1 to {chars_max} printable characters on one line.")
    return text


def storable(text: str) -> None:
    """Raise `InvalidText` if one of the engines could not store a text."""
    if "\x00" in text:
        raise InvalidText
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidText from None


def unique_names(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Return the object that `json.loads` reads. Raises `ValueError` if a name occurs twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def no_number(text: str) -> None:
    """Raise `ValueError` on a constant that `json.loads` reads but JSON does not have."""
    raise ValueError(f"{text} is not a number")


def finite(text: str) -> float:
    """Return the number that `json.loads` reads. Raises `ValueError` if it is too large for one."""
    if not math.isfinite(number := float(text)):
        raise ValueError("a number is not finite")
    return number


def has_more_values(value: Any, most: int) -> bool:
    """Return whether there are more than so many JSON values in this one."""
    count, waiting = 0, [value]
    while waiting:
        one = waiting.pop()
        inner = one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
        count += len(inner)
        if count > most:
            return True
        waiting.extend(inner)
    return False


def validator_message(message: str) -> str:
    """Return the message of a validator without pydantic's prefix."""
    return message.removeprefix("Value error, ")


# Characters that move a cursor, change the writing direction, break a line invisibly or have no
# glyph: control characters, bidi marks, overrides and isolates, zero-width blanks, the tag block.
# The two joiners stay: emoji and several scripts need them.
_ACTING = (
    "\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e01ef"
)
_SHOWN = re.compile(f"[\x00-\x08\x0b-\x1f{_ACTING}\ud800-\udfff]")
_SHOWN_ON_ONE_LINE = re.compile(f"[\x00-\x1f{_ACTING}\ud800-\udfff]")
# JSON has these only in strings; control characters below U+0020 are escaped there anyway.
_IN_JSON = re.compile(f"[{_ACTING}]")


def visible(text: str, *, lines: bool = True) -> str:
    r"""Return `text` for display: characters that act or hide are spelled out, as `\x1b` or
    `\u202e`; unless `lines`, line breaks and tabs too. For display only: data stays exact.
    """
    return (_SHOWN if lines else _SHOWN_ON_ONE_LINE).sub(_spelled, text)


def plain_json(document: str) -> str:
    """Return the same JSON document with acting or hidden characters as JSON escapes: a parser
    reads the exact text, and a terminal executes nothing.
    """
    # Most documents are ASCII, where only U+007F acts: a search of each character takes longer.
    if document.isascii() and "\x7f" not in document:
        return document
    return _IN_JSON.sub(_escaped, document)


def _spelled(found: re.Match[str]) -> str:
    code = ord(found[0])
    named = {10: "\\n", 13: "\\r", 9: "\\t"}.get(code)
    if named:
        return named
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _escaped(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    return "".join(f"\\u{units[at] << 8 | units[at + 1]:04x}" for at in range(0, len(units), 2))


# Letters that look like Latin ones and are used instead of them. NFKD itself folds the
# mathematical, full-width and circled alphabets.
_ALIKE = str.maketrans(
    # Cyrillic, Greek and others
    "аеорсухіїјѕԁԛԝһвнкмтгӏѵɡαορυνικτεχηωγϲϳıɑɩɪⅼ∣ǀ"
    # small capitals
    "ᴀʙᴄᴅᴇꜰɢʜᴊᴋʟᴍɴᴏᴘꞯʀꜱᴛᴜᴠᴡʏᴢ"
    # Armenian
    "ձժցհյլղոօքզրտէմսավ"
    # Cherokee
    "ᎪᏴᏟᎠᎬᎰᏀᎻᎥᎫᏦᏞᎷᏁᎾᏢᎡᏚᎢᏌᏙᎳᎩᏃᏒᏔᏳᏂᏏᏎ"
    # Lisu
    "ꓮꓐꓚꓓꓰꓝꓖꓧꓲꓙꓗꓡꓟꓠꓳꓑꓣꓢꓔꓴꓦꓪꓫꓬꓜ",
    "aeopcyxiijsdqwhbhkmtrlvgaopuviktexnwycjiaiilll"
    "abcdefghjklmnopqrstuvwyz"
    "adghjlnnopqrstuuwy"
    "abcdefghijklmnoprstuvwyzrwghbs"
    "abcdefghijklmnoprstuvwxyz",
) | {
    # Letters in filled circles and squares, and those that flags are made of.
    first + place: chr(ord("a") + place)
    for first in (0x1F150, 0x1F170, 0x1F1E6)
    for place in range(26)
}
_LEFT_OUT = frozenset({"Mn", "Me", "Cf", "Cs", "Cc", "Co"})
# Unicode calls these letters, but they are displayed as blanks.
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
_BLANKS = re.compile(r"[^\S\n]+")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
# Base64 in one piece, over several lines, or in groups of equal length.
_B64 = "[A-Za-z0-9+/_-]"
_BASE64 = re.compile(rf"(?:(?:{_B64}{{16,}}\s{{1,2}})+{_B64}+|{_B64}{{24,}})={{0,2}}")
_ONE_PIECE = re.compile(rf"{_B64}{{24,}}={{0,2}}")
_GROUPS = re.compile(
    "|".join(
        rf"(?<!{_B64})(?:{_B64}{{{size}}}\s){{{least},}}{_B64}{{1,{size}}}(?!{_B64})={{0,2}}"
        for size, least in ((1, 20), (2, 10), (3, 7), (4, 5), (5, 5), (6, 4), (8, 3), (10, 3))
    )
)
# Shorter pieces are skipped, so that ordinary words cost no time.
_PIECE_MIN, _HEX_MIN, _GROUPS_MIN, _GAP_MAX = 16, 32, 20, 2
_NEXT_WORD = re.compile(r"\s{1,2}[A-Za-z0-9+/_-]{1,15}={0,2}")
# Hexadecimal: each two digits may be escaped and separated.
_HEX_BYTE = r"(?:(?:\\x|0x|%|\\u00|&#x)?[0-9A-Fa-f]{2}[\s,;:-]{0,2})"
# So many bytes at once: one call for all would keep the interpreter from the event loop.
_HEX, _MORE_HEX = (re.compile(f"{_HEX_BYTE}{{{least},4096}}") for least in (16, 1))
_NO_HEX = re.compile(r"\\x|0x|\\u00|&#x|[^0-9A-Fa-f]")
_BLANK = re.compile(r"\s+")
_LAST_WORD = re.compile(r"\s+\S*$")
_NO_BASE64 = re.compile(r"[\s=]+")
# How many layers of encoding are decoded.
LEVELS_MAX = 2


def fold(text: str) -> str:
    """Fold `text` to plain lower-case letters, each run of blanks to one; line breaks stay. Linear
    in the text, which `unicodedata.normalize` on the whole is not.
    """
    if "&" in text:
        text = html.unescape(text)
    plain = _CONTROLS.sub("", text.lower()) if text.isascii() else "".join(map(_plain, text))
    return _BLANKS.sub(" ", plain)


@lru_cache(maxsize=4_096)
def _plain(char: str) -> str:
    if char.isspace():
        return char
    parts = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    return "".join(
        part
        for part in parts
        if unicodedata.category(part) not in _LEFT_OUT and part not in _FILLERS
    ).translate(_ALIKE)


def decoded(text: str, levels: int = LEVELS_MAX) -> Iterator[str]:
    """Yield the readable texts that `text` contains in base64 or hexadecimal, and those encoded in
    them, up to `levels`. Linear in the text.
    """
    for _, _, inner in decoded_at(text):
        yield inner
        if levels > 1:
            yield from decoded(inner, levels - 1)


def decoded_at(text: str, *, spaced: bool = True) -> Iterator[tuple[int, int, str]]:
    """Yield the readable texts that `text` contains in base64 or hexadecimal, each with its start
    and end; with `spaced`, also those that are cut into groups.
    """
    words = text.split()
    for start, end in _long_words(text, words):
        yield from _base64_in(text, start, end)
        if end - start >= _HEX_MIN:
            yield from _hex_in(text, start, end)
    lengths = groupby(map(len, words)) if spaced else ()
    if any(size * len([*run]) >= _GROUPS_MIN for size, run in lengths):
        for found in _GROUPS.finditer(text):
            if inner := _of_base64(found[0]):
                yield *found.span(), inner
        yield from _hex_in(text, 0, len(text))


def _long_words(text: str, words: Sequence[str]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of long words, including the word after it."""
    start = end = 0
    for word in words:
        if len(word) < _PIECE_MIN:
            continue
        found = text.index(word, end)
        if found - end > _GAP_MAX:
            if end:
                yield start, _word_end(text, end)
            start = found
        end = found + len(word)
    if end:
        yield start, _word_end(text, end)


def _word_end(text: str, end: int) -> int:
    following = _NEXT_WORD.match(text, end)
    return following.end() if following else end


def _base64_in(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    for found in _BASE64.finditer(text, start, end):
        blob = found[0]
        if len(_BLANK.sub("", blob)) % 4:
            blob = _LAST_WORD.sub("", blob)  # an ordinary word may follow it
        if inner := _of_base64(blob):
            yield found.start(), found.start() + len(blob), inner
            continue
        # Ordinary words may precede it.
        for piece in _ONE_PIECE.finditer(text, *found.span()):
            if inner := _of_base64(piece[0]):
                yield *piece.span(), inner


def _hex_in(text: str, start: int, end: int) -> Iterator[tuple[int, int, str]]:
    while found := _HEX.search(text, start, end):
        parts, begin, start = [_NO_HEX.sub("", found[0])], found.start(), found.end()
        while more := _MORE_HEX.match(text, start, end):
            parts.append(_NO_HEX.sub("", more[0]))
            start = more.end()
        digits = "".join(parts)
        if inner := _text_of(bytes.fromhex(digits[: len(digits) // 2 * 2])):
            yield begin, start, inner


def _of_base64(blob: str) -> str:
    digits = _NO_BASE64.sub("", blob.replace("-", "+").replace("_", "/"))
    if len(digits) % 4 == 1:
        digits = digits[:-1]
    return _text_of(base64.b64decode(digits + "=" * (-len(digits) % 4)))


def _text_of(data: bytes) -> str:
    """Return bytes as text; "" if they are mostly not readable. Single stray bytes are skipped."""
    text = data.replace(b"\x00", b"").decode(errors="replace")
    readable = sum((char.isprintable() or char.isspace()) and char != "\ufffd" for char in text)
    return text.replace("\ufffd", "") if readable >= 0.9 * len(text) else ""


# Characters without width, and ASCII of double width: a reader, or a program that gets the text,
# sees through them.
_NO_WIDTH = "\u00ad\u034f\u180e\u200b-\u200f\u2060-\u2064\ufeff"
_DISGUISED = re.compile(f"[{_NO_WIDTH}]+|[\uff01-\uff5e]+")


def undisguised(text: str) -> tuple[str, Callable[[int], int]]:
    """Return `text` in plain characters, and a function from a place there to its place in `text`.
    Linear in the text.
    """
    if text.isascii():
        return text, lambda place: place
    parts, starts, shifts = [], [0], [0]
    at = length = 0
    for found in _DISGUISED.finditer(text):
        parts.append(text[at : found.start()])
        length += found.start() - at
        at = found.end()
        if found[0][0] >= "\uff01" and found[0][0] != "\ufeff":
            parts.append("".join(chr(ord(char) - 0xFEE0) for char in found[0]))
            length += len(found[0])
            continue
        starts.append(length)
        shifts.append(at - length)
    parts.append(text[at:])
    return "".join(parts), lambda place: place + shifts[bisect_right(starts, place) - 1]
