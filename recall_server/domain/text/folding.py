"""Text as a model may read it: look-alike letters folded, hidden characters left out, encoded
passages decoded. For comparing only; what is stored stays as it was handed in.
"""

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

# Of the letters that look like Latin ones, those that are used for it. NFKD folds the many
# mathematical, full-width and circled alphabets by itself.
_ALIKE = str.maketrans(
    "аеорсухіїјѕԁԛԝһвнкмтгαορυνικτεχϲϳıɡɑɩʀɴʟⅼ∣ᴀᴄᴅᴇᴊᴋᴍᴏᴘᴛᴜᴠᴡᴢ",
    "aeopcyxiijsdqwhbhkmtraopuviktexcjigairnlllacdejkmoptuvwz",
)
_LEFT_OUT = frozenset({"Mn", "Me", "Cf", "Cs", "Cc", "Co"})
# Letters by category, blanks by looks.
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
_BLANKS = re.compile(r"[^\S\n]+")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{24,}")
_HEX = re.compile(r"(?:[0-9A-Fa-f]{2}){16,}")
# One long blob is read no further than this: an order is short.
_BLOB_CHARS_MAX = 4_096


def fold(text: str) -> str:
    """`text` in small plain letters, each run of blanks as one; line breaks stay. Takes time in
    proportion to its length, which `unicodedata.normalize` on the whole does not.
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
    """The readable texts that stand in `text` in base64 or hexadecimal."""
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
