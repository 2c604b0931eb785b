"""What must not be left in the middle, whoever hangs up."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def to_the_end(work: Coroutine[Any, Any, None]) -> None:
    """Do it, however often the caller is cancelled meanwhile; who was, is cancelled after it,
    whatever came of it: told of a failure, a loop that tries again would go on.
    """
    task, cancelled = asyncio.ensure_future(work), False
    while not task.done():
        try:
            await asyncio.wait({task})
        except asyncio.CancelledError:
            cancelled = True
    if cancelled:
        raise asyncio.CancelledError from task.exception()
    task.result()
