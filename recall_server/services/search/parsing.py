"""Reads what a question says, without delaying other callers."""

import asyncio
from collections.abc import Callable
from typing import TypeVar

# Hundreds of dates or names take milliseconds.
INLINE_CHARS_MAX = 200

T = TypeVar("T")


async def read(text: str, function: Callable[[str], T]) -> T:
    """Return what a function makes of the text of a question, of a long one in a thread."""
    if len(text) > INLINE_CHARS_MAX:
        return await asyncio.to_thread(function, text)
    return function(text)
