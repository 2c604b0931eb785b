"""What text may be: the same rules for every input, and for what a model answers."""

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
