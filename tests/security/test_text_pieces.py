"""An operation on a whole text changes some of its memories at a time: no writer waits long."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.errors import NotWaiting
from recall_server.domain.extraction import Extraction, Passage
from recall_server.domain.intents import Intent
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.query import Query
from recall_server.domain.task import JobState, Mode, Outcome, Request, TaskState
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from recall_server.services.memory.texts import Texts
from recall_server.services.tasks import merge
from recall_server.services.tasks.reviews import ReviewKind, Verdict
from recall_server.services.transfer import importing
from recall_server.storage.bound_connection import load
from tests.support.application import Open
from tests.support.conversation import (
    ALICE,
    citing,
    context,
    drained,
    enter,
    entry,
    memories,
    remember,
)
from tests.support.counted import counted, interrupted
from tests.support.erasure import rows, select
from tests.support.runtime import NOON, Clock
from tests.support.statements import Stating, cities, tell
from tests.support.transfer import BOB, exported, line_of, taken_in
from tests.support.whole_walk import present

WHO = ("Ana", "Ben", "Cid", "Dan", "Eve")
SAID = "Zoe: " + " ".join(f"{one} lives in {one}town." for one in WHO)
NONE: dict[str, Any] = {"tags": None, "metadata": None, "expires_at": None, "forever": False}


def some_at_a_time(application: Application) -> Texts:
    return replace(application.services.texts, at_once=2)


async def same(application: Application) -> bool:
    """True if all that searches read is as texts and events say."""
    return (await application.services.rebuild.compare(context(application))).same


async def cut_off() -> None:
    raise asyncio.CancelledError


async def test_pieces_forget_together_what_one_would_and_one_undo_takes_them_back(
    open_app: Open, clock: Clock
) -> None:
    """What another text states too stays. The record of each piece names the ids that it forgot."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        text = await tell(application, SAID)
        await tell(application, "Yan: Ana lives in Anatown.")
        before = await present(application)
        calling = context(application)
        forgotten = await some_at_a_time(application).forget(calling, text)
        book = await application.services.audit.newest(ALICE, 10)
        left = await cities(application)
        assert await same(application)
        clock.pass_(timedelta(minutes=1))
        await application.services.changes.undo(
            context(application),
            calling.entry.change,
            rights=OPERATOR,
            dry_run=False,
            with_dependents=False,
        )
        after = await present(application)

    assert len(forgotten) == len({*forgotten}) == 5
    pieces = [one.counts["forgotten"] for one in book if "forgotten" in one.counts]
    assert sorted(pieces) == [1, 2, 2]
    assert set(left) == {"Anatown"}
    assert after == before


async def test_a_text_that_is_forgotten_in_part_is_forgotten_again(open_app: Open) -> None:
    """The text itself goes with the last piece, so that it is still there to be named."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        text = await tell(application, SAID)
        texts, shown = some_at_a_time(application), list[int]()

        async def second() -> None:
            shown.append(len((await texts.page(context(application), limit=9, offset=0)).texts))
            if len(shown) == 2:
                await cut_off()

        with interrupted(application, None, second, times=9), pytest.raises(asyncio.CancelledError):
            await texts.forget(context(application), text)
        some = await cities(application)
        assert await same(application)
        await texts.forget(context(application), text)

        assert shown == [1, 1]
        assert len(some) == 3
        assert await cities(application) == {}
        assert (await texts.page(context(application), limit=9, offset=0)).texts == []
        assert await same(application)


async def test_pieces_expire_together_what_one_would(open_app: Open, clock: Clock) -> None:
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        text = await tell(application, SAID)
        texts = some_at_a_time(application)
        ends = {**NONE, "expires_at": clock() + timedelta(hours=1)}
        await texts.update(context(application), text, **ends)
        expiring = {one.expires_at for one in await memories(application)}
        clock.pass_(timedelta(hours=2))
        application.worker.handlers = {
            **application.worker.handlers,
            "expire_text": texts.expire,
        }
        await drained(application)
        book = await application.services.audit.newest(ALICE, 20)
        assert await same(application)

    expired = [one.counts["expired"] for one in book if "expired" in one.counts]
    assert expiring == {NOON + timedelta(hours=1)}
    assert sorted(expired) == [1, 2, 2]


async def test_pieces_give_memories_the_labels_that_their_text_has_then(open_app: Open) -> None:
    """Of three at once, all have those of the text. Control: each piece is a record."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        text = await tell(application, SAID)
        texts = some_at_a_time(application)
        given = {**NONE, "tags": ["a"], "metadata": {"n": 1}}
        await texts.update(context(application), text, **given)
        first = {one.source.tags for one in await memories(application)}
        book = await application.services.audit.newest(ALICE, 50)
        await asyncio.gather(
            *(texts.update(context(application), text, **{**NONE, "tags": [t]}) for t in "xyz")
        )
        found = await memories(application)
        page = await texts.page(context(application), limit=1, offset=0)
        assert await same(application)

    assert first == {("a",)}
    assert sum("relabelled" in one.counts for one in book) == 3
    assert {one.source.tags for one in found} == {page.texts[0][0].source.tags}
    assert {tuple(one.source.metadata.items()) for one in found} == {(("n", 1),)}


async def test_a_merge_takes_so_many_memories_and_the_next_one_goes_on(open_app: Open) -> None:
    """All of one transaction give way at once. Control: all of them are alike."""
    many = merge.MERGED_MAX + 20
    async with open_app(embedder=None) as application:
        await enter(application)
        await remember(application, "User: Hello there, good morning.")
        await drained(application)
        async with application.store.transaction(ALICE) as tx:
            alike = await citing(tx, "The user likes old trams.")
            for number in range(many):
                await tx.memories.add(replace(alike, id=f"mem_{number:05}"))
        left = []
        for _ in range(2):
            task = await application.services.consolidate.start(
                context(application), Request(Mode.MERGE, "life")
            )
            await drained(application)
            ended = await application.services.tasks.get(context(application), task.id)
            assert ended.status.state is TaskState.COMPLETED
            left.append(len(await memories(application, limit=many)))

    assert left == [21, 1]


async def ended(application: Application, task_id: str) -> Outcome:
    await drained(application)
    task = await application.services.tasks.get(context(application), task_id)
    assert task.outcome is not None, task.status
    return task.outcome


async def test_a_task_makes_so_many_changes_and_says_how_far_it_has_read(
    open_app: Open, clock: Clock
) -> None:
    """Search finds the rest of the text. A dry run shows the same plan. One undo takes all back."""
    said = f"{SAID}\nYan: Moss is green."
    async with open_app(extractor=Stating(), task_changes_max=3) as application:
        await enter(application)
        before = await present(application)
        start = application.services.consolidate.start
        dry = await start(context(application), Request(Mode.INGEST, "life", said, dry_run=True))
        shown = await ended(application, dry.id)
        left = await present(application)
        task = await start(context(application), Request(Mode.APPLY, "", plan_id=dry.id))
        made = await ended(application, task.id)
        found = await cities(application)
        moss = await application.services.recall.search(context(application), Query("moss"))
        assert await same(application)
        clock.pass_(timedelta(minutes=1))
        await application.services.changes.undo(
            context(application), task.id, rights=OPERATOR, dry_run=False, with_dependents=False
        )
        after = await present(application)

    assert left == before == after
    assert shown.read_to == made.read_to == said.index("Dan lives")
    assert set(found) == {"Anatown", "Bentown", "Cidtown"}
    assert "Moss" in moss.hits[0].item.text


async def test_a_task_reads_no_further_passage_once_it_has_enough(open_app: Open) -> None:
    """Control: the extractor is given the passages before."""
    extractor = Stating()
    read, extract = [], extractor.extract

    async def reading(passage: Passage) -> Extraction:
        read.append(passage.turns[0].index)
        return await extract(passage)

    extractor.passage_chars, extractor.extract = 40, reading  # type: ignore[method-assign]
    said = "\n".join(f"{one}: {one} lives in {one}town." for one in WHO)
    async with open_app(extractor=extractor, task_changes_max=2) as application:
        await enter(application)
        task = await application.services.consolidate.start(
            context(application), Request(Mode.INGEST, "life", said)
        )
        made = await ended(application, task.id)

    assert read == [0, 1]
    assert made.read_to == said.index("Cid: ") + len("Cid: ")
    assert len(made.created) == 2


async def test_what_one_passage_states_is_written_in_pieces_and_repeated_after_a_kill(
    open_app: Open, clock: Clock
) -> None:
    """The job has the passage until its last piece. Control: there are several pieces."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        ingest = replace(application.services.ingest, changes_at_once=2)
        application.worker.handlers = {**application.worker.handlers, "extract": ingest.extract}
        await tell(application, "Yan: Ben lives in Bentown.")
        pieces = list[int]()

        async def second() -> None:
            pieces.append(len(await cities(application)))
            if pieces[-1] > 1:
                await cut_off()

        accepted = await ingest.remember(context(application), Submission(SAID, "life"))
        with interrupted(application, None, second, times=9), pytest.raises(asyncio.CancelledError):
            await drained(application)
        some = await cities(application)
        clock.pass_(timedelta(hours=1))
        await drained(application)
        every = await cities(application)
        book = await application.services.audit.newest(ALICE, 20)
        job = await ingest.extracted(context(application), accepted.job_id)
        assert await same(application)

    assert len(some) < len(every) == 5
    assert every["Bentown"].reinforcements == 1
    assert job.job.state is JobState.COMPLETE
    assert sorted(one.counts["added"] for one in book if "added" in one.counts) == [1, 1, 1, 2]


async def test_a_plan_of_many_changes_reads_no_more_under_the_lock(open_app: Open) -> None:
    """Neither to add memories nor to reinforce them. Control: the plans have their changes."""
    reads, changes = [], []
    async with open_app(extractor=Stating(), embedder=None) as application:
        await enter(application)
        for number in (12, 12, 20, 20):
            said = "\n".join(f"Zoe: Who{number}x{one} lives in Rome." for one in range(number))
            task = await application.services.consolidate.start(
                context(application), Request(Mode.INGEST, "life", said)
            )
            with counted(application) as counts:
                made = await ended(application, task.id)
            reads.append(len(counts.under_lock))
            changes.append((len(made.created), len(made.reinforced)))

    assert changes == [(12, 0), (0, 12), (20, 0), (0, 20)]
    assert reads[:2] == reads[2:]


async def test_an_import_reads_and_cuts_no_text_under_the_lock(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It settles some memories at a time with those that were here before. Control: they contradict
    these, and all texts and memories come.
    """
    monkeypatch.setattr(importing, "RECONCILED_AT_ONCE", 2)
    async with open_app(extractor=Stating(), embedder=None) as application:
        await enter(application)
        await enter(application, BOB)
        await tell(application, SAID)
        file = await exported(application)
        other = SAID.replace("town", "ville")
        await application.services.ingest.remember(
            Context(line_of(application, BOB, "store_memory")), Submission(other, "life")
        )
        await drained(application)
        with counted(application) as counts:
            report = await taken_in(application, file, BOB)
        book = await application.services.audit.newest(BOB, 20)
        texts = load(application.store.engine)["episodes_by_id"]

    assert report.counts()["new"] == 6
    assert not {texts.sql, texts.unlimited} & {*counts.under_lock}
    settled = [one.counts["superseded"] for one in book if "superseded" in one.counts]
    assert sorted(settled) == [1, 2, 2]


async def test_no_text_is_read_under_the_lock_to_forget_and_restore_what_is_said_in_it(
    open_app: Open,
) -> None:
    """A memory may cite a hundred long ones. Control: search finds neither the memory nor the words
    in between, and both afterwards.
    """
    async with open_app(extractor=Stating(), embedder=None) as application:
        await enter(application)
        for _ in range(3):
            await tell(application, "Zoe: Ana lives in Anatown. Moss is green.")
        (memory,) = await memories(application)
        cited = await select(application.store, "SELECT episode_id FROM citations")
        before = await present(application)
        recall = application.services.recall
        with counted(application) as counts:
            await recall.forget(context(application), memory.id)
            hits = (await recall.search(context(application), Query("Anatown"))).hits
            moss = (await recall.search(context(application), Query("moss"))).hits
            kept = await same(application)
            await recall.restore(context(application), memory.id)
        queries = load(application.store.engine)
        after = await present(application)
        assert await same(application)

    assert len(cited) == 3
    read = {queries[name].sql for name in ("episodes_by_id", "turns_of_episodes")}
    assert not read & {*counts.under_lock}
    assert kept
    assert not any("Anatown" in one.item.text for one in hits)
    assert "Moss" in moss[0].item.text
    assert after == before


async def test_an_import_writes_so_many_lines_at_once(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Control: all texts come."""
    monkeypatch.setattr(importing, "BATCH_LINES", 2)
    async with open_app(extractor=Stating(), embedder=None) as application:
        await enter(application)
        for one in WHO:
            await tell(application, f"Zoe: {one} lives in {one}town.")
        file, kept = await exported(application), [0]

        async def look() -> None:
            kept.append((await rows(application.store, BOB))["episodes"])

        with interrupted(application, None, look, times=99):
            await taken_in(application, file, BOB)
        kept.append((await rows(application.store, BOB))["episodes"])

    assert kept[-1] == len(WHO)
    assert max(b - a for a, b in pairwise(kept)) <= 2


async def test_no_text_is_read_under_the_lock_to_forget_what_was_proposed_to_be_forgotten(
    open_app: Open,
) -> None:
    """Of two answers at once, one forgets, and the other is told. Control: what search finds."""
    async with open_app(extractor=Stating(), embedder=None) as application:
        await enter(application)
        for _ in range(3):
            await tell(application, "Zoe: Ana lives in Anatown. Moss is green.")
        (memory,) = await memories(application)
        wish = Wish(Intent.FORGET, Submission("", "life"), memory_id=memory.id, review=True)
        await application.services.intents.submit(context(application), wish)
        waiting = {ReviewKind.PROPOSAL}
        reviews = application.services.reviews
        (review,) = await reviews.waiting(context(application), waiting, limit=9)
        book = [entry(application), entry(application)]

        async def first() -> None:
            await reviews.answer(Context(book[0]), review.id, Verdict.ACCEPT)

        with (
            counted(application) as counts,
            interrupted(application, None, first),
            pytest.raises(NotWaiting),
        ):
            await reviews.answer(Context(book[1]), review.id, Verdict.ACCEPT)
        hits = (
            await application.services.recall.search(context(application), Query("Anatown"))
        ).hits
        moss = (await application.services.recall.search(context(application), Query("moss"))).hits
        left = await reviews.waiting(context(application), waiting, limit=9)
        queries = load(application.store.engine)
        assert await same(application)

    read = {queries[name].sql for name in ("episodes_by_id", "turns_of_episodes")}
    assert not read & {*counts.under_lock}
    assert not any("Anatown" in one.item.text for one in hits)
    assert "Moss" in moss[0].item.text
    assert left == []
    assert book[0].ids == [review.id, memory.id]
    assert book[0].counts == {"forgotten": 1}
