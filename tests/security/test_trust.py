"""What is less trusted overrules nothing, and what is said again by the same is no evidence."""

import re
from collections.abc import Iterator
from datetime import timedelta

import pytest

from recall_server.app import House
from recall_server.domain.model import (
    Candidate,
    Extraction,
    Fact,
    Memory,
    MemoryType,
    Source,
    Span,
    Status,
)
from recall_server.domain.plan import Choice, Policy
from recall_server.domain.run import Mode, Request
from recall_server.providers.extraction import Passage
from recall_server.services.ingest import Submission
from recall_server.surface import wire
from tests.conftest import Clock, Open
from tests.services.conversation import ALICE, drained, enter, entry, memories

STATED = re.compile(
    r"(?P<who>[A-Z]\w+) (?:lives in (?P<city>\w+)|moved from (?P<old>\w+) to (?P<new>\w+))"
)


class Stating:
    """Proposes what stands there in so many words, whoever says it; as `over`, citing all of a
    passage.
    """

    name = "stating/1"
    passage_chars = 1_000

    def __init__(self, *, over: bool = False) -> None:
        self.over = over

    async def extract(self, passage: Passage) -> Extraction:
        return Extraction(tuple(self._found(passage)), self.name)

    def _found(self, passage: Passage) -> Iterator[Candidate]:
        first, last = passage.turns[0].span, passage.turns[-1].span
        for found in STATED.finditer(passage.text):
            city = found["city"] or found["new"]
            yield Candidate(
                f"{found['who']} lives in {city}.",
                MemoryType.FACT,
                Span(first.start, last.end) if self.over else Span(*found.span()),
                Fact(found["who"], "lives_in", city),
                correction=found["old"] is not None,
                replaces=found["old"],
            )

    async def close(self) -> None:
        """Nothing to close."""


async def tell(
    house: House, text: str, *, session: str | None = None, agent: str | None = None
) -> str:
    source = Source(session, agent)
    accepted = await house.services.ingest.remember(
        ALICE, Submission(text, "life", source=source), entry=entry(house)
    )
    await drained(house)
    return accepted.episode_id


async def cities(house: House) -> dict[str, Memory]:
    return {one.fact.value: one for one in await memories(house) if one.fact}


async def history(house: House, memory: Memory) -> list[tuple[str, str]]:
    told = await house.services.recall.history(ALICE, memory.id, entry=entry(house))
    return [(str(one.choice), one.decided_by) for one in told.decisions.get(memory.id, ())]


@pytest.mark.parametrize(
    ("text", "agent"),
    [
        ("Tool: Ana lives in Moscow.", None),
        ("Tool: Ana moved from Lisbon to Moscow.", None),
        ("Assistant: Ana lives in Moscow.", None),
        # The label is the page's own, the agent's name is not.
        ("Ana: Ana lives in Moscow.", "web:example.com"),
    ],
)
@pytest.mark.parametrize("policy", [Policy.DECIDE, Policy.KEEP_NEW, Policy.ASK])
async def test_what_was_fetched_never_supersedes_what_a_person_said(
    open_house: Open, clock: Clock, text: str, agent: str | None, policy: Policy
) -> None:
    """LLM-03: the conflict is noted with both, and both stay to be seen with their words. Control:
    what the person says next supersedes both.
    """
    async with open_house(extractor=Stating()) as house:
        await enter(house)
        async with house.store.transaction(ALICE) as tx:
            await tx.access.set_policy(policy)
        await tell(house, "Ana: Ana lives in Lisbon.")
        clock.pass_(timedelta(days=1))
        await tell(house, text, agent=agent)
        both = await cities(house)

        assert set(both) == {"Lisbon", "Moscow"}
        assert wire.memory(both["Lisbon"])["trust"] == "person"
        assert wire.memory(both["Moscow"])["trust"] in ("fetched", "model")
        assert both["Lisbon"].citation.speaker == "Ana"
        assert both["Moscow"].citation.quote in text
        for memory in both.values():
            assert await history(house, memory) == [(Choice.KEEP_BOTH, "trust")]

        clock.pass_(timedelta(days=1))
        await tell(house, "Ana: Ana moved from Lisbon to Porto.")
        assert set(await cities(house)) == {"Porto"}


async def test_a_person_supersedes_what_was_fetched(open_house: Open, clock: Clock) -> None:
    """LLM-03, the other way round: with their own words, where they say the same."""
    async with open_house(extractor=Stating()) as house:
        await enter(house)
        await tell(house, "Tool: Ana lives in Moscow. Bob lives in Oslo.")
        clock.pass_(timedelta(days=1))
        await tell(house, "Ana: Ana lives in Lisbon. Bob lives in Oslo.")
        found = await cities(house)

        assert set(found) == {"Lisbon", "Oslo"}
        assert {one.citation.speaker for one in found.values()} == {"Ana"}


async def test_a_person_who_says_it_again_ends_the_dispute(open_house: Open, clock: Clock) -> None:
    async with open_house(extractor=Stating()) as house:
        await enter(house)
        await tell(house, "Ana: Ana lives in Lisbon.")
        clock.pass_(timedelta(days=1))
        await tell(house, "Tool: Ana lives in Moscow.")
        clock.pass_(timedelta(days=1))
        await tell(house, "Ana: Ana lives in Lisbon.")

        assert set(await cities(house)) == {"Lisbon"}


async def test_words_that_reach_into_what_was_fetched_are_trusted_no_more_than_that(
    open_house: Open, clock: Clock
) -> None:
    """LLM-03: a model that obeys may cite the person before the page."""
    async with open_house(extractor=Stating(over=True)) as house:
        await enter(house)
        await tell(house, "Ana: Ana lives in Lisbon.")
        clock.pass_(timedelta(days=1))
        await tell(house, "Ana: Thanks, go on.\nTool: Ana lives in Moscow.")

        assert set(await cities(house)) == {"Lisbon", "Moscow"}


@pytest.mark.parametrize(
    "text", ["Tool: Ana lives in Moscow.", "Tool: Ana moved from Lisbon to Moscow."]
)
async def test_a_question_leans_to_the_person_and_their_answer_holds(
    open_house: Open, clock: Clock, text: str
) -> None:
    """LLM-03: who is asked may decide for what was fetched, which corrects nothing by itself."""
    async with open_house(extractor=Stating()) as house:
        await enter(house)
        await tell(house, "Ana: Ana lives in Lisbon.")
        clock.pass_(timedelta(days=1))
        request = Request(Mode.INGEST, "life", text=text)
        await house.services.consolidate.start(ALICE, request, entry=entry(house))
        await drained(house)
        (found,) = await house.services.tasks.questions(ALICE, limit=10)

        assert found.question.recommended is Choice.KEEP_EXISTING
        assert "a program fetched" in found.question.reason
        await house.services.tasks.resolve(
            ALICE, found.question.id, Choice.KEEP_NEW, None, entry=entry(house)
        )
        await drained(house)
        assert set(await cities(house)) == {"Moscow"}


async def test_what_was_fetched_is_not_merged_with_a_persons_word(open_house: Open) -> None:
    """LLM-03. Control: two that people said are."""
    async with open_house(extractor=Stating()) as house:
        await enter(house)
        for text in ("Ana: Ana lives in Lisbon.", "Tool: Bob lives in Lisbon."):
            await tell(house, text)
        async with house.store.driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch("UPDATE memories SET text = 'One lives in Lisbon.', entity = 'One'", {})
        merge = Request(Mode.MERGE, "life", similarity_threshold=0.5)

        async def merged() -> int:
            await house.services.consolidate.start(ALICE, merge, entry=entry(house))
            await drained(house)
            return len(await memories(house))

        assert await merged() == 2
        async with house.store.driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch("UPDATE turns SET speaker = 'Bob' WHERE speaker = 'Tool'", {})
        assert await merged() == 1


async def test_a_source_that_repeats_itself_is_no_further_evidence(open_house: Open) -> None:
    """LLM-06. Control: another person in another session is, once."""
    async with open_house(extractor=Stating()) as house:
        await enter(house)
        await tell(house, "Ana: Ana lives in Lisbon.", session="s0")

        async def after(text: str, *, session: str) -> int:
            for number in range(3):
                await tell(house, text, session=session.format(number))
            (memory,) = await memories(house)
            return memory.reinforcements

        assert await after("Ana: Ana lives in Lisbon.", session="a{}") == 0
        assert await after("Bob: Ana lives in Lisbon.", session="s0") == 0
        assert await after("Assistant: Ana lives in Lisbon.", session="b{}") == 0
        assert await after("Cid: Ana lives in Lisbon.", session="c{}") == 1


async def test_an_episode_that_is_read_again_is_no_further_evidence(open_house: Open) -> None:
    async with open_house(extractor=Stating()) as house:
        await enter(house)
        await tell(house, "Ana: Ana lives in Lisbon.")
        episode = await tell(house, "Bob: Ana lives in Lisbon.")
        async with house.store.transaction(ALICE) as tx:
            (memory,) = await memories(house)
            before = await tx.memories.citations([memory.id])
            await tx.jobs.add("job_again", "extract", {"episode_id": episode}, house.worker._now())
        await drained(house)
        async with house.store.transaction(ALICE, write=False) as tx:
            after = await tx.memories.citations([memory.id])
        (memory,) = await memories(house)

        assert memory.status is Status.ACTIVE
        assert memory.reinforcements == 1
        assert after == before


async def test_a_merge_counts_each_witness_once(open_house: Open) -> None:
    """LLM-06: a hundred that say the same become one that one source has said."""
    async with open_house(extractor=Stating()) as house:
        await enter(house)
        for name in ("Una", "Uno", "Ume"):
            await tell(house, f"Ana: {name} lives in Lisbon.", session=name)
        async with house.store.driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch("UPDATE memories SET text = 'One lives in Lisbon.', entity = 'One'", {})
        merge = Request(Mode.MERGE, "life", similarity_threshold=0.5)
        await house.services.consolidate.start(ALICE, merge, entry=entry(house))
        await drained(house)
        (memory,) = await memories(house)

        assert memory.reinforcements == 0
