"""If another program holds a lock, a call waits for a limited time. If a client sends the same call
twice at the same time, it is done once.
"""

import asyncio
import re
import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

from recall_server.application import Application
from recall_server.domain.errors import DatabaseUnavailable, IdempotencyConflict
from tests.support.application import Open
from tests.support.conversation import ALICE, drained, enter, memories, remember
from tests.support.engines import on_sqlite
from tests.support.erasure import select
from tests.support.faults import held
from tests.support.paths import ROOT

TEXT = "Alice: I live in Lisbon."
CALLS = 100
# This is a little more than a driver waits for a lock.
PATIENCE_S = 7.0


async def kept(application: Application) -> Counter[str]:
    rows = await select(application.store, "SELECT text FROM episodes")
    return Counter(row["text"] for row in rows)


async def test_a_lock_that_is_held_too_long_is_said_and_one_that_is_let_go_is_waited_for(
    open_app: Open, database: Path | str
) -> None:
    """Calls that only read are not delayed."""
    loop = asyncio.get_running_loop()
    async with open_app() as application:
        await enter(application)
        async with held(database):
            began = loop.time()
            refused = asyncio.create_task(remember(application, "I like tea."))
            await application.check()
            found = await memories(application)
            reading_s = loop.time() - began
            with pytest.raises(DatabaseUnavailable, match=r"locked|in the way"):
                await refused
            waited_s = loop.time() - began
            patient = asyncio.create_task(remember(application, TEXT))
            await application.check()
            assert not patient.done()
        await patient
        there = await kept(application)

    assert found == []
    assert reading_s < 2
    assert 3 < waited_s < PATIENCE_S
    assert there == {TEXT: 1}


@on_sqlite
async def test_whoever_reads_and_then_writes_is_not_overtaken(
    open_app: Open, database: Path
) -> None:
    """SQLite refuses at once a transaction that begins to write after another has written since its
    start. Ours take the lock when they start.
    """
    async with open_app() as application:
        await enter(application)
        with closing(sqlite3.connect(database, isolation_level=None)) as other:
            other.execute("BEGIN")  # The control.
            other.execute("SELECT * FROM namespaces").fetchall()
            await remember(application, TEXT)
            with pytest.raises(sqlite3.OperationalError) as caught:
                other.execute("UPDATE namespaces SET documents = 7")
            other.execute("ROLLBACK")
            other.execute("PRAGMA busy_timeout = 0")
            async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
                await raw.fetch("SELECT * FROM namespaces", {})
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    other.execute("BEGIN IMMEDIATE")
                await raw.fetch("UPDATE namespaces SET documents = documents", {})

    assert caught.value.sqlite_errorname == "SQLITE_BUSY_SNAPSHOT"


def test_only_the_drivers_begin_transactions() -> None:
    """No other code can begin a transaction that writes only later."""
    begins = re.compile(r"""["'](?:BEGIN|COMMIT|ROLLBACK|SAVEPOINT)\b""")
    found = {
        str(path.relative_to(ROOT))
        for path in (ROOT / "recall_server").rglob("*.py")
        if begins.search(path.read_text("utf-8"))
    }

    assert found == {
        "recall_server/storage/postgres/__init__.py",
        "recall_server/storage/postgres/connection.py",
        # It also reads the schema of a copy.
        "recall_server/storage/sqlite/__init__.py",
    }


async def test_a_hundred_at_once_with_one_key_over_two_replicas_make_one_episode(
    open_app: Open,
) -> None:
    """One memory is made of it. tests/integration/memory/test_ingest.py tests one replica."""
    async with open_app() as first, open_app() as second:
        await enter(first)
        answers = await asyncio.gather(
            *(remember((first, second)[n % 2], TEXT, key="key") for n in range(CALLS))
        )
        await asyncio.gather(drained(first), drained(second))
        there, made = await kept(first), await memories(second)

    assert Counter(answer.cached for answer in answers) == {True: CALLS - 1, False: 1}
    assert len({(answer.episode_id, answer.job_id) for answer in answers}) == 1
    assert there == {TEXT: 1}
    assert [memory.reinforcements for memory in made] == [0]


async def test_of_two_texts_with_one_key_at_once_one_is_kept_and_the_other_refused(
    open_app: Open,
) -> None:
    """The test has two replicas. The refused call leaves no rows."""
    texts = [TEXT, "Alice: I live in Porto."]
    async with open_app() as first, open_app() as second:
        await enter(first)
        answers = await asyncio.gather(
            *(remember((first, second)[n % 2], texts[n % 2], key="key") for n in range(CALLS)),
            return_exceptions=True,
        )
        there = await kept(first)

    refused = [answer for answer in answers if isinstance(answer, BaseException)]
    assert {type(error) for error in refused} == {IdempotencyConflict}
    assert len(refused) == CALLS / 2
    assert len(there) == 1
    assert set(there) < set(texts)
