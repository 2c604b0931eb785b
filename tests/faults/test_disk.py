"""A disk that fills up, and a file that is cut, changed, replaced or removed: acknowledged data is
kept, or the server reports its loss.

All tests are on SQLite: Postgres looks after its own files.
"""
# ruff: noqa: ASYNC240  # files are what these tests are about, and nobody waits meanwhile

import asyncio
import itertools
import os
import resource
import shutil
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from recall_server.domain.errors import DatabaseUnusable
from recall_server.storage.store import Store
from tests.support.application import Open
from tests.support.conversation import drained, enter, memories, remember
from tests.support.engines import on_sqlite
from tests.support.faults import limit, whole
from tests.support.processes import (
    CALL_S,
    Refused,
    Server,
    calling,
    new_token,
    recall,
    until,
)
from tests.support.stored import ALICE, opened, select
from tests.support.transfer import exported

pytestmark = on_sqlite

# The event loop logs this for a connection that it cannot accept, once a second.
SHORT = "out of system resource"
TEXT = "Alice: I live in Lisbon near the river. My favourite colour is teal."


async def test_a_full_disk_refuses_what_it_cannot_keep_and_loses_nothing_it_has(
    database: Path,
) -> None:
    """A file that may not grow stands for the full disk. With free space, everything works as
    before.
    """
    token = (await new_token(database, ALICE))["token"]
    async with Server(database, worker_jobs=0) as server, calling(server.address, token) as call:
        kept, refused = [], None
        for number in range(50):
            if number == 3:
                journal = database.with_name(database.name + "-wal")
                size = max(database.stat().st_size, journal.stat().st_size)
                room = limit(server, resource.RLIMIT_FSIZE, size + 100_000)
            try:
                await call("store_memory", text=f"{number} {'lorem ' * 4_000}")
            except Refused as error:
                refused = str(error)
                break
            kept.append(number)
        alive = server.alive
        limit(server, resource.RLIMIT_FSIZE, room)
        await call("store_memory", text="User: There is room again.")
        found = await call("search_memories", query="room again", mode="keyword")
    async with opened(database) as store:
        texts = [row["text"] for row in await select(store, "SELECT text FROM episodes")]

    assert refused is not None
    assert "DATABASE_UNAVAILABLE" in refused
    assert "the disk is full" in refused
    assert alive
    assert len(kept) >= 3
    assert "room again" in found["results"][0]["text"]
    assert sorted(int(text.split()[0]) for text in texts if "lorem" in text) == kept
    assert whole(database)


async def test_without_a_file_handle_to_spare_callers_wait_and_are_answered_when_there_is_one(
    database: Path,
) -> None:
    """Connected clients are served in the meantime, since the server does not keep asking for a
    handle.
    """
    token = (await new_token(database, ALICE))["token"]
    async with Server(database, worker_jobs=0) as server, calling(server.address, token) as known:
        await known("store_memory", text=TEXT)
        used = {int(file.name) for file in Path(f"/proc/{server.pid}/fd").iterdir()}
        # The process may have no handle from this number on, which would be the next.
        free = next(number for number in itertools.count() if number not in used)
        began = time.monotonic()
        room = limit(server, resource.RLIMIT_NOFILE, free)

        async def short() -> bool:
            return server.said(SHORT) > 0

        async with calling(server.address, token) as new:
            waiting = asyncio.create_task(new("get_memory_stats"))
            await until(short, CALL_S, "the server has no handle for it")
            during = await known("search_memories", query="Lisbon", mode="keyword")
            stuck = not waiting.done()
            limit(server, resource.RLIMIT_NOFILE, room)
            after = await waiting
        tried = server.said(SHORT)
        seconds = time.monotonic() - began

    assert during["total"] == 1
    assert stuck
    assert after["total"] == 0
    assert tried <= 1 + seconds


async def test_a_file_that_was_removed_while_in_use_takes_nothing_more(
    open_app: Open, database: Path
) -> None:
    """SQLite would go on writing to the deleted file, and lose all of it."""
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
        await application.check()  # The control.
        away = database.with_name("away.db")
        database.rename(away)
        for refused in (remember(application, "I like tea."), application.check()):
            with pytest.raises(DatabaseUnusable, match="removed or replaced"):
                await refused
        shutil.copy(away, database)  # The content is the same, but the file is another.
        with pytest.raises(DatabaseUnusable, match="removed or replaced"):
            await remember(application, "I like tea.")
        away.rename(database)
        await remember(application, "I like rum.")
    with closing(sqlite3.connect(database)) as raw:
        texts = {text for (text,) in raw.execute("SELECT text FROM episodes")}

    assert texts == {TEXT, "I like rum."}


async def test_a_file_that_is_replaced_during_a_transaction_is_not_committed_to(
    open_app: Open, database: Path
) -> None:
    async with open_app() as application:
        await enter(application)

        async def change() -> None:
            async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
                await raw.fetch("UPDATE namespaces SET documents = 7", {})
                database.rename(database.with_name("away.db"))

        with pytest.raises(DatabaseUnusable, match="removed or replaced"):
            await change()
        database.with_name("away.db").rename(database)
        async with application.store.driver.transaction(namespace=ALICE, write=False) as raw:
            rows = await raw.fetch("SELECT documents FROM namespaces", {})

    assert [row["documents"] for row in rows] == [0]


@pytest.mark.parametrize("loss", ["removed", "emptied"])
async def test_a_database_that_is_gone_is_not_made_anew_beside_its_key(
    open_app: Open, database: Path, loss: str
) -> None:
    """If the key is gone too, it is a new database, and not a loss."""
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
        key = application.settings.key_path
    copy = database.read_bytes()
    if loss == "removed":
        database.unlink()
    else:
        database.write_bytes(b"")
    with pytest.raises(DatabaseUnusable, match=r"gone or empty.*backup"):
        async with open_app():
            pass
    left = database.exists() and database.stat().st_size
    database.write_bytes(copy)
    async with open_app() as application:
        (found,) = await _episodes(application.store)
    key.unlink()
    database.unlink()
    async with open_app() as application:
        anew = await _episodes(application.store)

    assert not left
    assert found == TEXT
    assert anew == []


@pytest.mark.parametrize("keep", [100, 4_096, 20_000])
async def test_a_file_that_was_cut_is_refused(open_app: Open, database: Path, keep: int) -> None:
    """tests/stories/test_cli.py tests garbage and a read-only file."""
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
    os.truncate(database, keep)

    with pytest.raises(DatabaseUnusable, match="not an intact SQLite database"):
        async with open_app():
            pass


async def test_a_text_that_the_disk_has_changed_is_neither_exported_nor_read(
    open_app: Open, database: Path
) -> None:
    """No index and no check of SQLite notices the change; the text's hash does."""
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
        assert b"Lisbon" in await exported(application)  # The control.
    flipped = database.read_bytes().replace(b"Lisbon near the river", b"Lisbon near the rives")
    database.write_bytes(flipped)
    assert whole(database)
    async with open_app() as application:
        with pytest.raises(DatabaseUnusable, match="not as it was written"):
            await exported(application)
        await drained(application)
        jobs = await select(application.store, "SELECT state, error_code FROM operations")
        made = await memories(application)

    assert [(job["state"], job["error_code"]) for job in jobs] == [("queued", "DATABASE_UNUSABLE")]
    assert made == []


async def test_a_backup_as_the_documents_say_is_whole_and_a_copy_of_the_file_is_not(
    open_app: Open, database: Path
) -> None:
    """While the server runs, the latest writes are only in the journal."""
    backup = database.with_name("backup.db")
    copy = database.with_name("copy.db")
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
        with closing(sqlite3.connect(database)) as raw:
            raw.execute("VACUUM INTO ?", (str(backup),))
        shutil.copy(database, copy)
        key = application.settings.key_path
    shutil.copy(key, key.with_name("backup.db.key"))
    status = await recall(backup, "status", "--json")
    async with opened(backup) as store:
        kept = await _episodes(store)
    with closing(sqlite3.connect(copy)) as raw:
        copied = raw.execute("SELECT text FROM episodes").fetchall()

    assert '"namespaces": 1' in status
    assert kept == [TEXT]
    assert copied == []


async def test_an_index_of_the_journal_that_is_lost_is_made_again(database: Path) -> None:
    """This is the file with the ending -shm. A checkpoint of the audit log shows a lost journal:
    tests/security/test_audit.py.
    """
    token = (await new_token(database, ALICE))["token"]
    async with Server(database, worker_jobs=0) as server, calling(server.address, token) as call:
        await call("store_memory", text=TEXT)
        await server.kill()
    index = database.with_name(database.name + "-shm")
    assert index.exists()
    index.unlink()
    async with opened(database) as store:
        kept = await _episodes(store)

    assert kept == [TEXT]
    assert whole(database)


async def _episodes(store: Store) -> list[str]:
    return [row["text"] for row in await select(store, "SELECT text FROM episodes")]
