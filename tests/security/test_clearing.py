"""A large namespace is emptied in many short transactions: nobody else waits, nobody sees it half
empty, and it goes on where it was stopped.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta

import pytest

from recall_server.app import House
from recall_server.domain.errors import BeingErased, ErasedContent, Unauthenticated
from recall_server.domain.model import Namespace
from recall_server.providers.keys import verified
from recall_server.services import clearing
from recall_server.services.ingest import Submission
from recall_server.services.purge import RECEIPT_TYP
from recall_server.services.scan import scan
from recall_server.storage.erasure import Erasures
from tests.conftest import Clock, Open
from tests.security.erasing import NOTHING, erase_all, found, rows, select
from tests.services.conversation import ALICE, drained, enter, entry, remember

BOB = Namespace("bob")
CANARY = "jd8fwn3xtq6mzy5ckh2rpbgu"
SAID = [f"User: I work with Ann{number} at {CANARY} every day." for number in range(6)]


class Cut(BaseException):
    """The process dies here."""


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dozen rows are a large namespace."""
    monkeypatch.setattr(clearing, "AT_ONCE_MAX", 12)
    monkeypatch.setattr(clearing, "BATCH", 3)
    monkeypatch.setattr(clearing, "EPISODES_BATCH", 2)


async def furnish(house: House) -> str:
    """Alice has a lot, Bob has one thing; Alice's token."""
    token = await enter(house)
    await enter(house, BOB)
    for text in SAID:
        await remember(house, text)
    await house.services.ingest.remember(
        BOB, Submission("User: I keep a heron.", "life", None), entry=entry(house, BOB)
    )
    await drained(house)
    return token


async def test_a_large_namespace_is_shut_at_once_and_emptied_by_the_job(
    open_house: Open, clock: Clock
) -> None:
    """ERS-11, ERS-01, ERS-02: its tokens open nothing from the first moment on, none is made, and
    in the end nothing is left, in files neither; the receipt counts what there was.
    """
    async with open_house() as house:
        token = await furnish(house)
        before = await rows(house.store)
        assert (await scan(house.store, [CANARY], [])).places  # the positive control
        erased = await erase_all(house)
        assert erased.counts == {**before, "audit_details": erased.counts["audit_details"]}
        assert erased.tokens_revoked == 1
        left = await rows(house.store)
        assert left["memories"]
        assert left["runs"] == 0
        with pytest.raises(Unauthenticated):
            await house.services.access.verify(token)
        with pytest.raises(BeingErased):
            await enter(house)
        await drained(house)
        assert {**await rows(house.store), "operations": 0} == NOTHING
        (row,) = await select(house.store, "SELECT state, receipt FROM erasures")
        claims = verified(row["receipt"], house.key.public, RECEIPT_TYP)
        assert (row["state"], claims["physical"]["state"]) == ("done", "done")
        assert (await scan(house.store, [CANARY], [])).places == []
        clock.pass_(timedelta(seconds=1))
        await enter(house)
        for text in SAID:
            with pytest.raises(ErasedContent):
                await remember(house, text)
        await remember(house, "User: I live in Porto.")
        assert await found(house, "heron", BOB)


async def test_others_write_between_the_batches(
    open_house: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERS-11: no transaction of the clearing is longer than a batch, and others get their turns."""
    written: list[str] = []
    async with open_house() as house:
        await furnish(house)
        erased = await erase_all(house)
        some = Erasures.clear_some
        batches = 0

        async def noted(self: Erasures, table: str, limit: int) -> int:
            nonlocal batches
            batches += 1
            gone = await some(self, table, limit)
            assert gone <= 3
            if batches % 5 == 0:  # asked for while the batch is at work, done before all are
                waiting.append(asyncio.create_task(store_one(len(waiting))))
            return gone

        async def store_one(number: int) -> None:
            await house.services.ingest.remember(
                BOB,
                Submission(f"User: I own {number} books.", "life", None),
                entry=entry(house, BOB),
            )
            written.append(f"{number} {(await rows(house.store))['memories']}")

        waiting: list[asyncio.Task[None]] = []
        monkeypatch.setattr(Erasures, "clear_some", noted)
        told: list[int] = []
        await house.services.purge.at_once(ALICE, erased.id, told.append)
        await asyncio.gather(*waiting)

    assert batches > 20
    assert told == sorted(told)
    assert len(told) > 20
    # While memories are still there: they go last.
    assert any(not one.endswith(" 0") for one in written)


@pytest.mark.slow
async def test_work_under_way_brings_nothing_back(open_house: Open) -> None:
    """ERS-03, ERS-11: an extraction is fenced off by the closing of the doors, and what is stored
    at that moment is emptied with the rest.
    """
    rng = random.Random(20260301)
    met = 0
    async with open_house(worker_jobs=1) as house:
        await enter(house)
        for number in range(8):
            for text in SAID:
                await remember(house, text.replace("every day", f"on day {number}"))
            work = asyncio.create_task(drained(house))
            late = asyncio.create_task(remember(house, f"User: I saw {number} herons."))
            for _ in range(rng.randrange(80)):
                await asyncio.sleep(0 if rng.random() < 0.8 else 0.001)
            met += not work.done()
            await erase_all(house)
            await asyncio.gather(work, late, return_exceptions=True)
            await drained(house)
            left = await select(house.store, "SELECT text FROM episodes")
            assert CANARY not in str(left)
            assert [row["text"] for row in left] in ([], [f"User: I saw {number} herons."])
            await erase_all(house)
            await drained(house)
            assert {**await rows(house.store), "operations": 0} == NOTHING
    assert met > 1  # the control


STEPS = ("clear_some", "first_memories", "first_episodes", "sweep", "cleared")


@pytest.mark.parametrize("step", STEPS)
async def test_a_clearing_that_was_cut_off_goes_on(
    open_house: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """ERS-05, ERS-11: at every kind of step, in the midst of it."""
    async with open_house() as house:
        await furnish(house)
        await erase_all(house)
        method: Callable[..., object] = getattr(Erasures, step)
        taken = 0

        async def cut(self: Erasures, *given: object) -> object:
            nonlocal taken
            taken += 1
            if taken == (1 if step in {"sweep", "cleared"} else 2):
                raise Cut
            return await method(self, *given)  # type: ignore[misc]

        monkeypatch.setattr(Erasures, step, cut)
        with pytest.raises(Cut):
            await drained(house)
        monkeypatch.undo()
    async with open_house() as house:
        with pytest.raises(BeingErased):
            await enter(house)
        clock.pass_(timedelta(hours=1))  # the lease of the dead one
        await drained(house)
        assert {**await rows(house.store), "operations": 0} == NOTHING
        assert (await scan(house.store, [CANARY], [])).places == []
        clock.pass_(timedelta(seconds=1))
        await enter(house)
        with pytest.raises(ErasedContent):
            await remember(house, SAID[-1])
