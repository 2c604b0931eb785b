"""How a worker finds jobs: a queue never reports a job too late, and a worker that takes the last
job or finds none corrects one that reports too early.
"""

import re
from datetime import datetime, timedelta

import pytest

from recall_server.domain.ids import Namespace
from recall_server.domain.task import Job
from recall_server.storage.bound_connection import load
from recall_server.storage.store import Store
from recall_server.storage.tables.jobs import LOOK_ROWS, PUSH
from tests.support.engines import on_postgres
from tests.support.rows import ALICE, BOB, enter
from tests.support.runtime import NOON

LEASE = NOON + timedelta(minutes=5)
TOMORROW = NOON + timedelta(days=1)
# The queries that may make a job due earlier, and the method that updates the queue.
TOLD_BY = {
    "add_job": "Jobs.add",
    "add_jobs": "Jobs.add_each",
    "release_job": "Jobs.release",
    "end_leases": "repair_queues",
    "requeue_jobs_without_key": "repair_queues",
    "requeue_jobs_without_space": "Jobs.requeue_without_space",
    "requeue_all_jobs_without_space": "repair_queues",
    "fence_jobs": "Erasures.fence",
    "import_extraction": "ExportTable.add_episode",
    "add_job_again": "Jobs.add",
    "take_job_over": "Jobs.take_over",
    "promise_pushes": "Pushes.promise",
    "promise_webhooks": "Webhooks.keep",
    "promise_push_end": "Pushes.promise_end",
    # These make it due later, or do not change it.
    "claim_job": "",
    "advance_job": "",
    "end_jobs_of_runs": "",
}


async def add(
    store: Store, job_id: str, namespace: Namespace = ALICE, due_at: datetime = NOON
) -> None:
    async with store.transaction(namespace) as tx:
        await tx.jobs.add(job_id, "extract", {}, NOON, due_at=due_at)


async def claim(store: Store, after: str = "", at: datetime = NOON) -> Job | None:
    async with store.transaction(None) as tx:
        return await tx.jobs.claim(after, at, at + timedelta(minutes=5))


async def any_due(store: Store, at: datetime = NOON) -> bool:
    async with store.transaction(None, write=False) as tx:
        return await tx.jobs.any_due(at, pushes=False)


async def queues(store: Store) -> list[tuple[str, int]]:
    listed = "SELECT namespace, pushes FROM queues ORDER BY namespace, pushes"
    async with store.transaction(None) as tx:
        rows = await tx.bound.connection.fetch(listed, {})
    return [(row["namespace"], row["pushes"]) for row in rows]


def test_every_query_that_may_make_a_job_due_tells_the_queue() -> None:
    writes = re.compile(r"INTO operations|UPDATE operations\s+SET[^;]*\bdue_at\b")

    assert {one.name for one in load("postgres").values() if writes.search(one.sql)} == set(TOLD_BY)


async def test_a_queue_is_there_as_long_as_a_job_is(store: Store) -> None:
    await enter(store, ALICE, BOB)
    await add(store, "first")
    async with store.transaction(BOB) as tx:
        await tx.jobs.add("second", PUSH, {}, NOON)
    assert await queues(store) == [(ALICE, 0), (BOB, 1)]

    job = await claim(store)
    assert job is not None
    assert await claim(store) is None
    async with store.transaction(ALICE) as tx:
        await tx.jobs.finish(job, NOON)
    assert await claim(store, at=LEASE) is None

    assert await queues(store) == [(BOB, 1)]


async def test_whoever_claims_the_last_job_that_is_due_tells_that_no_other_is(store: Store) -> None:
    await enter(store, ALICE)
    await add(store, "first")
    await add(store, "second")
    await add(store, "later", due_at=TOMORROW)

    found = [await any_due(store)]
    for _ in range(2):
        assert await claim(store)
        found.append(await any_due(store))

    assert found == [True, True, False]
    assert await any_due(store, at=LEASE)
    assert await any_due(store, at=TOMORROW)


async def test_a_job_is_found_that_is_due_after_the_moment_from_which_its_transaction_looks(
    store: Store,
) -> None:
    """A purge of a source fences all jobs, and then adds some."""
    await enter(store, ALICE)
    later = NOON + timedelta(milliseconds=5)
    await add(store, "done")
    done = await claim(store)
    assert done is not None
    async with store.transaction(ALICE) as tx:
        await tx.jobs.finish(done, NOON)
    async with store.transaction(ALICE, erasing=True) as tx:
        await tx.erasures.fence(NOON)
        await tx.jobs.add("next", "extract", {}, later)

    found = await claim(store, at=later)

    assert found is not None
    assert found.id == "next"


async def test_a_job_for_later_is_found_when_it_is_due_and_an_earlier_one_before(
    store: Store,
) -> None:
    await enter(store, ALICE)
    await add(store, "later", due_at=TOMORROW)
    assert await claim(store) is None
    await add(store, "now")

    jobs = [await claim(store), await claim(store), await claim(store, at=TOMORROW)]

    assert [job and job.id for job in jobs] == ["now", None, "now"]
    assert await claim(store, at=TOMORROW) is not None  # Both leases were over.


async def test_a_job_that_is_put_back_is_found_at_once(store: Store) -> None:
    await enter(store, ALICE)
    await add(store, "one")
    job = await claim(store)
    assert job is not None
    assert await claim(store) is None  # The queue now reports the end of the lease.
    async with store.transaction(ALICE) as tx:
        assert await tx.jobs.release(job, NOON, None, failed=False)

    assert await claim(store) is not None


@on_postgres
async def test_a_job_that_is_added_while_another_looks_in_vain_is_found(store: Store) -> None:
    await enter(store, ALICE)
    await add(store, "first")
    assert await claim(store) is not None
    async with store.transaction(ALICE) as tx:
        await tx.jobs.add("second", "extract", {}, NOON)
        await tx.jobs.counts()  # It is written, but not committed.
        assert await claim(store) is None

    found = await claim(store)

    assert found is not None
    assert found.id == "second"


@on_postgres
async def test_nobody_waits_for_a_queue_that_is_being_changed(store: Store) -> None:
    await enter(store, ALICE, BOB)
    await add(store, "first")
    assert await claim(store) is not None
    async with store.transaction(ALICE) as tx:
        await tx.jobs.add("second", "extract", {}, NOON)
        await tx.jobs.write_due()
        await tx.jobs.counts()
        await add(store, "bobs", BOB)
        found = await claim(store)

    assert found is not None
    assert found.id == "bobs"
    assert await claim(store) is not None


async def test_more_queues_that_tell_too_early_than_one_look_shows_hide_no_job(
    store: Store,
) -> None:
    names = [Namespace(f"tenant-{number:03}") for number in range(LOOK_ROWS * 2 + 3)]
    await enter(store, *names)
    for name in names:
        await add(store, "later", name, due_at=TOMORROW)
    await add(store, "now", names[-1])
    async with store.transaction(None) as tx:
        await tx.bound.connection.fetch(f"UPDATE queues SET due_at = '{NOON.isoformat()}'", {})

    found = await claim(store, names[-1])

    assert found is not None
    assert (found.namespace, found.id) == (names[-1], "now")
    assert await claim(store) is None


async def test_a_repair_finds_the_jobs_that_no_queue_tells_of(store: Store) -> None:
    await enter(store, ALICE, BOB)
    await add(store, "lost")
    await add(store, "late", BOB)
    async with store.transaction(None) as tx:
        await tx.bound.connection.fetch(f"DELETE FROM queues WHERE namespace = '{ALICE}'", {})
        late = f"UPDATE queues SET due_at = '{TOMORROW.isoformat()}'"
        await tx.bound.connection.fetch(late, {})
    assert await claim(store) is None

    async with store.transaction(None) as tx:
        await tx.jobs.repair_queues()

    assert {one.id for one in [await claim(store), await claim(store)] if one} == {"lost", "late"}


@pytest.mark.parametrize("kind", ["extract", PUSH])
async def test_each_sort_of_jobs_has_a_queue_of_its_own(store: Store, kind: str) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        await tx.jobs.add("one", kind, {}, NOON)
    async with store.transaction(None) as tx:
        other = await tx.jobs.claim("", NOON, LEASE, pushes=kind != PUSH)
        same = await tx.jobs.claim("", NOON, LEASE, pushes=kind == PUSH)

    assert other is None
    assert same is not None
