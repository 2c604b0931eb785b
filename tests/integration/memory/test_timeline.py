"""The values of an attribute over time, on both axes."""

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from recall_server.api.presenters import timeline
from recall_server.application import Application
from recall_server.cli.memory import drawing, drawn
from recall_server.demo import ASKED_FOR, MOVES, WHERE_IVO_LIVES
from recall_server.domain.attributes import OVERLAPS_MAX, Interval, Timeline
from recall_server.domain.episode import Span
from recall_server.domain.extraction import Candidate
from recall_server.domain.memory import Fact, MemoryType
from recall_server.domain.moments import PRESENT, Past, past
from recall_server.domain.permissions import OPERATOR, AccessScope
from recall_server.domain.query import Query
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open
from tests.support.conversation import context, drained, enter, memories, remember
from tests.support.extractors import Scripted
from tests.support.paths import ROOT
from tests.support.rows import a_memory
from tests.support.runtime import NOON, Clock

WEEK = timedelta(days=7)


def lives_in(place: str) -> Candidate:
    words = f"I live in {place} now."
    return Candidate(words, MemoryType.FACT, Span(0, len(words)), Fact("user", "lives_in", place))


PLACES = Scripted(**{one: lives_in(one) for one in ("Porto", "Lisbon", "Ghent")})


async def said(
    application: Application,
    clock: Clock,
    place: str,
    *,
    at: datetime | None = None,
    until: datetime | None = None,
    topic: str = "life",
) -> None:
    submission = Submission(
        f"I live in {place} now.", topic, occurred_at=at or clock.time, expires_at=until
    )
    await application.services.ingest.remember(context(application), submission)
    await drained(application)


def test_of_values_that_all_overlap_it_names_so_many() -> None:
    """Two hundred values make twenty thousand pairs. Control: a few overlaps are all named."""
    memories = [
        replace(a_memory(f"mem_{number}"), valid_from=NOON + number * WEEK) for number in range(200)
    ]

    assert len(Timeline("Alice", "lives_in", tuple(memories)).overlaps) == OVERLAPS_MAX
    assert len(Timeline("Alice", "lives_in", tuple(memories[:5])).overlaps) == 10


async def asked(
    application: Application, scope: AccessScope | None = None, at: Past = PRESENT
) -> Timeline:
    caller = context(application, scope=scope) if scope else context(application)
    return await application.services.recall.timeline(caller, "User", "lives_in", at)


def values(found: Timeline) -> list[str]:
    return [one.fact.value for one in found.memories if one.fact]


async def test_each_value_has_its_interval_and_none_is_missing(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=PLACES) as application:
        await enter(application)
        for place in ("Porto", "Lisbon", "Ghent"):
            await said(application, clock, place)
            clock.pass_(WEEK)
        found = await asked(application)

    assert values(found) == ["Porto", "Lisbon", "Ghent"]
    assert [(one.valid_from, one.valid_until) for one in found.memories] == [
        (NOON, NOON + WEEK),
        (NOON + WEEK, NOON + 2 * WEEK),
        (NOON + 2 * WEEK, None),
    ]
    assert (found.gaps, found.overlaps) == ((), ())


async def test_what_was_reported_late_stands_where_it_was_true(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=PLACES) as application:
        await enter(application)
        await said(application, clock, "Ghent")
        clock.pass_(WEEK)
        await said(application, clock, "Porto", at=datetime(2025, 1, 1, tzinfo=UTC))
        found = await asked(application)

    assert values(found) == ["Porto", "Ghent"]
    assert found.memories[0].recorded_at > found.memories[1].recorded_at


async def test_a_time_without_any_value_is_a_gap(open_app: Open, clock: Clock) -> None:
    async with open_app(extractor=PLACES) as application:
        await enter(application)
        await said(application, clock, "Porto", until=NOON + WEEK)
        clock.pass_(2 * WEEK)
        await drained(application)
        await said(application, clock, "Ghent")
        found = await asked(application)

    assert values(found) == ["Porto", "Ghent"]
    assert found.gaps == (Interval(NOON + WEEK, NOON + 2 * WEEK),)


async def test_two_values_at_once_are_an_overlap(open_app: Open, clock: Clock) -> None:
    async with open_app(extractor=PLACES) as application:
        await enter(application)
        await said(application, clock, "Lisbon")
        clock.pass_(WEEK)
        # A value that expires does not replace one that lasts.
        await said(application, clock, "Porto", until=NOON + 2 * WEEK)
        found = await asked(application)

    (overlap,) = found.overlaps
    assert overlap.interval == Interval(NOON + WEEK, NOON + 2 * WEEK)
    assert [overlap.one, overlap.other] == [one.id for one in found.memories]


async def test_what_was_forgotten_or_is_out_of_scope_does_not_show(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=PLACES) as application:
        await enter(application)
        await said(application, clock, "Porto")
        clock.pass_(WEEK)
        await said(application, clock, "Lisbon", topic="work")
        limited = await asked(application, AccessScope(topics=frozenset({"life"})))
        (active,) = await memories(application)
        await application.services.recall.forget(context(application), active.id)
        found = await asked(application)

    assert values(limited) == ["Porto"]
    assert values(found) == ["Porto"]


async def test_it_is_drawn_in_eighty_characters_and_as_svg(open_app: Open, clock: Clock) -> None:
    async with open_app(extractor=PLACES) as application:
        await enter(application)
        await said(application, clock, "Porto", until=NOON + WEEK)
        clock.pass_(2 * WEEK)
        await drained(application)
        await said(application, clock, "Ghent")
        clock.pass_(WEEK)
        found = await asked(application)

    lines = list(drawn(timeline(found), clock.time))
    svg = drawing(timeline(found), clock.time)

    assert max(map(len, lines)) <= 80
    assert [line.split()[0] for line in lines] == [
        *("Porto", "known", "Ghent", "known", "2026-03-01", "gap")
    ]
    assert lines[2].endswith("→")
    assert "2026-03-08 to 2026-03-15" in lines[-1]
    assert svg.count("<rect") == 4
    assert "Ghent" in svg


async def test_within_one_day_the_drawing_names_the_times_at_its_ends(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=PLACES) as application:
        await enter(application)
        await said(application, clock, "Porto")
        clock.pass_(timedelta(minutes=90))
        await said(application, clock, "Ghent")
        found = await asked(application)
        clock.pass_(timedelta(minutes=90))

    lines = list(drawn(timeline(found), clock.time))

    assert lines[-1].split() == ["2026-03-01T12:00:00Z", "2026-03-01T15:00:00Z"]
    assert max(map(len, lines)) <= 80


async def test_a_timeline_is_as_it_was_known_at_a_moment_and_of_what_was_true_at_one(
    open_app: Open, clock: Clock
) -> None:
    async with open_app(extractor=PLACES) as application:
        await enter(application)
        moments = [clock()]
        for place in ("Porto", "Lisbon", "Ghent"):
            clock.pass_(WEEK)
            await said(application, clock, place)
            moments.append(clock())
        (ghent,) = await memories(application)
        clock.pass_(WEEK)
        await application.services.recall.forget(context(application), ghent.id)
        before, porto, lisbon, last = moments

        assert values(await asked(application)) == ["Porto", "Lisbon"]
        assert values(await asked(application, at=Past(known_at=before))) == []
        known = await asked(application, at=Past(known_at=porto))
        assert [(one.valid_until, one.retired_at) for one in known.memories] == [(None, None)]
        assert values(await asked(application, at=Past(known_at=last))) == [
            *("Porto", "Lisbon", "Ghent")
        ]
        assert values(await asked(application, at=Past(as_of=lisbon))) == ["Lisbon"]
        assert values(await asked(application, at=Past(as_of=lisbon, known_at=porto))) == ["Porto"]


async def test_the_readme_shows_what_the_command_draws(open_app: Open, clock: Clock) -> None:
    """The test stores each text of the demo on its day, and undoes the last one."""
    async with open_app() as application:
        await enter(application)
        for day, text in MOVES:
            clock.time = datetime.fromisoformat(day).replace(hour=12, tzinfo=UTC)
            last = await remember(application, text)
            await drained(application)
        clock.time = NOON
        recall, whole = application.services.recall, context(application)
        before = drawn(timeline(await recall.timeline(whole, "Ivo", "lives_in")), clock())
        homes = []
        for day in ASKED_FOR:
            asked_for = Query(WHERE_IVO_LIVES, past=past(day, "", clock()), limit=1)
            homes += [hit.text for hit in (await recall.search(whole, asked_for)).hits]
        await application.services.changes.undo(
            context(application), last.job_id, rights=OPERATOR, dry_run=False, with_dependents=False
        )
        asked_for = Query(WHERE_IVO_LIVES, limit=1)
        again = (await recall.search(whole, asked_for)).hits[0].text

    shown = (ROOT / "README.md").read_text("utf-8")
    drawing_ = "\n".join(before)
    assert drawing_ in shown, drawing_
    assert re.findall(r'"(Ivo [^"]+)"', " ".join(shown.split())) == homes
    assert again == homes[1]
