"""The state of a database, read without the server."""

from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from recall_server.domain.namespace import Namespace
from recall_server.domain.task import JobState
from recall_server.services.erasure.leak_scan import Scan, scan
from recall_server.storage import driver_for
from recall_server.storage.driver import Row, document
from recall_server.storage.store import Store
from tests.support.processes import Database, until

ALICE = Namespace("alice")
CLOSED_WITHIN_S = 60.0


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
    return await once_closed(lambda: scan(store, words, []))


async def once_closed(scanned: Callable[[], Awaitable[Scan]]) -> Scan:
    """Return what a scan finds. A segment of Postgres' log that was removed is waited for:
    connections of other tests hold it open until they write again or end.
    """
    found = await scanned()

    async def closed() -> bool:
        nonlocal found
        if removed := any("deleted)" in place.where for place in found.places):
            found = await scanned()
        return not removed

    await until(closed, CLOSED_WITHIN_S, "segments of the log that were removed are closed")
    return found


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
        counts = await tx.jobs.all_counts()
    return not any(state is not JobState.FAILED for _, state in counts)


async def applied(store: Store) -> Counter[str]:
    """Return how often each job was applied, from the audit log."""
    lines = await select(
        store, "SELECT ids FROM tool_call_records WHERE operation IN ('extract', 'embed')"
    )
    return Counter(document(line["ids"])[0] for line in lines)
