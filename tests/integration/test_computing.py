"""The process of low priority that computes what takes long."""

import asyncio
import os
import re
import select
import signal
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from recall_server.domain.context import Compute
from recall_server.domain.episode import Episode
from recall_server.domain.extraction import Passage
from recall_server.domain.search.index_entry import findable_passages
from recall_server.domain.text.transcript import parse_turns
from recall_server.integrations import computing
from recall_server.integrations.computing import NICENESS, NICENESS_OF_MERGES, computing_process
from recall_server.integrations.rules import RulesExtractor
from recall_server.services.memory.episodes import prepare, prepared
from tests.support.audit import ALICE
from tests.support.processes import Server, calling, new_token

ENDED_S = 30.0
# Reading it inline would delay other calls.
LONG = "Anna takes the ferry on Mondays. " * 200


@pytest.fixture
async def compute() -> AsyncIterator[Compute]:
    async with computing_process() as one:
        yield one


async def test_a_function_runs_in_another_process_of_lower_priority(compute: Compute) -> None:
    pid = await compute(os.getpid)

    assert pid != os.getpid()
    assert await compute(os.getpid) == pid
    assert os.getpriority(os.PRIO_PROCESS, pid) == os.getpriority(os.PRIO_PROCESS, 0) + NICENESS


async def test_merges_come_after_texts_and_use_one_core() -> None:
    async with computing_process(NICENESS_OF_MERGES) as compute:
        pid = await compute(os.getpid)

        assert os.getpriority(os.PRIO_PROCESS, pid) > NICENESS
        assert await compute(os.system, 'test "$OPENBLAS_NUM_THREADS" = 1') == 0


async def test_an_error_of_the_function_is_raised_to_its_caller(compute: Compute) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        await compute(int, "seven")

    assert await compute(int, "7") == 7


async def test_what_a_function_prints_comes_between_no_answers(compute: Compute) -> None:
    await compute(print, "something")
    assert await compute(os.system, "echo something") == 0
    assert await compute(int, "7") == 7


async def test_a_caller_that_gives_up_leaves_its_answer_to_nobody(compute: Compute) -> None:
    await compute(int, "1")
    given_up = asyncio.ensure_future(compute(int, "2"))
    await asyncio.sleep(0)
    given_up.cancel()

    assert await compute(int, "3") == 3


async def test_what_is_computed_for_one_owner_does_not_wait_for_all_of_another(
    compute: Compute,
) -> None:
    """Control: what is computed for the same owner comes in the order of the calls."""
    order: list[str] = []

    async def computed(name: str, owner: str) -> None:
        await compute(len, name, owner=owner)
        order.append(name)

    await asyncio.gather(
        *(computed(name, "loud") for name in ("first", "second", "third", "fourth")),
        computed("theirs", "quiet"),
    )

    assert order == ["first", "theirs", "second", "third", "fourth"]


async def test_what_takes_long_does_not_keep_the_process_from_ending() -> None:
    """Nobody waits for it any more, nor for what comes after it: the server is stopping."""
    async with asyncio.timeout(ENDED_S), computing_process() as compute:
        pid = await compute(os.getpid)
        left = [
            asyncio.ensure_future(compute(select.select, [], [], [], 100 * ENDED_S)),
            asyncio.ensure_future(compute(len, "after it")),
        ]
        await asyncio.wait(left, timeout=0.1)

    for one in left:
        with pytest.raises(asyncio.CancelledError):
            await one
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_function_is_computed_although_the_process_was_killed(compute: Compute) -> None:
    killed = await compute(os.getpid)
    os.kill(killed, signal.SIGKILL)

    assert await compute(int, "7") == 7
    assert await compute(os.getpid) not in {killed, os.getpid()}


def _lost(by: Path, server: int) -> None:
    """End the process that computes this, and note it."""
    with by.open("a") as file:
        file.write(f"{os.getpid()}\n")
    if os.getpid() != server:
        os.kill(os.getpid(), signal.SIGKILL)


async def test_what_ends_the_process_is_not_computed_in_the_server(
    compute: Compute, tmp_path: Path
) -> None:
    """Its cause may be a text that takes too much memory."""
    with pytest.raises(MemoryError):
        await compute(_lost, tmp_path / "lost", os.getpid())

    lost = (tmp_path / "lost").read_text().split()
    assert len(set(lost)) == 2
    assert str(os.getpid()) not in lost
    assert await compute(int, "7") == 7


async def test_a_function_that_does_not_end_is_ended_and_others_go_on(
    compute: Compute, monkeypatch: pytest.MonkeyPatch
) -> None:
    endless = await compute(os.getpid)
    monkeypatch.setattr(computing, "COMPUTE_S", 0.05)
    with pytest.raises(TimeoutError):
        await compute(select.select, [], [], [], ENDED_S / 2)
    monkeypatch.undo()

    assert await compute(os.getpid) not in {endless, os.getpid()}
    with pytest.raises(ProcessLookupError):
        os.kill(endless, 0)


async def test_the_process_ends_with_its_owner_whatever_signals_come() -> None:
    async with computing_process() as compute:
        pid = await compute(os.getpid)
        for sent in (signal.SIGINT, signal.SIGTERM):
            os.kill(pid, sent)
        assert await compute(os.getpid) == pid

    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_text_is_prepared_there_as_here(compute: Compute) -> None:
    now = datetime(2026, 3, 1, tzinfo=UTC)
    episode = Episode("ep_1", LONG, "general", now, now, "digest", "job_1")

    there, words = await prepared(episode, compute, ALICE)

    here, expected = prepare(episode)
    assert there == here
    assert list(findable_passages(there)) == list(words.ids)
    for name in ("ids", "places", "rows", "lengths", "terms"):
        assert getattr(words, name) == getattr(expected, name), name
    for name in ("entries", "numbered", "counts"):
        assert getattr(words, name).text == getattr(expected, name).text, name


SHORT = (
    "User: I moved to Oslo yesterday and I don't like figs. To do: the deadline is 5 May.",
    "User: Ich bin gestern nach Kiel gezogen, und ich mag keine Feigen. Frist: 5. Mai.",
    "User: Ayer me mudé a Lima y no me gustan los higos. El plazo es el 5 de mayo.",
    "User: Hier j'ai déménagé à Lyon, et je n'aime pas les figues. Le délai est le 5 mai.",
    "User: 我昨天搬到了上海。我不喜欢无花果。截止日期是5月5日。",
    "User: 昨日京都に引っ越しました。いちじくは好きではありません。締め切りは5月5日です。",
)


def _compiled_while_reading() -> list[str]:
    """Return the patterns that are compiled after the first text was read."""
    read = RulesExtractor().extract
    at = datetime(2026, 3, 1, tzinfo=UTC)
    passages = [Passage(text, parse_turns(text, at), "general", at) for text in SHORT]
    asyncio.run(read(passages[0]))
    compiled: list[str] = []
    original = re.compile

    def noted(pattern: Any, flags: int = 0) -> Any:
        if "User" not in str(pattern):  # those of the names of a text are short
            compiled.append(str(pattern)[:80])
        return original(pattern, flags)

    re.compile = noted
    try:
        found = [asyncio.run(read(one)).candidates for one in passages]
    finally:
        re.compile = original
    assert all(found), found
    return compiled


async def test_a_language_does_not_hold_up_others_when_it_is_read_first(compute: Compute) -> None:
    """Its patterns take 20 to 90 ms. Nothing was read in this process before."""
    assert await compute(_compiled_while_reading) == []


async def test_a_server_that_is_killed_leaves_no_process_behind(tmp_path: Path) -> None:
    database = tmp_path / "recall.db"
    async with Server(database, embedder="none") as server:
        made = await new_token(database, "acme")
        async with calling(server.address, made["token"]) as call:
            await call("store_memory", text=LONG)
        [child] = _children(server.pid)
        ended = os.pidfd_open(child)
        try:
            await server.kill()
            found, _, _ = await asyncio.to_thread(select.select, [ended], [], [], ENDED_S)
        finally:
            os.close(ended)

    assert found, "it goes on"


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
