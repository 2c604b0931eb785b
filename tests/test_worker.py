"""The worker: takes turns, waits out outages, gives up on poison, lets go when told to stop."""

import asyncio
from datetime import timedelta

from recall_server.app import House, working
from recall_server.domain.model import Candidate, JobState, MemoryType, Namespace, Span
from recall_server.services.ingest import Submission
from recall_server.worker import FAILURES_MAX
from tests.conftest import Clock, Open
from tests.services.conversation import ALICE, drained, enter, entry, memories, remember
from tests.services.extractors import Scripted

BOB = Namespace("bob")
TEA = Candidate("Alice likes tea.", MemoryType.PREFERENCE, Span(7, 18))


async def state_of(house: House, job_id: str) -> JobState | None:
    async with house.store.transaction(ALICE, write=False) as tx:
        return await tx.jobs.state(job_id)


async def test_a_job_that_takes_its_worker_with_it_is_given_up(
    open_house: Open, clock: Clock
) -> None:
    """F-08."""
    async with open_house(extractor=Scripted(**{"I like tea": TEA})) as house:
        await enter(house)
        accepted = await remember(house, "Alice: I like tea.")
        for _ in range(FAILURES_MAX + 1):
            async with house.store.transaction(None) as tx:
                await tx.jobs.claim("", clock(), clock() + timedelta(minutes=1))
            clock.pass_(timedelta(minutes=2))
        await drained(house)

        assert await state_of(house, accepted.job_id) is JobState.FAILED


async def test_a_job_that_lost_its_worker_once_is_done_by_the_next(
    open_house: Open, clock: Clock
) -> None:
    async with open_house(extractor=Scripted(**{"I like tea": TEA})) as house:
        await enter(house)
        accepted = await remember(house, "Alice: I like tea.")
        async with house.store.transaction(None) as tx:
            await tx.jobs.claim("", clock(), clock() + timedelta(minutes=1))
        clock.pass_(timedelta(minutes=2))
        await drained(house)

        assert await state_of(house, accepted.job_id) is JobState.COMPLETE
        assert len(await memories(house)) == 1


async def test_a_worker_that_was_overtaken_leaves_no_trace(open_house: Open, clock: Clock) -> None:
    """F-09."""
    extractor = Scripted(**{"I like tea": TEA})
    async with open_house(extractor=extractor) as house:
        await enter(house)
        accepted = await remember(house, "Alice: I like tea.")

        async def overtake() -> None:
            extractor.meanwhile = None
            clock.pass_(timedelta(hours=1))
            await drained(house)

        extractor.meanwhile = overtake
        await drained(house)
        (memory,) = await memories(house)

        assert extractor.asked == 2
        assert memory.reinforcements == 0
        assert await state_of(house, accepted.job_id) is JobState.COMPLETE


async def test_no_transaction_is_open_while_the_model_thinks(open_house: Open) -> None:
    extractor = Scripted(**{"I like tea": TEA})
    async with open_house(extractor=extractor) as house:
        await enter(house)
        await remember(house, "Alice: I like tea.")

        async def write() -> None:
            async with asyncio.timeout(5), house.store.transaction(ALICE) as tx:
                await tx.lock()

        extractor.meanwhile = write
        await drained(house)

        assert extractor.asked == 1
        assert len(await memories(house)) == 1


async def test_a_tenant_with_one_job_does_not_wait_for_one_with_many(open_house: Open) -> None:
    extractor = Scripted()
    async with open_house(extractor=extractor) as house:
        await enter(house)
        await enter(house, BOB)
        for number in range(20):
            await remember(house, f"Alice: I like tea number {number}.")
        await house.services.ingest.remember(
            BOB, Submission("Bob: I like rum.", "life"), entry=entry(house, BOB)
        )
        for _ in range(2):
            await house.worker.run_once()
        counts = await house.services.recall.stats(BOB, entry=entry(house, BOB))

    assert counts.backlog.pending_extractions == 0


async def test_a_running_worker_is_woken_by_a_store(open_house: Open) -> None:
    done = asyncio.Event()
    extractor = Scripted(**{"I like tea": TEA})

    async def finished() -> None:
        done.set()

    extractor.meanwhile = finished
    async with open_house(extractor=extractor, worker_poll_s=3_600) as house:
        await enter(house)
        async with working(house):
            await asyncio.sleep(0)
            await remember(house, "Alice: I like tea.")
            async with asyncio.timeout(10):
                await done.wait()


async def test_each_of_two_stores_wakes_one_who_rests_and_all_stop_at_once(
    open_house: Open,
) -> None:
    extractor = Scripted(**{"I like tea": TEA})
    both = asyncio.Barrier(3)

    async def meet() -> None:
        await both.wait()

    extractor.meanwhile = meet
    async with open_house(extractor=extractor, worker_poll_s=3_600, drain_s=3_600) as house:
        await enter(house)
        async with asyncio.timeout(30), working(house):
            await remember(house, "Alice: I like tea.")
            await remember(house, "Bob: I like tea.")
            await both.wait()

    assert extractor.asked == 2


async def test_a_worker_told_to_stop_hands_back_what_a_slow_model_holds_up(
    open_house: Open,
) -> None:
    """F-58."""
    started = asyncio.Event()
    extractor = Scripted(**{"I like tea": TEA})

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    extractor.meanwhile = hang
    async with open_house(extractor=extractor, drain_s=0.05) as house:
        await enter(house)
        accepted = await remember(house, "Alice: I like tea.")
        async with asyncio.timeout(10), working(house):
            await started.wait()
        waiting = await state_of(house, accepted.job_id)
        extractor.meanwhile = None
        await drained(house)

        assert waiting is JobState.QUEUED

        assert await state_of(house, accepted.job_id) is JobState.COMPLETE
