"""A purge is done in pieces, and none of them leaves memories as no purge would."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.episode import Source
from recall_server.domain.errors import ChangeNotFound, NotUndoable, OnHold, Stale
from recall_server.domain.intents import Intent
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.task import Mode, Request
from recall_server.services.erasure.purge_source import TASKS_AT_ONCE, BadSource, Purged
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, memories
from tests.support.counted import interrupted
from tests.support.length import on_both_at_full_length
from tests.support.runtime import Clock
from tests.support.statements import Stating, cities, tell
from tests.support.whole_walk import present

DAY = timedelta(days=1)
MOLE = BadSource(agent_id="mole")
CITIES = ("Moscow", "Omsk", "Perm", "Kazan")
ASKS = "Ana lives in Porto."
# Of the agent.
TURNS = 6
LIES = 6


async def lied_to(application: Application, clock: Clock) -> None:
    """Store what people said, then the lies of an agent about it: some repeat what was said, some
    take its place, one after the other, and two rest on the same words of somebody else.
    """
    await enter(application)
    await tell(application, "Ana: Ana lives in Lisbon. Cid lives in Braga. Dan lives in Kiel.")
    for city in CITIES:
        clock.pass_(DAY)
        await tell(application, f"Ana: Ana lives in {city}. Cid lives in Braga.", agent="mole")
    await tell(application, "Eve: Eve lives in Rome.\nFay: Fay lives in Bonn.", agent="mole")
    clock.pass_(DAY)
    await tell(application, "Eve: Eve lives in Rome. Fay lives in Bonn.")


async def purge(application: Application, calling: Context, rows_max: int = 1) -> Purged:
    sources = replace(application.services.sources, rows_max=rows_max)
    return await sources.purge(calling, MOLE, dry_run=False)


async def undo(application: Application, change_id: str, *, with_dependents: bool = False) -> str:
    undoing = context(application)
    await application.services.changes.undo(
        undoing, change_id, rights=OPERATOR, dry_run=False, with_dependents=with_dependents
    )
    return undoing.entry.change


@contextmanager
def before_piece(
    application: Application, number: int, act: Callable[[], Awaitable[object]]
) -> Iterator[None]:
    """In the block, `act` before the transaction that writes after so many."""
    left = number

    async def count() -> None:
        nonlocal left
        left -= 1
        if left == -1:
            await act()

    with interrupted(application, None, count, times=1_000):
        yield


async def cut_off() -> None:
    raise asyncio.CancelledError


async def pieces(application: Application) -> list[dict[str, int]]:
    """Return what the records of purges count, the oldest first."""
    book = await application.services.audit.newest(ALICE, 1_000)
    return [one.counts for one in reversed(book) if "read_again" in one.counts]


async def same(application: Application) -> bool:
    """True if all that searches read is as texts and events say."""
    return (await application.services.rebuild.compare(context(application))).same


@pytest.mark.parametrize("rows_max", [1, 2, 5, 500])
async def test_pieces_take_back_together_what_one_would(
    open_app: Open, clock: Clock, rows_max: int
) -> None:
    """Each is small, the report is of all, and one undo takes all back exactly, and so on."""
    async with open_app(extractor=Stating()) as application:
        await lied_to(application, clock)
        before = await present(application)
        planned = await application.services.sources.purge(context(application), MOLE, dry_run=True)
        calling = context(application)
        done = await purge(application, calling, rows_max)
        assert planned.counts() == done.counts()
        assert done.counts() == {
            "episodes": 5,
            "removed": LIES,
            "kept": 1,
            "restored": 1,
            "read_again": 1,
            "tasks": 0,
            "asked_again": 0,
        }
        made = await pieces(application)
        assert all(one["removed"] + one["kept"] + one["restored"] <= rows_max + 1 for one in made)
        assert sum(one["removed"] for one in made) == LIES
        assert (len(made) == 1) is (rows_max == 500)
        purged = await present(application)
        after = await cities(application)
        assert set(after) == {"Lisbon", "Braga", "Kiel", "Rome", "Bonn"}
        assert after["Braga"].reinforcements == 0
        assert after["Rome"].citation.speaker == "Eve"
        assert await same(application)

        last = calling.entry.change
        for expected in (before, purged, before):
            clock.pass_(DAY)
            last = await undo(application, last)
            assert await present(application) == expected
            assert await same(application)


async def test_between_two_pieces_no_lie_is_believed_again(open_app: Open, clock: Clock) -> None:
    """A memory that lies replaced is active again only when the last of them is removed."""
    async with open_app(extractor=Stating()) as application:
        await lied_to(application, clock)
        seen: list[set[str]] = []

        async def look() -> None:
            seen.append(set(await cities(application)) & {"Lisbon", *CITIES})

        with interrupted(application, None, look, times=100):
            await purge(application, context(application))
        assert len(seen) > len(CITIES)
        assert seen[0] == {CITIES[-1]}
        assert all(len(one) == 1 for one in seen)
        assert seen[-1] <= {"Lisbon", CITIES[-1]}
        assert set(await cities(application)) >= {"Lisbon"}


async def test_a_purge_that_is_cut_off_is_called_again(open_app: Open, clock: Clock) -> None:
    """After any number of its pieces; what both have done is undone, the later first."""
    async with open_app(extractor=Stating()) as application:
        await lied_to(application, clock)
        before = await present(application)
        for _ in range(2):
            # The undo forgets what the first has made of the words of others.
            whole, known = context(application), len(await pieces(application))
            done = await purge(application, whole)
            made = (await pieces(application))[known:]
            purged = await present(application)
            await undo(application, whole.entry.change)
            assert await present(application) == before
        assert len(made) > 10

        for number in range(1, len(made)):
            cut, again = context(application), context(application)
            with before_piece(application, number, cut_off), pytest.raises(asyncio.CancelledError):
                await purge(application, cut)
            assert await same(application)
            some = await purge(application, again)
            assert (len(some.removed) < len(done.removed)) is (number > TURNS)
            assert await present(application) == purged
            for one in (again, cut):
                await undo(application, one.entry.change)
            assert await present(application) == before


async def test_a_purge_that_is_undone_meanwhile_ends(open_app: Open, clock: Clock) -> None:
    """Later pieces are of the same change, so nobody could undo them any more."""
    async with open_app(extractor=Stating()) as application:
        await lied_to(application, clock)
        before = await present(application)
        for number in (1, TURNS + 3):
            calling = context(application)
            take_back = partial(undo, application, calling.entry.change)
            with (
                before_piece(application, number, take_back),
                pytest.raises(Stale, match="has taken this purge back"),
            ):
                await purge(application, calling)
            assert await present(application) == before


@pytest.mark.parametrize("rows_max", [1, 4])
async def test_two_purges_at_once_do_what_one_does(
    open_app: Open, clock: Clock, rows_max: int
) -> None:
    """The words of others too are extracted again, and both can be undone."""
    async with open_app(extractor=Stating()) as application:
        await lied_to(application, clock)
        before = await present(application)
        both = [context(application) for _ in range(2)]
        done = await asyncio.gather(*(purge(application, one, rows_max) for one in both))
        await drained(application)
        assert sum(len(one.removed) for one in done) == LIES
        assert set(await cities(application)) == {"Lisbon", "Braga", "Kiel", "Rome", "Bonn"}
        assert await same(application)
        for one in both:
            # One may have changed nothing, or rest on the other.
            with suppress(ChangeNotFound, NotUndoable):
                await undo(application, one.entry.change, with_dependents=True)
        assert await present(application) == before


@on_both_at_full_length
async def test_who_says_something_between_two_pieces_is_believed(
    open_app: Open, clock: Clock
) -> None:
    """Their words take the place of the lies, and of what stood before them. The purge can be
    undone, with what they said.
    """
    async with open_app(extractor=Stating()) as application:
        await lied_to(application, clock)
        said: list[str] = []

        async def say() -> None:
            clock.pass_(DAY)
            said.append("Porto" if len(said) % 2 else "Faro")
            wish = Wish(Intent.REMEMBER, Submission(f"Ana lives in {said[-1]}.", "life"))
            await application.services.intents.submit(context(application), wish)
            await drained(application)

        calling = context(application)
        with interrupted(application, None, say, times=1_000):
            await purge(application, calling)
        assert len(said) > TURNS + LIES
        assert {*await cities(application)} == {said[-1], "Braga", "Kiel", "Rome", "Bonn"}
        assert await same(application)
        await undo(application, calling.entry.change, with_dependents=True)
        lying = {*await cities(application)}
        assert lying & {*CITIES, "Lisbon"} <= {CITIES[-1]}
        assert await same(application)


@pytest.mark.parametrize("what", ["memory", "subject", "kept"])
async def test_what_is_erased_between_two_pieces_stays_erased(
    open_app: Open, clock: Clock, what: str
) -> None:
    """The purge goes on with what is left, and its undo does not bring it back."""
    async with open_app(extractor=Stating()) as application:
        await lied_to(application, clock)
        calling, eraser = context(application), application.services.erase
        known = {one.fact.value: one.id for one in await memories(application) if one.fact}
        erase = {
            "subject": partial(eraser.subject, context(application), "Ana"),
            "memory": partial(eraser.memory, context(application), known[CITIES[-1]]),
            "kept": partial(eraser.memory, context(application), known["Braga"]),
        }[what]
        with before_piece(application, TURNS + 1, erase):
            await purge(application, calling)
        await drained(application)
        words, left = {
            # She said what is known of Cid and Dan.
            "subject": ("Ana", {"Rome", "Bonn"}),
            "memory": (CITIES[-1], {"Lisbon", "Braga", "Kiel", "Rome", "Bonn"}),
            "kept": ("Braga", {"Lisbon", "Kiel", "Rome", "Bonn"}),
        }[what]
        assert {*await cities(application)} == left
        assert await same(application)
        await undo(application, calling.entry.change, with_dependents=True)
        await drained(application)
        assert not [one.text for one in await memories(application) if words in one.text]
        assert await same(application)


async def test_a_hold_that_is_placed_between_two_pieces_ends_the_purge(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=Stating()) as application:
        await lied_to(application, clock)
        before = await present(application)
        calling = context(application)
        hold = partial(application.services.holds.place, context(application), "a claim")
        with before_piece(application, TURNS + 1, hold), pytest.raises(OnHold):
            await purge(application, calling)
        await undo(application, calling.entry.change)
        assert await present(application) == before


async def test_tasks_are_deleted_and_ask_again_some_at_a_time(open_app: Open, clock: Clock) -> None:
    """Those of the source first, as they would store more; the others when all has gone."""
    async with open_app(extractor=Stating()) as application:
        await lied_to(application, clock)
        for number in range(TASKS_AT_ONCE + 1):
            for source, said in ((Source(None, "mole"), "Gus lives in Ulm."), (Source(), ASKS)):
                request = Request(Mode.INGEST, f"t{number}", text=f"Ana: {said}", source=source)
                await application.services.consolidate.start(context(application), request)
                if said == ASKS:
                    await drained(application)
        planned = await application.services.sources.purge(context(application), MOLE, dry_run=True)
        done = await purge(application, context(application), 500)
        assert planned.counts() == done.counts()
        changed = [one["tasks"] + one["asked_again"] for one in await pieces(application)]
        assert sum(changed) == 2 * (TASKS_AT_ONCE + 1)
        assert max(changed) == TASKS_AT_ONCE
        await drained(application)
        asked = await application.services.tasks.questions(context(application), limit=100)
        assert {each.text for one in asked for each in one.question.existing} == {
            "Ana lives in Lisbon."
        }


@pytest.mark.parametrize("rows_max", [1, 500])
async def test_memories_that_supersede_each_other_are_taken_back(
    open_app: Open, clock: Clock, rows_max: int
) -> None:
    """An import may bring such a chain. Following it did not end."""
    async with open_app(extractor=Stating()) as application:
        await lied_to(application, clock)
        async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
            rows = await raw.fetch("SELECT id, text FROM memories WHERE namespace = 'alice'", {})
            ids = {row["text"]: row["id"] for row in rows}
            omsk, moscow = ids["Ana lives in Omsk."], ids["Ana lives in Moscow."]
            await raw.send(
                f"UPDATE memories SET superseded_by = '{moscow}' WHERE id = '{omsk}'", {}
            )
        async with asyncio.timeout(20):
            done = await purge(application, context(application), rows_max)

        assert {omsk, moscow} <= done.removed.keys()
        assert "Lisbon" in {one.text.split()[-1].strip(".") for one in await memories(application)}
