"""Rules for text of callers and models, and how to print it so that it cannot act on a terminal or
hide from a reader.
"""

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from recall_server.domain.errors import EmptyText, Invalid, InvalidText, TextTooLong


def clean_text(text: str, *, chars_max: int) -> str:
    """Return `text` unchanged. Raises `InvalidText` on NUL (Postgres cannot store it) and unpaired
    surrogates, `EmptyText` on blank text, `TextTooLong` on more than `chars_max` characters.
    """
    storable(text)
    if not text.strip():
        raise EmptyText
    not_too_long(len(text), chars_max)
    return text


def not_too_long(chars: int, chars_max: int) -> None:
    """Raise `TextTooLong` on more than `chars_max` characters."""
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
    """Raise `InvalidText` on what one of the engines could not store."""
    if "\x00" in text:
        raise InvalidText
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidText from None


def validator_message(message: str) -> str:
    """Return the message of a validator of ours without pydantic's prefix."""
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
    `\u202e`; without `lines`, line breaks and tabs too. For display only: data stays exact.
    """
    return (_SHOWN if lines else _SHOWN_ON_ONE_LINE).sub(_spelled, text)


def plain_json(document: str) -> str:
    """Return the same JSON document with acting or hidden characters as JSON escapes: a parser
    reads the exact text, and a terminal executes nothing.
    """
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


# Letters that look like Latin ones and are used in their place. NFKD folds the mathematical,
# full-width and circled alphabets by itself.
_ALIKE = str.maketrans(
    "аеорсухіїјѕԁԛԝһвнкмтгαορυνικτεχϲϳıɡɑɩʀɴʟⅼ∣ᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢ",
    "aeopcyxiijsdqwhbhkmtraopuviktexcjigairnlllacdejkmoptuvwz",
)
_LEFT_OUT = frozenset({"Mn", "Me", "Cf", "Cs", "Cc", "Co"})
# Unicode calls these letters, but they are displayed as blanks.
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
_BLANKS = re.compile(r"[^\S\n]+")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}){16,}")
# No more of one long blob is decoded: an order is short.
_BLOB_CHARS_MAX = 4_096


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


def decoded(text: str) -> Iterator[str]:
    """Yield the readable texts that `text` contains in base64 or hexadecimal."""
    for found in _BASE64.finditer(text):
        blob = found[0][:_BLOB_CHARS_MAX].replace("-", "+").replace("_", "/")
        whole = blob[: len(blob) // 4 * 4] if len(blob) % 4 == 1 else blob + "=" * (-len(blob) % 4)
        try:
            yield from _printable(base64.b64decode(whole, validate=True))
        except binascii.Error:
            continue
    for found in _HEX.finditer(text):
        yield from _printable(bytes.fromhex(found[0][:_BLOB_CHARS_MAX]))


def _printable(data: bytes) -> Iterator[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    if sum(char.isprintable() or char.isspace() for char in text) >= 0.95 * len(text):
        yield text
