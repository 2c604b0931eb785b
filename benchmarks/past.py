"""Searches of the past compared with the same searches of now: what was known, what was true, and
both.
"""

from time import perf_counter
from typing import Annotated

import typer

from benchmarks.databases import scratch, settings, settle
from benchmarks.fill import Say, context, fill_versions
from benchmarks.measure import Measured
from benchmarks.report import Check, Report
from benchmarks.texts import Texts
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.moments import PRESENT, Past
from recall_server.domain.query import Query

SEED = 20260301
WARM_UP = 5
RATIO_MAX = 1.5
NOW = "now"
NOTES = (
    "Each memory has taken the place of an earlier version of itself, several times. The moments "
    "asked for are in the middle: what was known when half of the versions were there, and what "
    "was true then. In one process, one call after the other."
)


async def past(
    engine: str,
    say: Say,
    *,
    memories: Annotated[
        int, typer.Option(min=10, help="Statements, each in its versions.")
    ] = 10_000,
    versions: Annotated[int, typer.Option(min=2, help="Of each statement.")] = 5,
    searches: Annotated[int, typer.Option(min=10, help="Of each kind.")] = 100,
    db_url: str | None = None,
) -> Report:
    """Searches of what was known, and was true, at a moment beside the same searches of now."""
    with scratch(engine, db_url) as database:
        async with open_application(settings(database)) as built:
            owner = namespace("versions")
            known_at, as_of = await fill_versions(built, owner, memories, versions, say)
            settle(database)
            moments = {
                NOW: PRESENT,
                "known_at": Past(known_at=known_at),
                "as_of": Past(as_of=as_of),
                "both": Past(as_of, known_at),
            }
            found = {name: Measured(name) for name in moments}
            texts = Texts(SEED)
            for number in range(WARM_UP + searches):
                question = texts.question()
                for name, moment in moments.items():
                    began = perf_counter()
                    await _search(built, owner, question, moment)
                    if number >= WARM_UP:
                        found[name].latencies.append(perf_counter() - began)
    base = found[NOW]
    return Report(
        "past",
        engine,
        [one.row("a search of", base, NOW) for one in found.values()],
        [
            Check(f"{n}: p50 x {NOW}", found[n].p50 / base.p50, RATIO_MAX)
            for n in moments
            if n != NOW
        ],
        facts={"memories": memories, "versions of each": versions},
        notes=NOTES,
    )


async def _search(built: Application, owner: Namespace, question: str, moment: Past) -> None:
    searching = context(built, owner, "search_memories")
    await built.services.recall.search(searching, Query(question, past=moment))
