"""What an erasure reaches is looked for before its transaction, so that nobody waits for that: what
is written in between is erased as well (ERS-03, ERS-11).
"""

import hashlib
from collections.abc import Awaitable, Callable

import pytest

from recall_server.app import House
from recall_server.domain.erasure import Subject
from recall_server.domain.model import Citation, Episode, Fact, Span
from recall_server.domain.run import Mode, Request
from recall_server.services import reaching
from recall_server.services.erase import Erased
from recall_server.services.reaching import Looking, Room, Somebody
from recall_server.storage.store import Transaction
from tests.conftest import NOON, Open
from tests.security.erasing import candidate, found, rows, select
from tests.security.test_container_erasure import OTTER, RED, everything, put, start
from tests.services.conversation import ALICE, drained, enter, entry, memories, remember
from tests.services.extractors import Scripted

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
    """`write` after the first look, of the next erasure alone."""
    look = Looking.look

    async def looked(self: Looking, tx: Transaction) -> object:
        monkeypatch.setattr(Looking, "look", look)
        affected = await look(self, tx)
        await write()
        return affected

    monkeypatch.setattr(Looking, "look", looked)


async def erase(house: House, name: str = NAME) -> Erased:
    return await house.services.erase.subject(ALICE, name, entry=entry(house))


async def imported(house: House, text: str, *, id_: str) -> None:
    """A text under an id of its own, as an import writes it."""
    episode = Episode(
        id=id_,
        text=text,
        topic="life",
        occurred_at=NOON,
        recorded_at=NOON,
        content_hash=hashlib.sha256(text.encode()).hexdigest(),
        job_id=f"job_{id_}",
    )
    async with house.store.transaction(ALICE) as tx:
        await tx.lock()
        await tx.episodes.add(episode, episode.id, "")


async def test_what_is_said_of_somebody_meanwhile_is_erased_with_them(
    open_house: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A text, its memory, a task, a text under an older id, and what a memory that was found has
    come to rest on; the control: what others said meanwhile stays.
    """
    async with open_house(extractor=extractor()) as house:
        await enter(house)
        await remember(house, FIRST)
        await remember(house, BEN)
        await drained(house)
        (lisbon,) = [one for one in await memories(house) if "Lisbon" in one.text]
        asked = Request(Mode.INGEST, "life", text="Ann: Tell me of her.")
        changed = await house.services.consolidate.start(ALICE, asked, entry=entry(house))

        async def write() -> None:
            await remember(house, f"Ann: {NAME} plays chess on Mondays.")
            await remember(house, "Cleo: The kite flew over the old mill.")
            await imported(house, f"Ann: I met {NAME} in the market.", id_="ep_0")
            told = await remember(house, "Dan: She has moved there for good.")
            async with house.store.transaction(ALICE) as tx:
                cited = Citation(told.episode_id, Span(5, 34))
                await tx.memories.cite(lisbon.id, cited)
            request = Request(Mode.INGEST, "life", text=f"Ann: {NAME} has a boat.")
            await house.services.consolidate.start(ALICE, request, entry=entry(house))
            async with house.store.driver.transaction(namespace=ALICE, write=True) as raw:
                await raw.fetch(
                    f"UPDATE runs SET messages = '[\"{NAME}\"]', version = version + 1 "
                    f"WHERE id = '{changed.id}'",
                    {},
                )
            await drained(house)
            assert NAME in str(await everything(house))

        between(monkeypatch, write)
        erased = await erase(house)
        await drained(house)

        assert NAME not in str(await everything(house))
        assert "moved there" not in str(await everything(house))
        assert erased.counts["runs"] == 2
        assert erased.counts["memories"] == 2
        texts = {row["text"] for row in await select(house.store, "SELECT text FROM episodes")}
        assert any("kite" in text for text in texts)
        assert "Ben keeps a heron" in await found(house, "heron")
        again = await erase(house)
        assert set(again.counts.values()) == {0}


async def test_as_many_that_come_as_go_meanwhile_are_seen(
    open_house: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their number alone says nothing, once another erasure has taken some away."""
    async with open_house(extractor=extractor()) as house:
        await enter(house)
        for number, name in enumerate(("Rosa", "Rolf")):
            await imported(house, f"Ann: {name} lives in Porto.", id_=f"ep_9{number}")
        await put(house, OTTER, RED)
        before = await rows(house.store)

        async def write() -> None:
            await house.services.erase.container(ALICE, RED, entry=entry(house))
            await imported(house, f"Ann: {NAME} has a boat.\nAnn: It is red.", id_="ep_0")

        between(monkeypatch, write)
        erased = await erase(house)
        assert (await rows(house.store))["episodes"] == before["episodes"]
        assert erased.counts["episodes"] == 1
        assert NAME not in str(await everything(house))


async def test_what_is_put_into_a_container_meanwhile_is_erased_with_it(
    open_house: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_house(extractor=extractor()) as house:
        await enter(house)
        await put(house, FIRST, RED)
        await put(house, OTTER, "")
        await drained(house)
        before = await rows(house.store)

        async def write() -> None:
            await put(house, "Cleo: The kite flew over the old mill.", RED)
            await start(house, "Cleo: The kite is blue and white.", RED)

        between(monkeypatch, write)
        erased = await house.services.erase.container(ALICE, RED, entry=entry(house))
        assert (erased.counts["episodes"], erased.counts["runs"]) == (2, 1)
        after = await rows(house.store)
        assert (after["episodes"], before["episodes"]) == (1, 2)
        assert "kite" not in str(await everything(house))


async def test_the_second_look_reads_what_is_new_only(
    open_house: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a memory that sorts anywhere, of a text that sorts last, and of the tasks."""
    async with open_house(extractor=extractor()) as house:
        await enter(house)
        for number in range(120):
            await imported(house, f"Ann: {NAME} has {number} boats.", id_=f"ep_{number:04}")
        looking = Looking(Somebody(Subject(NAME)))
        for_container = Looking(Room("nowhere", NOON))
        read: list[str] = []
        pages = reaching._Read.more

        async def noted(self: reaching._Read, tx: Transaction, *, erased: bool):  # type: ignore[no-untyped-def]  # noqa: ANN202
            async for page in pages(self, tx, erased=erased):
                read.extend(row["id"] for row in page)
                yield page

        monkeypatch.setattr(reaching._Read, "more", noted)
        first = await looking.look(house.store.alone(ALICE))
        assert first is not None
        assert len(first.spans) == len(read) == 120
        read.clear()
        await imported(house, f"Ann: {NAME} has a cat.", id_="ep_0005b")
        await imported(house, "Ann: I have a cat.", id_="ep_9")
        async with house.store.transaction(ALICE, write=False) as tx:
            second = await looking.look(tx)
            nothing = await for_container.look(tx)
        assert sorted(read) == ["ep_0005b", "ep_9"]
        assert second is not None
        assert len(second.spans) == 121
        assert nothing is not None
        assert not any(nothing.counts().values())
