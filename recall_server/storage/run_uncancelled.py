"""What must not be left in the middle, whoever hangs up."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from recall_server.domain.errors import RecallError


async def run_uncancelled(work: Coroutine[Any, Any, None]) -> None:
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


@contextmanager
def cancelled_as_such() -> Iterator[None]:
    """Who is cancelled meanwhile is cancelled, whatever came of it: psycopg stops the statement
    then, and of several at once it tells as a failure what was stopped. Who is told of a failure
    goes on, as a loop does that tries again.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except RecallError as error:
        if task and task is asyncio.current_task() and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
