"""After any history an undo is exact, the tables equal a rebuild, and the past is as it was."""

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial

import pytest

from recall_server.application import Application
from recall_server.domain.episode import Span
from recall_server.domain.errors import NotUndoable
from recall_server.domain.intents import Intent
from recall_server.domain.moments import PRESENT, Past, passed
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.plan import Choice, Policy
from recall_server.domain.query import Item, Query
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Wish
from recall_server.storage.driver import moment
from tests.support.application import Open
from tests.support.conversation import ALICE, context, enter, memories
from tests.support.erasure import select
from tests.support.judges import ScriptedJudge
from tests.support.length import at_full_length, has_full_length
from tests.support.runtime import Clock
from tests.support.transfer import BOB
from tests.support.whole_walk import TEXTS, WholeWalk, file_of, present

MINUTE = timedelta(minutes=1)
SEEDS = range(1, 1 + at_full_length(20, otherwise=2))
QUESTIONS = ("where do I live", "what does Ann prefer", "Kim and Lou in Oslo")
LEFT = "SELECT item_id FROM documents WHERE namespace = 'alice'"
SUPERSEDED = (
    "SELECT id, text, valid_from, valid_until FROM memories"
    " WHERE namespace = 'alice' AND status = 'superseded' ORDER BY id"
)
SENTENCE = re.compile(r"[^.!?。:\n]*\w[.!?。]")


async def changes(application: Application) -> list[str]:
    page = await application.services.changes.page(context(application), None)
    return [one.id for one in page.changes]


async def undo(application: Application, change_id: str) -> str:
    """Undo a change. A dry run before it must report the same."""
    undoing, changes = context(application), application.services.changes
    undo = partial(changes.undo, rights=OPERATOR, with_dependents=False)
    planned = await undo(context(application), change_id, dry_run=True)
    done = await undo(undoing, change_id, dry_run=False)
    assert replace(done, change_id=None) == planned
    return undoing.entry.change


async def undone_or_not(application: Application, change_id: str) -> str | None:
    """Undo a change. Return None for an expiry or a change of labels, or if a later change rests on
    it.
    """
    try:
        return await undo(application, change_id)
    except NotUndoable as refused:
        if any(why in refused.message for why in ("expires_at", "other labels", "rest on it")):
            return None
        raise


async def found(application: Application, question: str, at: Past = PRESENT) -> list[str]:
    asked = Query(question, limit=8, past=at)
    answer = await application.services.recall.search(context(application), asked)
    return [hit.item.id for hit in answer.hits]


async def begun(application: Application, clock: Clock, seed: int, *, erases: bool) -> WholeWalk:
    await enter(application)
    await enter(application, BOB)
    return WholeWalk(application, seed, clock, await file_of(application), erases=erases)


async def walked(application: Application, clock: Clock, seed: int, steps: int = 16) -> int:
    """Take a walk. After each step, check that it can be undone and that the tables equal a
    rebuild. At the end, check what is found now and in the past. Return how many steps were undone.
    """
    walk = await begun(application, clock, seed, erases=False)
    seen, compared = {}, 0
    believed: dict[str, tuple[datetime, str]] = {}
    for _ in range(steps):
        clock.pass_(MINUTE)
        before, known = await present(application), await changes(application)
        clock.pass_(MINUTE)
        await walk.step()
        after, now = await present(application), await changes(application)
        if len(now) == len(known) + 1:
            clock.pass_(MINUTE)
            if (undone := await undone_or_not(application, now[0])) is not None:
                assert await present(application) == before, (walk.last, walk.taken)
                clock.pass_(MINUTE)
                await undo(application, undone)
                assert await present(application) == after, (walk.last, walk.taken)
                compared += 1
        derived = await application.services.rebuild.compare(context(application))
        assert derived.same, (walk.last, derived)
        clock.pass_(MINUTE)
        for question in QUESTIONS:
            seen[clock(), question] = await found(application, question)
        for one in await memories(application, limit=50):
            believed.setdefault(one.id, (clock(), one.text))
    for (at, question), then in seen.items():
        again = await found(application, question, Past(known_at=at))
        assert again == then, (at, question, walk.taken)
    for sentence in await sentences(application, clock()):
        assert any(sentence in hit for hit in await said(application, sentence)), (
            sentence,
            walk.taken,
        )
    await find_superseded_in_their_time(application, believed)
    return compared


async def sentences(application: Application, now: datetime) -> set[str]:
    """Return all sentences of Alice's texts that are not forgotten, held back or expired."""
    found: set[str] = set()
    ids = [row["id"] for row in await select(application.store, TEXTS)]
    async with application.store.transaction(ALICE, write=False) as tx:
        episodes = await tx.episodes.several(ids)
    for one in episodes:
        for turn in one.turns:
            if turn.hidden or passed(one.expires_at, now):
                continue
            for match in SENTENCE.finditer(one.text, turn.span.start, turn.span.end):
                span = Span(*match.span())
                if not any(map(span.overlaps, one.forgotten)):
                    found.add(match[0].strip())
    return found


async def said(application: Application, words: str, at: Past = PRESENT) -> list[str]:
    asked = Query(words, limit=50, past=at)
    answer = await application.services.recall.search(context(application), asked)
    return [f"{hit.text} {hit.quote}" for hit in answer.hits]


async def find_superseded_in_their_time(
    application: Application, believed: Mapping[str, tuple[datetime, str]]
) -> None:
    for row in await select(application.store, SUPERSEDED):
        known_at, text = believed.get(row["id"], (None, ""))
        if known_at is not None:
            then = await said(application, text, Past(known_at=known_at))
            assert any(text in hit for hit in then), (row["id"], text, known_at)
        began, ended = moment(row["valid_from"]), moment(row["valid_until"])
        if began < ended:
            then = await said(application, row["text"], Past(as_of=began))
            assert any(row["text"] in hit for hit in then), (row["id"], row["text"], began)


@has_full_length
@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens_can_be_undone_rebuilt_and_asked_again(
    open_app: Open, clock: Clock, seed: int
) -> None:
    async with open_app() as application:
        undone = await walked(application, clock, seed)
    assert undone >= 3 or seed > 2, "the walks of the suite must undo something"


async def test_what_a_model_has_judged_can_be_undone_and_rebuilt_too(
    open_app: Open, clock: Clock
) -> None:
    judge = ScriptedJudge(by_turns=(Choice.KEEP_NEW, Choice.KEEP_BOTH, None, Choice.KEEP_EXISTING))
    async with open_app(judge=judge, judge_confidence=0.5) as application:
        walk = await begun(application, clock, 5, erases=False)
        services = application.services
        for place in ("Oslo", "Bergen", "Faro", "Split", "Riga", "Turin"):
            clock.pass_(MINUTE)
            await walk.step()
            await services.tasks.set_policy(context(application), Policy.ASK)
            wish = Wish(Intent.REMEMBER, Submission(f"Zoe lives in {place}.", "life"))
            await services.intents.submit(context(application), wish)
            clock.pass_(MINUTE)
            after = await present(application)
            page = await application.services.changes.page(context(application), None)
            if page.changes[0].operation == "judge":
                clock.pass_(MINUTE)
                undone = await undo(application, page.changes[0].id)
                assert await present(application) != after
                clock.pass_(MINUTE)
                await undo(application, undone)
                assert await present(application) == after, walk.taken
            derived = await application.services.rebuild.compare(context(application))
            assert derived.same, derived
    assert len(judge.asked) >= len(judge.by_turns)


async def hits(application: Application, question: str, at: Past = PRESENT) -> dict[str, Item]:
    """Return the items that are found with any evidence."""
    # No hit is cut off. The best hit may have been erased, and scores are relative to it.
    asked = Query(question, limit=50, score_threshold=0.0, past=at)
    answer = await application.services.recall.search(context(application), asked)
    return {hit.item.id: hit.item for hit in answer.hits}


def _turn_of(item_id: str) -> str:
    """Return the turn of a passage: a hit shows several of one turn, and has the id of the best."""
    return ".".join(item_id.split(".")[:2])


def _text_of(item: Item) -> str:
    return item.citation.episode_id


async def walked_with_erasures(
    application: Application, clock: Clock, seed: int, steps: int = 16
) -> None:
    """Take a walk with erasures, and check that the past is the same without the erased items.
    Items of the same text may be found by fewer signals, since their vectors came from erased words
    too.
    """
    walk = await begun(application, clock, seed, erases=True)
    seen: dict[tuple[datetime, str], dict[str, Item]] = {}
    for _ in range(steps):
        clock.pass_(MINUTE)
        await walk.step()
        await present(application)
        clock.pass_(MINUTE)
        derived = await application.services.rebuild.compare(context(application))
        assert derived.same, (walk.last, derived)
        for question in QUESTIONS:
            seen[clock(), question] = await hits(application, question)
    left = {row["item_id"] for row in await select(application.store, LEFT)}
    touched = {
        _text_of(one) for then in seen.values() for one in then.values() if one.id not in left
    }
    for (at, question), then in seen.items():
        again = await hits(application, question, Past(known_at=at))
        assert again.keys().isdisjoint(walk.erased), (at, question, walk.taken)
        others, known = (
            {_turn_of(one.id) for one in some.values() if _text_of(one) not in touched}
            for some in (again, then)
        )
        # An item with the words of an erased one was no hit of its own beside that one.
        said = {one.text for one in then.values()}
        same = {_turn_of(one.id) for one in again.values() if one.text in said}
        assert known <= others <= known | same, (at, question, walk.taken, walk.erased)


@has_full_length
@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happens_the_past_is_what_it_was_but_for_what_was_erased(
    open_app: Open, clock: Clock, seed: int
) -> None:
    async with open_app() as application:
        await walked_with_erasures(application, clock, seed)


@pytest.mark.parametrize(
    "step",
    [
        *("purge_source", "take_in", "expire", "resolve", "correct", "update", "propose"),
        *("reextract", "relabel", "recheck"),
    ],
)
async def test_a_walk_takes_each_of_its_steps(open_app: Open, clock: Clock, step: str) -> None:
    async with open_app() as application:
        walk = await begun(application, clock, 1, erases=False)
        await walk.submit()
        assert await getattr(walk, step)() is not False
