"""The costs of events: comparing and rebuilding the rows that searches read, and undoing an import;
how many events a second, and how long others wait.
"""

import asyncio
import gc
import io
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Annotated

import typer

from benchmarks.databases import scratch, settings, settle
from benchmarks.fill import Say, context, fill_versions
from benchmarks.report import Check, Report, Row
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.permissions import OPERATOR

TICK_S = 0.005
# A call notices a longer wait for the event loop.
LOOP_MS_MAX = 250.0
NOTES = (
    "Each memory has taken the place of an earlier version of itself, several times. `compare` "
    "derives memories and the index from texts and events beside readers; `mend` does so when all "
    "words of the index are lost, and writes every entry again; `undo` takes an import of the "
    "newest versions back, in one transaction, for which writers wait. `loop ms` is the longest "
    "that anything else waited for the event loop."
)


@dataclass
class _Lag:
    longest_s: float = 0.0


async def history(
    engine: str,
    say: Say,
    *,
    memories: Annotated[
        int, typer.Option(min=10, help="Statements, each in its versions.")
    ] = 2_000,
    versions: Annotated[int, typer.Option(min=2, help="Of each statement.")] = 5,
    db_url: str | None = None,
) -> Report:
    """Rebuild and undo: events a second, and how long others wait."""
    rows: list[Row] = []
    with scratch(engine, db_url) as database:
        async with open_application(settings(database)) as built:
            gc.freeze()  # as a server does: a collection of all that is loaded takes long
            owner, other = namespace("versions"), namespace("imported")
            await fill_versions(built, owner, memories, versions, say)
            settle(database)
            rebuild = built.services.rebuild
            events = await _events(built, owner)
            acting = context(built, owner, "rebuild_namespace")
            rows.append(await _timed("compare", events, partial(rebuild.compare, acting)))
            for table in ("terms", "postings"):
                async with built.store.driver.transaction(namespace=owner, write=True) as raw:
                    await raw.fetch(f"DELETE FROM {table}", {})
            again = context(built, owner, "rebuild_namespace")
            rows.append(await _timed("mend", events, partial(rebuild.mend, again)))
            say("importing")
            change = await _imported(built, owner, other)
            settle(database)
            events = await _events(built, other)
            changes = replace(built.services.changes, events_max=events)
            for name in ("undo", "undo of that"):
                undoing = context(built, other, "undo_change")
                undo = partial(changes.undo, undoing, change, rights=OPERATOR)
                rows.append(
                    await _timed(name, events, partial(undo, dry_run=False, with_dependents=False))
                )
                change = undoing.entry.change
    return Report(
        "history",
        engine,
        rows,
        [
            Check(f"{one.name}: loop ms", float(one.figures["loop ms"] or 0), LOOP_MS_MAX)
            for one in rows
        ],
        facts={"memories": memories, "versions of each": versions},
        notes=NOTES,
    )


async def _timed(name: str, events: int, act: Callable[[], Awaitable[object]]) -> Row:
    async with _lag() as lag:
        began = perf_counter()
        await act()
        seconds = perf_counter() - began
    figures = {"events": events, "s": seconds, "events/s": events / seconds}
    return Row("", name, {**figures, "loop ms": 1000 * lag.longest_s})


@asynccontextmanager
async def _lag() -> AsyncIterator[_Lag]:
    """Yield how long the event loop kept others waiting during the block."""
    lag = _Lag()

    async def tick() -> None:
        while True:
            began = perf_counter()
            await asyncio.sleep(TICK_S)
            lag.longest_s = max(lag.longest_s, perf_counter() - began - TICK_S)

    ticking = asyncio.create_task(tick())
    try:
        yield lag
    finally:
        ticking.cancel()


async def _events(built: Application, owner: Namespace) -> int:
    async with built.store.transaction(owner, write=False) as tx:
        found = await tx.words.statistics()
    return found.last_event


async def _imported(built: Application, owner: Namespace, other: Namespace) -> str:
    """Import an export of one namespace into another; return the id of that change."""
    exporting = context(built, owner, "export_namespace")
    file = b"".join([piece async for piece in built.services.export.stream(exporting)])
    await built.services.importing.take(
        other,
        io.BytesIO(file),
        entry=lambda: built.services.audit.begin(other, "import_namespace", "benchmark", None),
    )
    page = await built.services.changes.page(context(built, other, "list_changes"), None)
    return page.changes[0].id
