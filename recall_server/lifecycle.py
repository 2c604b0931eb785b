"""Starts and stops long-running processes, and runs the process for jobs alone, which loads no
protocol.
"""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from recall_server import __version__, telemetry
from recall_server.api.probes import probing, with_metrics
from recall_server.application import Application
from recall_server.bootstrap import open_application, working
from recall_server.config import Settings
from recall_server.doctor import refuse_unsafe
from recall_server.domain.errors import DatabaseUnusable, Invalid
from recall_server.domain.search.fact_question import load as load_fact_questions
from recall_server.domain.text.terms import load as load_terms
from recall_server.integrations.computing import NICENESS_OF_MERGES, computing_process
from recall_server.services.supervision import beside
from recall_server.telemetry import send_spans

# Seconds between two writes of the health file.
HEALTH_S = 5.0
# A start waits no longer for the rules for secrets, since compiling them takes many seconds.
SLOW_S = 2.0
# A loop idle for this long is taken for stopped: a busy database answers sooner or raises an error.
STALE_S = 30.0


@asynccontextmanager
async def checked_and_loaded(
    built: Application, *, redactor_s: float = SLOW_S
) -> AsyncIterator[None]:
    """Refuse an unsafe configuration, and load embedder, re-ranker and redactor before the first
    call. After `redactor_s` the redactor goes on loading in the background: until it is loaded, the
    first text waits for it, and `/ready` says no.

    Raises `Unsafe`, and `EmbedderUnavailable` or `RerankerUnavailable`: at the start these mean a
    wrong setting; later, search continues without the model.
    """
    await refuse_unsafe(built)
    for load in (load_terms, load_fact_questions):
        await asyncio.to_thread(load)
    loading = asyncio.create_task(built.services.ingest.redaction.ready())
    await asyncio.wait({loading}, timeout=redactor_s)
    if loading.done():
        await loading
    else:
        what = "the rules for secrets, compiled once on a machine"
        telemetry.tell("loading", f"recall is loading {what}: a few seconds.", what=what)
    built.loading = loading
    if built.embedder is not None:
        await built.embedder.load()
    if built.services.recall.reranking is not None:
        await built.services.recall.reranking.reranker.load()
    endpoint = built.settings.otlp_endpoint
    send_rest = send_spans(endpoint, __version__) if endpoint else None
    try:
        yield
    finally:
        # If loading has failed, the first text has reported it.
        await asyncio.gather(loading, return_exceptions=True)
        if send_rest is not None:
            await asyncio.to_thread(send_rest)


@contextmanager
def only_server(settings: Settings) -> Iterator[None]:
    """Hold the lock of the SQLite file. Raises `DatabaseUnusable` if another server holds it."""
    if not isinstance(settings.database, Path):
        yield
        return
    path = settings.database.resolve()
    lock = FileLock(path.with_name(path.name + ".lock"), mode=0o600)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise DatabaseUnusable(
            f"Another recall server is running on {path}. Stop it, or give this one a file of its "
            "own with --db."
        ) from None
    except OSError as error:
        raise DatabaseUnusable(
            f"{path.parent} cannot be written ({error.strerror}). Check its owner and mode."
        ) from None
    try:
        yield
    finally:
        # Unlink while locked: a process that has opened this file then sees that its name is gone.
        Path(lock.lock_file).unlink(missing_ok=True)
        lock.release()


@asynccontextmanager
async def showing_health(built: Application) -> AsyncIterator[None]:
    """Rewrite the health file regularly for the duration of the block, as long as the worker's loop
    is running. Raises `Invalid` if it cannot be written.
    """
    path = built.settings.health_file
    if path is None:
        yield
        return
    stale_s = max(STALE_S, 3 * built.settings.worker_poll_s)

    def write() -> None:
        part = path.with_name(f"{path.name}.part")
        part.write_text(f"{__version__} {os.getpid()}\n", "utf-8")
        part.chmod(0o600)
        part.replace(path)

    async def show() -> None:
        while True:
            if built.worker.idle_s < stale_s:
                await asyncio.to_thread(write)
            await asyncio.sleep(HEALTH_S)

    try:
        write()
    except OSError as error:
        raise Invalid(
            f"RECALL_HEALTH_FILE: {path} cannot be written ({error.strerror}). Name another."
        ) from None
    try:
        async with beside(built.supervisor.keep("health_file", show)):
            yield
    finally:
        path.unlink(missing_ok=True)


def stop_signal() -> asyncio.Event:
    """Return an event that SIGTERM or SIGINT sets."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    return stop


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[Application]:
    """Open the application of a long-running process, with the processes that compute for it."""
    async with (
        computing_process() as compute,
        computing_process(NICENESS_OF_MERGES) as compute_merges,
        open_application(settings, compute=compute, compute_merges=compute_merges) as built,
    ):
        yield built


async def work_once(settings: Settings) -> int:
    """Run the jobs that are due, and return how many were run."""
    async with open_application(settings) as built, checked_and_loaded(built):
        return await built.worker.drain()


async def work(settings: Settings) -> None:
    """Run jobs only, until SIGTERM or SIGINT."""
    stop = stop_signal()
    async with (
        opened(settings) as built,
        checked_and_loaded(built),
        working(built),
        showing_health(built),
        probing(settings, with_metrics(built)) as port,
    ):
        telemetry.tell(
            "worker_started",
            f"recall {__version__} runs jobs: {settings.worker_jobs} at once.   stop: Ctrl-C",
            engine=built.store.engine,
            jobs=settings.worker_jobs,
            probe_port=port,
        )
        await stop.wait()
        built.stopping = True
