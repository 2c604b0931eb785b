"""No receipt says "destroyed" before it is true, and it shows the progress."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.errors import DatabaseUnavailable, Invalid, ReceiptNotFound
from recall_server.domain.ids import Namespace
from recall_server.integrations.keys import ServerKey, verified
from recall_server.services.erasure import Collected, Erased
from recall_server.services.erasure.purge import RECEIPT_TYP
from recall_server.services.memory.ingest import Submission
from recall_server.storage import postgres
from recall_server.storage.driver import Params, moment
from recall_server.storage.sqlite.connection import Step, step_of
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, remember
from tests.support.counted import counted
from tests.support.engines import on_sqlite
from tests.support.erasure import erase_all, select
from tests.support.runtime import Clock
from tests.support.transfer import BOB

# The limit for an erasure that finds nothing, with its audit record. It once needed about sixty.
NOBODY_STATEMENTS = 30
TEXT = "Anna: I live in Lisbon near the river."


@asynccontextmanager
async def long_reader(database: Path | str) -> AsyncIterator[None]:
    """Keep a reader of the state before the erasure open for as long as the block lasts."""
    if isinstance(database, Path):
        raw = sqlite3.connect(database, isolation_level=None)
        raw.execute("BEGIN")
        raw.execute("SELECT count(*) FROM episodes").fetchall()
        try:
            yield
        finally:
            raw.close()
        return
    async with await psycopg.AsyncConnection.connect(database) as reader:
        await reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        await reader.execute("SELECT count(*) FROM schema_version")
        yield
        await reader.rollback()


async def collect(application: Application, erased: Erased) -> Collected:
    return await application.services.erase.collect(context(application), erased.id, erased.secret)


async def test_while_somebody_reads_an_older_state_the_purge_waits(
    open_app: Open, database: Path | str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The erasure is done in the tables and pending in the files. The purge is retried until it is
    done.
    """
    monkeypatch.setattr(postgres, "PROBES", 2)
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
        await drained(application)
        async with long_reader(database):
            erased = await erase_all(application)
            await drained(application)
            waiting = await collect(application, erased)
            states = await select(application.store, "SELECT kind, state FROM operations")
        clock.pass_(timedelta(minutes=1))
        await drained(application)
        done = await collect(application, erased)

    public = application.key.public
    claims = verified(waiting.receipt, public, RECEIPT_TYP)
    assert (waiting.final, claims["physical"]) == (False, {"state": "pending"})
    assert [(row["kind"], row["state"]) for row in states] == [("purge", "queued")]
    claims = verified(done.receipt, public, RECEIPT_TYP)
    assert (done.final, claims["physical"]["state"], claims["physical"]["left"]) == (
        True,
        "done",
        "",
    )


async def test_a_receipt_tells_what_where_when_and_for_whom_and_no_content(
    open_app: Open,
) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
        erased = await application.services.erase.subject(context(application), "Lisbon")
        claims = verified(erased.receipt, application.key.public, RECEIPT_TYP)

    assert claims["jti"] == erased.id
    assert (claims["kind"], claims["namespace"]) == ("subject", "alice")
    assert claims["requested_by"] == "acc_test"
    assert claims["counts"]["turns"] == 1
    assert claims["engine"] in ("sqlite", "postgres")
    assert "backups" in claims["not_covered"]
    for word in ("Lisbon", "lisbon", "river", "Anna"):
        assert word not in str(claims)


async def test_a_changed_receipt_or_another_servers_key_does_not_verify(
    open_app: Open, tmp_path: Path
) -> None:
    async with open_app() as application:
        await enter(application)
        receipt = (await erase_all(application)).receipt
        public = application.key.public
    head, body, signature = receipt.split(".")
    other = ServerKey.make(tmp_path / "other.key")

    assert verified(receipt, public, RECEIPT_TYP)  # The control.
    for forged, key in (
        (f"{head}.{body[:-4]}AAAA.{signature}", public),
        (receipt, other.public),
        (other.sign({"jti": "ers_1"}, "something-else+jwt"), other.public),
        ("nonsense", public),
    ):
        with pytest.raises(Invalid):
            verified(forged, key, RECEIPT_TYP)


async def test_the_secret_opens_the_final_receipt_until_it_is_acknowledged_and_nothing_else(
    open_app: Open,
) -> None:
    async with open_app() as application:
        await enter(application)
        erased, other = await erase_all(application), await erase_all(application)
        for pending in (await collect(application, erased), await collect(application, erased)):
            assert not pending.final
        await drained(application)
        with pytest.raises(ReceiptNotFound):
            await application.services.erase.find_receipt(erased.id, other.secret)
        for receipt_id, secret in (("ers_unknown", erased.secret), (erased.id, "")):
            with pytest.raises(ReceiptNotFound):
                await application.services.erase.find_receipt(receipt_id, secret)
        for _ in range(2):
            assert (await collect(application, erased)).final
        acknowledged = await application.services.erase.collect(
            context(application), erased.id, erased.secret, acknowledge=True
        )
        assert acknowledged.final
        with pytest.raises(ReceiptNotFound):
            await collect(application, erased)


async def test_one_purge_serves_all_erasures_before_it(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app() as application:
        await enter(application)
        for name in ("Zoe", "Anna", "Lisbon"):
            await remember(application, f"Ben: {name} was seen again on the quay.")
            await application.services.erase.subject(context(application), name)
        purged = counted_purges(application, monkeypatch)
        await drained(application)
        states = await select(application.store, "SELECT state FROM erasures")

    assert [row["state"] for row in states] == ["done"] * 3
    assert len(purged) == 1


async def test_two_purges_at_once_are_one_and_one_that_waits(
    open_app: Open, database: Path | str
) -> None:
    if isinstance(database, Path):
        return  # On SQLite, the second purge waits for the first.
    async with open_app() as application, await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SELECT pg_advisory_lock(7265636132)")
        with pytest.raises(DatabaseUnavailable, match="purging already"):
            await application.store.purge()
        await other.execute("SELECT pg_advisory_unlock_all()")
        assert await application.store.purge() == ""


@on_sqlite
async def test_no_page_of_the_file_is_left_over(open_app: Open, database: Path) -> None:
    """Data that was moved within a page is on no page of the file. The control: before the purge
    there are free pages.
    """

    def left_over() -> int:
        with closing(sqlite3.connect(database)) as raw:
            return int(raw.execute("PRAGMA freelist_count").fetchone()[0])

    async with open_app() as application:
        await enter(application)
        for number in range(20):
            await remember(application, f"Anna: heron number {number} stood by the pond.\n" * 20)
        await erase_all(application)
        before = left_over()
        await application.store.purge()
        after = left_over()

    assert before > 0
    assert after == 0


def counted_purges(application: Application, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that grows by one each time that the files are rewritten."""
    purge, purged = application.store.purge, list[int]()

    async def counted() -> str:
        purged.append(1)
        return await purge()

    monkeypatch.setattr(application.store, "purge", counted)
    return purged


async def test_an_erasure_of_nobody_writes_no_file_anew(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its receipt becomes final like any other. The control: if only a label names the subject,
    files are rewritten.
    """
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
        await drained(application)
        purged = counted_purges(application, monkeypatch)
        nobody = await application.services.erase.subject(context(application), "Nobody")
        await drained(application)
        done = await collect(application, nobody)
        assert (done.final, purged) == (True, [])

        line = application.services.audit.begin(ALICE, "create_token", "test", None)
        await application.services.access.issue(Context(line), label="the one of Nobody")
        await application.services.erase.subject(context(application), "Nobody")
        await drained(application)
        tokens = await select(application.store, "SELECT label FROM api_tokens")
    assert purged == [1]
    assert "the one of \u2588\u2588\u2588\u2588\u2588\u2588" in {row["label"] for row in tokens}


async def test_a_purge_that_failed_is_done_though_nothing_is_left_to_verify(
    open_app: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files hold what the verification has changed until they are rewritten."""
    async with open_app() as application:
        await enter(application)
        line = application.services.audit.begin(ALICE, "create_token", "test", None)
        await application.services.access.issue(Context(line), label="the one of Zora")
        erased = await application.services.erase.subject(context(application), "Zora")
        purge, tried = application.store.purge, list[int]()

        async def failing() -> str:
            tried.append(1)
            if len(tried) == 1:
                raise DatabaseUnavailable
            return await purge()

        monkeypatch.setattr(application.store, "purge", failing)
        await drained(application)
        assert not (await collect(application, erased)).final
        clock.pass_(timedelta(minutes=1))
        await drained(application)
        done = await collect(application, erased)
    assert (done.final, len(tried)) == (True, 2)


async def test_files_are_written_anew_once_in_an_interval_for_all_namespaces(
    open_app: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first erasure rewrites them at once. Later ones wait, and share the next purge."""
    async with open_app(purge_interval_s=300) as application:
        purged = counted_purges(application, monkeypatch)
        for owner in (ALICE, BOB):
            await enter(application, owner)
        first = await _one_that_erases(application, ALICE, 0)
        await drained(application)
        others = [
            await _one_that_erases(application, owner, number)
            for number, owner in enumerate((BOB, ALICE, BOB), 1)
        ]
        await drained(application)
        assert len(purged) == 1
        assert (await collect(application, first)).final
        state = "SELECT state, failures FROM operations WHERE kind = 'purge' AND state = 'queued'"
        assert {row["failures"] for row in await select(application.store, state)} == {0}
        clock.pass_(timedelta(seconds=299))
        await drained(application)
        assert len(purged) == 1
        clock.pass_(timedelta(seconds=2))
        await drained(application)
        assert len(purged) == 2
        for erased, owner in zip(others, (BOB, ALICE, BOB), strict=True):
            found = await application.services.erase.collect(
                context(application, owner), erased.id, erased.secret
            )
            assert found.final


async def _one_that_erases(application: Application, owner: Namespace, number: int) -> Erased:
    said = Submission(f"Ben: Zora{number} was seen again on the quay.", "life")
    await application.services.ingest.remember(context(application, owner), said)
    return await application.services.erase.subject(context(application, owner), f"Zora{number}")


@on_sqlite
async def test_others_read_while_a_file_is_written_anew(
    open_app: Open, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Writers wait, and readers wait only for a moment."""
    async with open_app() as application:
        await enter(application)
        await remember(application, TEXT)
        store, read = application.store, list[int]()

        def noticed(sql: str, given: Params) -> Step:
            step = step_of(sql, given)
            if sql != "VACUUM":
                return step

            def vacuumed(raw: sqlite3.Connection) -> Sequence[Any]:
                # This runs in its own thread, while the file is rewritten.
                asking = select(store, "SELECT id FROM episodes")
                read.append(len(asyncio.run_coroutine_threadsafe(asking, loop).result(10)))
                return step(raw)

            return vacuumed

        loop = asyncio.get_running_loop()
        monkeypatch.setattr("recall_server.storage.sqlite.step_of", noticed)
        assert await store.purge() == ""
    assert read == [1]


async def test_an_erasure_of_nobody_is_short_and_disturbs_no_job(
    open_app: Open, clock: Clock
) -> None:
    """A token may ask for many, and everybody waits for its statements. Its job also waits for the
    next purge. The control: an erasure that finds data takes the job from its worker.
    """
    async with open_app(purge_interval_s=300) as application:
        await enter(application)
        await remember(application, TEXT)
        await _one_that_erases(application, ALICE, 0)
        await drained(application)
        under_way = "UPDATE operations SET state = 'processing', attempt = 7 WHERE kind = 'embed'"
        async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch(under_way, {})
        with counted(application) as counts:
            await application.services.erase.subject(context(application), "Nobody")
        due = await _due_purges(application)
        attempts = "SELECT DISTINCT attempt FROM operations WHERE kind = 'embed'"
        kept = [row["attempt"] for row in await select(application.store, attempts)]
        await application.services.erase.subject(context(application), "Lisbon")
        moved = {row["attempt"] for row in await select(application.store, attempts)}
    assert sum(counts.fetches.values()) <= NOBODY_STATEMENTS
    assert due == [clock() + timedelta(seconds=300)]
    assert (kept, moved - {7} != set()) == ([7], True)


async def _due_purges(application: Application) -> list[datetime]:
    rows = await select(
        application.store,
        "SELECT due_at FROM operations WHERE kind = 'purge' AND state = 'queued'",
    )
    return [moment(row["due_at"]) for row in rows]


async def test_the_receipts_of_one_tenant_do_not_wait_for_thousands_of_anothers(
    open_app: Open, clock: Clock
) -> None:
    """A purge verifies some erasures of each; the next one verifies further ones."""
    async with open_app() as application:
        await enter(application)
        await enter(application, BOB)
        erase = application.services.erase
        mine = []
        for number in range(5):
            mine.append((await erase.subject(context(application), f"Nobody{number}")).id)
            clock.pass_(timedelta(seconds=1))
        theirs = (await erase.subject(context(application, BOB), "Nobody")).id
        purge = replace(application.services.purge, each=2)

        async def waiting() -> set[str]:
            async with application.store.transaction(None, write=False) as tx:
                return {one.id for one in await tx.erasures.unpurged(most=100)}

        assert await waiting() == {*mine, theirs}
        await purge.at_once(BOB, theirs)
        assert await waiting() == set(mine[2:])
        await purge.at_once(ALICE, mine[4])
        assert await waiting() == set()
