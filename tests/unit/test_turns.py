"""Whose turn it is, and who waits: a crowd under one key does not hold up the others."""

import asyncio

import pytest

from recall_server.domain import fairness
from recall_server.domain.fairness import FairSemaphore, Gates

CROWD = 5


class Passing:
    """The clock of the event loop, which moves when a test says so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        loop = asyncio.get_running_loop()
        self._at = loop.time()
        monkeypatch.setattr(loop, "time", lambda: self._at)

    async def pass_(self, seconds: float) -> None:
        self._at += seconds
        await settled()


@pytest.fixture
async def time(monkeypatch: pytest.MonkeyPatch) -> Passing:
    return Passing(monkeypatch)


async def settled() -> None:
    """Let every task run until it waits."""
    for _ in range(10):
        await asyncio.sleep(0)


class Crowd:
    """Many callers under one key, who keep their turns."""

    def __init__(self, of: FairSemaphore, key: str, size: int = CROWD) -> None:
        self._turns = of
        self._key = key
        self._tasks = [asyncio.create_task(of.acquire(key)) for _ in range(size)]

    @property
    def going(self) -> int:
        return sum(task.done() and not task.cancelled() for task in self._tasks) - self._over

    _over = 0

    async def end(self) -> None:
        self._over += 1
        self._turns.release(self._key)
        await settled()

    async def disperse(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def giving_way(of: FairSemaphore, key: str) -> asyncio.Task[None]:
    task = asyncio.create_task(of.yield_to_others(key))
    await settled()
    return task


async def test_a_crowd_alone_has_its_share_and_beside_another_less(time: Passing) -> None:
    calls = FairSemaphore(16, per_key=2, per_key_contended=1)
    crowd = Crowd(calls, "crowd")
    await settled()
    alone = crowd.going
    await calls.acquire("quiet")
    await crowd.end()
    beside = crowd.going
    calls.release("quiet")
    await crowd.end()
    a_moment_later = crowd.going
    await time.pass_(fairness.RECENT_S)
    await crowd.end()
    alone_again = crowd.going
    await crowd.disperse()

    assert (alone, beside, a_moment_later, alone_again) == (2, 1, 1, 2)


async def test_nobody_of_a_crowd_goes_on_while_another_has_a_single_turn(time: Passing) -> None:
    calls = FairSemaphore(16, per_key=2, per_key_contended=1)
    crowd = Crowd(calls, "crowd")
    await settled()
    control = await giving_way(calls, "crowd")
    await calls.acquire("quiet")
    halted = await giving_way(calls, "crowd")
    waited = not halted.done()
    calls.release("quiet")
    await settled()
    await crowd.disperse()

    assert control.done()  # There was nobody to give way to.
    assert waited
    assert halted.done()


async def test_who_has_a_single_turn_waits_for_nobody(time: Passing) -> None:
    calls = FairSemaphore(16, per_key=2, per_key_contended=1)
    crowd = Crowd(calls, "crowd")
    await calls.acquire("quiet")
    await calls.acquire("other")
    single = [await giving_way(calls, key) for key in ("quiet", "other")]
    done = [one.done() for one in single]
    await crowd.disperse()

    assert done == [True, True]


async def test_crowds_do_not_give_way_to_each_other(time: Passing) -> None:
    calls = FairSemaphore(16, per_key=2, per_key_contended=1)
    crowds = [Crowd(calls, key) for key in ("one", "another")]
    await settled()
    passing = [await giving_way(calls, key) for key in ("one", "another")]
    done = [one.done() for one in passing]
    for crowd in crowds:
        await crowd.disperse()

    assert done == [True, True]


async def test_work_that_nobody_waits_for_gives_way_to_a_call(time: Passing) -> None:
    calls = FairSemaphore(16)
    await calls.acquire("quiet")
    job = await giving_way(calls, "of nobody")
    waited = not job.done()
    calls.release("quiet")
    await settled()

    assert waited
    assert job.done()


async def test_way_is_given_for_no_longer_than_a_moment(time: Passing) -> None:
    """Otherwise a caller that always has a turn would stop all others, and so would one that keeps
    it.
    """
    calls = FairSemaphore(16)
    crowd = Crowd(calls, "crowd")
    await calls.acquire("slow")
    first = await giving_way(calls, "crowd")
    waited = not first.done()
    await time.pass_(fairness.YIELD_MAX_S)
    second = await giving_way(calls, "crowd")
    done = first.done(), second.done()
    await crowd.disperse()

    assert waited
    assert done == (True, True)


async def test_whoever_leaves_while_giving_way_holds_nobody_up(time: Passing) -> None:
    calls = FairSemaphore(16)
    crowd = Crowd(calls, "crowd")
    await calls.acquire("quiet")
    left, stays = await giving_way(calls, "crowd"), await giving_way(calls, "crowd")
    left.cancel()
    await settled()
    waits = not stays.done()
    calls.release("quiet")
    await settled()
    await crowd.disperse()

    assert left.cancelled()
    assert waits
    assert stays.done()


async def test_among_those_who_wait_whoever_has_the_fewest_goes_first() -> None:
    calls = FairSemaphore(2, per_key=2)
    crowd = Crowd(calls, "crowd")
    await settled()
    quiet = asyncio.create_task(calls.acquire("quiet"))
    await settled()
    before = quiet.done()
    await crowd.end()
    after = quiet.done(), crowd.going
    await crowd.disperse()

    assert not before
    assert after == (True, 1)


async def test_a_closed_gate_keeps_other_tasks_out_of_one_key_until_it_opens() -> None:
    """One that hangs up while it waits, or has closed it, leaves the gate open."""
    gates = Gates()
    let = asyncio.Event()

    async def close() -> None:
        async with gates.closed("a"):
            await gates.passed("a")  # its own task passes
            await let.wait()

    closing = [asyncio.create_task(close()) for _ in range(2)]
    await settled()
    left, stays = [asyncio.create_task(gates.passed("a")) for _ in range(2)]
    async with asyncio.timeout(5):
        await gates.passed("b")
        await settled()
        assert not stays.done()
        left.cancel()
        closing[0].cancel()
        await settled()
        assert not stays.done()
        let.set()
        await asyncio.gather(closing[1], stays)
        await gates.passed("a")
    assert left.cancelled()
