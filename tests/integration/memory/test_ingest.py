"""A text is stored at once and extracted later, and nothing is lost."""

import asyncio
from datetime import timedelta

import pytest

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context
from recall_server.domain.episode import Source, Span
from recall_server.domain.errors import (
    EmptyText,
    IdempotencyConflict,
    Invalid,
    InvalidText,
    ModelAnswerInvalid,
    ModelUnavailable,
    RecallError,
    TextTooLong,
)
from recall_server.domain.extraction import Candidate
from recall_server.domain.ids import Namespace
from recall_server.domain.intents import Intent
from recall_server.domain.memory import Fact, MemoryType, Status
from recall_server.domain.query import Query
from recall_server.domain.task import JobState
from recall_server.domain.text.passages import chunk
from recall_server.services.memory.beliefs import CITED_MAX
from recall_server.services.memory.ingest import EXTRACT, Accepted, Submission
from recall_server.services.memory.intents import Wish
from recall_server.storage import postgres
from tests.support.application import Open
from tests.support.conversation import ALICE, context, drained, enter, entry, memories, remember
from tests.support.counted import counted, interrupted
from tests.support.extractors import Scripted
from tests.support.length import has_full_length, on_both_at_full_length
from tests.support.models import HashEmbedder
from tests.support.runtime import NOON, Clock


async def test_a_text_is_found_by_its_words_before_anything_is_extracted(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "The heron stood by the pond.")
        found = await application.services.recall.search(context(application), Query("heron"))

    assert [hit.item.text for hit in found.hits] == ["The heron stood by the pond."]


async def test_the_same_key_and_text_gives_the_first_answer(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        first = await remember(application, "I like tea.", key="k")
        again = await remember(application, "I like tea.", key="k")

    assert again == Accepted(first.episode_id, first.job_id, cached=True)


async def test_the_same_key_with_another_text_is_refused(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "I like tea.", key="k")
        with pytest.raises(IdempotencyConflict):
            await remember(application, "I like coffee.", key="k")


async def test_a_hundred_at_once_with_one_key_make_one_episode(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for a connection is longer than on any slow machine."""
    monkeypatch.setattr(postgres, "POOL_WAIT_S", 60.0)
    async with open_app() as application:
        await enter(application)
        answers = await asyncio.gather(
            *(remember(application, "I like tea.", key="k") for _ in range(100))
        )

    assert len({answer.job_id for answer in answers}) == 1
    assert sum(not answer.cached for answer in answers) == 1


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("", EmptyText),
        (" \n\t ", EmptyText),
        ("a\x00b", InvalidText),
        ("a\ud800b", InvalidText),
        ("a" * 1_001, TextTooLong),
    ],
)
async def test_bad_text_is_refused_with_its_reason_and_nothing_is_kept(
    open_app: Open, text: str, error: type[RecallError]
) -> None:
    async with open_app(text_chars_max=1_000) as application:
        await enter(application)
        with pytest.raises(error):
            await remember(application, text)
        counts = await application.services.recall.stats(context(application))

    assert counts.backlog.pending_extractions == 0


@pytest.mark.parametrize("topic", ["", "   ", "a\nb", "x" * 129])
async def test_a_bad_topic_is_refused(open_app: Open, topic: str) -> None:
    async with open_app() as application:
        await enter(application)
        with pytest.raises(Invalid, match="topic"):
            await application.services.ingest.remember(
                context(application), Submission("text", topic)
            )


async def test_any_storable_text_comes_back_exactly(open_app: Open) -> None:
    odd = "NFD e\u0301, \u202e RTL, \u2028, 👩‍👩‍👧, \ufffe, \U000e0041, tab\tend"
    async with open_app() as application:
        await enter(application)
        accepted = await remember(application, odd)
        async with application.store.transaction(ALICE, write=False) as tx:
            episode = await tx.episodes.get(accepted.episode_id)

    assert episode is not None
    assert episode.text == odd


async def test_a_memory_cites_the_exact_words_it_came_from(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "Alice: Hello there!\nAlice: I live in Oslo.")
        await drained(application)
        (memory,) = await memories(application)

    assert memory.citation.quote == "I live in Oslo."
    assert memory.citation.speaker == "Alice"


@pytest.mark.parametrize(
    ("earlier", "later", "ended"),
    [
        ("I drive a Volvo.", "I drive a Saab now, not a Volvo any more.", "Volvo"),
        ("I own a boat. I own a car.", "I own a bike now, no longer a boat.", "boat"),
        ("I live in Oslo.", "I live in Rome now, no longer in Oslo.", "Oslo"),
        ("Ich wohne in Köln.", "Ich wohne jetzt in Berlin, nicht mehr in Köln.", "Köln"),
        ("Vivo en Madrid.", "Vivo en Sevilla y ya no en Madrid.", "Madrid"),
        ("J'habite à Paris avec ma sœur.", "J'habite à Lyon, plus à Paris.", "Paris"),
        ("我喝咖啡。", "我现在喝茶，不再喝咖啡。", "我喝咖啡"),
    ],
)
async def test_a_value_that_is_said_to_hold_no_more_is_superseded(
    open_app: Open, clock: Clock, earlier: str, later: str, ended: str
) -> None:
    """Also one of several that an attribute may have."""
    async with open_app() as application:
        await enter(application)
        for text in (earlier, later):
            await remember(application, f"User: {text}")
            await drained(application)
            clock.pass_(timedelta(days=1))
        async with application.store.transaction(ALICE, write=False) as tx:
            ids = await tx.rebuilt.memories("", 10)
            every = (await tx.memories.get(ids)).values()

    (old,) = [one for one in every if one.status is Status.SUPERSEDED]
    assert ended in old.text
    assert old.superseded_by in {one.id for one in every if one.status is Status.ACTIVE}


async def test_the_newer_of_two_values_supersedes_the_older(open_app: Open, clock: Clock) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "Alice: I live in Oslo.")
        await drained(application)
        clock.pass_(timedelta(days=30))
        await remember(application, "Alice: I live in Lisbon now.")
        await drained(application)
        (active,) = await memories(application)
        old, new = (
            await application.services.recall.history(context(application), active.id)
        ).chain
        found = await application.services.recall.search(
            context(application), Query("Alice lives Oslo")
        )

    assert (old.fact and old.fact.value, new.fact and new.fact.value) == ("Oslo", "Lisbon")
    assert (old.status, old.superseded_by) == (Status.SUPERSEDED, new.id)
    assert old.valid_until == new.valid_from
    assert [hit.item.id for hit in found.hits] == [new.id, old.id]


async def test_the_memories_of_a_text_are_planned_before_others_wait(open_app: Open) -> None:
    """All was read under the lock, on SQLite under that of all tenants: two reads for each of
    hundreds of statements.
    """
    asked = []
    async with open_app() as application:
        await enter(application)
        for fruit, kinds in (("fig", 5), ("plum", 50)):
            said = " ".join(f"I like {fruit}{number}." for number in range(kinds))
            await remember(application, f"User: {said}")
            with counted(application) as counts:
                await drained(application)
            asked.append(counts.fetches[True])
        assert len(await memories(application, limit=100)) > 20
    assert asked[1] <= asked[0]


@pytest.mark.parametrize("changes", [1, 10])
async def test_what_changes_while_memories_are_planned_is_planned_with(
    open_app: Open, changes: int
) -> None:
    """If memories change all the time, they are planned under the lock in the end."""
    async with open_app() as application:
        await enter(application)
        services, done = application.services, list[str]()

        async def move() -> None:
            done.append(f"Zoe lives in Town{len(done)}.")
            wish = Wish(Intent.REMEMBER, Submission(done[-1], "life"))
            await services.intents.submit(context(application), wish)

        await remember(application, "Zoe lives in Bergen.")
        with interrupted(application, "memories_about", move, times=changes):
            await drained(application)
        believed = [one.text for one in await memories(application)]

    assert done
    assert len(believed) == 1


async def test_a_text_that_is_added_meanwhile_does_not_repeat_a_plan(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "Zoe lives in Bergen.")

        async def say() -> None:
            await remember(application, "Kim lives in Oslo.")

        with counted(application) as alone:
            await application.worker.run_once()
        await remember(application, "Ana lives in Rome.")
        with interrupted(application, "basis_of_plans", say), counted(application) as beside:
            await application.worker.run_once()

    assert beside.fetches[False] <= alone.fetches[False] + 1


async def test_what_is_told_late_goes_into_history_at_once(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "--- 5 May 2024 ---\nAlice: I live in Lisbon.")
        await drained(application)
        await remember(application, "--- 5 May 2022 ---\nAlice: I live in Oslo.")
        await drained(application)
        (active,) = await memories(application)
        chain = (await application.services.recall.history(context(application), active.id)).chain

    assert [memory.fact and memory.fact.value for memory in chain] == ["Oslo", "Lisbon"]
    assert [memory.status for memory in chain] == [Status.SUPERSEDED, Status.ACTIVE]


async def test_values_of_a_multi_valued_attribute_stand_side_by_side(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "Alice: I speak French.")
        await remember(application, "Alice: I speak German.")
        await drained(application)

        assert len(await memories(application)) == 2


@on_both_at_full_length
@has_full_length
async def test_a_memory_rests_on_so_many_words_however_often_it_is_said(open_app: Open) -> None:
    """Otherwise each repetition would be compared with all before it, and forgetting would take as
    long.
    """
    async with open_app() as application:
        await enter(application)
        for _ in range(CITED_MAX + 5):
            await remember(application, "User: I live in Lisbon.")
        await drained(application)
        (memory,) = await memories(application)
        async with application.store.transaction(ALICE, write=False) as tx:
            cited = await tx.memories.citations([memory.id])
            events = await tx.events.of_items([memory.id])
            latest = await tx.events.latest([memory.id], 7)

    assert len(cited) == CITED_MAX
    assert [one.kind for one in events] == ["added", *["reinforced"] * (CITED_MAX + 4)]
    assert latest == events[-7:]


async def test_what_is_said_again_is_cited_and_adds_nothing(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "Alice: I live in Oslo.")
        await remember(application, "Alice: I live in Oslo.")
        await drained(application)
        (memory,) = await memories(application)
        async with application.store.transaction(ALICE, write=False) as tx:
            cited = await tx.memories.citations([memory.id])

    assert len(cited) == 2
    assert memory.reinforcements == 0


async def test_a_repeated_extraction_adds_nothing_and_brings_nothing_back(
    open_app: Open,
) -> None:
    async with open_app() as application:
        await enter(application)
        accepted = await remember(application, "Alice: I live in Oslo.")
        await drained(application)
        (memory,) = await memories(application)
        await application.services.recall.forget(context(application), memory.id)
        async with application.store.transaction(ALICE) as tx:
            await tx.jobs.add("job_2", EXTRACT, {"episode_id": accepted.episode_id}, NOON)
        await drained(application)

        assert await memories(application) == []


async def test_a_failing_model_leaves_the_text_found_by_words_and_vectors_and_the_job_pending(
    open_app: Open, clock: Clock
) -> None:
    phrase = "I like tea"
    extractor = Scripted(
        **{phrase: Candidate("Alice likes tea.", MemoryType.PREFERENCE, Span(7, 18))}
    )
    extractor.fails = [ModelUnavailable(), ModelUnavailable(retry_after_s=60.0)]
    async with open_app(extractor=extractor) as application:
        await enter(application)
        await remember(application, "Alice: I like tea.")
        await drained(application)
        found = await application.services.recall.search(
            context(application), Query("tea"), cite=True
        )
        counts = await application.services.recall.stats(context(application))
        pending = counts.backlog.pending_extractions
        clock.pass_(timedelta(seconds=10))
        await drained(application)
        clock.pass_(timedelta(seconds=59))
        await drained(application)
        too_early = extractor.asked
        clock.pass_(timedelta(seconds=2))
        await drained(application)

        assert [hit.item.text for hit in found.hits] == ["Alice: I like tea."]
        assert found.hits[0].scores.signals["cosine"] is not None
        assert (pending, too_early) == (1, 2)
        assert [memory.text for memory in await memories(application)] == ["Alice likes tea."]


async def test_an_answer_that_stays_useless_ends_in_failed_with_its_reason(
    open_app: Open, clock: Clock
) -> None:
    extractor = Scripted()
    extractor.fails = [ModelAnswerInvalid() for _ in range(9)]
    async with open_app(extractor=extractor) as application:
        await enter(application)
        accepted = await remember(application, "Alice: I like tea.")
        for _ in range(6):
            await drained(application)
            clock.pass_(timedelta(hours=1))
        async with application.store.transaction(ALICE, write=False) as tx:
            state = await tx.jobs.state(accepted.job_id)
        found = await application.services.recall.search(context(application), Query("tea"))

    assert state is JobState.FAILED
    assert extractor.asked == 5
    assert len(found.hits) == 1


async def test_a_long_transcript_is_taken_whole_and_a_crash_repeats_no_passage(
    open_app: Open, clock: Clock
) -> None:
    lines = [f"Alice: My locker number {i} is {i * 7}. {'So it goes. ' * 10}" for i in range(40)]
    text = "\n".join(lines)
    found = {}
    for i in range(40):
        phrase = f"locker number {i} is"
        start = text.index(f"My locker number {i} is")
        found[phrase] = Candidate(
            f"Alice's locker number {i} is {i * 7}.",
            MemoryType.FACT,
            Span(start, start + 20),
            Fact("Alice", f"locker_{i}", str(i * 7)),
        )
    extractor = Scripted(**found)
    async with open_app(extractor=extractor) as application:
        await enter(application)
        accepted = await remember(application, text)

        async def die_at_the_third() -> None:
            if extractor.asked == 3:
                raise asyncio.CancelledError  # This acts as if the process had died.

        extractor.meanwhile = die_at_the_third
        with pytest.raises(asyncio.CancelledError):
            await drained(application)
        extractor.asked, extractor.meanwhile = 0, None
        clock.pass_(timedelta(hours=1))
        await drained(application)
        async with application.store.transaction(ALICE, write=False) as tx:
            episode = await tx.episodes.get(accepted.episode_id)

        assert episode is not None
        assert extractor.asked == len(chunk(episode.turns, extractor.passage_chars)) - 2
        assert len(await memories(application, limit=50)) == 40


async def test_without_an_embedder_that_works_search_goes_by_words_and_says_so(
    open_app: Open,
) -> None:
    async with open_app(embedder=HashEmbedder(failing=True)) as application:
        await enter(application)
        await remember(application, "Alice: I live in Oslo.")
        await drained(application)
        found = await application.services.recall.search(context(application), Query("Oslo"))

    assert found.degraded is not None
    assert len(found.hits) == 1


async def test_vectors_find_what_shares_no_rare_word(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "Alice: I live in Oslo.")
        await drained(application)
        found = await application.services.recall.search(
            context(application), Query("Alice lives"), cite=True
        )

    assert found.degraded is None
    assert found.hits[0].scores.signals["cosine"] is not None


async def test_a_forgotten_memory_is_not_found_and_neither_are_its_words(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "Alice: I live in Oslo.")
        await drained(application)
        (memory,) = await memories(application)
        await application.services.recall.forget(context(application), memory.id)
        found = await application.services.recall.search(context(application), Query("Oslo"))
        with pytest.raises(RecallError) as error:
            await application.services.recall.forget(context(application), memory.id)

    assert found.hits == ()
    assert error.value.code == "MEMORY_NOT_FOUND"


async def test_a_passage_can_be_forgotten_by_its_id(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await remember(application, "The heron stood by the pond.")
        found = await application.services.recall.search(context(application), Query("heron"))
        await application.services.recall.forget(context(application), found.hits[0].item.id)
        after = await application.services.recall.search(context(application), Query("heron"))

    assert after.hits == ()


async def test_nothing_of_one_tenant_is_found_listed_or_counted_by_another(
    open_app: Open,
) -> None:
    bob = Namespace("bob")
    async with open_app() as application:
        await enter(application)
        await enter(application, bob)
        await remember(application, "Alice: I live in Oslo.")
        await drained(application)
        (memory,) = await memories(application)
        recall = application.services.recall
        found = await recall.search(context(application, bob), Query("Oslo"))
        counts = await recall.stats(context(application, bob))
        with pytest.raises(RecallError) as foreign:
            await recall.forget(context(application, bob), memory.id)
        with pytest.raises(RecallError) as unknown:
            await recall.forget(context(application, bob), "mem_unknown")

        assert (found.hits, counts.total) == ((), 0)
        assert (foreign.value.code, foreign.value.message) == (
            unknown.value.code,
            unknown.value.message,
        )
        assert len(await memories(application)) == 1


async def test_a_submission_may_say_who_and_which_session(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        await application.services.ingest.remember(
            context(application),
            Submission("Alice: I live in Oslo.", "life", None, Source("s1", "agent-7", "cli")),
        )
        await drained(application)
        (memory,) = await memories(application)

    assert (memory.source.session_id, memory.source.agent_id, memory.topic) == (
        "s1",
        "agent-7",
        "life",
    )


async def test_each_operation_leaves_one_audit_record(open_app: Open) -> None:
    async with open_app() as application:
        await enter(application)
        line: AuditEntry = entry(application)
        await application.services.ingest.remember(
            Context(line), Submission("Alice: I live in Oslo.", "life")
        )
        await drained(application)
        records = await application.services.audit.newest(ALICE, 100)

    assert line.written
    by_operation = {record.operation: record for record in records}
    assert len(records) == len(by_operation)
    assert set(by_operation) == {"create_token", "store_memory", "extract", "embed"}
    assert by_operation["extract"].counts["added"] == 1
    assert "Oslo" not in str(records)
