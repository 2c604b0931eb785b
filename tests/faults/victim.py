"""Does one thing to a database and says on standard output what it was told is done: to be killed
meanwhile. Run as `python -m tests.faults.victim WORK DATABASE`; the database is a path or a URL.

Each work can be done again after it was cut off: what had been done is found to be done.
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from pathlib import Path

from recall_server.app import House, house
from recall_server.domain.model import JobState, namespace
from recall_server.domain.run import Mode, Request, RunState
from recall_server.services.ingest import Submission
from recall_server.services.runs import DISCARD
from recall_server.storage.runs import Filter
from tests.conftest import settings_for
from tests.fakes import HashEmbedder
from tests.processes import Database

ALICE = namespace("alice")
BEFORE = "I live in Oslo. My favourite color is teal."
SAID = "Alice: I work at Acme.\nAlice: My dog is called Rex."
MOVED = "I live in Porto."
LEASE_S = 0.05


@dataclass(frozen=True)
class Work:
    """`prepare` makes what is there before; `do` is what is cut off, and calls `told` with each
    thing that its caller has been told is done; `holds` looks whether that is so.
    """

    prepare: Callable[[House], Awaitable[None]]
    do: Callable[[House, Callable[[str], None]], Awaitable[None]]
    holds: Callable[[House, str], Awaitable[bool]]


async def _nothing(_: House) -> None:
    """An empty database."""


async def _enter(built: House) -> None:
    entry = built.services.audit.begin(ALICE, "create_token", "test", None)
    await built.services.access.issue(ALICE, entry=entry)


async def _remembered(built: House) -> None:
    await _enter(built)
    await _store(built, BEFORE, "before")
    await drain(built)


async def _waiting(built: House) -> None:
    """A text that is kept, and of which nothing has been made yet."""
    await _remembered(built)
    await _store(built, SAID, "said")


async def _asked(built: House) -> None:
    """A task that asks which of two homes holds."""
    await _remembered(built)
    await _start(built, MOVED)
    await drain(built)


async def _store(built: House, text: str, key: str) -> None:
    entry = built.services.audit.begin(ALICE, "store_memory", "test", None)
    submission = Submission(text, "life", idempotency_key=key)
    await built.services.ingest.remember(ALICE, submission, entry=entry)


async def _start(built: House, text: str) -> None:
    entry = built.services.audit.begin(ALICE, "send_message", "test", None)
    request = Request(Mode.INGEST, "life", text)
    await built.services.consolidate.start(ALICE, request, entry=entry)


async def drain(built: House) -> None:
    """Work until nothing is left to do, jobs of a killed worker included."""
    while True:
        while await built.worker.run_once():
            pass
        async with built.store.transaction(ALICE, write=False) as tx:
            counts = await tx.jobs.counts()
        left = {kind for kind, state in counts if state is not JobState.FAILED} - {DISCARD}
        if not left:
            return
        await asyncio.sleep(LEASE_S)  # until the lease of the killed one has run out


async def _migrate(_: House, told: Callable[[str], None]) -> None:
    told("migrated")


async def _stores(built: House, told: Callable[[str], None]) -> None:
    for number in range(2):
        await _store(built, f"I own bike number {number}.", f"key-{number}")
        told(f"store-{number}")


async def _extract(built: House, told: Callable[[str], None]) -> None:
    await drain(built)
    told("extracted")


async def _consolidate(built: House, told: Callable[[str], None]) -> None:
    async with built.store.transaction(ALICE, write=False) as tx:
        begun = await tx.runs.page(Filter(), after=None, limit=2)
    if not begun:  # a client that was cut off lists its tasks before it sends again
        await _start(built, SAID)
    told("accepted")
    await drain(built)
    told("consolidated")


async def _answer(built: House, told: Callable[[str], None]) -> None:
    found = await built.services.tasks.questions(ALICE, limit=2)
    if found:
        entry = built.services.audit.begin(ALICE, "send_message", "test", None)
        await built.services.tasks.answer(ALICE, found[0].run.id, "keep_new", entry=entry)
    told("answered")
    await drain(built)
    told("settled")


async def _is_migrated(built: House, _: str) -> bool:
    return await summary(built) is not None


async def _is_stored(built: House, told: str) -> bool:
    async with built.store.transaction(ALICE, write=False) as tx:
        return await tx.episodes.receipt(told.replace("store", "key")) is not None


async def _is_extracted(built: House, _: str) -> bool:
    found = await summary(built)
    return not found["jobs"] and "Acme" in str(found["memories"])


async def _is_consolidated(built: House, told: str) -> bool:
    found = await summary(built)
    return bool(found["runs"]) if told == "accepted" else found["runs"] == [RunState.COMPLETED]


async def _is_answered(built: House, told: str) -> bool:
    found = await summary(built)
    return not found["asks"] and (told == "answered" or found["runs"] == [RunState.COMPLETED])


WORKS = {
    "migrate": Work(_nothing, _migrate, _is_migrated),
    "store": Work(_remembered, _stores, _is_stored),
    "extract": Work(_waiting, _extract, _is_extracted),
    "consolidate": Work(_remembered, _consolidate, _is_consolidated),
    "answer": Work(_asked, _answer, _is_answered),
}


async def summary(built: House) -> dict[str, object]:
    """All that is there, without ids and times that differ from run to run."""
    async with built.store.transaction(ALICE, write=False) as tx:
        memories = await tx.memories.page(limit=100, offset=0, type_="", topic="")
        runs = await tx.runs.page(Filter(), after=None, limit=100)
        statistics = await tx.words.statistics()
        jobs = await tx.jobs.counts()
        book = await tx.audit.newest(1_000)
    state = [run.status.state for run in runs]
    return {
        "memories": sorted((m.text, m.citation.quote, m.reinforcements) for m in memories),
        "runs": sorted(state),
        "findable": statistics.documents,
        "words": statistics.words,
        "jobs": {f"{kind} {at}": n for (kind, at), n in jobs.items() if kind != DISCARD},
        "effects": sorted(
            (line.operation, tuple(sorted(line.counts.items())))
            for line in book
            if any(line.counts.get(kind) for kind in ("added", "superseded", "embedded", "queued"))
        ),
        "asks": sum(one is RunState.INPUT_REQUIRED for one in state),
    }


def opened(database: Database) -> AbstractAsyncContextManager[House]:
    """The house of the victim."""
    return house(settings_for(database, lease_s=LEASE_S), embedder=HashEmbedder())


async def main(work: str, database: str) -> None:
    async with opened(database if "=" in database else Path(database)) as built:
        await WORKS[work].do(built, lambda done: print(done, flush=True))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
