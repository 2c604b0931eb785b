"""A search of the past finds what it found then, without what was erased since."""

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from recall_server.application import Application
from recall_server.domain.errors import Invalid, MemoryNotFound
from recall_server.domain.memory import MemoryType, Status
from recall_server.domain.moments import PRESENT, Past, past
from recall_server.domain.permissions import AccessScope
from recall_server.domain.query import Query, SearchMode
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import context, drained, enter, memories, remember
from tests.support.erasure import select
from tests.support.index_walk import LINES, Walk
from tests.support.lists import listed
from tests.support.runtime import NOON, Clock

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
QUESTIONS = ("where do I live", "what does Ann prefer", "harbour and weather", "work at Initech")
FOUND = "SELECT item_id FROM documents WHERE namespace = 'alice' AND findable"
EXAMPLES = settings(
    max_examples=2,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


async def found(
    application: Application, question: str, at: Past = PRESENT, **given: Any
) -> list[str]:
    scope = given.pop("scope", AccessScope())
    asked = Query(question, past=at, **{"limit": 8, **given})
    answer = await application.services.recall.search(context(application, scope=scope), asked)
    return [hit.item.id for hit in answer.hits]


class Lives(Walk):
    """A walk in which texts expire. Nothing is erased unless it `erases`."""

    def __init__(self, application: Application, seed: int, clock: Clock, *, erases: bool) -> None:
        super().__init__(application, seed)
        self.clock = clock
        self.erases = erases

    async def erase(self) -> bool:
        return await super().erase() if self.erases else False

    async def tell(self) -> None:
        until = self.clock() + timedelta(minutes=3) if self.chance.random() < 0.2 else None
        text = "\n".join(self.chance.choices(LINES, k=3))
        given = Submission(text, "life", expires_at=until)
        await self.application.services.ingest.remember(context(self.application), given)

    async def moments(self) -> AsyncIterator[datetime]:
        """Yield the moment after each step."""
        for _ in range(8):
            self.clock.pass_(timedelta(minutes=1))
            await self.step()
            await drained(self.application)
            yield self.clock()


@given(seed=st.integers(0, 2**32))
@EXAMPLES
async def test_a_search_as_of_a_moment_gives_the_ids_and_the_order_that_it_gave_then(
    open_app: Open, clock: Clock, seed: int
) -> None:
    async with open_app() as application:
        await enter(application)
        walk = Lives(application, seed, clock, erases=False)
        seen = {
            (at, question): await found(application, question)
            async for at in walk.moments()
            for question in QUESTIONS
        }
        for (at, question), then in seen.items():
            again = await found(application, question, Past(known_at=at))
            assert again == then, (at, question, walk.taken)


@given(seed=st.integers(0, 2**32))
@EXAMPLES
async def test_what_was_erased_shows_in_no_past_and_nothing_else_comes_in_its_place(
    open_app: Open, clock: Clock, seed: int
) -> None:
    async with open_app() as application:
        await enter(application)
        walk = Lives(application, seed, clock, erases=True)
        seen = {
            at: {row["item_id"] for row in await select(application.store, FOUND)}
            async for at in walk.moments()
        }
        for at, then in seen.items():
            for question in QUESTIONS:
                again = await found(application, question, Past(known_at=at), limit=50)
                assert set(again) <= then, (at, question, walk.taken)


async def test_a_limited_token_gets_of_the_past_what_it_got_then(
    open_app: Open, clock: Clock
) -> None:
    own = AccessScope(topics=frozenset({"life"}))
    async with open_app() as application:
        await enter(application)
        services = application.services

        async def tell(text: str, topic: str) -> None:
            submission = Submission(text, topic)
            await services.ingest.remember(context(application), submission)
            await drained(application)
            clock.pass_(HOUR)

        await tell("User: I live in Porto. I like the harbour.", "life")
        await tell("User: The harbour closes at ten.", "work")
        at, then = clock(), await found(application, "the harbour", scope=own)
        clock.pass_(HOUR)
        await tell("User: I live in Lisbon now, at the harbour.", "life")
        await tell("User: Harbour fees are due.", "work")
        again = await found(application, "the harbour", Past(known_at=at), scope=own)

    assert again == then != []


async def test_a_search_of_a_part_goes_by_the_words_of_the_whole_namespace_as_it_did_then(
    open_app: Open, clock: Clock
) -> None:
    """In the past it went by the words of the part alone, so what is rare there came first."""
    life = AccessScope(topics=frozenset({"life"}))
    async with open_app() as application:
        await enter(application)
        services, texts = application.services, {"life": ["The kiln.", "The anvil.", "An anvil."]}
        for topic, said in {**texts, "work": ["A kiln."] * 9}.items():
            for number, text in enumerate(said):
                submission = Submission(f"{text} {number}", topic)
                await services.ingest.remember(context(application), submission)
        await drained(application)
        clock.pass_(HOUR)

        async def of_life(at: Past) -> list[str]:
            asked = Query("kiln or anvil", past=at, mode=SearchMode.KEYWORD)
            part = context(application).narrowed(life)
            return [hit.item.id for hit in (await services.recall.search(part, asked)).hits]

        assert await of_life(Past(known_at=clock())) == await of_life(PRESENT) != []


async def moved(application: Application, clock: Clock) -> list[datetime]:
    """Store Porto, then Lisbon, then Faro. Return the moment before, and after each."""
    moments = [clock()]
    for city in ("Porto", "Lisbon now", "Faro now"):
        clock.pass_(HOUR)
        await remember(application, f"User: I live in {city}.")
        await drained(application)
        clock.pass_(DAY)
        moments.append(clock())
    return moments


async def test_what_was_believed_is_listed_counted_and_shown_as_of_then(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        before, porto, lisbon, faro = await moved(application, clock)
        recall, whole = application.services.recall, context(application)

        async def listed(at: Past, status: Status | None = None) -> list[str]:
            page = await recall.inspect(
                whole, limit=9, offset=0, type_="", topic="", status=status, past=at
            )
            assert page.total == len(page.memories)
            return [str(one.fact and one.fact.value) for one in page.memories]

        assert await listed(Past(known_at=before)) == []
        assert await listed(Past(known_at=porto)) == ["Porto"]
        assert await listed(Past(known_at=lisbon)) == ["Lisbon"]
        assert await listed(Past(known_at=lisbon), Status.SUPERSEDED) == ["Porto"]
        assert await listed(PRESENT, Status.SUPERSEDED) == ["Lisbon", "Porto"]
        # What was true then, as it is known now.
        assert await listed(Past(as_of=porto)) == ["Porto"]
        # The statements that were known then, and true then.
        assert await listed(Past(as_of=porto, known_at=porto)) == ["Porto"]
        assert await listed(Past(as_of=faro, known_at=porto)) == ["Porto"]
        counts = await recall.stats(whole, Past(known_at=lisbon))
        assert (counts.total, counts.by_type[MemoryType.FACT]) == (1, 1)

        (now,) = await memories(application)
        history = await recall.history(whole, now.id)
        first = history.chain[0]
        assert [one.status for one in history.chain] == ["superseded", "superseded", "active"]
        then = await recall.history(whole, first.id, Past(known_at=porto))
        assert [(one.id, one.status, one.superseded_by) for one in then.chain] == [
            (first.id, Status.ACTIVE, None)
        ]
        assert [one.kind for one in then.events] == ["added"]
        with pytest.raises(MemoryNotFound):
            await recall.history(whole, now.id, Past(known_at=porto))


async def test_a_search_as_of_a_moment_finds_what_was_true_then_as_what_holds(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        before, porto, lisbon, faro = await moved(application, clock)
        recall = application.services.recall

        async def homes(at: Past) -> list[tuple[str, bool]]:
            asked = Query("Where do I live?", past=at)
            hits = (await recall.search(context(application), asked)).hits
            return [
                (city, hit.item.superseded_by is None)
                for hit in hits
                for city in ("Porto", "Lisbon", "Faro")
                if hit.item.type and city in hit.text
            ]

        assert await homes(Past(as_of=before)) == []
        assert await homes(Past(as_of=porto)) == [("Porto", True)]
        assert await homes(Past(as_of=lisbon)) == [("Lisbon", True)]
        assert await homes(Past(as_of=faro)) == [("Faro", True)]
        assert await homes(Past(as_of=faro, known_at=lisbon)) == [("Lisbon", True)]
        assert await homes(Past(as_of=porto, known_at=before)) == []


async def test_the_life_of_a_memory_is_as_the_guide_draws_it(open_app: Open, clock: Clock) -> None:
    def march(day: int) -> datetime:
        return NOON.replace(day=day)

    async with open_app() as application:
        await enter(application)
        for day, text in ((2, "User: I live in Porto."), (20, "User: I live in Lisbon now.")):
            clock.time = march(day)
            await remember(application, text)
            await drained(application)
            if day == 2:
                (porto,) = await memories(application)
        (lisbon,) = await memories(application)

        async def lives(at: Past) -> list[str]:
            names = {porto.id: "Porto", lisbon.id: "Lisbon"}
            ids = await found(application, "Where do I live?", at)
            return [names[one] for one in ids if one in names]

        clock.time = march(22)
        assert await lives(PRESENT) == ["Lisbon", "Porto"]
        assert await lives(Past(as_of=march(10))) == ["Porto"]
        clock.time = march(25)
        await application.services.recall.forget(context(application), porto.id)
        clock.time = march(30)
        assert await lives(PRESENT) == ["Lisbon"]
        assert await lives(Past(known_at=march(10))) == ["Porto"]
        assert await lives(Past(known_at=march(22))) == ["Lisbon", "Porto"]
        assert await lives(Past(as_of=march(10))) == []
        assert await lives(Past(as_of=march(10), known_at=march(22))) == ["Porto"]


async def test_a_reader_of_the_past_leaves_no_trace_in_the_ranking(
    open_app: Open, clock: Clock
) -> None:
    async with open_app() as application:
        await enter(application)
        await moved(application, clock)
        asked = context(application)
        question = Query("Where do I live?", past=Past(known_at=clock()))
        await application.services.recall.search(asked, question)

    assert asked.entry.memories_shown == asked.entry.turns_shown == []


def test_a_moment_to_the_second_is_all_of_that_second_and_a_date_is_its_beginning() -> None:
    now = NOON + DAY
    whole_second = NOON.replace(microsecond=999_999)

    assert past("", "2026-03-01T12:00:00Z", now).known_at == whole_second
    assert past("", "2026-03-01T12:00:00.25Z", now).known_at == NOON.replace(microsecond=250_000)
    assert past("", "2026-03-01", now).known_at == NOON.replace(hour=0)
    assert past("2026-03-01T12:00:00Z", "", now).as_of == NOON
    assert past("", "", now) == PRESENT


@pytest.mark.parametrize("given", ["yesterday", "2026-03-01T12:00", "2026-13-01", "2026-03-09"])
@pytest.mark.parametrize("name", ["as_of", "known_at"])
def test_a_moment_that_cannot_be_read_or_is_to_come_is_refused(name: str, given: str) -> None:
    with pytest.raises(Invalid, match=name):
        past(**{"as_of": "", "known_at": "", name: given}, now=NOON + DAY)


@pytest.mark.parametrize("first", ["memory", "passage"])
async def test_an_erasure_takes_out_of_the_index_what_was_hidden_before(
    open_app: Open, first: str
) -> None:
    async with open_app() as application:
        await enter(application)
        accepted = await remember(application, "User: I live in Zyntrox. The harbour was lovely.")
        await drained(application)
        (memory,) = await memories(application)
        hidden = memory.id if first == "memory" else f"{accepted.episode_id}.0"
        await application.services.recall.forget(context(application), hidden)
        await drained(application)
        assert "zyntrox" in {one["term"] for one in await listed(application.store)}
        await application.services.erase.memory(context(application), hidden)
        await drained(application)

        for left in ("terms", "postings"):
            rows = await select(application.store, f"SELECT term FROM {left}")
            assert "zyntrox" not in {row["term"] for row in rows}
        assert all(one["item_id"] for one in await listed(application.store))
