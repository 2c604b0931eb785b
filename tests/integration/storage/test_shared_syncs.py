"""On SQLite, waiting transactions are flushed to the disk together. The outcome of one does not
affect another.
"""

import asyncio
import errno
import resource
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from recall_server.domain.errors import DatabaseUnavailable, DatabaseUnusable, Stale
from recall_server.domain.task import JobState
from recall_server.storage.sqlite import SqliteDriver
from recall_server.storage.store import Store, Transaction
from tests.support.engines import on_sqlite
from tests.support.rows import ALICE, BOB, enter
from tests.support.runtime import NOON

pytestmark = on_sqlite

WITHIN_S = 60.0

Work = Callable[[Transaction], Awaitable[None]]


def adding(name: str) -> Work:
    async def work(tx: Transaction) -> None:
        await tx.jobs.add(name, "extract", {}, NOON)

    return work


async def one_behind_the_other(store: Store, *works: Work) -> list[BaseException | None]:
    """Start all works while the first one runs, and return how each has ended."""
    crowded = asyncio.Event()

    async def run(work: Work, *, first: bool) -> None:
        async with store.transaction(ALICE) as tx:
            if first:
                await crowded.wait()
            await work(tx)

    tasks = [asyncio.create_task(run(work, first=work is works[0])) for work in works]
    for _ in range(5):
        await asyncio.sleep(0)
    crowded.set()
    return await asyncio.gather(*tasks, return_exceptions=True)


async def there(store: Store, *names: str) -> list[str]:
    jobs = store.autocommit(ALICE).jobs
    return [name for name in names if await jobs.state(name) is JobState.QUEUED]


@pytest.mark.parametrize("bad", [0, 1, 3])
async def test_one_that_fails_takes_nothing_of_the_others_with_it(store: Store, bad: int) -> None:
    async def fail(tx: Transaction) -> None:
        await tx.jobs.add("bad", "extract", {}, NOON)
        assert await tx.jobs.state("bad")
        raise Stale

    works = [adding(f"job_{i}") for i in range(4)]
    works[bad] = fail
    await enter(store, ALICE)

    ended = await one_behind_the_other(store, *works)

    assert [type(one) for one in ended].index(Stale) == bad
    assert ended.count(None) == 3
    assert await there(store, "bad", *(f"job_{i}" for i in range(4) if i != bad)) == [
        f"job_{i}" for i in range(4) if i != bad
    ]


@pytest.mark.parametrize("bad", [0, 1, 3])
async def test_one_that_was_told_on_leaving_that_it_fails_is_alone_with_that(
    store: Store, bad: int
) -> None:
    """Its last statement is sent together with its end."""

    async def twice(tx: Transaction) -> None:
        await tx.jobs.add("twice", "extract", {}, NOON)
        await tx.jobs.add("twice", "extract", {}, NOON)

    works = [adding(f"job_{i}") for i in range(4)]
    works[bad] = twice
    await enter(store, ALICE)

    ended = await one_behind_the_other(store, *works)

    assert ended[bad] is not None
    assert ended.count(None) == 3
    assert await there(store, "twice", *(f"job_{i}" for i in range(4) if i != bad)) == [
        f"job_{i}" for i in range(4) if i != bad
    ]


@pytest.mark.parametrize("gone", [0, 1, 3])
async def test_one_that_hangs_up_takes_nothing_of_the_others_with_it(
    store: Store, gone: int
) -> None:
    async def hang_up(tx: Transaction) -> None:
        await tx.jobs.add("gone", "extract", {}, NOON)
        assert await tx.jobs.state("gone")
        raise asyncio.CancelledError

    works = [adding(f"job_{i}") for i in range(4)]
    works[gone] = hang_up
    await enter(store, ALICE)

    ended = await one_behind_the_other(store, *works)

    assert isinstance(ended[gone], asyncio.CancelledError)
    assert ended.count(None) == 3
    assert len(await there(store, "gone", *(f"job_{i}" for i in range(4)))) == 3


async def test_who_was_to_go_on_and_hangs_up_while_it_waits_leaves_nobody_waiting(
    store: Store,
) -> None:
    await enter(store, ALICE)
    others: list[asyncio.Task[None]] = []

    async def run(name: str) -> None:
        async with store.transaction(ALICE) as tx:
            await tx.jobs.add(name, "extract", {}, NOON)

    async def first(tx: Transaction) -> None:
        await tx.jobs.add("first", "extract", {}, NOON)
        others.extend(asyncio.create_task(run(f"other_{i}")) for i in range(2))
        await asyncio.sleep(0)
        asyncio.get_running_loop().call_soon(others[0].cancel)
        asyncio.get_running_loop().call_soon(others[1].cancel)

    async with asyncio.timeout(5):
        assert await one_behind_the_other(store, first) == [None]
        await asyncio.gather(*others, return_exceptions=True)
        assert await one_behind_the_other(store, adding("later")) == [None]
    assert await there(store, "first", "later") == ["first", "later"]


async def test_when_the_disk_is_full_all_that_write_are_told_and_nothing_holds(
    store: Store, database: Path
) -> None:
    """A file that may not grow stands for a full disk."""
    await enter(store, ALICE)
    assert await one_behind_the_other(store, adding("before")) == [None]
    size = database.with_name(database.name + "-wal").stat().st_size
    room = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, room[1]))
    try:
        ended = await one_behind_the_other(store, *(adding(f"job_{i}") for i in range(4)))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, room)

    assert [type(one) for one in ended] == [DatabaseUnavailable] * 4
    assert await there(store, "before", *(f"job_{i}" for i in range(4))) == ["before"]
    assert await one_behind_the_other(store, adding("job_0"), adding("job_1")) == [None, None]
    assert await there(store, "job_0", "job_1") == ["job_0", "job_1"]


async def test_nobody_who_came_before_waits_for_an_erasure(store: Store) -> None:
    await enter(store, ALICE, BOB)
    go_on = asyncio.Event()
    erasing: list[asyncio.Task[None]] = []

    async def erase() -> None:
        async with store.transaction(BOB, erasing=True) as tx:
            await tx.jobs.add("erasing", "purge", {}, NOON)
            await go_on.wait()

    async def first(tx: Transaction) -> None:
        await tx.jobs.add("first", "extract", {}, NOON)
        erasing.append(asyncio.create_task(erase()))
        await asyncio.sleep(0)

    async with asyncio.timeout(5):
        assert await one_behind_the_other(store, first) == [None]
        assert not erasing[0].done()
        go_on.set()
        await erasing[0]

    assert await there(store, "first") == ["first"]
    assert await store.autocommit(BOB).jobs.state("erasing") is JobState.QUEUED


class Disk:
    """A disk that syncs when the test allows it, and counts the syncs."""

    def __init__(self, failure: OSError | None = None) -> None:
        self.syncs = 0
        self.let = threading.Event()
        self._failure = failure

    def __call__(self, file: int) -> None:
        assert self.let.wait(WITHIN_S)
        self.syncs += 1
        if self._failure is not None:
            raise self._failure


async def test_transactions_that_wait_for_each_other_share_a_sync(database: Path) -> None:
    disk = Disk()
    driver = SqliteDriver(database, sync=disk)
    await driver.open()
    async with driver.migration() as connection:
        await connection.fetch("CREATE TABLE notes (text TEXT)", {})

    async def write(number: int) -> None:
        async with driver.transaction(namespace="alice", write=True) as connection:
            await connection.fetch(f"INSERT INTO notes VALUES ('{number}')", {})

    writing = [asyncio.create_task(write(number)) for number in range(8)]
    # Nobody waits when the first begins, or when the last does, so their commits sync by
    # themselves.
    await asyncio.wait({writing[7]}, timeout=WITHIN_S)
    acknowledged = [task.done() for task in writing]
    async with driver.transaction(namespace="alice", write=False) as connection:
        (row,) = await connection.fetch("SELECT count(*) AS n FROM notes", {})
    disk.let.set()
    await asyncio.gather(*writing)
    await driver.close()

    assert acknowledged == [True, *[False] * 6, True]
    assert row["n"] == 8
    assert disk.syncs <= 2


async def test_others_write_while_a_large_change_is_brought_to_the_disk(database: Path) -> None:
    """The commit of an undo did that itself, while all writers waited."""
    disk = Disk()
    driver = SqliteDriver(database, sync=disk)
    await driver.open()
    async with driver.migration() as connection:
        await connection.fetch("CREATE TABLE notes (text TEXT)", {})

    async def write(namespace: str, rows: int, *, erasing: bool) -> None:
        async with driver.transaction(
            namespace=namespace, write=True, erasing=erasing
        ) as connection:
            row = {"row": "x" * 3_000}
            await connection.many("INSERT INTO notes VALUES (:row)", [row] * rows)

    changing = asyncio.create_task(write("alice", 800, erasing=True))
    async with asyncio.timeout(WITHIN_S):
        await write("bob", 1, erasing=False)
    assert not changing.done()
    disk.let.set()
    await changing
    assert (await asyncio.to_thread(database.stat)).st_size > 2_000_000, "the journal is copied"
    await driver.close()


async def test_after_a_sync_that_failed_nothing_more_is_taken(database: Path) -> None:
    disk = Disk(OSError(errno.EIO, "Input/output error"))
    disk.let.set()
    driver = SqliteDriver(database, sync=disk)
    await driver.open()
    async with driver.migration() as connection:
        await connection.fetch("CREATE TABLE notes (text TEXT)", {})

    async def write(number: int) -> None:
        async with driver.transaction(namespace="alice", write=True) as connection:
            await connection.fetch(f"INSERT INTO notes VALUES ('{number}')", {})

    ended = await asyncio.gather(*map(write, range(4)), return_exceptions=True)
    with pytest.raises(DatabaseUnusable, match="Check the disk"):
        await driver.autocommit([("SELECT 1", {})], namespace="alice")
    await driver.close()

    assert ended[0] is None
    assert isinstance(ended[1], DatabaseUnusable)
    assert disk.syncs == 1


@pytest.mark.parametrize("erasing", [False, True])
async def test_a_change_is_begun_in_its_turn_unless_it_was_planned_ahead(
    store: Store, *, erasing: bool
) -> None:
    """A change reads the clock inside. If it did so before its turn, `known_at` would tell what no
    search saw.
    """
    begun = asyncio.Event()

    async def change() -> None:
        async with store.transaction(BOB, erasing=erasing) as tx:
            begun.set()
            await adding("later")(tx)

    await enter(store, ALICE)
    await enter(store, BOB)
    async with asyncio.timeout(WITHIN_S), store.transaction(ALICE) as tx:
        await adding("first")(tx)
        assert await tx.jobs.state("first"), "it has the writer"
        other = asyncio.create_task(change())
        for _ in range(5):
            await asyncio.sleep(0)
        assert begun.is_set() is erasing
    await other
    assert begun.is_set()
