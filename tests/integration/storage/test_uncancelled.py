"""Work that runs to its end although its caller is cancelled, and what the caller gets."""

import asyncio

import pytest

from recall_server.domain.errors import DatabaseUnavailable
from recall_server.storage.driver import cancelled_as_such, run_uncancelled


class Commit:
    """A commit that goes on when the test allows it, and then succeeds or fails."""

    def __init__(self, failure: Exception | None) -> None:
        self._failure = failure
        self.begun = asyncio.Event()
        self.let = asyncio.Event()
        self.ended = False

    async def __call__(self) -> None:
        self.begun.set()
        await self.let.wait()
        self.ended = True
        if self._failure is not None:
            raise self._failure


@pytest.mark.parametrize(
    "failure", [None, DatabaseUnavailable("It is away.")], ids=["it is done", "it fails"]
)
async def test_who_is_cancelled_meanwhile_is_cancelled_after_it_whatever_came_of_it(
    failure: Exception | None,
) -> None:
    """If it got a failure, a loop with retries would go on."""
    commit = Commit(failure)
    caller = asyncio.create_task(run_uncancelled(commit()))
    await commit.begun.wait()
    for _ in range(2):
        caller.cancel()
        await asyncio.sleep(0)
    assert not caller.done()
    commit.let.set()
    with pytest.raises(asyncio.CancelledError):
        await caller

    assert commit.ended


async def test_who_waits_is_told_what_went_wrong() -> None:
    """The control."""
    commit = Commit(DatabaseUnavailable("It is away."))
    commit.let.set()

    with pytest.raises(DatabaseUnavailable):
        await run_uncancelled(commit())


async def test_a_failure_that_is_made_of_a_cancellation_is_one() -> None:
    """Several statements in psycopg end with such a failure. The control: a failure without a
    cancellation.
    """
    waits = asyncio.Event()

    async def failing() -> None:
        with cancelled_as_such():
            try:
                await asyncio.wait_for(waits.wait(), 60.0)
            except asyncio.CancelledError:
                raise DatabaseUnavailable("It was stopped.") from None
            raise DatabaseUnavailable("It is away.")

    stopped = asyncio.create_task(failing())
    await asyncio.sleep(0)
    stopped.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopped
    waits.set()
    with pytest.raises(DatabaseUnavailable, match="away"):
        await failing()
