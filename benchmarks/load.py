"""Speed of store, search and inspect over HTTP, as ratios to a tool that does nothing."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.clients import plain, sdk
from benchmarks.databases import fsync_ms, scratch, settings, settle
from benchmarks.fill import Say, tenant
from benchmarks.measure import (
    NOOP,
    Connect,
    Measured,
    Operation,
    Seconds,
    inspect,
    measure,
    search,
    store,
)
from benchmarks.measure import noop as no_operation
from benchmarks.report import Check, Report, Row
from benchmarks.scale import scale
from benchmarks.servers import target
from benchmarks.texts import Texts
from recall_server.bootstrap import open_application

SEED = 20260301
SMALL = 1_000
CONCURRENCIES = (1, 8, 32)
SOCKET, SDK = "plain socket", "MCP client"
# The bounds at concurrency 1: p50 as a ratio to that of the no-op.
P50_MAX = {(SDK, "store"): 2.0, (SOCKET, "store"): 2.4, (SDK, "search"): 2.2, (SOCKET, "search"): 3}
# The bound of a search with 8 callers: calls per second as a ratio to those of the no-op.
CROWD, CROWD_MIN = 8, 0.30
NOTES = (
    "The no-op is a tool of the same server. Its time holds the connection, the checks of the "
    "request, the token's lookup in the database, the MCP SDK, the arguments, the answer and the "
    "log line; it writes nothing, no audit record either. The MCP client of the SDK costs as much "
    "as the server, in numerator and denominator, so ratios look better through it; the plain "
    "socket shows the server alone."
)


async def load(
    engine: str,
    say: Say,
    *,
    memories: Annotated[int, typer.Option(min=1, help="Of the larger search.")] = 10_000,
    seconds: Seconds = 2.5,
    worker_jobs: Annotated[
        int, typer.Option(min=0, help="Jobs that the server runs at once meanwhile.")
    ] = 0,
    sizes: Annotated[
        str, typer.Option(help="Namespaces to search in turn, by their memories; '' for none.")
    ] = "1000,10000,100000",
    neighbours: Annotated[
        int, typer.Option(min=0, help="Other namespaces of 1,000 memories beside one.")
    ] = 100,
    db_url: str | None = None,
) -> Report:
    """Store, search and inspect over HTTP beside a no-op; growth with memories and neighbours."""
    wanted = _numbers(sizes) if sizes else ()
    with scratch(engine, db_url) as database:
        operations = await _prepared(database, memories, say)
        settle(database)
        async with target(database, worker_jobs) as server:
            clients: list[tuple[str, int, Connect]] = [
                *((SOCKET, at, partial(plain, server.address)) for at in CONCURRENCIES),
                (SDK, 1, partial(sdk, server.address)),
            ]
            rows: list[Row] = []
            checks: list[Check] = []
            for client, concurrency, connect in clients:
                say(f"{engine}: {client}, {concurrency} at once")
                found = await measure(operations, connect, concurrency, seconds)
                rows += [one.row(f"{client}, {concurrency} at once", found[0]) for one in found]
                checks += _checks(client, concurrency, found, memories)
        report = Report(
            "load",
            engine,
            rows,
            checks,
            {"jobs at once": worker_jobs, "fsync ms": fsync_ms(database)},
            NOTES,
        )
        if not wanted:
            return report
        grown = await scale(
            engine, database, say, sizes=wanted, neighbours=neighbours, seconds=seconds
        )
    return replace(
        report,
        rows=[*report.rows, *grown.rows],
        checks=[*report.checks, *grown.checks],
        facts={**report.facts, **grown.facts},
    )


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1:
        raise typer.BadParameter("Write numbers of memories, such as 1000,10000.")
    return numbers


def _checks(client: str, concurrency: int, found: Sequence[Measured], memories: int) -> list[Check]:
    floor, stored, _, searched, _ = found
    if concurrency == 1:
        return [
            Check(f"{name}, {client}: p50 x {NOOP}", one.p50 / floor.p50, P50_MAX[client, kind])
            for kind, name, one in (
                ("store", "store", stored),
                ("search", f"search {memories:,}", searched),
            )
        ]
    if concurrency == CROWD:
        name = f"search {memories:,}, {concurrency} at once: calls/s x {NOOP}"
        share = searched.per_second / floor.per_second
        return [Check(name, share, CROWD_MIN, at_least=True)]
    return []


async def _prepared(database: Path | str, memories: int, say: Say) -> list[Operation]:
    texts = Texts(SEED)
    async with open_application(settings(database)) as built:
        small = await tenant(built, "small", texts.statements(SMALL), say)
        large = await tenant(built, "large", texts.statements(memories), say)
        empty = await tenant(built, "empty")
    return [
        no_operation(NOOP, empty),
        store("store", empty, SEED + 1),
        search(f"search {SMALL:,}", small, SEED + 2),
        search(f"search {memories:,}", large, SEED + 2),
        inspect(f"inspect {memories:,}", large),
    ]
