"""Remember at once, extract later, lose nothing."""

import asyncio
from datetime import timedelta

import pytest

from recall_server.domain.errors import (
    EmptyText,
    IdempotencyConflict,
    Invalid,
    InvalidText,
    RecallError,
    TextTooLong,
)
from recall_server.domain.failures import ModelAnswerInvalid, ModelUnavailable
from recall_server.domain.model import (
    AuditEntry,
    Candidate,
    Fact,
    JobState,
    MemoryType,
    Namespace,
    Query,
    Source,
    Span,
    Status,
)
from recall_server.domain.transcript import chunk
from recall_server.services.ingest import EXTRACT, Accepted, Submission
from recall_server.storage import postgres
from tests.conftest import NOON, Clock, Open
from tests.fakes import HashEmbedder
from tests.services.conversation import ALICE, drained, enter, entry, memories, remember
from tests.services.extractors import Scripted


async def test_a_text_is_found_by_its_words_before_anything_is_extracted(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, "The heron stood by the pond.")
        found = await house.services.recall.search(ALICE, Query("heron"), entry=entry(house))

    assert [hit.item.text for hit in found.hits] == ["The heron stood by the pond."]


async def test_the_same_key_and_text_gives_the_first_answer(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        first = await remember(house, "I like tea.", key="k")
        again = await remember(house, "I like tea.", key="k")

    assert again == Accepted(first.episode_id, first.job_id, cached=True)


async def test_the_same_key_with_another_text_is_refused(open_house: Open) -> None:
    """F-27."""
    async with open_house() as house:
        await enter(house)
        await remember(house, "I like tea.", key="k")
        with pytest.raises(IdempotencyConflict):
            await remember(house, "I like coffee.", key="k")


async def test_a_hundred_at_once_with_one_key_make_one_episode(
    open_house: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """F-26. However slow the machine: nobody gives up waiting for a connection."""
    monkeypatch.setattr(postgres, "POOL_WAIT_S", 60.0)
    async with open_house() as house:
        await enter(house)
        answers = await asyncio.gather(
            *(remember(house, "I like tea.", key="k") for _ in range(100))
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
    open_house: Open, text: str, error: type[RecallError]
) -> None:
    async with open_house(text_chars_max=1_000) as house:
        await enter(house)
        with pytest.raises(error):
            await remember(house, text)
        counts = await house.services.recall.stats(ALICE, entry=entry(house))

    assert counts.backlog.pending_extractions == 0


@pytest.mark.parametrize("topic", ["", "   ", "a\nb", "x" * 129])
async def test_a_bad_topic_is_refused(open_house: Open, topic: str) -> None:
    async with open_house() as house:
        await enter(house)
        with pytest.raises(Invalid, match="topic"):
            await house.services.ingest.remember(
                ALICE, Submission("text", topic), entry=entry(house)
            )


async def test_any_storable_text_comes_back_exactly(open_house: Open) -> None:
    odd = "NFD e\u0301, \u202e RTL, \u2028, 👩‍👩‍👧, \ufffe, \U000e0041, tab\tend"
    async with open_house() as house:
        await enter(house)
        accepted = await remember(house, odd)
        async with house.store.transaction(ALICE, write=False) as tx:
            episode = await tx.episodes.get(accepted.episode_id)

    assert episode is not None
    assert episode.text == odd


async def test_a_memory_cites_the_exact_words_it_came_from(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, "Alice: Hello there!\nAlice: I live in Oslo.")
        await drained(house)
        (memory,) = await memories(house)

    assert memory.citation.quote == "I live in Oslo."
    assert memory.citation.speaker == "Alice"


async def test_the_newer_of_two_values_supersedes_the_older(open_house: Open, clock: Clock) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, "Alice: I live in Oslo.")
        await drained(house)
        clock.pass_(timedelta(days=30))
        await remember(house, "Alice: I live in Lisbon now.")
        await drained(house)
        (active,) = await memories(house)
        old, new = (await house.services.recall.history(ALICE, active.id, entry=entry(house))).chain
        found = await house.services.recall.search(
            ALICE, Query("Alice lives Oslo"), entry=entry(house)
        )

    assert (old.fact and old.fact.value, new.fact and new.fact.value) == ("Oslo", "Lisbon")
    assert (old.status, old.superseded_by) == (Status.SUPERSEDED, new.id)
    assert old.valid_until == new.valid_from
    assert [hit.item.id for hit in found.hits] == [new.id]


async def test_what_is_told_late_goes_into_history_at_once(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, "--- 5 May 2024 ---\nAlice: I live in Lisbon.")
        await drained(house)
        await remember(house, "--- 5 May 2022 ---\nAlice: I live in Oslo.")
        await drained(house)
        (active,) = await memories(house)
        chain = (await house.services.recall.history(ALICE, active.id, entry=entry(house))).chain

    assert [memory.fact and memory.fact.value for memory in chain] == ["Oslo", "Lisbon"]
    assert [memory.status for memory in chain] == [Status.SUPERSEDED, Status.ACTIVE]


async def test_values_of_a_multi_valued_attribute_stand_side_by_side(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, "Alice: I speak French.")
        await remember(house, "Alice: I speak German.")
        await drained(house)

        assert len(await memories(house)) == 2


async def test_what_is_said_again_is_cited_and_adds_nothing(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, "Alice: I live in Oslo.")
        await remember(house, "Alice: I live in Oslo.")
        await drained(house)
        (memory,) = await memories(house)
        async with house.store.transaction(ALICE, write=False) as tx:
            cited = await tx.memories.citations([memory.id])

    assert len(cited) == 2
    assert memory.reinforcements == 0


async def test_a_repeated_extraction_adds_nothing_and_brings_nothing_back(
    open_house: Open,
) -> None:
    async with open_house() as house:
        await enter(house)
        accepted = await remember(house, "Alice: I live in Oslo.")
        await drained(house)
        (memory,) = await memories(house)
        await house.services.recall.forget(ALICE, memory.id, entry=entry(house))
        async with house.store.transaction(ALICE) as tx:
            await tx.jobs.add("job_2", EXTRACT, {"episode_id": accepted.episode_id}, NOON)
        await drained(house)

        assert await memories(house) == []


async def test_a_failing_model_leaves_the_text_searchable_and_the_job_pending(
    open_house: Open, clock: Clock
) -> None:
    """F-55."""
    phrase = "I like tea"
    extractor = Scripted(
        **{phrase: Candidate("Alice likes tea.", MemoryType.PREFERENCE, Span(7, 18))}
    )
    extractor.fails = [ModelUnavailable(), ModelUnavailable(retry_after_s=60.0)]
    async with open_house(extractor=extractor) as house:
        await enter(house)
        await remember(house, "Alice: I like tea.")
        await drained(house)
        found = await house.services.recall.search(ALICE, Query("tea"), entry=entry(house))
        counts = await house.services.recall.stats(ALICE, entry=entry(house))
        pending = counts.backlog.pending_extractions
        clock.pass_(timedelta(seconds=10))
        await drained(house)
        clock.pass_(timedelta(seconds=59))
        await drained(house)
        too_early = extractor.asked
        clock.pass_(timedelta(seconds=2))
        await drained(house)

        assert [hit.item.text for hit in found.hits] == ["Alice: I like tea."]
        assert (pending, too_early) == (1, 2)
        assert [memory.text for memory in await memories(house)] == ["Alice likes tea."]


async def test_an_answer_that_stays_useless_ends_in_failed_with_its_reason(
    open_house: Open, clock: Clock
) -> None:
    extractor = Scripted()
    extractor.fails = [ModelAnswerInvalid() for _ in range(9)]
    async with open_house(extractor=extractor) as house:
        await enter(house)
        accepted = await remember(house, "Alice: I like tea.")
        for _ in range(6):
            await drained(house)
            clock.pass_(timedelta(hours=1))
        async with house.store.transaction(ALICE, write=False) as tx:
            state = await tx.jobs.state(accepted.job_id)
        found = await house.services.recall.search(ALICE, Query("tea"), entry=entry(house))

    assert state is JobState.FAILED
    assert extractor.asked == 5
    assert len(found.hits) == 1


async def test_a_long_transcript_is_taken_whole_and_a_crash_repeats_no_passage(
    open_house: Open, clock: Clock
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
    async with open_house(extractor=extractor) as house:
        await enter(house)
        accepted = await remember(house, text)

        async def die_at_the_third() -> None:
            if extractor.asked == 3:
                raise asyncio.CancelledError  # as if the process had died

        extractor.meanwhile = die_at_the_third
        with pytest.raises(asyncio.CancelledError):
            await drained(house)
        extractor.asked, extractor.meanwhile = 0, None
        clock.pass_(timedelta(hours=1))
        await drained(house)
        async with house.store.transaction(ALICE, write=False) as tx:
            episode = await tx.episodes.get(accepted.episode_id)

        assert episode is not None
        assert extractor.asked == len(chunk(episode.turns, extractor.passage_chars)) - 2
        assert len(await memories(house, limit=50)) == 40


async def test_without_an_embedder_that_works_search_goes_by_words_and_says_so(
    open_house: Open,
) -> None:
    async with open_house(embedder=HashEmbedder(failing=True)) as house:
        await enter(house)
        await remember(house, "Alice: I live in Oslo.")
        await drained(house)
        found = await house.services.recall.search(ALICE, Query("Oslo"), entry=entry(house))

    assert found.degraded is not None
    assert len(found.hits) == 1


async def test_vectors_find_what_shares_no_rare_word(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, "Alice: I live in Oslo.")
        await drained(house)
        found = await house.services.recall.search(ALICE, Query("Alice lives"), entry=entry(house))

    assert found.degraded is None
    assert found.hits[0].scores.cosine is not None


async def test_a_forgotten_memory_is_not_found_and_neither_are_its_words(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, "Alice: I live in Oslo.")
        await drained(house)
        (memory,) = await memories(house)
        await house.services.recall.forget(ALICE, memory.id, entry=entry(house))
        found = await house.services.recall.search(ALICE, Query("Oslo"), entry=entry(house))
        with pytest.raises(RecallError) as error:
            await house.services.recall.forget(ALICE, memory.id, entry=entry(house))

    assert found.hits == ()
    assert error.value.code == "MEMORY_NOT_FOUND"


async def test_a_passage_can_be_forgotten_by_its_id(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await remember(house, "The heron stood by the pond.")
        found = await house.services.recall.search(ALICE, Query("heron"), entry=entry(house))
        await house.services.recall.forget(ALICE, found.hits[0].item.id, entry=entry(house))
        after = await house.services.recall.search(ALICE, Query("heron"), entry=entry(house))

    assert after.hits == ()


async def test_nothing_of_one_tenant_is_found_listed_or_counted_by_another(
    open_house: Open,
) -> None:
    bob = Namespace("bob")
    async with open_house() as house:
        await enter(house)
        await enter(house, bob)
        await remember(house, "Alice: I live in Oslo.")
        await drained(house)
        (memory,) = await memories(house)
        recall = house.services.recall
        found = await recall.search(bob, Query("Oslo"), entry=entry(house, bob))
        counts = await recall.stats(bob, entry=entry(house, bob))
        with pytest.raises(RecallError) as foreign:
            await recall.forget(bob, memory.id, entry=entry(house, bob))
        with pytest.raises(RecallError) as unknown:
            await recall.forget(bob, "mem_unknown", entry=entry(house, bob))

        assert (found.hits, counts.total) == ((), 0)
        assert (foreign.value.code, foreign.value.message) == (
            unknown.value.code,
            unknown.value.message,
        )
        assert len(await memories(house)) == 1


async def test_a_submission_may_say_who_and_which_session(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        await house.services.ingest.remember(
            ALICE,
            Submission("Alice: I live in Oslo.", "life", None, Source("s1", "agent-7", "cli")),
            entry=entry(house),
        )
        await drained(house)
        (memory,) = await memories(house)

    assert (memory.session_id, memory.agent_id, memory.topic) == ("s1", "agent-7", "life")


async def test_each_operation_leaves_one_line_in_the_book(open_house: Open) -> None:
    async with open_house() as house:
        await enter(house)
        line: AuditEntry = entry(house)
        await house.services.ingest.remember(
            ALICE, Submission("Alice: I live in Oslo.", "life"), entry=line
        )
        await drained(house)
        records = await house.services.audit.newest(ALICE, 100)

    assert line.written
    by_operation = {record.operation: record for record in records}
    assert len(records) == len(by_operation)
    assert set(by_operation) == {"create_token", "store_memory", "extract", "embed"}
    assert by_operation["extract"].counts["added"] == 1
    assert "Oslo" not in str(records)
