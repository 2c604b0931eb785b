"""A query that is a transaction by itself."""

from datetime import timedelta

import pytest

from recall_server.domain.job import JobState
from recall_server.storage.store import Store
from tests.support.rows import ALICE, enter
from tests.support.runtime import NOON


async def test_it_sees_what_was_committed_and_what_it_changes_holds(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        await tx.jobs.add("job_1", "extract", {}, NOON)

    jobs = store.autocommit(None, write=True, lasting=False).jobs
    claimed = await jobs.claim("", NOON, NOON + timedelta(minutes=1))
    again = await jobs.claim("", NOON, NOON + timedelta(minutes=1))

    assert claimed is not None
    assert again is None
    assert await store.autocommit(ALICE).jobs.state("job_1") is JobState.PROCESSING


async def test_whoever_comes_after_one_that_did_not_wait_for_the_disk_waits(store: Store) -> None:
    await store.autocommit(None, write=True, lasting=False).jobs.claim("", NOON, NOON)

    async with store.driver.migration() as connection:
        if store.engine == "sqlite":
            (row,) = await connection.fetch("PRAGMA synchronous", {})
            assert row["synchronous"] == 2  # FULL
        else:
            (row,) = await connection.fetch("SHOW synchronous_commit", {})
            assert row["synchronous_commit"] == "on"


async def test_what_needs_a_transaction_is_refused_without_one(store: Store) -> None:
    with pytest.raises(LookupError, match="transaction"):
        await store.autocommit(ALICE, write=True).lock()
