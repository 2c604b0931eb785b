"""Does one kind of work on a database, and prints what it was told is done, so that a test can kill
it. Run as `python -m tests.support.victim WORK DATABASE`; the database is a path or a URL.

Each kind of work can be repeated after it was cut off: it finds that the done part is done.
"""

import asyncio
import io
import re
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from recall_server import telemetry
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.errors import RecallError
from recall_server.domain.ids import namespace
from recall_server.domain.permissions import Refusal, TokenInfo
from recall_server.domain.task import JobState, Mode, Request, TaskState
from recall_server.services.audit.verification import read_archive
from recall_server.services.erasure.leak_scan import scan
from recall_server.services.memory.ingest import Submission
from recall_server.services.retention import CUT_AUDIT, Days
from recall_server.services.tasks.transitions import DISCARD
from recall_server.storage.tables.registry import DELETED
from recall_server.storage.tables.tasks import Filter
from tests.support.application import settings_for
from tests.support.conversation import memories
from tests.support.engines import KEY_FILE
from tests.support.erasure import erase_all
from tests.support.models import HashEmbedder
from tests.support.processes import Database
from tests.support.transfer import many

ALICE = namespace("alice")
BEFORE = "I live in Oslo. My favourite color is teal."
SAID = "Alice: I work at Acme.\nAlice: My dog is called Rex."
MOVED = "I live in Porto."
# A purge holds its job at a third of this; more often, it would never find the database at rest.
LEASE_S = 0.6
POLL_S = 0.05
_OUT = "SELECT id FROM memories WHERE status <> 'active'"
# Words of BEFORE that an erased file must not contain.
TRACE = "favourite color is teal"
# For an audit log: two archives, and several batches of each.
RECORDS = 40
# Two batches of an import, and a part of a third.
CARRIED = 450


async def _always(_: Application) -> bool:
    """Return True: the work has no state in between."""
    return True


@dataclass(frozen=True)
class Work:
    """`prepare` makes the state before; `do` is the work that is cut off, and calls `told` with
    everything that is reported as done; `holds` checks that it is done. `whole` checks that the
    state is the one before or the one after, and never in between.
    """

    prepare: Callable[[Application], Awaitable[None]]
    do: Callable[[Application, Callable[[str], None]], Awaitable[None]]
    holds: Callable[[Application, str], Awaitable[bool]]
    whole: Callable[[Application], Awaitable[bool]] = _always


async def _nothing(_: Application) -> None:
    """Leave the database empty."""


async def _enter(built: Application) -> None:
    entry = built.services.audit.begin(ALICE, "create_token", "test", None)
    await built.services.access.issue(Context(entry))


async def _entered(built: Application) -> None:
    """Make several tokens."""
    for _ in range(4):
        await _enter(built)


async def _recorded(built: Application) -> None:
    """Make an audit log of some length, with details beside it, and jobs that have ended."""
    await _remembered(built)
    for _ in range(RECORDS):
        await _enter(built)


async def _remembered(built: Application) -> None:
    await _enter(built)
    await _store(built, BEFORE, "before")
    await drain(built)


async def _waiting(built: Application) -> None:
    """Store a text of which nothing was made yet."""
    await _remembered(built)
    await _store(built, SAID, "said")


async def _asked(built: Application) -> None:
    """Make a task that asks which of two homes is true."""
    await _remembered(built)
    await _start(built, MOVED)
    await drain(built)


async def _erased(built: Application) -> None:
    """Erase a namespace, whose files nobody has rewritten yet."""
    await _remembered(built)
    await erase_all(built)


async def _forgotten(built: Application) -> None:
    """Forget memories that can be restored."""
    await _remembered(built)
    for memory in await memories(built):
        entry = built.services.audit.begin(ALICE, "delete_memory", "test", None)
        await built.services.recall.forget(Context(entry), memory.id)


async def _store(built: Application, text: str, key: str) -> None:
    entry = built.services.audit.begin(ALICE, "store_memory", "test", None)
    submission = Submission(text, "life", idempotency_key=key)
    await built.services.ingest.remember(Context(entry), submission)


async def _start(built: Application, text: str) -> None:
    entry = built.services.audit.begin(ALICE, "send_message", "test", None)
    request = Request(Mode.INGEST, "life", text)
    await built.services.consolidate.start(Context(entry), request)


async def drain(built: Application) -> None:
    """Work until no job is left, those of a killed worker included."""
    while True:
        while await built.worker.run_once():
            pass
        async with built.store.transaction(ALICE, write=False) as tx:
            counts = await tx.jobs.counts()
        left = {kind for kind, state in counts if state is not JobState.FAILED} - {DISCARD}
        if not left:
            return
        await asyncio.sleep(POLL_S)  # until the lease of the killed one has run out


async def _migrate(_: Application, told: Callable[[str], None]) -> None:
    told("migrated")


async def _stores(built: Application, told: Callable[[str], None]) -> None:
    for number in range(2):
        await _store(built, f"I own bike number {number}.", f"key-{number}")
        told(f"store-{number}")


async def _extract(built: Application, told: Callable[[str], None]) -> None:
    await drain(built)
    told("extracted")


async def _consolidate(built: Application, told: Callable[[str], None]) -> None:
    async with built.store.transaction(ALICE, write=False) as tx:
        begun, _ = await tx.tasks.page(Filter(), after=None, limit=2)
    if not begun:  # a client that was cut off lists its tasks before it sends again
        await _start(built, SAID)
    told("accepted")
    await drain(built)
    told("consolidated")


async def _answer(built: Application, told: Callable[[str], None]) -> None:
    context = Context(built.services.audit.begin(ALICE, "send_message", "test", None))
    found = await built.services.tasks.questions(context, limit=2)
    if found:
        await built.services.tasks.answer(context, found[0].task.id, "keep_new")
    told("answered")
    await drain(built)
    told("settled")


async def _erase(built: Application, told: Callable[[str], None]) -> None:
    await erase_all(built)
    told("erased")
    await _purge(built, told)


async def _purge(built: Application, told: Callable[[str], None]) -> None:
    await drain(built)
    told("purged")


async def _import(built: Application, told: Callable[[str], None]) -> None:
    def entry() -> AuditEntry:
        return built.services.audit.begin(ALICE, "import_namespace", "test", None)

    await built.services.importing.take(ALICE, io.BytesIO(many(CARRIED)), entry=entry)
    told("imported")
    await drain(built)
    told("findable")


async def _restore(built: Application, told: Callable[[str], None]) -> None:
    async with built.store.transaction(ALICE, write=False) as tx:
        ids = [row["id"] for row in await tx.bound.connection.fetch(_OUT, {})]
    for item_id in ids:
        entry = built.services.audit.begin(ALICE, "restore_memory", "test", None)
        await built.services.recall.restore(Context(entry), item_id)
        told(item_id)


async def _revoke(built: Application, told: Callable[[str], None]) -> None:
    for info in await built.services.access.tokens(ALICE):
        entry = built.services.audit.begin(ALICE, "revoke_token", "test", None)
        await built.services.access.revoke(Context(entry), info, force=True)
        told(info.accessor)


async def _cut(built: Application, told: Callable[[str], None]) -> None:
    """Cut all records, since zero days are kept: two archives, each removed in several batches."""
    retention = built.services.retention
    days = Days(audit=timedelta(0), jobs=timedelta(0), tokens=timedelta(0))
    await replace(retention, days=days, records_max=24, batch_rows=10).once()
    told("cut")


async def _is_cut(built: Application, _: str) -> bool:
    """Check that only the records of the cuts are left, and the archives have the rest."""
    async with built.store.transaction(ALICE, write=False) as tx:
        left = await tx.audit.newest(1_000)
    kept = {line.operation for line in left} == {CUT_AUDIT}
    return kept and await _is_one_chain(built)


async def _is_one_chain(built: Application) -> bool:
    """Check that the log verifies, and with the archives from its first record on."""
    folder = built.services.retention.archive
    assert folder is not None
    files = await asyncio.to_thread(lambda: sorted(folder.path.glob("*.jsonl")))
    archives = [read_archive(path, built.key.public) for path in files]
    alone = await built.services.verification.verify(ALICE)
    whole = await built.services.verification.verify(ALICE, (), archives)
    return whole.first == 1 and whole.seq == alone.seq > RECORDS


async def _is_migrated(built: Application, _: str) -> bool:
    return await summary(built) is not None


async def _is_stored(built: Application, told: str) -> bool:
    async with built.store.transaction(ALICE, write=False) as tx:
        return await tx.episodes.receipt(told.replace("store", "key")) is not None


async def _is_extracted(built: Application, _: str) -> bool:
    found = await summary(built)
    return not found["jobs"] and "Acme" in str(found["memories"])


async def _is_consolidated(built: Application, told: str) -> bool:
    found = await summary(built)
    return bool(found["runs"]) if told == "accepted" else found["runs"] == [TaskState.COMPLETED]


async def _is_answered(built: Application, told: str) -> bool:
    found = await summary(built)
    return not found["asks"] and (told == "answered" or found["runs"] == [TaskState.COMPLETED])


async def _is_erased(built: Application, told: str) -> bool:
    """Check that no row is left, and once the purge is reported, nothing in a file. The files of a
    Postgres hold other databases with the same words: there the report is trusted.
    """
    if await _rows(built) != 0 or any(one.revoked_at is None for one in await _tokens(built)):
        return False
    if told == "erased":
        return True
    async with built.store.transaction(None, write=False) as tx:
        waiting = await tx.erasures.unpurged(most=100)
    sqlite = built.store.engine == "sqlite"
    return not waiting and not (sqlite and (await scan(built.store, [TRACE], [])).places)


async def _is_erased_or_not(built: Application) -> bool:
    """Check that the namespace is erased or whole: nobody asked for half of it."""
    tokens = {one.revoked_at is None for one in await _tokens(built)}
    if await _rows(built) == 0:
        return tokens == {False}
    return tokens == {True} and len(await memories(built)) == 2


async def _is_imported(built: Application, _: str) -> bool:
    found = await summary(built)
    return len(await memories(built, limit=CARRIED + 1)) == CARRIED == found["findable"]


async def _is_restored(built: Application, item_id: str) -> bool:
    return item_id in {one.id for one in await memories(built)}


async def _is_revoked(built: Application, accessor: str) -> bool:
    info = await built.services.access.find(accessor, ALICE)
    return info.refusal(built.runtime.now()) is Refusal.REVOKED


async def _tokens(built: Application) -> list[TokenInfo]:
    return await built.services.access.tokens(ALICE)


async def _rows(built: Application) -> int:
    """Count the rows that an erasure removes, without its own job."""
    async with built.store.transaction(ALICE, write=False) as tx:
        counts = await tx.erasures.counts()
    return sum(counts[table] for table in DELETED if table != "operations")


WORKS = {
    "migrate": Work(_nothing, _migrate, _is_migrated),
    "store": Work(_remembered, _stores, _is_stored),
    "extract": Work(_waiting, _extract, _is_extracted),
    "consolidate": Work(_remembered, _consolidate, _is_consolidated),
    "answer": Work(_asked, _answer, _is_answered),
    "erase": Work(_remembered, _erase, _is_erased, _is_erased_or_not),
    "purge": Work(_erased, _purge, _is_erased),
    "import": Work(_enter, _import, _is_imported),
    "restore": Work(_forgotten, _restore, _is_restored),
    "revoke": Work(_entered, _revoke, _is_revoked),
    "cut": Work(_recorded, _cut, _is_cut, _is_one_chain),
}


async def summary(built: Application) -> dict[str, object]:
    """Return the state, without ids and times that differ from run to run."""
    async with built.store.transaction(ALICE, write=False) as tx:
        memories = await tx.memories.page(limit=100, offset=0, type_="", topic="")
        runs, _ = await tx.tasks.page(Filter(), after=None, limit=100)
        statistics = await tx.words.statistics()
        jobs = await tx.jobs.counts()
        book = await tx.audit.newest(1_000)
    state = [task.status.state for task in runs]
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
        "asks": sum(one is TaskState.INPUT_REQUIRED for one in state),
    }


def opened(database: Database) -> AbstractAsyncContextManager[Application]:
    """Yield the application of the victim."""
    name = "recall.archive" if isinstance(database, Path) else re.sub(r"\W+", "-", database)
    folder = (database.parent if isinstance(database, Path) else KEY_FILE.parent) / name[-60:]
    folder.mkdir(exist_ok=True)
    settings = settings_for(database, lease_s=LEASE_S, audit_archive=folder)
    return open_application(settings, embedder=HashEmbedder())


async def main(work: str, database: str) -> None:
    async with opened(database if "=" in database else Path(database)) as built:
        if work == "insist":
            await _insist(built)
        else:
            await WORKS[work].do(built, lambda done: print(done, flush=True))


async def _insist(built: Application) -> None:
    """Repeat a store whatever the answer is, and print it."""
    for number in range(3):
        try:
            await _store(built, f"I own bike number {number}.", f"key-{number}")
        except RecallError as error:
            print(error.code, flush=True)
        else:
            print(f"store-{number}", flush=True)


if __name__ == "__main__":
    # To standard error: what is printed is what was done.
    telemetry.configure_logs("info")
    asyncio.run(main(*sys.argv[1:]))
