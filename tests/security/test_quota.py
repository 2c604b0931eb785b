"""A namespace stores text up to its quota, and a full one can still export all of it."""

import asyncio
from datetime import timedelta
from typing import Any

import pytest

from recall_server.application import Application
from recall_server.domain.episode import Source, Span
from recall_server.domain.errors import QuotaExceeded
from recall_server.domain.extraction import Candidate
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import MemoryType
from recall_server.domain.query import Query
from recall_server.domain.task import Mode, Request, TaskState
from recall_server.services.memory.ingest import Submission
from recall_server.storage.tables.access import EVENT_BYTES, ITEM_BYTES
from recall_server.storage.tables.tasks import Filter
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories, remember
from tests.support.erasure import select
from tests.support.extractors import Scripted
from tests.support.mcp_clients import request as asked
from tests.support.runtime import Clock
from tests.support.server import Serve
from tests.support.transfer import exported, taken_in

BOB = Namespace("bob")
FACT = "Ana: I live in Lisbon."
# Enough for one text with its passages and memories, and not for two: rows have ids and labels too.
ROOM = 600
# The largest labels, on a short text of which a model makes many memories.
LABELS = Source(
    tags=tuple(f"tag {number:02} {'x' * 57}" for number in range(32)),
    metadata={"note": "m" * 4_000},
)
SAID = "Ana: I live in Lisbon, where I ride trams."
MANY = {
    SAID[5 : 6 + n]: Candidate(f"Ana rides tram number {n}.", MemoryType.FACT, Span(5, 42))
    for n in range(20)
}


async def counted(application: Application, namespace: Namespace = ALICE) -> int:
    """Return the bytes that a namespace counts, without passages and memories."""
    async with application.store.driver.transaction(namespace=namespace, write=False) as raw:
        (row,) = await raw.fetch(
            "SELECT stored_bytes FROM namespaces WHERE namespace = '" + namespace + "'", {}
        )
    return int(row["stored_bytes"])


async def test_a_full_namespace_writes_no_more_and_all_else_goes_on(open_app: Open) -> None:
    """Control: another namespace can write, and so can this one with a larger quota."""
    async with open_app(namespace_bytes_max=ROOM) as application:
        await enter(application)
        await enter(application, BOB)
        first = await remember(application, FACT, key="first")
        with pytest.raises(QuotaExceeded):
            await remember(application, "Ana: x")
        again = await remember(application, FACT, key="first")
        with pytest.raises(QuotaExceeded):
            await application.services.consolidate.start(
                context(application), Request(Mode.INGEST, "life", text="Ana: I ski.")
            )
        await application.services.ingest.remember(
            context(application, BOB), Submission(FACT, "life")
        )
        await drained(application)
        (memory,) = await memories(application)
        found = await application.services.recall.search(context(application), Query("Lisbon"))
        file = await exported(application)
        with pytest.raises(QuotaExceeded):
            await application.services.consolidate.start(
                context(application), Request(Mode.MERGE, "life")
            )
        await application.services.erase.memory(context(application), memory.id)
        await drained(application)

        assert again.cached
        assert again.episode_id == first.episode_id
        assert found.hits
        assert FACT.encode() in file
        assert await memories(application) == []
        # Spaces replace the erased words, so writing and erasing in turn frees nothing.
        assert await counted(application) > len(FACT)
        await application.services.erase.namespace(context(application), "DELETE MY DATA")
        assert await counted(application) == 0
    async with open_app(namespace_bytes_max=0) as application:
        await enter(application)
        await remember(application, "Ana: I like jam very much indeed." * 10)


async def test_what_is_written_at_once_has_the_room_only_once(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application, BOB)
        submitted = Submission(FACT, "life")
        await application.services.ingest.remember(context(application, BOB), submitted)
        one = await counted(application, BOB) + ITEM_BYTES
    async with open_app(namespace_bytes_max=3 * one) as application:
        await enter(application)
        done = await asyncio.gather(
            *(remember(application, FACT, key=f"a key of some length, {n:02}") for n in range(12)),
            return_exceptions=True,
        )

        assert sum(isinstance(one, QuotaExceeded) for one in done) == 9
        assert await counted(application) <= 3 * one


async def test_what_was_counted_is_what_is_there(open_app: Open, clock: Clock) -> None:
    """Bytes are counted, not characters. Imports count, and tasks until they are removed."""
    text = "Ana: Ich wohne in Köln. 🙂"
    async with open_app(task_days=1) as application:
        await enter(application)
        await remember(application, text)
        await drained(application)
        before = await counted(application)
        task = Request(Mode.INGEST, "life", text=text, dry_run=True)
        await application.services.consolidate.start(context(application), task)
        await drained(application)
        stored = await application.services.tasks.page(
            context(application), Filter(), cursor="", limit=1
        )
        assert await counted(application) == before + stored.tasks[0].stored_bytes
        clock.pass_(timedelta(days=1))
        await drained(application)
        assert await counted(application) == before >= len(text.encode())
        file = await exported(application)
        await taken_in(application, file, BOB)
        # An event of an import keeps when the memory was recorded.
        async with application.store.driver.transaction(namespace=BOB, write=False) as raw:
            kept = await raw.fetch("SELECT answer FROM memory_events", {})
        recorded = sum(len(one["answer"] or "") for one in kept)
        assert await counted(application, BOB) == before + recorded > before


async def test_kept_answers_of_models_count_until_they_are_erased(open_app: Open) -> None:
    """An event keeps what a model worded a second time."""
    said = Candidate("Ana wohnt in Köln. " * 40, MemoryType.FACT, Span(5, 22))

    async def kept(application: Application) -> tuple[int, int]:
        """The bytes that are counted, without those of events, and those of answers."""
        events = await select(application.store, "SELECT answer FROM memory_events")
        answers = sum(len((one["answer"] or "").encode()) for one in events)
        return await counted(application) - len(events) * EVENT_BYTES, answers

    async with open_app(extractor=Scripted(Lisbon=said)) as application:
        await enter(application)
        await remember(application, FACT)
        without, _ = await kept(application)
        await drained(application)
        counts, answers = await kept(application)
        (memory,) = await memories(application)
        async with application.store.transaction(ALICE, erasing=True, locked=True) as tx:
            await tx.erasures.remove_memories([memory.id])

        assert answers > len(said.text.encode())
        assert counts == without + answers
        assert await kept(application) == (without, 0)


async def labelled(application: Application, namespace: Namespace = ALICE) -> str:
    """Store a text with the largest labels, and let the model read it. Return its id."""
    await enter(application, namespace)
    submission = Submission(SAID, "life", source=LABELS)
    done = await application.services.ingest.remember(context(application, namespace), submission)
    await drained(application)
    return done.episode_id


async def test_labels_count_for_each_memory_that_copies_them(open_app: Open) -> None:
    """Until the memories are erased, and as their text is labelled anew."""
    none: dict[str, Any] = {"tags": [], "metadata": {}}
    largest: dict[str, Any] = {"tags": LABELS.tags, "metadata": LABELS.metadata}
    async with open_app(extractor=Scripted(**MANY)) as application:
        text, counts = await labelled(application), [await counted(application)]
        for labels in (none, largest, none, largest):
            await application.services.texts.update(
                context(application), text, **labels, expires_at=None, forever=False
            )
            counts.append(await counted(application))
        events = await select(application.store, "SELECT answer FROM memory_events")
        kept = sum(len((one["answer"] or "").encode()) for one in events)
        async with application.store.transaction(ALICE, erasing=True, locked=True) as tx:
            ids = [one.id for one in await tx.memories.of_episode(text)]
            await tx.erasures.remove_memories(ids)
        left = await counted(application)

    # The text too counts its labels, and each change leaves an event of the text and each memory.
    full, bare, *_ = counts
    past = 21 * EVENT_BYTES
    assert len(ids) == 20
    assert full + past - bare > 21 * 5_500
    assert counts[2:] == [full + 2 * past, bare + 2 * past, full + 4 * past]
    assert left < full - 20 * 5_500 - kept


async def test_an_extraction_that_would_copy_more_than_fits_ends(open_app: Open) -> None:
    """The text stays, and the model is not asked again. Control: what just fits is stored."""
    carol, model = Namespace("carol"), Scripted(**MANY)
    async with open_app(extractor=Scripted(**MANY)) as application:
        await labelled(application, BOB)
        full = await counted(application, BOB) + 21 * ITEM_BYTES
    async with open_app(extractor=model, namespace_bytes_max=full - 5_000) as application:
        await labelled(application)
        jobs = await select(
            application.store, "SELECT state, error_code FROM operations WHERE kind = 'extract'"
        )
        found = await application.services.recall.search(context(application), Query("Lisbon"))

        assert ("failed", "QUOTA_EXCEEDED") in {tuple(dict(one).values()) for one in jobs}
        assert model.asked == 1
        assert [one.item.kind for one in found.hits] == ["passage"]
        assert await counted(application) < 10_000
    async with open_app(extractor=Scripted(**MANY), namespace_bytes_max=full) as application:
        await labelled(application, carol)
        assert await counted(application, carol) + 21 * ITEM_BYTES == full


async def refused(application: Application) -> int:
    """Return how many extractions of Alice were given up for lack of space."""
    failed = "state = 'failed' AND error_code = 'QUOTA_EXCEEDED'"
    return len(await select(application.store, f"SELECT id FROM operations WHERE {failed}"))


async def test_an_extraction_without_space_is_done_once_some_is_freed(open_app: Open) -> None:
    """By an erasure. Control: it is not tried before."""
    model = Scripted(**MANY)
    async with open_app(extractor=model, namespace_bytes_max=150_000) as application:
        await enter(application)
        large = Submission("x" * 100_000, "life", container="large", kept_as="text")
        await application.services.ingest.remember(context(application), large)
        await labelled(application)
        before = await refused(application), model.asked, len(await memories(application))
        await drained(application)
        asked = model.asked
        await application.services.erase.container(context(application), "large")
        await drained(application)

        assert before == (1, 1, 0)
        assert asked == 1
        assert (await refused(application), model.asked) == (0, 2)
        assert len(await memories(application)) == 20


async def test_an_extraction_without_space_is_done_after_a_start_with_more(
    open_app: Open,
) -> None:
    """Control: with as little space as before, it is given up again."""
    left = list[tuple[int, int]]()
    for size in (60_000, 60_000, 200_000):
        async with open_app(extractor=Scripted(**MANY), namespace_bytes_max=size) as application:
            if not left:
                await labelled(application)
            await application.services.ingest.begin()
            await drained(application)
            left.append((await refused(application), len(await memories(application))))

    assert left == [(1, 0), (1, 0), (0, 20)]


async def test_an_import_counts_the_labels_of_memories(open_app: Open) -> None:
    """Control: it fits into what the export counted, with what its events keep."""
    async with open_app(extractor=Scripted(**MANY)) as application:
        await labelled(application)
        file, full = await exported(application), await counted(application)
    async with open_app(namespace_bytes_max=full - 5_000) as application:
        with pytest.raises(QuotaExceeded):
            await taken_in(application, file, BOB)
    async with open_app() as application:
        await taken_in(application, file, BOB)
        assert await counted(application, BOB) >= full


async def test_a_task_that_was_taken_on_finds_its_room(open_app: Open) -> None:
    """The text that the task becomes uses the quota that the task had."""
    task = Request(Mode.INGEST, "life", text=FACT * 200)
    async with open_app() as application:
        await enter(application, BOB)
        await application.services.consolidate.start(context(application, BOB), task)
        taken = await counted(application, BOB)
    async with open_app(namespace_bytes_max=taken) as application:
        await enter(application)
        run = await application.services.consolidate.start(context(application), task)
        await drained(application)
        ended = await application.services.tasks.get(context(application), run.id)

        assert ended.status.state is TaskState.COMPLETED


async def test_an_import_ends_where_the_room_does(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, FACT)
        file = await exported(application)
        full = await counted(application)
    # Rows of the past that a text leaves are counted, and not refused.
    async with open_app(namespace_bytes_max=full - EVENT_BYTES - 1) as application:
        with pytest.raises(QuotaExceeded):
            await taken_in(application, file, BOB)
        assert await counted(application, BOB) == 0
    async with open_app(namespace_bytes_max=full) as application:
        await taken_in(application, file, BOB)


async def test_http_and_mcp_report_a_full_namespace(serve: Serve) -> None:
    """HTTP answers 507, and a tool has the code in its envelope."""
    async with serve(namespace_bytes_max=330) as running:
        token = await running.token()
        body = {"skill": "consolidate_memories", "input": {"text": FACT * 20, "topic": "life"}}
        async with running.http(token) as http:
            plain = await http.post("/a2a", json=body)
            call = {"name": "store_memory", "arguments": {"text": FACT * 20}}
            headers, sent = asked("tools/call", call, modern=False)
            tool = await http.post("/mcp", json=sent, headers=headers)
            call = {"name": "store_memory", "arguments": {"text": "Hi there."}}
            headers, sent = asked("tools/call", call, modern=False)
            fits = await http.post("/mcp", json=sent, headers=headers)

    assert plain.status_code == 507
    assert plain.json()["code"] == "QUOTA_EXCEEDED"
    assert "QUOTA_EXCEEDED" in tool.text
    assert '"queued":true' in fits.text.replace("\\", "")
