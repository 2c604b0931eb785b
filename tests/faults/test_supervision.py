"""Background work continues after an unexpected error. If it cannot, the server reports it."""

import ast
import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import httpx2

import recall_server
from recall_server.api.app import create_app
from recall_server.application import Application
from recall_server.bootstrap import working
from recall_server.domain.errors import Unavailable
from recall_server.domain.task import JobState
from recall_server.services.supervision import FAILURES_MIN, TOLD_S, Supervisor
from tests.support.a2a_bindings import Wire
from tests.support.application import Open
from tests.support.conversation import ALICE, enter, remember
from tests.support.engines import on_postgres
from tests.support.extractors import Scripted
from tests.support.processes import until
from tests.support.runtime import Clock
from tests.support.server import WITHIN_S, Serve

STARTS = (".create_task", ".ensure_future")
TEXT = "Ben: I keep a heron in the garden."


@asynccontextmanager
async def without(application: Application, table: str) -> AsyncIterator[None]:
    """Remove a table for the block, as a failed migration would. No error of ours names that."""
    driver = application.store.driver
    async with driver.migration() as raw:
        await raw.script(f"ALTER TABLE {table} RENAME TO put_away")
    try:
        yield
    finally:
        async with driver.migration() as raw:
            await raw.script(f"ALTER TABLE put_away RENAME TO {table}")


def hurried(application: Application) -> Supervisor:
    """Return the supervisor of the application, with pauses short enough for a test."""
    application.supervisor.pause_min_s = 0.01
    return application.supervisor


async def told(application: Application) -> tuple[list[str], list[str]]:
    """Return what `recall status` and `/ready` report."""
    transport = httpx2.ASGITransport(create_app(application))
    async with httpx2.AsyncClient(transport=transport, base_url="http://127.0.0.1:8000") as http:
        answer = await http.get("/ready")
    assert answer.status_code == 200
    return (
        [one.work for one in await application.supervisor.failing()],
        answer.json().get("warnings", []),
    )


async def test_a_worker_survives_what_it_does_not_expect_and_tells(
    open_app: Open, clock: Clock
) -> None:
    """The control: once the fault is gone, the worker does its job, and nothing is reported."""
    async with open_app(extractor=Scripted(), worker_poll_s=0.01) as application:
        await enter(application)
        hurried(application)
        job = (await remember(application, TEXT)).job_id
        before = await told(application)
        async with working(application):
            async with without(application, "operations"):

                async def failing() -> bool:
                    return bool(await application.supervisor.failing())

                await until(failing, WITHIN_S, "it tells")
                during = await told(application)

            async def done() -> bool:
                async with application.store.transaction(ALICE, write=False) as tx:
                    return await tx.jobs.state(job) is JobState.COMPLETE

            await until(done, WITHIN_S, "the job is done")
        clock.pass_(timedelta(seconds=TOLD_S))
        after = await told(application)

    assert before == ([], [])
    assert during == (["worker"], ["background_work"])
    assert after == ([], [])


async def test_work_is_begun_anew_until_it_returns(open_app: Open) -> None:
    """It starts again after each kind of error. Only work that fails repeatedly is reported."""
    errors: list[Exception] = [
        KeyError("a"),
        Unavailable("Not now."),
        ExceptionGroup("b", [OSError()]),
    ]
    begun = 0

    async def fails() -> None:
        nonlocal begun
        begun += 1
        if errors:
            raise errors.pop()

    async with open_app() as application:
        supervisor = hurried(application)
        await supervisor.keep("twice", fails)
        three_times = await supervisor.failing()
        errors.append(ValueError("c"))
        await supervisor.keep("once", fails)
        once = await supervisor.failing()

    assert begun == 6
    assert [(one.work, one.error, one.failures) for one in three_times] == [
        ("twice", "KeyError", FAILURES_MIN)
    ]
    assert [one.work for one in once] == ["twice"]


async def test_work_that_is_cancelled_or_fails_at_the_end_is_not_begun_anew(open_app: Open) -> None:
    begun = 0

    async def fails() -> None:
        nonlocal begun
        begun += 1
        raise KeyError

    async with open_app() as application:
        supervisor = application.supervisor
        kept = asyncio.create_task(supervisor.keep("it", fails))
        other = asyncio.create_task(supervisor.keep("another", fails))
        await asyncio.sleep(0)
        other.cancel()
        supervisor.stop()
        async with asyncio.timeout(WITHIN_S):
            await asyncio.wait({kept, other})

    assert other.cancelled()
    assert kept.exception() is None
    assert begun == 2


@on_postgres
async def test_a_stream_does_not_outlive_its_token_although_looks_have_failed(
    serve: Serve,
) -> None:
    async with serve() as running:
        hurried(running.application)
        token, info = await running.issued("alice")
        async with running.http(token) as http:
            wire = Wire(http, "JSONRPC")
            task = (await wire.task())["id"]
            async with wire.stream("SubscribeToTask", id=task) as stream:
                assert await stream.next() is not None
                async with without(running.application, "api_tokens"):

                    async def failing() -> bool:
                        return bool(await running.application.supervisor.failing())

                    await until(failing, WITHIN_S, "it tells")
                await running.revoke(info)
                async with asyncio.timeout(WITHIN_S):
                    rest = await stream.next()
        [told_of] = await running.application.supervisor.failing()

    assert rest is None
    assert told_of.work == "streams"


# Work that is started without a supervisor, and why it needs none.
UNSUPERVISED = {
    ("beside", "work"): "each of its calls is looked at",
    ("ready", "self._looked()"): "who asks gets its error",
    ("receive_until_over", "receive()"): "it is waited for",
    ("receive_until_over", "over.wait()"): "it is waited for",
    ("_looked_up", "self._resolve(target.name, target.port)"): "who waits for it gets its error",
    ("_begin", "self._fetch(now)"): "it is no loop: the next token has it begin anew",
    ("listening", "server.serve(sockets=[listener])"): "the process ends with it",
    ("run_uncancelled", "work"): "it is waited for",
    ("holding", "self._hold(holder, number, held)"): "it takes every error for a lost connection",
    ("end_with", "self.rollback()"): "it is no loop: the next statement has the error",
    ("_stopped_unused", "wait()"): "it only ends the process, and is told by no other",
    ("wait", "self._run()"): "it is waited for",
    ("compute", "answering"): "who waits for it gets its error",
    (
        "checked_and_loaded",
        "built.services.ingest.redaction.ready()",
    ): "it is no loop: the first text loads it again and has the error",
}


def started() -> Iterator[tuple[str, str]]:
    """Yield what is started beside its caller, with the function that starts it."""
    for path in Path(recall_server.__file__).parent.rglob("*.py"):
        yield from _started(ast.parse(path.read_text("utf-8")), "")


def _started(node: ast.AST, function: str) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        function = node.name
    name = ast.unparse(node.func) if isinstance(node, ast.Call) else ""
    if isinstance(node, ast.Call) and (name == "beside" or name.endswith(STARTS)):
        yield from ((function, ast.unparse(one)) for one in node.args)
    for inner in ast.iter_child_nodes(node):
        yield from _started(inner, function)


def test_what_runs_in_the_background_is_supervised() -> None:
    """A new loop must be given to the supervisor, or listed here with the reason why not."""
    found = set(started())
    kept = {(function, what) for function, what in found if "keep(" in what}

    assert len(kept) >= 6
    assert found - kept == set(UNSUPERVISED)
