"""How many tasks our agent ends in a second, beside the SDK's server with an agent that does
nothing: one sentence to be consolidated, sent and waited for.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from recall_server.bench import clients
from recall_server.bench.clients import Arguments, CallTool
from recall_server.bench.databases import fsync_ms, scratch, settings
from recall_server.bench.load import WARM_UP, Measured, Operation, run_for
from recall_server.bench.phases import Phases, phases
from recall_server.bench.process import Served, served, target
from recall_server.bench.texts import Texts
from recall_server.bootstrap import open_application
from recall_server.domain.namespace import Namespace, namespace

RECALL, ECHO = "recall", "echo"
CONCURRENCIES = (1, 16)
WINDOWS = 2
# Vectors are made after the answer: they must not be made while the other server is measured.
REST_S = 1.0
SEED = 20261122
METHOD = "SendMessage"

Say = Callable[[str], None]


@dataclass(frozen=True)
class Wishes:
    """What is asked for on the command line."""

    seconds: float
    worker_jobs: int
    db_url: str | None


@dataclass(frozen=True)
class Side:
    """One server at one concurrency; `processor_ms` is its processor time for a task."""

    measured: Measured
    processor_ms: float | None


@dataclass(frozen=True)
class Pair:
    """Both servers at one concurrency, and where a task of ours spent its time."""

    concurrency: int
    recall: Side
    echo: Side
    phases: Phases

    @property
    def ratio(self) -> float:
        """Tasks in a second: ours, for each of the echo's."""
        return self.recall.measured.per_second / self.echo.measured.per_second


@dataclass(frozen=True)
class TasksRun:
    """What one engine did."""

    engine: str
    worker_jobs: int
    fsync_ms: float | None
    pairs: tuple[Pair, ...]


async def run(engine: str, wishes: Wishes, say: Say) -> TasksRun:
    """Measure on a database that is made for it. Raises `Invalid` without a Postgres server."""
    with scratch(engine, wishes.db_url) as database:
        tokens = await _tenants(database)
        sides: dict[int, tuple[Side, Side]] = {}
        async with (
            target(database, wishes.worker_jobs) as ours,
            served("recall_server.bench.echo", {}) as theirs,
        ):
            for concurrency in CONCURRENCIES:
                say(f"{engine}: tasks, concurrency {concurrency}")
                operations = _operations(tokens[concurrency])
                sides[concurrency] = await _alternate(
                    operations, (ours, theirs), concurrency, wishes.seconds
                )
        spent = await _spent(database)
        folder = database.parent if isinstance(database, Path) else None
        disk = fsync_ms(folder) if folder else None
    pairs = tuple(Pair(at, *both, spent[at]) for at, both in sides.items())
    return TasksRun(engine, wishes.worker_jobs, disk, pairs)


def _tenant(concurrency: int) -> Namespace:
    """Each concurrency has its own, so that both begin with an empty memory."""
    return namespace(f"tasks-{concurrency}")


async def _tenants(database: Path | str) -> dict[int, str]:
    tokens = {}
    async with open_application(settings(database)) as built:
        for concurrency in CONCURRENCIES:
            ns = _tenant(concurrency)
            entry = built.services.audit.begin(ns, "create_token", "bench", None)
            token, _ = await built.services.access.issue(ns, label="bench", entry=entry)
            tokens[concurrency] = token
    return tokens


async def _spent(database: Path | str) -> dict[int, Phases]:
    async with open_application(settings(database)) as built:
        return {one: await phases(built, _tenant(one)) for one in CONCURRENCIES}


def _operations(token: str) -> tuple[Operation, Operation]:
    def requests() -> Iterator[Arguments]:
        texts = Texts(SEED)
        for number in count():
            parts = [{"text": texts.fact()}]
            message = {"messageId": f"m{number}", "role": "ROLE_USER", "parts": parts}
            yield {"message": message}

    ours, theirs = requests(), requests()
    return (
        Operation(RECALL, token, METHOD, lambda: next(ours)),
        Operation(ECHO, "none", METHOD, lambda: next(theirs)),
    )


async def _alternate(
    operations: tuple[Operation, Operation],
    servers: tuple[Served, Served],
    concurrency: int,
    seconds: float,
) -> tuple[Side, Side]:
    """Let the servers take turns, so that drift of the machine hits both alike."""
    found = [Measured(operation.name, "socket", concurrency) for operation in operations]
    used: list[float | None] = [0.0, 0.0]
    async with AsyncExitStack() as stack:
        callers: list[list[CallTool]] = []
        for operation, server in zip(operations, servers, strict=True):
            made = [
                await stack.enter_async_context(_connected(server, operation))
                for _ in range(concurrency)
            ]
            callers.append(made)
            for call in made[:WARM_UP]:
                await call(operation.tool, operation.arguments())
        for _ in range(WINDOWS):
            for side, operation in enumerate(operations):
                await asyncio.sleep(REST_S)
                before = servers[side].processor_s()
                await run_for(seconds / WINDOWS, operation, callers[side], found[side])
                used[side] = _more(used[side], before, servers[side].processor_s())
    ours, theirs = (
        Side(one, None if cost is None else 1000 * cost / len(one.latencies))
        for one, cost in zip(found, used, strict=True)
    )
    return ours, theirs


def _connected(server: Served, operation: Operation) -> AbstractAsyncContextManager[CallTool]:
    return clients.tasks(server.address, operation.token)


def _more(total: float | None, before: float | None, after: float | None) -> float | None:
    return None if total is None or before is None or after is None else total + after - before
