"""A backup does not bring erased data back. Erasures are noted outside of the database, and the
server refuses a database that does not know all of them until they are done again.
"""
# ruff: noqa: ASYNC240  # files are what these tests are about, and nobody waits meanwhile

import asyncio
import base64
import json
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from recall_server.application import Application
from recall_server.domain.erasure import Kind
from recall_server.domain.errors import DatabaseUnusable, Unavailable
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.integrations.keys import verified
from recall_server.services.erasure.leak_scan import scan
from recall_server.services.erasure.ledger import Ledger, Noted
from recall_server.services.erasure.purge import RECEIPT_TYP
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open, settings_for
from tests.support.audit import recall
from tests.support.conversation import ALICE, context, drained, enter
from tests.support.engines import KEY_FILE, Postgres, on_sqlite
from tests.support.erasure import erase_all, found, select

BOB, CAROL, DORA = Namespace("bob"), Namespace("carol"), Namespace("dora")
ERIN = Namespace("erin")
SUBJECT = "zvkg3tn9wshc"
CANARIES = {
    ALICE: "pm5kq2wn7vhx4mtb3yfojlea",
    BOB: SUBJECT,
    CAROL: "gx2hc6vzp9ksw4unq7brtdmy",
    ERIN: "wq6bn2xjv8dtm4yks5zfchgr",
}
KEPT = "jd8fwn3xtq6mzy5ckh2rpbgu"


async def remember(
    application: Application, owner: Namespace, text: str, container: str = ""
) -> str:
    submission = Submission(text, "life", None, container=container)
    accepted = await application.services.ingest.remember(context(application, owner), submission)
    return accepted.episode_id


async def furnish(application: Application) -> None:
    for owner in (ALICE, BOB, CAROL, DORA, ERIN):
        await enter(application, owner)
    await remember(application, ALICE, f"User: I live in {CANARIES[ALICE]}.\nUser: I keep a heron.")
    await remember(application, BOB, f"User: {SUBJECT} likes chess.\nUser: I like rowing.")
    await remember(application, CAROL, f"User: I work at {CANARIES[CAROL]}.")
    await remember(application, DORA, f"User: I work at {KEPT}.")
    await remember(application, ERIN, f"User: I work at {CANARIES[ERIN]}.", "red")
    await remember(application, ERIN, "User: I like sailing.", "blue")
    await drained(application)


async def erase(application: Application) -> None:
    """Erase a memory, a subject, a namespace, and a container."""
    erasing = application.services.erase
    kept = await select(application.store, "SELECT id, text FROM memories")
    (memory,) = [one for one in kept if CANARIES[ALICE] in one["text"]]
    await erasing.memory(context(application), memory["id"])
    await erasing.subject(context(application, BOB), SUBJECT)
    await erase_all(application, CAROL)
    await erasing.container(context(application, ERIN), "red")
    await drained(application)


async def traces(application: Application, words: list[str], *paths: Path) -> set[int]:
    """Return the words that are in the files of this database. On Postgres, leave out the files of
    the other databases.
    """
    places = (await scan(application.store, words, paths)).places
    if application.store.engine == "postgres":
        sql = "SELECT oid FROM pg_database WHERE datname = current_database()"
        ((oid,),) = [row.values() for row in await select(application.store, sql)]
        places = [
            one for one in places if f"/base/{oid}/" in one.where or "/base/" not in one.where
        ]
        places = [one for one in places if "/pg_wal/" not in one.where]
    return {one.word for one in places}


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    """Return a path outside of the backups of the database."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    return folder / "erasures"


@pytest.fixture
def key_file(database: Path | str, tmp_path: Path) -> Path:
    return KEY_FILE if isinstance(database, str) else tmp_path / "server.key"


@contextmanager
def backup(database: Path | str, request: pytest.FixtureRequest) -> Iterator[Path | str]:
    """Copy the database as it is now to another one."""
    if isinstance(database, str):
        server: Postgres = request.getfixturevalue("postgres")
        with server.database(database.split("dbname=")[1].split()[0]) as url:
            yield url
        return
    copy = database.with_name("backup.db")
    with closing(sqlite3.connect(database)) as raw, closing(sqlite3.connect(copy)) as into:
        raw.backup(into)
    yield copy


async def test_last_nights_backup_is_not_served_until_it_is_erased_again(
    database: Path | str,
    open_app: Open,
    ledger: Path,
    key_file: Path,
    request: pytest.FixtureRequest,
) -> None:
    given = {"erasure_file": ledger, "key_file": key_file}
    words = list(CANARIES.values())
    async with open_app(**given) as application:
        await furnish(application)
    with backup(database, request) as restored:
        async with open_app(**given) as application:
            await erase(application)
            assert await traces(application, words, ledger) == set()
        assert len(ledger.read_text().split("ers_")) == 5
        async with open_app(**given):
            pass  # A database that knows all erasures is served.

        refused = await asyncio.to_thread(_command, restored, ledger, key_file, "status")
        assert refused.code == 2
        assert "recall erase-again" in refused.err
        assert "[DATABASE_UNUSABLE]" in refused.err
        async with _house(restored, key_file, ledger.with_name("none")) as application:
            assert await traces(application, words) == {0, 1, 2, 3}  # The positive control.

        again = await asyncio.to_thread(
            _command, restored, ledger, key_file, "erase-again", "--json"
        )
        assert again.code == 0, again.err
        done = json.loads(again.out)
        assert [one["physical"] for one in done] == ["done"] * 4
        async with _house(restored, key_file, ledger) as application:
            assert await traces(application, [*words, KEPT]) == {4}
            assert await found(application, KEPT, DORA)
            assert any("rowing" in text for text in await found(application, "rowing", BOB))
            assert any("sailing" in text for text in await found(application, "sailing", ERIN))
            assert any("heron" in text for text in await found(application, "heron", ALICE))
            tokens = await application.services.access.tokens(CAROL)
            assert [one.revoked_at is None for one in tokens] == [False]
            for one in done:
                claims = verified(one["receipt"], application.key.public, RECEIPT_TYP)
                assert claims["physical"]["state"] == "done"
        assert (await asyncio.to_thread(_command, restored, ledger, key_file, "status")).code == 0


def _house(database: Path | str, key_file: Path, ledger: Path):  # type: ignore[no-untyped-def]  # noqa: ANN202
    from recall_server.bootstrap import open_application  # noqa: PLC0415

    return open_application(
        settings_for(database, key_file=key_file, erasure_file=ledger, embedder="none")
    )


def _command(database: Path | str, ledger: Path, key_file: Path, *command: str):  # type: ignore[no-untyped-def]  # noqa: ANN202
    given = {"recall_erasure_file": ledger}
    if not isinstance(database, str):
        given["recall_key_file"] = key_file
    return recall(database, *command, **given)


async def test_an_erasure_is_not_done_before_the_ledger_has_it(
    open_app: Open, ledger: Path, key_file: Path, tmp_path: Path
) -> None:
    """An erasure that cannot be noted stays pending, and is noted once."""
    async with open_app(erasure_file=ledger, key_file=key_file) as application:
        await enter(application)
        await remember(application, ALICE, "User: I keep a heron.")
        ledger.symlink_to(tmp_path / "stolen")
        erased = await erase_all(application)
        with pytest.raises(Unavailable, match="RECALL_ERASURE_FILE"):
            await application.services.purge.at_once(ALICE, erased.id)
        ledger.unlink()
        for _ in range(2):
            done = await application.services.purge.at_once(ALICE, erased.id)
            assert done.stage == "done"

    assert not (tmp_path / "stolen").exists()
    assert ledger.stat().st_mode & 0o777 == 0o600
    assert [line.split()[0] for line in ledger.read_text().split("\n") if line] == [erased.id]


async def test_a_line_of_the_ledger_that_was_changed_is_told(
    open_app: Open, ledger: Path, key_file: Path
) -> None:
    """A line that somebody else wrote erases nothing; one that a full disk cut off is ignored."""
    async with open_app(erasure_file=ledger, key_file=key_file) as application:
        await enter(application)
        erased = await erase_all(application)
        await drained(application)
    good = ledger.read_text()
    ledger.write_text(good + f"\n{erased.id[:-1]}")
    async with open_app(erasure_file=ledger, key_file=key_file):
        pass
    other = erased.id[:-1] + ("0" if erased.id[-1] != "0" else "1")
    for line in (f"{other} {good.split()[1]}", f"{other} gAAAA"):
        ledger.write_text(f"{good}\n{line}\n")
        with pytest.raises(DatabaseUnusable, match="was changed"):
            async with open_app(erasure_file=ledger, key_file=key_file):
                pass


@on_sqlite
async def test_beside_a_file_the_ledger_stands_by_itself(
    database: Path, open_app: Open, tmp_path: Path
) -> None:
    """This needs no setting."""
    async with open_app() as application:
        await furnish(application)
    kept = tmp_path / "kept.db"
    shutil.copy(database, kept)
    async with open_app() as application:
        await erase(application)
    shutil.copy(kept, database)
    with pytest.raises(DatabaseUnusable, match="erase-again"):
        async with open_app():
            pass


def test_a_line_keeps_who_asked_and_one_of_an_older_release_is_read() -> None:
    """A line of an older release has no access scope."""
    secret, scope = b"k" * 32, AccessScope(containers=frozenset({"red"}))
    ledger = Ledger(secret, None)
    asked = Noted("ers_1", ALICE, Kind.CONTAINER, "red", scope)
    assert ledger.opened(ledger.sealed(asked)) == asked

    old = Fernet(base64.urlsafe_b64encode(secret)).encrypt(b'["ers_1","alice","container","red"]')
    assert ledger.opened(f"ers_1 {old.decode()}").scope == FULL_ACCESS
