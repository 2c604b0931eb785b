"""An erasure looks for its targets before its transaction, so that nobody waits for the search.
Data that is written in between is erased as well.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from typing import Any

import pytest

from recall_server.application import Application
from recall_server.domain.episode import Citation, Episode, Span
from recall_server.domain.erasure import CONFIRMATION, Subject
from recall_server.domain.errors import Stale
from recall_server.domain.memory import Fact
from recall_server.domain.task import Mode, Request
from recall_server.services.erasure import Erased, targets
from recall_server.services.erasure.eraser import PartTargets
from recall_server.services.erasure.targets import Container, Named
from tests.support.application import Open
from tests.support.containers import OTTER, RED, everything, put, start
from tests.support.conversation import ALICE, context, drained, enter, memories, remember
from tests.support.erasure import candidate, found, rows, select
from tests.support.extractors import Scripted
from tests.support.runtime import NOON

NAME = "Quentin"
FIRST = f"Ann: {NAME} lives in Lisbon by the river."
BEN = "Ben: I keep a heron in the garden."


def extractor() -> Scripted:
    late = f"Ann: {NAME} plays chess on Mondays."
    return Scripted(
        Lisbon=candidate(
            f"{NAME} lives in Lisbon", FIRST[5:], FIRST, Fact(NAME, "lives_in", "Lisbon")
        ),
        chess=candidate(f"{NAME} plays chess", late[5:], late),
        heron=candidate("Ben keeps a heron", BEN[5:], BEN),
    )


Between = Callable[[], Awaitable[object]]


def between(monkeypatch: pytest.MonkeyPatch, write: Between) -> None:
    """Run `write` after the first scan of the next erasure."""
    scan = PartTargets.find

    async def scanned(self: PartTargets, *given: Any) -> object:
        monkeypatch.setattr(PartTargets, "find", scan)
        affected = await scan(self, *given)
        await write()
        return affected

    monkeypatch.setattr(PartTargets, "find", scanned)


async def erase(application: Application, name: str = NAME) -> Erased:
    return await application.services.erase.subject(context(application), name)


async def imported(application: Application, text: str, *, id_: str) -> None:
    """Store a text with a given id, as an import does."""
    episode = Episode(
        id=id_,
        text=text,
        topic="life",
        occurred_at=NOON,
        recorded_at=NOON,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        job_id=f"job_{id_}",
    )
    async with application.store.transaction(ALICE) as tx:
        await tx.lock()
        await tx.episodes.add(episode, episode.id, "")


async def test_what_is_said_of_somebody_meanwhile_is_erased_with_them(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writes are a text, its memory, a task, a text with an older id, and a new citation of a
    memory that was found. The control: what others said meanwhile stays.
    """
    async with open_app(extractor=extractor()) as application:
        await enter(application)
        await remember(application, FIRST)
        await remember(application, BEN)
        await drained(application)
        (lisbon,) = [one for one in await memories(application) if "Lisbon" in one.text]
        asked = Request(Mode.INGEST, "life", text="Ann: Tell me of her.")
        changed = await application.services.consolidate.start(context(application), asked)

        async def write() -> None:
            await remember(application, f"Ann: {NAME} plays chess on Mondays.")
            await remember(application, "Cleo: The kite flew over the old mill.")
            await imported(application, f"Ann: I met {NAME} in the market.", id_="ep_0")
            told = await remember(application, "Dan: She has moved there for good.")
            async with application.store.transaction(ALICE) as tx:
                cited = Citation(told.episode_id, Span(5, 34))
                await tx.memories.cite(lisbon.id, cited)
            request = Request(Mode.INGEST, "life", text=f"Ann: {NAME} has a boat.")
            await application.services.consolidate.start(context(application), request)
            async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
                await raw.fetch(
                    f"UPDATE runs SET messages = '[\"{NAME}\"]', version = version + 1 "
                    f"WHERE id = '{changed.id}'",
                    {},
                )
            await drained(application)
            assert NAME in str(await everything(application))

        between(monkeypatch, write)
        erased = await erase(application)
        await drained(application)

        assert NAME not in str(await everything(application))
        assert "moved there" not in str(await everything(application))
        assert erased.counts["runs"] == 2
        assert erased.counts["memories"] == 2
        texts = {
            row["text"] for row in await select(application.store, "SELECT text FROM episodes")
        }
        assert any("kite" in text for text in texts)
        assert "Ben keeps a heron" in await found(application, "heron")
        again = await erase(application)
        assert set(again.counts.values()) == {0}


async def relabel(application: Application, text_id: str, *tags: str) -> None:
    await application.services.texts.update(
        context(application), text_id, tags=tags, metadata=None, expires_at=None, forever=False
    )


async def texts(application: Application) -> dict[str, dict[str, Any]]:
    rows_ = await select(application.store, "SELECT id, text, tags FROM episodes")
    return {row["text"]: dict(row) for row in rows_}


async def test_a_name_that_a_relabel_adds_meanwhile_is_erased(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first scan has read the text and its memory by then. The control: another label stays."""
    async with open_app(extractor=extractor()) as application:
        await enter(application)
        for text in (FIRST, BEN):
            await remember(application, text)
        await drained(application)
        text_id = (await texts(application))[BEN]["id"]

        async def write() -> None:
            await relabel(application, text_id, "birds", f"seen with {NAME}")
            assert NAME in str(await texts(application))

        between(monkeypatch, write)
        await erase(application)
        assert NAME not in str(await everything(application))
        assert "birds" in str((await texts(application))[BEN]["tags"])


async def test_between_batches_only_relabelled_rows_are_read_again(open_app: Open) -> None:
    async with open_app(extractor=extractor()) as application:
        await enter(application)
        for text in (FIRST, BEN):
            await remember(application, text)
        await drained(application)
        text_id = (await texts(application))[BEN]["id"]
        (heron,) = [one for one in await memories(application) if "heron" in one.text]
        scan = PartTargets(application.services.purge.eraser, Named(Subject(NAME)))
        async with application.store.transaction(ALICE, write=False) as tx:
            first = await scan.find(tx)
        await relabel(application, text_id, f"seen with {NAME}")
        async with application.store.transaction(ALICE, write=False) as tx:
            second = await scan.find(tx)
        await relabel(application, text_id, "birds")
        async with application.store.transaction(ALICE, write=False) as tx:
            third = await scan.find(tx)
    assert first is not None
    assert second is not None
    assert third is not None
    assert [text_id in one.episodes for one in (first, second, third)] == [False, True, False]
    assert [heron.id in one.labelled for one in (first, second, third)] == [False, True, False]


async def test_as_many_that_come_as_go_meanwhile_are_seen(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of rows is the same, since another erasure has removed as many as came."""
    async with open_app(extractor=extractor()) as application:
        await enter(application)
        for number, name in enumerate(("Rosa", "Rolf")):
            await imported(application, f"Ann: {name} lives in Porto.", id_=f"ep_9{number}")
        await put(application, OTTER, RED)
        before = await rows(application.store)

        async def write() -> None:
            await application.services.erase.container(context(application), RED)
            await imported(application, f"Ann: {NAME} has a boat.\nAnn: It is red.", id_="ep_0")

        between(monkeypatch, write)
        erased = await erase(application)
        assert (await rows(application.store))["episodes"] == before["episodes"]
        assert erased.counts["episodes"] == 1
        assert NAME not in str(await everything(application))


async def test_what_is_put_into_a_container_meanwhile_is_erased_with_it(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_app(extractor=extractor()) as application:
        await enter(application)
        await put(application, FIRST, RED)
        await put(application, OTTER, "")
        await drained(application)
        before = await rows(application.store)

        async def write() -> None:
            await put(application, "Cleo: The kite flew over the old mill.", RED)
            await start(application, "Cleo: The kite is blue and white.", RED)

        between(monkeypatch, write)
        erased = await application.services.erase.container(context(application), RED)
        assert (erased.counts["episodes"], erased.counts["runs"]) == (2, 1)
        after = await rows(application.store)
        assert (after["episodes"], before["episodes"]) == (1, 2)
        assert "kite" not in str(await everything(application))


async def test_the_second_look_reads_what_is_new_only(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads a memory at any place in the order, a text at the end, and the tasks."""
    async with open_app(extractor=extractor()) as application:
        await enter(application)
        for number in range(120):
            await imported(application, f"Ann: {NAME} has {number} boats.", id_=f"ep_{number:04}")
        named = PartTargets(application.services.purge.eraser, Named(Subject(NAME)))
        for_container = PartTargets(application.services.purge.eraser, Container("nowhere", ""))
        read: list[str] = []
        pages = targets._Read.more

        async def noted(self: targets._Read, *given: Any, **named: Any):  # type: ignore[no-untyped-def]  # noqa: ANN202
            async for page in pages(self, *given, **named):
                read.extend(row["id"] for row in page)
                yield page

        monkeypatch.setattr(targets._Read, "more", noted)
        first = await named.find(application.store.autocommit(ALICE))
        assert first is not None
        assert len(first.spans) == len(read) == 120
        read.clear()
        await imported(application, f"Ann: {NAME} has a cat.", id_="ep_0005b")
        await imported(application, "Ann: I have a cat.", id_="ep_9")
        async with application.store.transaction(ALICE, write=False) as tx:
            second = await named.find(tx)
            nothing = await for_container.find(tx)
        assert sorted(read) == ["ep_0005b", "ep_9"]
        assert second is not None
        assert len(second.spans) == 121
        assert nothing is not None
        assert not any(nothing.counts().values())


async def test_a_dry_run_waits_for_no_writer_and_none_waits_for_it(open_app: Open) -> None:
    """It took the lock of the namespace and, on SQLite, of the whole database, and looked for the
    name in them: with a name that stood 150,000 times, other tenants waited for a second.
    """
    async with open_app(extractor=extractor()) as application:
        await enter(application)
        await remember(application, FIRST)
        await drained(application)
        async with application.store.transaction(ALICE) as tx:
            await tx.lock()
            await tx.audit.head()  # PostgreSQL gets the lock with a statement that reads
            async with asyncio.timeout(30):
                planned = await application.services.erase.subject(
                    context(application), NAME, dry_run=True
                )
        done = await erase(application)

    assert planned.dry_run
    assert planned.counts["memories"] == 1
    assert planned.counts == done.counts


KITE = "Ann: I fly a kite."


@pytest.mark.parametrize("kind", ["subject", "namespace"])
async def test_an_export_that_is_under_way_sends_nothing_that_is_erased_meanwhile(
    open_app: Open, kind: str
) -> None:
    """Its snapshot still has what was erased. The control: beside a write it goes on to its end."""
    async with open_app() as application:
        await enter(application)
        for number in range(40):
            await remember(application, f"Ann: {NAME} has {number} boats.")

        async def export(meanwhile: Between) -> list[bytes]:
            pieces = []
            stream = application.services.export.stream(context(application))
            async with aclosing(stream) as export:
                async for piece in export:
                    pieces.append(piece)
                    if len(pieces) == 1:  # the manifest
                        await meanwhile()
            return pieces

        async def clear() -> Erased:
            return await application.services.erase.namespace(context(application), CONFIRMATION)

        whole = await export(lambda: remember(application, KITE))
        with pytest.raises(Stale, match="erased"):
            await export(clear if kind == "namespace" else lambda: erase(application))

    assert b"kite" not in b"".join(whole)
    assert b'"kind":"end"' in whole[-1]


@pytest.mark.parametrize("erased", [True, False])
async def test_events_of_a_task_are_not_sent_to_a_slow_reader_once_it_is_erased(
    open_app: Open, erased: bool
) -> None:
    async with open_app(extractor=extractor()) as application:
        await enter(application)
        task = await start(application, FIRST, RED)
        await drained(application)
        watching = application.services.tasks.watch(context(application), task.id, 0)
        async with aclosing(watching) as events:
            first = await anext(events)
            if erased:
                await erase(application)
            left = [one async for one in events]

    assert NAME not in repr(first)
    assert (left == []) is erased
    assert (NAME in repr(left)) is not erased
