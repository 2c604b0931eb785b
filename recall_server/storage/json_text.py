"""JSON of large documents, written and read a part at a time: one call for all of it would keep
the interpreter from every other thread, and so from the event loop.
"""

import json
import re
from collections.abc import Sequence
from typing import Any

from pydantic_core import from_json, to_json

# So many items are written at once, and a document of so many characters is read at once: that
# takes a millisecond or two, whatever the items are.
ITEMS_AT_ONCE = 100
CHARS_AT_ONCE = 131_072
# A document has lists of items in it, or is one.
_LEVELS = 2

_SEPARATORS = re.compile(r"[\s,:]*")
_DECODER = json.JSONDecoder()


def written(value: Any) -> str:
    """Return a document as text."""
    if isinstance(value, list | tuple) and len(value) > ITEMS_AT_ONCE:
        starts = range(0, len(value), ITEMS_AT_ONCE)
        parts = (to_json(value[at : at + ITEMS_AT_ONCE])[1:-1].decode() for at in starts)
        return f"[{','.join(parts)}]"
    if isinstance(value, dict) and any(map(_is_long, value.values())):
        named = (f"{to_json(str(name)).decode()}:{written(one)}" for name, one in value.items())
        return f"{{{','.join(named)}}}"
    return to_json(value).decode()


def read(text: str) -> Any:
    """Return the document of a text that a database has checked."""
    if len(text) <= CHARS_AT_ONCE:
        return from_json(text)
    return _read(text, _after(text, 0), _LEVELS)[0]


def _is_long(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and len(value) > ITEMS_AT_ONCE


def _read(text: str, at: int, levels: int) -> tuple[Any, int]:
    """Return the value that begins at a place, and the place after it."""
    if not levels or text[at] not in "[{":
        return _DECODER.raw_decode(text, at)
    return (_items if text[at] == "[" else _members)(text, _after(text, at + 1), levels - 1)


def _items(text: str, at: int, levels: int) -> tuple[list[Any], int]:
    found = []
    while text[at] != "]":
        item, at = _read(text, at, levels)
        found.append(item)
        at = _after(text, at)
    return found, at + 1


def _members(text: str, at: int, levels: int) -> tuple[dict[str, Any], int]:
    found = {}
    while text[at] != "}":
        name, at = _DECODER.raw_decode(text, at)
        found[name], at = _read(text, _after(text, at), levels)
        at = _after(text, at)
    return found, at + 1


def _after(text: str, at: int) -> int:
    """Return the place of the next value, name or bracket."""
    match = _SEPARATORS.match(text, at)
    return match.end() if match else at
