"""The clock of a machine is moved forward or back. Nothing is lost, and nothing is done twice."""

from datetime import timedelta

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.errors import Unauthenticated
from recall_server.domain.ids import new_id
from recall_server.domain.task import JobState
from recall_server.services.auth import TokenRequest
from recall_server.storage.tables.jobs import Fenced
from tests.support.application import Open
from tests.support.conversation import ALICE, drained, enter, entry, memories, remember
from tests.support.erasure import select
from tests.support.runtime import NOON, Clock

HOUR = timedelta(hours=1)
MONTH = timedelta(days=30)
TEXT = "Alice: I live in Lisbon."


async def states(application: Application) -> set[str]:
    rows = await select(application.store, "SELECT state FROM operations")
    return {row["state"] for row in rows}


async def test_what_was_stored_before_the_clock_went_back_is_done_when_it_is_that_late_again(
    open_app: Open, clock: Clock
) -> None:
    """Texts that are stored after the change are processed at once."""
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
        clock.pass_(-HOUR)
        await remember(application, "Bob: I live in Porto.")
        await drained(application)
        early = {memory.text for memory in await memories(application)}
        clock.pass_(HOUR)
        await drained(application)
        late = await memories(application)
        left = await states(application)

    assert len(early) == 1
    assert "Porto" in early.pop()
    assert len(late) == 2
    assert {memory.reinforcements for memory in late} == {0}
    assert left == {JobState.COMPLETE}


@pytest.mark.parametrize("jump", [-HOUR, HOUR, MONTH])
async def test_a_lease_over_which_the_clock_jumps_lets_one_worker_finish(
    open_app: Open, clock: Clock, jump: timedelta
) -> None:
    """If the jump ends the lease, the worker that held the job is refused; if it makes the lease
    longer, the job is done once the lease has ended.
    """
    async with open_app() as application:
        await enter(application)
        accepted = await remember(application, TEXT)
        async with application.store.transaction(None) as tx:
            held = await tx.jobs.claim("", clock(), clock() + application.runtime.lease)
        assert held is not None
        clock.pass_(jump)
        await drained(application)
        while await states(application) != {JobState.COMPLETE}:
            clock.pass_(HOUR)
            await drained(application)
            assert clock() < NOON + 2 * MONTH, "it is never done"
        with pytest.raises(Fenced):
            async with application.store.transaction(ALICE) as tx:
                await tx.jobs.finish(held, clock())
        (memory,) = await memories(application)

    assert held.id == accepted.job_id
    assert memory.reinforcements == 0


async def test_ids_of_a_clock_that_stands_still_or_goes_back_are_all_different(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        ids = []
        for number in range(30):
            ids.append((await remember(application, f"{TEXT} {number}")).episode_id)
            if number % 10 == 9:
                clock.pass_(-timedelta(milliseconds=1))

    assert len(set(ids)) == len(ids)
    # Ids of a later moment sort after those of an earlier one.
    assert new_id("ep", NOON, bytes(10)) < new_id("ep", NOON + timedelta(milliseconds=1), bytes(10))


async def test_a_token_ends_when_its_time_has_come_and_not_before(
    open_app: Open, clock: Clock
) -> None:
    """A token does not end because a clock was moved forward and back while nobody sent it."""
    async with open_app() as application:
        line = entry(application)
        token, _ = await application.services.access.issue(
            Context(line), wanted=TokenRequest(expires_in=2 * MONTH)
        )
        for jump in (MONTH, -MONTH, -HOUR, HOUR, 3 * MONTH, -3 * MONTH):
            clock.pass_(jump)
            if clock() < NOON + 2 * MONTH:
                assert (await application.services.access.verify(token)).namespace == ALICE
        clock.pass_(2 * MONTH)
        with pytest.raises(Unauthenticated):
            await application.services.access.verify(token)


async def test_a_month_forward_takes_no_memory_and_no_question_away(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
        await drained(application)
        before = await memories(application)
        clock.pass_(MONTH)
        await drained(application)
        assert await memories(application) == before
        clock.pass_(-MONTH)
        assert await memories(application) == before
