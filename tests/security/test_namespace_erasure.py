"""A large namespace is emptied in many short transactions. Nobody else waits, nobody sees it half
empty, and the job continues where it was stopped.
"""

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from functools import partial

import pytest

from recall_server.application import Application
from recall_server.domain.errors import BeingErased, ErasedContent, Unauthenticated
from recall_server.domain.ids import Namespace
from recall_server.integrations.keys import verified
from recall_server.services.erasure.eraser import Limits
from recall_server.services.erasure.leak_scan import scan
from recall_server.services.erasure.purge import RECEIPT_TYP
from recall_server.services.erasure.targets import Batch
from recall_server.services.memory.ingest import Submission
from recall_server.storage.tables.erasure import Erasures
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, remember
from tests.support.erasure import NOTHING, erase_all, found, rows, select
from tests.support.runtime import Clock
from tests.support.stored import left_of

BOB = Namespace("bob")
CANARY = "jd8fwn3xtq6mzy5ckh2rpbgu"
SAID = [f"User: I work with Ann{number} at {CANARY} every day." for number in range(6)]


class Cut(BaseException):
    """The process dies here."""


@pytest.fixture
def open_app(open_app: Open) -> Open:
    """A dozen rows are a large namespace."""
    limits = Limits(rows_at_once_max=12, rows_max=3, batch=Batch(items=2, rows=500))
    return partial(open_app, erasure_limits=limits)


async def furnish(application: Application) -> str:
    """Store much for Alice and one text for Bob, and return Alice's token."""
    token = await enter(application)
    await enter(application, BOB)
    for text in SAID:
        await remember(application, text)
    await application.services.ingest.remember(
        context(application, BOB), Submission("User: I keep a heron.", "life", None)
    )
    await drained(application)
    return token


async def test_a_large_namespace_is_shut_at_once_and_emptied_by_the_job(
    open_app: Open, clock: Clock
) -> None:
    """From the first moment its tokens are refused, and no token is issued. In the end nothing is
    left, in files neither. The receipt counts what there was.
    """
    async with open_app() as application:
        token = await furnish(application)
        before = await rows(application.store)
        assert (await scan(application.store, [CANARY], [])).places  # The positive control.
        erased = await erase_all(application)
        assert erased.counts == {**before, "audit_details": erased.counts["audit_details"]}
        assert erased.tokens_revoked == 1
        left = await rows(application.store)
        assert left["memories"]
        assert left["runs"] == 0
        with pytest.raises(Unauthenticated):
            await application.services.access.verify(token)
        with pytest.raises(BeingErased):
            await enter(application)
        await drained(application)
        assert {**await rows(application.store), "operations": 0} == NOTHING
        (row,) = await select(application.store, "SELECT state, receipt FROM erasures")
        claims = verified(row["receipt"], application.key.public, RECEIPT_TYP)
        assert (row["state"], claims["physical"]["state"]) == ("done", "done")
        assert (await left_of(application.store, [CANARY])).places == []
        clock.pass_(timedelta(seconds=1))
        await enter(application)
        for text in SAID:
            with pytest.raises(ErasedContent):
                await remember(application, text)
        await remember(application, "User: I live in Porto.")
        assert await found(application, "heron", BOB)


async def test_others_write_between_the_batches(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No transaction is longer than a batch, and others write in between."""
    written: list[str] = []
    async with open_app() as application:
        await furnish(application)
        erased = await erase_all(application)
        some = Erasures.erase_some
        batches = 0

        async def noted(self: Erasures, table: str, limit: int) -> int:
            nonlocal batches
            batches += 1
            gone = await some(self, table, limit)
            assert gone <= 3
            # These start while the batch runs, and end before all batches have run.
            if batches % 5 == 0:
                waiting.append(asyncio.create_task(store_one(len(waiting))))
            return gone

        async def store_one(number: int) -> None:
            await application.services.ingest.remember(
                context(application, BOB), Submission(f"User: I own {number} books.", "life", None)
            )
            written.append(f"{number} {(await rows(application.store))['memories']}")

        waiting: list[asyncio.Task[None]] = []
        monkeypatch.setattr(Erasures, "erase_some", noted)
        told: list[int] = []
        await application.services.purge.at_once(ALICE, erased.id, told.append)
        await asyncio.gather(*waiting)

    assert batches > 20
    assert told == sorted(told)
    assert len(told) > 20
    # Memories are still there then, since they are erased last.
    assert any(not one.endswith(" 0") for one in written)


@pytest.mark.slow
async def test_work_under_way_brings_nothing_back(open_app: Open) -> None:
    """Closing the namespace stops a running extraction. A text that is stored at that moment is
    erased with the rest.
    """
    rng = random.Random(20260301)
    met = 0
    async with open_app(worker_jobs=1) as application:
        await enter(application)
        for number in range(8):
            for text in SAID:
                await remember(application, text.replace("every day", f"on day {number}"))
            work = asyncio.create_task(drained(application))
            late = asyncio.create_task(remember(application, f"User: I saw {number} herons."))
            for _ in range(rng.randrange(80)):
                await asyncio.sleep(0 if rng.random() < 0.8 else 0.001)
            met += not work.done()
            await erase_all(application)
            await asyncio.gather(work, late, return_exceptions=True)
            await drained(application)
            left = await select(application.store, "SELECT text FROM episodes")
            assert CANARY not in str(left)
            assert [row["text"] for row in left] in ([], [f"User: I saw {number} herons."])
            await erase_all(application)
            await drained(application)
            assert {**await rows(application.store), "operations": 0} == NOTHING
    assert met > 1  # The control.


STEPS = ("erase_some", "first_memories", "first_episodes", "erase_rest", "end_erasing")


@pytest.mark.parametrize("step", STEPS)
async def test_a_clearing_that_was_cut_off_goes_on(
    open_app: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """The job is cut off in the middle of each kind of step."""
    async with open_app() as application:
        await furnish(application)
        await erase_all(application)
        method: Callable[..., object] = getattr(Erasures, step)
        taken = 0

        async def cut(self: Erasures, *given: object) -> object:
            nonlocal taken
            taken += 1
            if taken == (1 if step in {"erase_rest", "end_erasing"} else 2):
                raise Cut
            return await method(self, *given)  # type: ignore[misc]

        monkeypatch.setattr(Erasures, step, cut)
        with pytest.raises(Cut):
            await drained(application)
        monkeypatch.undo()
    async with open_app() as application:
        with pytest.raises(BeingErased):
            await enter(application)
        clock.pass_(timedelta(hours=1))  # The lease of the dead worker ends.
        await drained(application)
        assert {**await rows(application.store), "operations": 0} == NOTHING
        assert (await left_of(application.store, [CANARY])).places == []
        clock.pass_(timedelta(seconds=1))
        await enter(application)
        with pytest.raises(ErasedContent):
            await remember(application, SAID[-1])
