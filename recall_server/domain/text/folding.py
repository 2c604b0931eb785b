"""Folds text for comparison as a model may read it: look-alike letters folded, hidden characters
removed, encoded passages decoded. Stored text stays unchanged.
"""

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

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
            yield from _readable(base64.b64decode(whole, validate=True))
        except binascii.Error:
            continue
    for found in _HEX.finditer(text):
        yield from _readable(bytes.fromhex(found[0][:_BLOB_CHARS_MAX]))


def _readable(data: bytes) -> Iterator[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    if sum(char.isprintable() or char.isspace() for char in text) >= 0.95 * len(text):
        yield text
