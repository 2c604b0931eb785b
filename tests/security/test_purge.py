"""Nothing is called destroyed before it is, and the receipt says how far it has come."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest

from recall_server.app import House
from recall_server.domain.errors import DatabaseUnavailable, Invalid, ReceiptNotFound
from recall_server.providers.keys import ServerKey, verified
from recall_server.services.erase import Collected, Erased
from recall_server.services.purge import RECEIPT_TYP
from recall_server.storage import postgres_purge
from tests.conftest import Clock, Open
from tests.security.erasing import erase_all, select
from tests.services.conversation import ALICE, drained, enter, entry, remember

TEXT = "Anna: I live in Lisbon near the river."


@asynccontextmanager
async def long_reader(database: Path | str) -> AsyncIterator[None]:
    """Somebody who looks at the state before the erasure, for as long as it takes."""
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


async def collect(house: House, erased: Erased) -> Collected:
    return await house.services.erase.collect(
        await house.services.erase.find_receipt(erased.id, erased.secret),
        erased.id,
        erased.secret,
        entry=entry(house),
    )


async def test_while_somebody_reads_an_older_state_the_purge_waits(
    open_house: Open, database: Path | str, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERS-04: logically done, physically pending, and tried again until it is done."""
    monkeypatch.setattr(postgres_purge, "PROBES", 2)
    async with open_house() as house:
        await enter(house)
        await remember(house, TEXT)
        await drained(house)
        async with long_reader(database):
            erased = await erase_all(house)
            await drained(house)
            waiting = await collect(house, erased)
            states = await select(house.store, "SELECT kind, state FROM operations")
        clock.pass_(timedelta(minutes=1))
        await drained(house)
        done = await collect(house, erased)

    public = house.key.public
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
    open_house: Open,
) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, TEXT)
        erased = await house.services.erase.subject(ALICE, "Lisbon", entry=entry(house))
        claims = verified(erased.receipt, house.key.public, RECEIPT_TYP)

    assert claims["jti"] == erased.id
    assert (claims["kind"], claims["namespace"]) == ("subject", "alice")
    assert claims["requested_by"] == "acc_test"
    assert claims["counts"]["turns"] == 1
    assert claims["engine"] in ("sqlite", "postgres")
    assert "backups" in claims["not_covered"]
    for word in ("Lisbon", "lisbon", "river", "Anna"):
        assert word not in str(claims)


async def test_a_changed_receipt_or_another_servers_key_does_not_verify(
    open_house: Open, tmp_path: Path
) -> None:
    async with open_house() as house:
        await enter(house)
        receipt = (await erase_all(house)).receipt
        public = house.key.public
    head, body, signature = receipt.split(".")
    other = ServerKey.make(tmp_path / "other.key")

    assert verified(receipt, public, RECEIPT_TYP)  # the control
    for forged, key in (
        (f"{head}.{body[:-4]}AAAA.{signature}", public),
        (receipt, other.public),
        (other.sign({"jti": "ers_1"}, "something-else+jwt"), other.public),
        ("nonsense", public),
    ):
        with pytest.raises(Invalid):
            verified(forged, key, RECEIPT_TYP)


async def test_the_secret_opens_the_final_receipt_once_and_nothing_else(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        erased, other = await erase_all(house), await erase_all(house)
        for pending in (await collect(house, erased), await collect(house, erased)):
            assert not pending.final
        await drained(house)
        with pytest.raises(ReceiptNotFound):
            await house.services.erase.find_receipt(erased.id, other.secret)
        for receipt_id, secret in (("ers_unknown", erased.secret), (erased.id, "")):
            with pytest.raises(ReceiptNotFound):
                await house.services.erase.find_receipt(receipt_id, secret)
        assert (await collect(house, erased)).final
        with pytest.raises(ReceiptNotFound):
            await collect(house, erased)


async def test_one_purge_serves_all_erasures_before_it(
    open_house: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house() as house:
        await enter(house)
        for _ in range(3):
            await house.services.erase.subject(ALICE, "Zoe", entry=entry(house))
        purge, purged = house.store.purge, []

        async def counted() -> str:
            purged.append(1)
            return await purge()

        monkeypatch.setattr(house.store, "purge", counted)
        await drained(house)
        states = await select(house.store, "SELECT state FROM erasures")

    assert [row["state"] for row in states] == ["done"] * 3
    assert len(purged) == 1


async def test_two_purges_at_once_are_one_and_one_that_waits(
    open_house: Open, database: Path | str
) -> None:
    if isinstance(database, Path):
        return  # there the second stands in line
    async with open_house() as house, await psycopg.AsyncConnection.connect(database) as other:
        await other.execute("SELECT pg_advisory_lock(7265636132)")
        with pytest.raises(DatabaseUnavailable, match="purging already"):
            await house.store.purge()
        await other.execute("SELECT pg_advisory_unlock_all()")
        assert await house.store.purge() == ""


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
async def test_no_page_of_the_file_is_left_over(open_house: Open, database: Path) -> None:
    """ERS-01: what was moved within a page is on none that is kept. The control: before, there are
    such pages.
    """

    def left_over() -> int:
        with closing(sqlite3.connect(database)) as raw:
            return int(raw.execute("PRAGMA freelist_count").fetchone()[0])

    async with open_house() as house:
        await enter(house)
        for number in range(20):
            await remember(house, f"Anna: heron number {number} stood by the pond.\n" * 20)
        await erase_all(house)
        before = left_over()
        await house.store.purge()
        after = left_over()

    assert before > 0
    assert after == 0
