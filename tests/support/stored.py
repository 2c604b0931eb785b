"""The state of a database, read without the server."""

import re
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from recall_server.domain.ids import Namespace
from recall_server.domain.task import JobState
from recall_server.services.erasure.leak_scan import Scan, scan
from recall_server.storage import driver_for
from recall_server.storage.driver import Row, document
from recall_server.storage.store import Store
from tests.support.processes import Database

ALICE = Namespace("alice")


def fact(number: int) -> str:
    """Return a text of which the rules make exactly one memory, with an attribute of its own."""
    return f"User: My favourite colour number {number} is teal."


@asynccontextmanager
async def opened(database: Database) -> AsyncIterator[Store]:
    """Yield the store of the processes that serve it."""
    driver = driver_for(database)
    await driver.open()
    try:
        yield Store(driver, cache_bytes_max=0)
    finally:
        await driver.close()


async def left_of(store: Store, words: Sequence[str]) -> Scan:
    """Return what a scan finds of erased words."""
    return without_removed_log(await scan(store, words, []))


def without_removed_log(found: Scan) -> Scan:
    """Return what a scan finds but for the segments of Postgres' log that were removed: an idle
    connection, of other tests too, holds one open until it writes again or ends.
    """
    kept = [one for one in found.places if not re.search(r"/pg_wal/.*, deleted\)$", one.where)]
    return replace(found, places=kept)


async def select(store: Store, sql: str) -> list[Row]:
    """Return Alice's rows (she is the only tenant)."""
    async with store.driver.transaction(namespace=ALICE, write=False) as connection:
        return list(await connection.fetch(sql, {}))


async def spent(store: Store, day: int, namespace: Namespace = ALICE) -> int:
    """The tokens of language models that a day has, reserved ones included."""
    sql = f"SELECT tokens FROM model_spend WHERE namespace = '{namespace}' AND day = {day}"
    async with store.driver.transaction(namespace=namespace, write=False) as connection:
        return sum(row["tokens"] for row in await connection.fetch(sql, {}))


async def done(store: Store) -> bool:
    """Return True if no job is queued or running."""
    async with store.transaction(None, write=False) as tx:
        counts = await tx.jobs.counts()
    return not any(state is not JobState.FAILED for _, state in counts)


async def applied(store: Store) -> Counter[str]:
    """Return how often each job was applied, from the audit log."""
    lines = await select(
        store, "SELECT ids FROM tool_call_records WHERE operation IN ('extract', 'embed')"
    )
    return Counter(document(line["ids"])[0] for line in lines)
