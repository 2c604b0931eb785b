"""A query that is its own transaction."""

import pytest

from recall_server.domain.task import JobState
from recall_server.storage.store import Store
from tests.support.rows import ALICE, enter
from tests.support.runtime import NOON


async def test_it_sees_what_was_committed(store: Store) -> None:
    await enter(store, ALICE)
    async with store.transaction(ALICE) as tx:
        await tx.jobs.add("job_1", "extract", {}, NOON)

    assert await store.autocommit(ALICE).jobs.state("job_1") is JobState.QUEUED


async def test_what_needs_a_transaction_is_refused_without_one(store: Store) -> None:
    with pytest.raises(LookupError, match="transaction"):
        await store.autocommit(ALICE).lock()
