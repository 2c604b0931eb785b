"""What one token asks for costs what its bytes cost others, however it is put: work and rows are
counted, and do not grow with what was stored before.
"""

from dataclasses import replace

import pytest

from recall_server.application import Application
from recall_server.domain.episode import Citation, Span
from recall_server.domain.memory import Fact, Memory, MemoryType
from recall_server.storage.tables.memories import RELATED_MAX
from tests.support.application import Open
from tests.support.conversation import ALICE, drained, enter, memories, remember
from tests.support.counted import Counts, counted
from tests.support.runtime import NOON

LIKES, LIVES = "User: I like {}{}.", "User: I live in {}{}."


async def known(application: Application, attribute: str, numbers: range) -> None:
    """Active memories of the user, each with another value of one attribute."""
    async with application.store.transaction(ALICE) as tx:
        ids, _ = await tx.findables.page(0)
        memory = Memory(
            id="",
            text="",
            type=MemoryType.PREFERENCE,
            topic="life",
            citation=Citation(ids[0].partition(".")[0], Span(6, 12)),
            said_at=NOON,
            valid_from=NOON,
            recorded_at=NOON,
            extractor="test",
        )
        for number in numbers:
            said = f"The user {attribute} thing{number}."
            fact = Fact("user", attribute, f"thing{number}")
            await tx.memories.add(replace(memory, id=f"mem_{number:05}", text=said, fact=fact))


async def learned(application: Application, text: str, value: str) -> Counts:
    """What it took to make memories of a text."""
    said = "\n".join(text.format(value, number) for number in range(12))
    await remember(application, said)
    with counted(application) as counts:
        await drained(application)
    return counts


@pytest.mark.parametrize(("attribute", "text"), [("likes", LIKES), ("lives_in", LIVES)])
async def test_a_claim_is_compared_with_no_more_memories_than_is_allowed(
    open_app: Open, attribute: str, text: str
) -> None:
    """Of an attribute with many values only those with the same value are read, of one with a
    single value the newest. Control: what is the same is found.
    """
    async with open_app() as application:
        await enter(application)
        await remember(application, "User: Hello there, good morning.")
        await drained(application)
        await known(application, attribute, range(3))
        few = await learned(application, text, "Fig")
        await known(application, attribute, range(3, 3 * RELATED_MAX))
        many = await learned(application, text, "thing")
        values = [one.fact.value for one in await memories(application, limit=1_000) if one.fact]

    # What was known and is said again stands there once.
    assert values.count("thing11") == 1
    assert few.read[True] > 0
    assert many.most <= RELATED_MAX
    assert many.read[True] <= few.read[True] + 3 * RELATED_MAX
