"""An operation on a whole text changes some of its memories at a time: no writer waits long."""

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from recall_server.application import Application
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.task import Mode, Request, TaskState
from recall_server.services.memory.texts import Texts
from recall_server.services.tasks import merge
from tests.support.application import Open
from tests.support.conversation import ALICE, citing, context, drained, enter, memories, remember
from tests.support.counted import interrupted
from tests.support.runtime import NOON, Clock
from tests.support.statements import Stating, cities, tell
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
