"""Searches of the past beside the same searches of now: what was known, what was true, and both."""

from datetime import datetime, timedelta
from time import perf_counter

from benchmarks.databases import scratch, settings, settle
from benchmarks.fill import APART, Say, fill, tenant
from benchmarks.measure import Measured
from benchmarks.report import Check, Report
from benchmarks.texts import Texts
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.context import Context
from recall_server.domain.memory import Status
from recall_server.domain.moments import PRESENT, Past
from recall_server.domain.namespace import Namespace, namespace
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
    engine: str, say: Say, *, memories: int, versions: int, searches: int, db_url: str | None
) -> Report:
    """Measure on a database of its own. Raises `Invalid` without a Postgres server."""
    with scratch(engine, db_url) as database:
        async with open_application(settings(database)) as built:
            owner = namespace("versions")
            known_at, as_of = await _filled(built, owner, memories, versions, say)
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
    entry = built.services.audit.begin(owner, "search_memories", "benchmark", None)
    await built.services.recall.search(Context(entry), Query(question, past=moment))


async def _filled(
    built: Application, owner: Namespace, memories: int, versions: int, say: Say
) -> tuple[datetime, datetime]:
    """Fill a namespace; a moment at which half of it was known, and one at which half was true."""
    await tenant(built, owner)
    texts = Texts(SEED)
    said = texts.statements(memories)
    known = [built.runtime.now()]

    def progress(done: int) -> None:
        say(f"{done:,} of {memories * versions:,} versions")
        if done >= memories * len(known):
            known.append(built.runtime.now())

    ids = await fill(
        built, owner, [f"{text} v{v}" for v in range(versions) for text in said], progress
    )
    began = built.runtime.now() - APART * len(ids)
    for version in range(1, versions):
        async with built.store.transaction(owner) as tx:
            await tx.lock()
            for place in range((version - 1) * memories, version * memories):
                await tx.memories.retire(
                    ids[place],
                    Status.SUPERSEDED,
                    known[version],
                    superseded_by=ids[place + memories],
                    valid_until=began + APART * (place + memories),
                )
    half = len(ids) // 2
    return known[versions // 2] + timedelta(milliseconds=1), began + APART * half
