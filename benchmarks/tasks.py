"""A2A tasks per second, compared with the SDK's own server with an agent that does nothing."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from functools import partial
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Annotated

import typer

from benchmarks import clients
from benchmarks.clients import Arguments
from benchmarks.databases import fsync_ms, scratch, settings
from benchmarks.fill import Say, tenant
from benchmarks.measure import Measured, Operation, Seconds, connected, run_for
from benchmarks.report import Check, Report, Row
from benchmarks.servers import Served, served, target
from benchmarks.texts import Texts
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.ids import Namespace, namespace
from recall_server.services.memory.indexing import EMBED
from recall_server.services.tasks.transitions import CONSOLIDATE
from recall_server.storage.tables.audit import AuditRecord

RECALL, ECHO = "recall", "echo"
CONCURRENCIES = (1, 16)
WINDOWS = 2
# Vectors are made after the answer, but not while the other server is measured.
REST_S = 1.0
SEED = 20261122
METHOD = "SendMessage"
ACCEPT = "send_message"
RECORDS_MAX = 1_000_000
CROWD, RATIO_MIN = 16, 0.25
NOTES = (
    "A task is one sentence, sent with SendMessage and waited for. Ours is checked, written, "
    "claimed by a worker, read, compared with what is known and committed as a memory with its "
    "source, events and audit records. The echo is the SDK's own server: it keeps tasks in memory "
    "and has no tokens, no worker and no disk. Accept: from the message to the commit of the task. "
    "Wait: until a worker claims the job. Work: until its commit. Rest: commit, HTTP, token and "
    "answer. Vectors are made after the answer. Processor: of the server, by task."
)


async def tasks(
    engine: str,
    say: Say,
    *,
    seconds: Seconds = 10.0,
    worker_jobs: Annotated[int, typer.Option(min=1, help="Jobs that the server runs at once.")] = 4,
    db_url: str | None = None,
) -> Report:
    """A2A tasks per second beside the SDK's own server with an agent that does nothing."""
    rows: list[Row] = []
    checks: list[Check] = []
    with scratch(engine, db_url) as database:
        # Each concurrency has a namespace of its own, so that both begin with an empty memory.
        names = {at: namespace(f"tasks-{at}") for at in CONCURRENCIES}
        async with open_application(settings(database)) as built:
            tokens = {at: await tenant(built, name) for at, name in names.items()}
        found: dict[int, list[tuple[Measured, float | None]]] = {}
        async with (
            target(database, worker_jobs) as ours,
            served("benchmarks.echo", {}) as theirs,
        ):
            for at in CONCURRENCIES:
                say(f"{engine}: {at} tasks at once")
                found[at] = await _alternate(_operations(tokens[at]), (ours, theirs), at, seconds)
        for at, sides in found.items():
            spent = await _phases(database, names[at])
            rows += _rows(at, sides, spent)
            ratio = sides[0][0].per_second / sides[1][0].per_second
            if at == CROWD:
                checks.append(Check(f"{at} at once: tasks/s x {ECHO}", ratio, RATIO_MIN, True))
        facts = {"jobs at once": worker_jobs, "fsync ms": fsync_ms(database)}
    return Report("tasks", engine, rows, checks, facts, NOTES)


def _rows(
    at: int, sides: Sequence[tuple[Measured, float | None]], spent: dict[str, float | None]
) -> list[Row]:
    group = f"{at} at once"
    (ours, _), (theirs, _) = sides
    rows = [
        Row(group, one.name, {**one.row("", theirs, ECHO).figures, "processor ms": used})
        for one, used in sides
    ]
    mean = 1000 * fmean(ours.latencies)
    rest = mean - sum(spent[name] or 0 for name in ("accept", "wait", "work"))
    return [*rows, Row(f"a task of {RECALL} in ms, {group}", "mean", {**spent, "rest": rest})]


def _operations(token: str) -> tuple[Operation, Operation]:
    def requests() -> Iterator[Arguments]:
        texts = Texts(SEED)
        for number in count():
            parts = [{"text": texts.fact()}]
            yield {"message": {"messageId": f"m{number}", "role": "ROLE_USER", "parts": parts}}

    return (
        Operation(RECALL, token, METHOD, partial(next, requests())),
        Operation(ECHO, "none", METHOD, partial(next, requests())),
    )


async def _alternate(
    operations: tuple[Operation, Operation],
    servers: tuple[Served, Served],
    concurrency: int,
    seconds: float,
) -> list[tuple[Measured, float | None]]:
    """Measure the servers in turn, so that drift affects both alike; with processor milliseconds a
    task.
    """
    found = [Measured(operation.name) for operation in operations]
    used: list[list[float | None]] = [[], []]
    async with AsyncExitStack() as stack:
        callers = [
            await connected(stack, partial(clients.tasks, server.address), op, concurrency)
            for op, server in zip(operations, servers, strict=True)
        ]
        for _ in range(WINDOWS):
            for side, operation in enumerate(operations):
                await asyncio.sleep(REST_S)
                before = servers[side].processor_s()
                await run_for(seconds / WINDOWS, operation, callers[side], found[side])
                after = servers[side].processor_s()
                used[side].append(None if before is None or after is None else after - before)
    return [
        (one, None if None in costs else 1000 * sum(filter(None, costs)) / len(one.latencies))
        for one, costs in zip(found, used, strict=True)
    ]


async def _phases(database: Path | str, owner: Namespace) -> dict[str, float | None]:
    """Return the mean milliseconds of the phases of a task, from the audit log of a namespace.

    Raises `RuntimeError` if a task has not made exactly one memory.
    """
    async with open_application(settings(database)) as built:
        records = await _newest(built, owner)
    accepted = {record.ids[0]: record for record in records if record.operation == ACCEPT}
    worked = {record.ids[0]: record for record in records if record.operation == CONSOLIDATE}
    pairs = [(record, worked[task_id]) for task_id, record in accepted.items()]
    made = sum(work.counts.get("added", 0) for _, work in pairs)
    if made != len(pairs):
        raise RuntimeError(f"{len(pairs)} tasks have made {made} memories.")
    embedded = [record.milliseconds for record in records if record.operation == EMBED]
    return {
        "accept": fmean(record.milliseconds for record, _ in pairs),
        "wait": fmean(_between(record, work) for record, work in pairs),
        "work": fmean(work.milliseconds for _, work in pairs),
        "vectors afterwards": fmean(embedded) if embedded else None,
    }


async def _newest(built: Application, owner: Namespace) -> list[AuditRecord]:
    return list(await built.services.audit.newest(owner, RECORDS_MAX))


def _between(first: AuditRecord, second: AuditRecord) -> float:
    """Return the milliseconds from the end of the first to the beginning of the second."""
    ended = first.at + timedelta(milliseconds=first.milliseconds)
    return (second.at - ended) / timedelta(milliseconds=1)
