"""Strict JSON for untrusted input: two parsers cannot read it differently."""

import json
from typing import Any

# Opening brackets, wherever they are: an upper bound of the depth.
OPENERS_MAX = 512


def strict(data: bytes) -> Any:
    """Parse `data`. Raises `ValueError` on another encoding than UTF-8, a duplicate name in an
    object, numbers that are not finite, and deep nesting.
    """
    if data.count(b"[") + data.count(b"{") > OPENERS_MAX:
        raise ValueError("it is nested too deep")
    return json.loads(
        data.decode("utf-8"),
        object_pairs_hook=_once,
        parse_constant=_no_number,
        parse_float=_finite,
    )


def _once(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name occurs twice")
    return found


def _no_number(text: str) -> None:
    raise ValueError(f"{text} is not a number")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError("a number is not finite")
    return number
