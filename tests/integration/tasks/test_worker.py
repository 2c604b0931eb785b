"""The worker: it serves tenants in turn, waits out outages, gives up on jobs that keep failing, and
stops when told to.
"""

import asyncio
from datetime import timedelta

from recall_server.application import Application
from recall_server.bootstrap import working
from recall_server.domain.episode import Span
from recall_server.domain.extraction import Candidate
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import MemoryType
from recall_server.domain.task import JobState
from recall_server.services.memory.ingest import Submission
from recall_server.worker import FAILURES_MAX
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories, remember
from tests.support.extractors import Scripted
from tests.support.processes import until
from tests.support.runtime import Clock

BOB = Namespace("bob")
TEA = Candidate("Alice likes tea.", MemoryType.PREFERENCE, Span(7, 18))


async def state_of(application: Application, job_id: str) -> JobState | None:
    async with application.store.transaction(ALICE, write=False) as tx:
        return await tx.jobs.state(job_id)


async def test_a_job_that_takes_its_worker_with_it_is_given_up(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=Scripted(**{"I like tea": TEA})) as application:
        await enter(application)
        accepted = await remember(application, "Alice: I like tea.")
        for _ in range(FAILURES_MAX + 1):
            async with application.store.transaction(None) as tx:
                await tx.jobs.claim("", clock(), clock() + timedelta(minutes=1))
            clock.pass_(timedelta(minutes=2))
        await drained(application)

        assert await state_of(application, accepted.job_id) is JobState.FAILED


async def test_a_job_that_lost_its_worker_once_is_done_by_the_next(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=Scripted(**{"I like tea": TEA})) as application:
        await enter(application)
        accepted = await remember(application, "Alice: I like tea.")
        async with application.store.transaction(None) as tx:
            await tx.jobs.claim("", clock(), clock() + timedelta(minutes=1))
        clock.pass_(timedelta(minutes=2))
        await drained(application)

        assert await state_of(application, accepted.job_id) is JobState.COMPLETE
        assert len(await memories(application)) == 1


async def test_a_worker_finds_a_job_that_no_queue_tells_of(open_app: Open) -> None:
    """It repairs the queues when it starts, and every minute after that."""
    extractor = Scripted(**{"I like tea": TEA})
    async with open_app(extractor=extractor, worker_poll_s=0.05) as application:
        await enter(application)
        accepted = await remember(application, "Alice: I like tea.")
        async with application.store.transaction(None) as tx:
            await tx.bound.connection.fetch("DELETE FROM queues", {})
        assert not await application.worker.run_once()

        async def is_done() -> bool:
            return await state_of(application, accepted.job_id) is JobState.COMPLETE

        async with working(application):
            await until(is_done, 30.0, "the job is done")


async def test_a_worker_that_was_overtaken_leaves_no_trace(open_app: Open, clock: Clock) -> None:
    extractor = Scripted(**{"I like tea": TEA})
    async with open_app(extractor=extractor) as application:
        await enter(application)
        accepted = await remember(application, "Alice: I like tea.")

        async def overtake() -> None:
            extractor.meanwhile = None
            clock.pass_(timedelta(hours=1))
            await drained(application)

        extractor.meanwhile = overtake
        await drained(application)
        (memory,) = await memories(application)

        assert extractor.asked == 2
        assert memory.reinforcements == 0
        assert await state_of(application, accepted.job_id) is JobState.COMPLETE


async def test_no_transaction_is_open_while_the_model_thinks(open_app: Open) -> None:
    extractor = Scripted(**{"I like tea": TEA})
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await remember(application, "Alice: I like tea.")

        async def write() -> None:
            async with asyncio.timeout(5), application.store.transaction(ALICE) as tx:
                await tx.lock()

        extractor.meanwhile = write
        await drained(application)

        assert extractor.asked == 1
        assert len(await memories(application)) == 1


async def test_a_tenant_with_one_job_does_not_wait_for_one_with_many(open_app: Open) -> None:
    extractor = Scripted()
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await enter(application, BOB)
        for number in range(20):
            await remember(application, f"Alice: I like tea number {number}.")
        await application.services.ingest.remember(
            context(application, BOB), Submission("Bob: I like rum.", "life")
        )
        for _ in range(2):
            await application.worker.run_once()
        counts = await application.services.recall.stats(context(application, BOB))

    assert counts.backlog.pending_extractions == 0


async def test_a_running_worker_is_woken_by_a_store(open_app: Open) -> None:
    done = asyncio.Event()
    extractor = Scripted(**{"I like tea": TEA})

    async def finished() -> None:
        done.set()

    extractor.meanwhile = finished
    async with open_app(extractor=extractor, worker_poll_s=3_600) as application:
        await enter(application)
        async with working(application):
            await asyncio.sleep(0)
            await remember(application, "Alice: I like tea.")
            async with asyncio.timeout(10):
                await done.wait()


async def test_each_of_two_stores_wakes_one_who_rests_and_all_stop_at_once(
    open_app: Open,
) -> None:
    extractor = Scripted(**{"I like tea": TEA})
    both = asyncio.Barrier(3)

    async def meet() -> None:
        await both.wait()

    extractor.meanwhile = meet
    async with open_app(extractor=extractor, worker_poll_s=3_600, drain_s=3_600) as application:
        await enter(application)
        async with asyncio.timeout(30), working(application):
            await remember(application, "Alice: I like tea.")
            await remember(application, "Bob: I like tea.")
            await both.wait()

    assert extractor.asked == 2


async def test_a_worker_told_to_stop_hands_back_what_a_slow_model_holds_up(
    open_app: Open,
) -> None:
    started = asyncio.Event()
    extractor = Scripted(**{"I like tea": TEA})

    async def hang() -> None:
        started.set()
        await asyncio.Event().wait()

    extractor.meanwhile = hang
    async with open_app(extractor=extractor, drain_s=0.05) as application:
        await enter(application)
        accepted = await remember(application, "Alice: I like tea.")
        async with asyncio.timeout(10), working(application):
            await started.wait()
        waiting = await state_of(application, accepted.job_id)
        extractor.meanwhile = None
        await drained(application)

        assert waiting is JobState.QUEUED

        assert await state_of(application, accepted.job_id) is JobState.COMPLETE
