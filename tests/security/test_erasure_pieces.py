"""A text of many turns is erased in pieces: no writer waits long, and nobody sees half of it."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from itertools import pairwise

import pytest

from recall_server.application import Application
from recall_server.domain.errors import ErasedContent
from recall_server.integrations.keys import verified
from recall_server.services.erasure import Erased
from recall_server.services.erasure.eraser import Limits
from recall_server.services.erasure.purge import RECEIPT_TYP
from recall_server.services.erasure.targets import Batch
from recall_server.storage.bound_connection import load
from tests.support.application import Open
from tests.support.containers import OTTER, RED, everything, put, start
from tests.support.conversation import ALICE, context, drained, enter, memories, remember
from tests.support.counted import counted, interrupted
from tests.support.erasure import found, rows, select
from tests.support.runtime import Clock
from tests.support.statements import Stating, cities

WHO = ("Ana", "Ben", "Cid", "Dan", "Eve", "Fay", "Gus", "Hal", "Ida", "Jon")
SAID = "\n".join(f"Zoe: {one} lives in {one}town." for one in WHO)
# What the subject says is a part of the text.
TWO = "\n".join(
    f"{'Zoe' if at % 2 else 'Yan'}: {one} lives in {one}town." for at, one in enumerate(WHO)
)
ROWS = 3
PIECES = Limits(rows_at_once_max=6, batch=Batch(items=50, rows=ROWS))
MANY = 300
COMPARED = {"memories", "citations", "episodes", "turns", "documents", "embeddings", "forgotten"}

Erasing = Callable[[Application], Awaitable[Erased]]


async def by_container(application: Application) -> Erased:
    return await application.services.erase.container(context(application), RED)


async def by_subject(application: Application) -> Erased:
    return await application.services.erase.subject(context(application), "Zoe")


BOTH = pytest.mark.parametrize(
    ("erase", "said"), [(by_container, SAID), (by_subject, TWO)], ids=["container", "subject"]
)


async def filled(application: Application, said: str) -> None:
    await enter(application)
    await put(application, OTTER, "")
    await put(application, said, RED)
    await drained(application)
    # A memory that is hidden, and entries that searches of the past find.
    changed = "Xia: Fay moved from Faytown to Oslo."
    await put(application, changed, "")
    await drained(application)


async def state(application: Application) -> tuple[set[str], set[str], bool]:
    erased = await select(application.store, "SELECT digest, container_digest FROM erased")
    same = (await application.services.rebuild.compare(context(application))).same
    left = await select(application.store, "SELECT term, documents FROM terms")
    kept = {one: n for one, n in (await rows(application.store)).items() if one in COMPARED}
    return {str(kept), *map(str, left)}, {*map(str, erased)}, same


async def cut_off() -> None:
    raise asyncio.CancelledError


@BOTH
async def test_a_text_that_is_erased_in_pieces_leaves_what_one_would(
    open_app: Open, erase: Erasing, said: str
) -> None:
    """Also the same receipt, and digests of all that was erased whole. Control: pieces."""
    ends, receipts, pieces = [], [], []
    for limits in (Limits(), PIECES):
        async with open_app(extractor=Stating(), erasure_limits=limits) as application:
            await filled(application, said)
            erased = await erase(application)
            claims = verified(erased.receipt, application.key.public, RECEIPT_TYP)
            receipts.append((erased.counts, claims["counts"], claims["kind"]))
            writes = list[int]()

            async def write(writes: list[int] = writes) -> None:
                writes.append(1)

            with interrupted(application, None, write, times=999):
                await drained(application)
            pieces.append(len(writes))
            ends.append(await state(application))
            # Both begin with the same.
            await application.services.erase.namespace(context(application), "DELETE MY DATA")
            await drained(application)
            async with application.store.transaction(ALICE, erasing=True) as tx:
                known = await select(application.store, "SELECT digest FROM erased")
                await tx.erasures.allow([row["digest"] for row in known])

    assert receipts[0] == receipts[1]
    assert ends[0][0] == ends[1][0]
    assert ends[0][1] <= ends[1][1]
    assert [same for *_, same in ends] == [True, True]
    assert pieces[1] > pieces[0] + 5


async def test_nobody_sees_half_of_a_text_whose_container_is_being_erased(open_app: Open) -> None:
    """And no transaction deletes many rows. Control: the rows go one piece after the other."""
    async with open_app(extractor=Stating(), erasure_limits=PIECES) as application:
        await filled(application, SAID)
        assert "Anatown" in str(await found(application, "Anatown"))
        await by_container(application)
        counts = [await rows(application.store)]

        async def look() -> None:
            counts.append(await rows(application.store))
            for one in WHO[:5]:
                assert f"{one}town" not in str(await found(application, f"{one}town"))
            assert not {f"{one}town" for one in WHO[:5]} & {*await cities(application)}
            page = await application.services.texts.page(context(application), limit=9, offset=0)
            assert not any("Anatown" in words for _, words in page.texts)

        with interrupted(application, None, look, times=999):
            await drained(application)
        counts.append(await rows(application.store))

    for table in ("memories", "turns", "documents"):
        fewer = [a[table] - b[table] for a, b in pairwise(counts)]
        assert sum(fewer) >= len(WHO) - 1
        assert max(fewer) <= ROWS


@BOTH
async def test_an_erasure_that_dies_between_pieces_goes_on(
    open_app: Open, clock: Clock, erase: Erasing, said: str
) -> None:
    """It dies before each of its transactions. Control: it has several."""
    async with open_app(extractor=Stating(), erasure_limits=PIECES) as application:
        await filled(application, said)
        await erase(application)
        deaths = 0
        while True:
            left = [deaths]

            async def die(left: list[int] = left) -> None:
                left[0] -= 1
                if left[0] < 0:
                    await cut_off()

            try:
                with interrupted(application, None, die, times=999):
                    await drained(application)
            except asyncio.CancelledError:
                deaths += 1
                clock.pass_(timedelta(hours=1))
            else:
                break
        _, _, same = await state(application)
        text = str(await everything(application))
        left_of = await select(application.store, "SELECT state FROM erasures")
        with pytest.raises(ErasedContent):
            await put(application, said, "")

    assert deaths > 5
    assert same
    assert "Zoe" not in text
    assert ("Yan" in text, "otter" in text) == (said == TWO, True)
    assert [row["state"] for row in left_of] == ["done"]


@BOTH
async def test_an_erasure_ends_although_others_write_all_the_time(
    open_app: Open, erase: Erasing, said: str
) -> None:
    """As another process does, before each of its transactions."""
    async with open_app(extractor=Stating(), erasure_limits=PIECES, embedder=None) as application:
        await filled(application, said)
        await erase(application)
        changes = list[int]()

        async def change() -> None:
            changes.append(1)
            assert len(changes) < MANY, "it does the same again and again"
            async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
                await raw.fetch(
                    "UPDATE namespaces SET index_version = index_version + 1 RETURNING 1", {}
                )

        with interrupted(application, None, change, times=999):
            await drained(application)
        _, _, same = await state(application)
        text = str(await everything(application))
        left_of = await select(application.store, "SELECT state FROM erasures")

    assert len(changes) > 20
    assert same
    assert "Zoe" not in text
    assert [row["state"] for row in left_of] == ["done"]


async def test_what_changes_between_two_pieces_is_erased_too(open_app: Open) -> None:
    """Another text says of the subject what the next piece was planned without."""
    late = "Yan: Zoe has a heron."
    async with open_app(extractor=Stating(), erasure_limits=PIECES, embedder=None) as application:
        await filled(application, TWO)
        (text,) = await select(
            application.store, "SELECT id, text FROM episodes WHERE container <> ''"
        )
        await by_subject(application)
        told = list[int]()

        async def relabel() -> None:
            told.append(1)
            if len(told) == 6:
                await application.services.texts.update(
                    context(application),
                    text["id"],
                    tags=["late"],
                    metadata=None,
                    expires_at=None,
                    forever=False,
                )
                await put(application, late, "")

        with interrupted(application, None, relabel, times=99):
            await drained(application)
        (after,) = await select(
            application.store, "SELECT tags FROM episodes WHERE container <> ''"
        )
        _, _, same = await state(application)
        everything_left = str(await everything(application))

    assert len(told) > 8
    assert same
    assert "late" in str(after["tags"])
    assert "Zoe" not in everything_left


async def test_what_an_erasure_takes_out_of_the_index_is_worked_out_before_others_wait(
    open_app: Open,
) -> None:
    """The lists of words are long, and a memory may cite a hundred texts. Controls: they are
    written, and worked out anew after others have changed them.
    """
    async with open_app(extractor=Stating(), embedder=None) as application:
        await enter(application)
        for number in range(3):
            await put(application, f"Zoe: Ana lives in Anatown. Moss {number} is green.", "")
            await drained(application)
        (memory,) = await memories(application)

        async def between() -> None:
            await put(application, "Zoe: Moss is soft. Ben lives in Bentown.", "")
            await drained(application)

        with counted(application) as counts, interrupted(application, None, between):
            await application.services.erase.memory(context(application), memory.id)
        queries = load(application.store.engine)
        _, _, same = await state(application)
        moss, ana = await found(application, "moss"), await found(application, "Anatown")

    erasing = counts.under_lock[counts.under_lock.index(queries["hold"].sql) :]
    assert not {queries["lists_of"].sql, queries["slots_of_items"].sql} & {*erasing}
    assert queries["put_lists"].sql in counts.written
    assert queries["add_lists"].sql in counts.written
    assert same
    assert len(moss) == 4
    assert "Anatown" not in str(ana)


async def texts_of(application: Application, name: str) -> None:
    await put(application, f"{name}: Pia lives in {name}town.", "")
    await remember(application, f"Xia: A heron of {name}'s.")


async def task_of(application: Application, name: str) -> None:
    await start(application, f"Yan: {name} has a boat.", "")


@pytest.mark.parametrize("tell", [texts_of, task_of])
async def test_what_is_said_of_somebody_during_their_erasure_goes_up_to_its_last_piece(
    open_app: Open, clock: Clock, tell: Callable[[Application, str], Awaitable[None]]
) -> None:
    """A subject is not closed: it comes before one transaction, in each erasure before a later one.
    What comes after the last piece is new, and stays whole.
    """
    ends = list[tuple[str, list[str], str]]()
    async with open_app(extractor=Stating(), erasure_limits=PIECES, embedder=None) as application:
        await enter(application)
        while not ends or ends[-1][0] == "erasing":
            name = f"Zo{chr(ord('a') + len(ends))}"
            said = TWO.replace("Zoe", name).replace("town", f"town{len(ends)}")
            await put(application, said, "")
            await drained(application)
            clock.pass_(timedelta(seconds=1))
            asked = await application.services.erase.subject(context(application), name)
            erasure = f"SELECT state, left_behind FROM erasures WHERE id = '{asked.id}'"
            states = list[str]()

            async def say(name: str = name, of: str = erasure, seen: list[str] = states) -> None:
                (row,) = await select(application.store, of)
                seen.append(row["state"])
                if len(seen) == len(ends) + 1:
                    clock.pass_(timedelta(seconds=1))
                    await tell(application, name)

            with interrupted(application, None, say, times=999):
                await drained(application)
            await drained(application)
            (row,) = await select(application.store, erasure)
            left = sorted(one for one in await everything(application) if name in one)
            ends.append((states[len(ends)], left, row["left_behind"]))
        _, _, same = await state(application)

    *during, (_, after, _) = ends
    assert len(during) > 6
    assert [left for _, left, _ in during] == [[]] * len(during)
    assert len(after) > 1
    assert {left_behind for *_, left_behind in ends} == {""}
    assert same
