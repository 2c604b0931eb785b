"""Rules for text of callers and models, and how to print it so that it cannot act on a terminal or
hide from a reader.
"""

import re

from recall_server.domain.errors import EmptyText, Invalid, InvalidText, TextTooLong


def clean_text(text: str, *, chars_max: int) -> str:
    """Return `text` unchanged. Raises `InvalidText` on NUL (Postgres cannot store it) and unpaired
    surrogates, `EmptyText` on blank text, `TextTooLong` on more than `chars_max` characters.
    """
    storable(text)
    if not text.strip():
        raise EmptyText
    if len(text) > chars_max:
        raise TextTooLong(
            f"The text has {len(text)} characters; at most {chars_max} are taken at once. "
            "Send it in parts."
        )
    return text


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
