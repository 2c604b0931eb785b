"""What text may be: the same rules for every input, and for what a model answers; and how it is
shown, so that it cannot act on a terminal or hide from a reader.
"""

import re

from recall_server.domain.errors import EmptyText, Invalid, InvalidText, TextTooLong


def clean_text(text: str, *, chars_max: int) -> str:
    """`text` unchanged, or the reason why it cannot be kept: NUL (Postgres cannot store it),
    unpaired surrogates (nothing can), blank, or longer than `chars_max` characters.
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
    """A short single-line text such as a topic or an id of the caller's, stripped."""
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
    """What a validator of ours says, without what pydantic begins it with."""
    return message.removeprefix("Value error, ")


# What moves a cursor, turns the writing direction, breaks a line unseen, or has no looks at all:
# control characters, bidi marks, overrides and isolates, blanks without width, the tag block. The
# two joiners stay: emoji and several scripts are written with them.
_ACTING = (
    "\x7f-\x9f\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f"
    "\ufeff\ufff9-\ufffb\U000e0000-\U000e01ef"
)
_SHOWN = re.compile(f"[\x00-\x08\x0b-\x1f{_ACTING}\ud800-\udfff]")
_SHOWN_ON_ONE_LINE = re.compile(f"[\x00-\x1f{_ACTING}\ud800-\udfff]")
# Within JSON these stand in strings only, and those below a blank are escaped there anyway.
_IN_JSON = re.compile(f"[{_ACTING}]")


def visible(text: str, *, lines: bool = True) -> str:
    r"""`text` as it may be shown to a person or a model: what acts or hides is spelled out, as
    `\x1b` or `\u202e`; without `lines`, line breaks and tabs too. For what is shown only: what is
    handed over as data stays exact.
    """
    return (_SHOWN if lines else _SHOWN_ON_ONE_LINE).sub(_spelled, text)


def plain_json(document: str) -> str:
    """The same JSON document, with what acts or hides as JSON's own escapes: a reader gets the
    exact text from it, and a terminal nothing to obey.
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
