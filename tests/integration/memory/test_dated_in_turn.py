"""A change that waits for others is dated when its turn comes, so the past stays as it was seen."""

import asyncio
import sqlite3
from collections.abc import Callable, Coroutine
from contextlib import closing
from datetime import datetime, timedelta
from pathlib import Path

import psycopg
import pytest

from recall_server.application import Application
from recall_server.domain.intents import Intent
from recall_server.domain.moments import PRESENT, Past
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.query import Query
from recall_server.domain.task import Mode, Request
from recall_server.services.erasure.purge_source import BadSource
from recall_server.services.memory import commit
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from recall_server.storage.driver import moment
from recall_server.storage.store import Store
from tests.support import rows
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories, remember
from tests.support.engines import on_sqlite
from tests.support.erasure import select
from tests.support.runtime import NOON, Clock

HOUR = timedelta(hours=1)
WITHIN_S = 30.0

# The dates of all changes.
DATES = """
SELECT at FROM memory_events WHERE namespace = 'alice'
UNION SELECT added_at FROM documents WHERE namespace = 'alice'
UNION SELECT hidden_at FROM documents WHERE namespace = 'alice'
UNION SELECT recorded_at FROM memories WHERE namespace = 'alice'
UNION SELECT retired_at FROM memories WHERE namespace = 'alice'
UNION SELECT recorded_at FROM episodes WHERE namespace = 'alice'
UNION SELECT forgotten_at FROM forgotten WHERE namespace = 'alice'
"""

Change = Callable[[Application], Coroutine[object, object, None]]


class Ticking(Clock):
    """Time that passes a little whenever it is looked at."""

    def __call__(self) -> datetime:
        self.pass_(timedelta(milliseconds=1))
        return self.time


@pytest.fixture
def clock() -> Clock:
    return Ticking()


async def store_text(application: Application) -> None:
    await remember(application, "User: I live in Lisbon now.")


async def state(application: Application) -> None:
    wish = Wish(Intent.REMEMBER, Submission("I live in Lisbon now.", "life"))
    await application.services.intents.submit(context(application), wish)


async def correct(application: Application) -> None:
    (one,) = await memories(application)
    wish = Wish(Intent.CORRECT, Submission("I live in Faro.", "life"), one.id)
    await application.services.intents.submit(context(application), wish)


async def forget(application: Application) -> None:
    (one,) = await memories(application)
    await application.services.recall.forget(context(application), one.id)


async def forget_text(application: Application) -> None:
    (one,) = await memories(application)
    await application.services.texts.forget(context(application), one.citation.episode_id)


async def extract(application: Application) -> None:
    await drained(application)


async def hand_over(application: Application) -> None:
    """A task with so many statements that they are planned ahead."""
    likes = " ".join(f"I like fig{number}." for number in range(commit.PLANNED_INSIDE_MAX + 1))
    request = Request(Mode.INGEST, "life", f"User: {likes}")
    await application.services.consolidate.start(context(application), request)
    await drained(application)


async def undo(application: Application) -> None:
    page = await application.services.changes.page(context(application), None)
    await application.services.changes.undo(
        context(application),
        page.changes[0].id,
        rights=OPERATOR,
        dry_run=False,
        with_dependents=True,
    )


async def purge(application: Application) -> None:
    (one,) = await memories(application)
    source = BadSource(episode_id=one.citation.episode_id)
    await application.services.sources.purge(context(application), source, dry_run=False)


async def seen(application: Application, at: Past = PRESENT) -> tuple[list[str], list[str]]:
    """Return what a search finds, best first, and what is listed, newest first."""
    recall = application.services.recall
    found = await recall.search(context(application), Query("Where do I live?", past=at))
    page = await recall.inspect(
        context(application), limit=50, offset=0, type_="", topic="", past=at
    )
    return [hit.item.id for hit in found.hits], [one.id for one in page.memories]


async def waits(application: Application, database: Path | str, work: asyncio.Task[None]) -> None:
    """Return when the work waits for its turn."""
    if isinstance(database, Path):
        writers = application.store.driver._writing  # type: ignore[attr-defined]
        while not writers._waiting:
            assert not work.done()
            await asyncio.sleep(0)
        return
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as raw:
        waiting = (
            "SELECT 1 FROM pg_stat_activity"
            " WHERE datname = current_database() AND wait_event_type = 'Lock'"
        )
        while not await (await raw.execute(waiting)).fetchone():
            assert not work.done()


CHANGES = [store_text, state, correct, forget, forget_text, extract, undo, purge]


async def dates(application: Application) -> set[datetime]:
    found = await select(application.store, DATES)
    return {moment(value) for row in found for value in row.values() if value is not None}


@pytest.mark.parametrize("change", CHANGES)
async def test_what_was_seen_while_a_change_waited_is_seen_again_as_of_then(
    open_app: Open, clock: Clock, database: Path | str, change: Change
) -> None:
    async with open_app() as application, asyncio.timeout(WITHIN_S):
        await enter(application)
        await remember(application, "User: I live in Porto.")
        await drained(application)
        clock.pass_(HOUR)
        if change is extract:
            await store_text(application)
            clock.pass_(HOUR)
        async with application.store.transaction(ALICE, locked=True) as tx:
            await tx.words.statistics()
            work = asyncio.create_task(change(application))
            await waits(application, database, work)
            clock.pass_(HOUR)
            at, then = clock(), await seen(application)
            clock.pass_(HOUR)
        await work

        assert await seen(application, Past(known_at=at)) == then
        assert await seen(application) != then


@pytest.mark.parametrize("change", [*CHANGES, hand_over])
async def test_all_that_a_change_does_has_one_date(
    open_app: Open, clock: Clock, change: Change
) -> None:
    """Else a past between two dates would show half of it."""
    async with open_app() as application:
        await enter(application)
        await remember(application, "User: I live in Porto.")
        await drained(application)
        if change is extract:
            await store_text(application)
        before = await dates(application)

        await change(application)

        assert len(await dates(application) - before) == 1


@on_sqlite
async def test_a_change_is_dated_when_another_process_has_written(
    store: Store, database: Path
) -> None:
    await rows.enter(store, rows.ALICE)
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")

        def now() -> datetime:
            assert not other.in_transaction
            return NOON

        store._now = now

        async def change() -> datetime:
            async with store.transaction(rows.ALICE, locked=True) as tx:
                return await tx.moment()

        work = asyncio.create_task(change())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not work.done()
        other.execute("COMMIT")
        assert await work == NOON
