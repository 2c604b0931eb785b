"""Tasks may be large, so they are read, and their rows are made, before the transaction that
changes them: others wait for that. If a task changes in between, it is read again.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.errors import NotFound, RecallError
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import TokenInfo
from recall_server.domain.plan import EXPIRY, Policy
from recall_server.domain.task import Expiry, Mode, Request, Task, TaskState
from recall_server.services.tasks import transitions
from recall_server.storage.bound_connection import load
from recall_server.worker import FAILURES_MAX
from tests.support.application import Open
from tests.support.conversation import drained, memories
from tests.support.counted import counted, interrupted
from tests.support.extractors import Scripted
from tests.support.runtime import Clock
from tests.support.server import Running

ALICE = Namespace("alice")
LISBON, PORTO = "I live in Lisbon.", "I live in Porto."
# The queries that read tasks with their documents.
READS = ("run", "runs_by_id", "unfinished_runs")


def call(built: Application, who: TokenInfo | None = None) -> Context:
    context = Context(built.services.audit.begin(ALICE, "test", "cli", None))
    if who:
        context.entry.bearer, context.entry.accessor = who.bearer, who.accessor
    return context


async def begin(built: Application, who: TokenInfo, text: str, **given: Any) -> Task:
    request = Request(Mode.INGEST, "life", text=text, **given)
    return await built.services.consolidate.start(call(built, who), request)


async def asking(built: Application, who: TokenInfo, **given: Any) -> Task:
    """Return a task that asks whether Lisbon or Porto is right."""
    await begin(built, who, LISBON)
    await drained(built)
    task = await begin(built, who, PORTO, policy=Policy.ASK, **given)
    await drained(built)
    return await now(built, task)


async def now(built: Application, task: Task) -> Task:
    return await built.services.tasks.get(call(built), task.id)


async def expiring(built: Application, who: TokenInfo, clock: Clock) -> Task:
    task = await asking(built, who, expires_in_s=6, on_expiry=Expiry.KEEP_NEW)
    clock.pass_(timedelta(seconds=10))
    return task


Way = Callable[[Application, TokenInfo, Clock], Awaitable[Task]]


async def expired(built: Application, who: TokenInfo, clock: Clock) -> Task:
    return await expiring(built, who, clock)


async def ended(built: Application, who: TokenInfo, clock: Clock) -> Task:
    task = await expiring(built, who, clock)
    await built.services.access.revoke(call(built), who, force=True)
    return task


async def broken(built: Application, who: TokenInfo, _: Clock) -> Task:
    return await begin(built, who, PORTO)


async def lost(built: Application, who: TokenInfo, clock: Clock) -> Task:
    task = await begin(built, who, PORTO)
    for _again in range(FAILURES_MAX + 1):
        async with built.store.transaction(None) as tx:
            await tx.jobs.claim("", clock(), clock() + timedelta(minutes=1))
        clock.pass_(timedelta(minutes=2))
    return task


async def applied(built: Application, who: TokenInfo, _: Clock) -> Task:
    planned = await begin(built, who, PORTO, dry_run=True)
    await drained(built)
    return await apply(built, who, planned)


async def apply(built: Application, who: TokenInfo, planned: Task) -> Task:
    request = Request(Mode.APPLY, "", plan_id=planned.id)
    return await built.services.consolidate.start(call(built, who), request)


@pytest.mark.parametrize(
    ("way", "state"),
    [
        (expired, TaskState.COMPLETED),
        (ended, TaskState.CANCELED),
        (broken, TaskState.FAILED),
        (lost, TaskState.FAILED),
        (applied, TaskState.COMPLETED),
    ],
)
async def test_a_task_is_read_before_the_lock_whatever_changes_it(
    open_app: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch, way: Way, state: TaskState
) -> None:
    """Control: it is changed."""
    monkeypatch.setattr(transitions, "INSIDE_BYTES", 0)
    extractor = Scripted()
    extractor.fails = [RuntimeError("a defect")]
    given = {"extractor": extractor} if way is broken else {}
    async with open_app(**given) as built:
        who = (await Running(built, "").issued("alice"))[1]
        with counted(built) as counts:
            task = await way(built, who, clock)
            await drained(built)
        after = await now(built, task)

    queries = load(built.store.engine)
    reads = {text for one in READS for text in (queries[one].sql, queries[one].unlimited)}
    assert after.status.state is state
    assert not reads & {*counts.under_lock}


async def test_an_answer_that_comes_before_the_expiry_is_written_stands(
    open_app: Open, clock: Clock
) -> None:
    """Control: without it, time decides."""
    async with open_app() as built:
        who = (await Running(built, "").issued("alice"))[1]
        task = await expiring(built, who, clock)

        async def between() -> None:
            await built.services.tasks.answer(call(built, who), task.id, "keep_existing")

        with interrupted(built, "run", between):
            await drained(built)
        answered = await now(built, task)
        other = await begin(
            built, who, PORTO, policy=Policy.ASK, expires_in_s=6, on_expiry=Expiry.KEEP_NEW
        )
        await drained(built)
        clock.pass_(timedelta(seconds=10))
        await drained(built)
        timed_out = await now(built, other)

    assert [one.decided_by == EXPIRY for one in answered.work.resolutions] == [False]
    assert [one.decided_by for one in timed_out.work.resolutions] == [EXPIRY]


async def test_a_revocation_that_comes_before_the_expiry_is_written_ends_the_task(
    open_app: Open, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job that ends large tasks runs later. What was to be kept by then is not kept."""
    monkeypatch.setattr(transitions, "INSIDE_BYTES", 0)
    async with open_app() as built:
        owner, planter = [(await Running(built, "").issued("alice"))[1] for _ in range(2)]
        await begin(built, owner, LISBON)
        await drained(built)
        task = await begin(
            built, planter, PORTO, policy=Policy.ASK, expires_in_s=6, on_expiry=Expiry.KEEP_NEW
        )
        await drained(built)
        clock.pass_(timedelta(seconds=10))

        writes = 0

        async def between() -> None:
            nonlocal writes
            writes += 1
            if writes == 2:  # the first one claims the job
                await built.services.access.revoke(call(built), planter, force=True)

        with interrupted(built, None, between, times=2):
            await built.worker.run_once()
            first = await now(built, task)
        await drained(built)
        after = await now(built, task)
        found = [one.fact.value for one in await memories(built) if one.fact]

    assert first.status.state is after.status.state is TaskState.CANCELED
    assert found == ["Lisbon"]


async def test_a_plan_that_is_erased_while_it_is_read_is_not_applied(open_app: Open) -> None:
    """The new task would bring back its words. Control: without an erasure it is accepted."""
    async with open_app() as built:
        who = (await Running(built, "").issued("alice"))[1]
        planned = await begin(built, who, PORTO, dry_run=True)
        await drained(built)
        copied = await apply(built, who, planned)

        async def between() -> None:
            await built.services.erase.subject(call(built), "Porto")

        with interrupted(built, "run", between), pytest.raises(NotFound):
            await apply(built, who, planned)
        with pytest.raises(RecallError):
            await now(built, copied)

    assert copied.request == replace(planned.request, dry_run=False, plan_id=planned.id)
