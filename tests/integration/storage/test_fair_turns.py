"""The transactions of a crowd begin after the single calls of others."""

import asyncio
from pathlib import Path

import pytest

from recall_server import shipped
from recall_server.domain.fairness import FairSemaphore
from recall_server.domain.ids import Namespace
from recall_server.storage import driver_for
from recall_server.storage.migrations import migrate
from recall_server.storage.store import Store
from tests.support.rows import ALICE, BOB, enter
from tests.support.runtime import NOON


@pytest.mark.parametrize("write", [False, True])
async def test_a_transaction_of_a_crowd_waits_for_the_single_call_of_another(
    database: Path | str, monkeypatch: pytest.MonkeyPatch, *, write: bool
) -> None:
    monkeypatch.setattr("recall_server.domain.fairness.YIELD_MAX_S", 3_600.0)
    calls = FairSemaphore(16, per_key=2, per_key_contended=1)
    driver = driver_for(database)
    await driver.open()
    await migrate(driver, shipped("migrations"), NOON)
    store = Store(driver, cache_bytes_max=1_000_000, mac_key=bytes(32), turns=calls)
    for name in (ALICE, BOB):
        await enter(store, name)

    async def begun(namespace: Namespace | None) -> bool:
        async with store.transaction(namespace, write=write):
            return True

    for name in (ALICE, ALICE, BOB):
        await calls.acquire(name)
    crowd = asyncio.create_task(begun(ALICE))
    # The control: this is longer than a transaction takes if nobody else waits.
    others = [await begun(namespace) for namespace in (BOB, None, BOB)]
    waited = not crowd.done()
    calls.release(BOB)
    after = await crowd
    await driver.close()

    assert others == [True, True, True]
    assert waited
    assert after
