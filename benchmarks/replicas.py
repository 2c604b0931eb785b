"""Compares two servers and two workers on one Postgres with one of each, in one run."""

import asyncio
import os
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from datetime import datetime
from itertools import cycle
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.clients import CallTool, plain
from benchmarks.databases import scratch, settings, settle
from benchmarks.fill import Say, tenant
from benchmarks.measure import Seconds, measure, search, store
from benchmarks.report import Check, Report, Row
from benchmarks.servers import target, working
from benchmarks.texts import Texts
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.storage.driver import moment

SEED = 20260304
SEARCHED, WORKED = "searched", "worked"
ONE, TWO = "one", "two"
SEARCHES_MIN = 1.6
# The servers, the workers, Postgres and the callers run on the same machine: with fewer cores they
# share what one server leaves.
CORES_MIN = 8
DRAINED_S = 600.0
_POLL_S = 0.2
_FINISHED = """
SELECT count(*) AS jobs, min(finished_at) AS first, max(finished_at) AS last
FROM operations WHERE state = 'complete' AND finished_at > %(after)s
"""
NOTES = (
    "Windows of both take turns. The callers of two servers are halved between them. The jobs are "
    "those of texts that were stored before: from the end of the first to the end of the last."
)


async def replicas(
    engine: str,
    say: Say,
    *,
    memories: Annotated[int, typer.Option(min=1, help="That are searched.")] = 1_000,
    texts: Annotated[int, typer.Option(min=10, help="That the workers make memories of.")] = 300,
    callers: Annotated[int, typer.Option(min=2, help="That search at once.")] = 16,
    seconds: Seconds = 10.0,
    db_url: str | None = None,
) -> Report:
    """Two servers and two workers beside one Postgres, to one of each."""
    with scratch(engine, db_url) as database:
        async with open_application(settings(database)) as built:
            alone = await tenant(built, SEARCHED, Texts(SEED).statements(memories), say)
            both = await tenant(built, SEARCHED)
            stored = await tenant(built, WORKED)
        settle(database)
        async with target(database) as first, target(database) as second:
            addresses = cycle((first.address, second.address))

            def connect(token: str) -> AbstractAsyncContextManager[CallTool]:
                return plain(first.address if token == alone else next(addresses), token)

            say(f"{callers} callers of one server, and of two")
            searched = await measure(
                [search(ONE, alone, SEED), search(TWO, both, SEED)], connect, callers, seconds
            )
            jobs = {}
            for workers, name in ((1, ONE), (2, TWO)):
                say(f"{name}: the jobs of {texts} texts")
                operation = store(name, stored, SEED + workers)
                async with plain(first.address, stored) as call:
                    for _ in range(texts):
                        await call(operation.tool, operation.arguments())
                jobs[name] = await _jobs_per_second(database, workers)
    ratio = searched[1].per_second / searched[0].per_second
    cores = os.cpu_count() or 1
    checks = [Check("searches/s of two servers x one", ratio, SEARCHES_MIN, at_least=True)]
    return Report(
        "replicas",
        engine,
        [
            *(one.row("searches, by servers", searched[0], ONE) for one in searched),
            *(
                Row("jobs, by workers", name, {"jobs/s": rate, "jobs/s x one": rate / jobs[ONE]})
                for name, rate in jobs.items()
            ),
        ],
        checks if cores >= CORES_MIN else [],
        {"cores": cores, "memories": memories, "callers": callers},
        NOTES
        if cores >= CORES_MIN
        else f"{NOTES} {cores} cores are too few to judge by: below {CORES_MIN}, servers, Postgres "
        "and callers share what one server leaves.",
    )


async def _jobs_per_second(database: Path | str, workers: int) -> float:
    """Return how many waiting jobs so many workers do in a second."""
    async with open_application(settings(database)) as built, AsyncExitStack() as stack:
        began = built.runtime.now()
        for _ in range(workers):
            await stack.enter_async_context(working(database))
        async with asyncio.timeout(DRAINED_S):
            while await _waiting(built):  # noqa: ASYNC110  # it happens in other processes
                await asyncio.sleep(_POLL_S)
        return await _rate(built, began)


async def _waiting(built: Application) -> int:
    async with built.store.transaction(None, write=False) as tx:
        counts = await tx.jobs.counts()
    return sum(jobs for (_, state), jobs in counts.items() if state != "failed")


async def _rate(built: Application, after: datetime) -> float:
    async with built.store.transaction(None, write=False) as tx:
        (row,) = await tx.bound.connection.fetch(_FINISHED, {"after": after})
    return float(row["jobs"] / (moment(row["last"]) - moment(row["first"])).total_seconds())
