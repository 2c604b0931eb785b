"""Run work to completion when the caller is cancelled, and report a cancellation as one."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from recall_server.domain.errors import RecallError


async def run_uncancelled(work: Coroutine[Any, Any, None]) -> None:
    """Run a coroutine to completion even if the caller is cancelled; the cancellation is raised
    afterwards.

    It is raised even if the work failed: a loop that retries failures would go on otherwise.
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
    """Raise a cancellation as `CancelledError` even if the driver reports it as a failure.

    psycopg stops the statement of a cancelled task, and reports a stopped pipeline as an error; a
    loop that retries errors would go on.
    """
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        yield
    except RecallError as error:
        if task and task is asyncio.current_task() and task.cancelling() > before:
            raise asyncio.CancelledError from error
        raise
