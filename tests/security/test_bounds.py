"""A request costs others what its size costs, in any form. The tests count work and rows; neither
grows with what was stored before.
"""

import time
from dataclasses import replace

import pytest

from recall_server.application import Application
from recall_server.domain.memory import Fact
from recall_server.domain.similarity import clusters
from recall_server.domain.task import Mode, Request, Work
from recall_server.domain.text.dates import periods
from recall_server.integrations.computing import computing_process
from recall_server.integrations.redaction import SecretRedactor
from tests.support.application import Open
from tests.support.conversation import ALICE, citing, context, drained, enter, memories, remember
from tests.support.counted import Calls, Counts, calls, counted, steps
from tests.support.engines import on_sqlite
from tests.support.length import only_at_full_length
from tests.support.runtime import NOON

# The documents state these limits.
RELATED_MAX = 200
WORK = Work("ep_1", NOON)
LIKES, LIVES = "User: I like {}{}.", "User: I live in {}{}."


async def known(application: Application, attribute: str, numbers: range, words: str = "") -> None:
    """Make active memories of the user, each with another value of one attribute."""
    async with application.store.transaction(ALICE) as tx:
        memory = await citing(tx)
        for number in numbers:
            said = f"The user {attribute} thing{number} {words}."
            fact = Fact("user", attribute, f"thing{number}")
            await tx.memories.add(replace(memory, id=f"mem_{number:05}", text=said, fact=fact))


async def learned(application: Application, text: str, value: str) -> Counts:
    """Return the cost of making memories of a text."""
    said = "\n".join(text.format(value, number) for number in range(12))
    await remember(application, said)
    with counted(application) as counts:
        await drained(application)
    return counts


@pytest.mark.parametrize(
    ("attribute", "text"), [("likes", LIKES), ("lives_in", LIVES)], ids=["many", "one"]
)
async def test_a_claim_is_compared_with_no_more_memories_than_is_allowed(
    open_app: Open, attribute: str, text: str
) -> None:
    """For an attribute with many values, only memories with the same value are read. For an
    attribute with a single value, only the newest are read. Control: an equal value is found, and
    a different one supersedes.
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

    if attribute == "likes":
        assert values.count("thing11") == 1
    else:
        assert len(values) <= 2 * RELATED_MAX + 12
    assert few.read[True] > 0
    assert many.most <= RELATED_MAX
    assert many.read[True] <= few.read[True] + 3 * RELATED_MAX


async def test_a_value_said_again_is_found_beyond_those_a_claim_is_compared_with(
    open_app: Open,
) -> None:
    """The attribute has a single value, and more memories of it were kept than are compared.
    Control: another value is new.
    """
    async with open_app() as application:
        await enter(application)
        await remember(application, "User: Hello there, good morning.")
        await drained(application)
        await known(application, "lives_in", range(2 * RELATED_MAX))
        before = [one.fact.value for one in await memories(application, limit=1_000) if one.fact]
        await learned(application, "User: I live in {}.", before[-1])
        after = [one.fact.value for one in await memories(application, limit=1_000) if one.fact]

    assert len(before) == 2 * RELATED_MAX
    assert after.count(before[-1]) == 1


async def test_masking_lets_the_others_go_on_however_a_text_is_cut() -> None:
    """A long text is masked in a thread. Between many short texts, other callers get their turn.
    Control: one short text needs neither.
    """
    redactor = SecretRedactor()
    await redactor.ready()

    async def turns(*texts: str) -> int:
        async with steps() as taken:
            for text in texts:
                await redactor.redact([text])
        return taken.count

    hostile = "password=" * 7_000
    alone = await turns("password=")
    assert await turns(hostile[:65_536]) > alone
    many = await turns(*(hostile[:1_000] for _ in range(60)))
    assert many >= alone + 10


def test_so_many_dates_of_a_question_are_read() -> None:
    """Work stops growing after the first dates. Control: the first dates are found."""
    few, many = "in Dec 2021, " + "Dec " * 20, "in Dec 2021, " + "Dec " * 400

    assert len(periods(many, NOON)) == 1
    with calls() as of_few:
        periods(few, NOON)
    with calls() as of_many:
        periods(many, NOON)
    assert of_many.count <= 1.5 * of_few.count


@only_at_full_length
@on_sqlite
async def test_many_memories_are_grouped_in_another_process(open_app: Open) -> None:
    """A thread would share the interpreter with all calls. Control: the same groups are found."""
    async with open_app(embedder=None) as application:
        await enter(application)
        await remember(application, "User: Hello there, good morning.")
        await drained(application)
        await known(application, "likes", range(2_400), words="and tells me so " * 30)
        found = await memories(application, limit=4_000)
        before = time.thread_time()
        groups = clusters(found, {}, 0.5)
        alone_s = time.thread_time() - before
        merge = Request(Mode.MERGE, "life", similarity_threshold=0.5)
        async with computing_process() as compute:
            merging = replace(application.services.consolidate.merging, compute=compute)
            async with steps() as taken:
                (work,) = [one async for one in merging.steps(ALICE, merge, WORK)][:1]

    assert work.groups == tuple(tuple(one.id for one in group) for group in groups)
    assert len(found) >= 2_400
    assert taken.longest_s < alone_s / 8


async def test_a_long_text_is_planned_before_the_transaction_that_writes(open_app: Open) -> None:
    """The work grows only with the length of the text. Control: a short text is planned inside the
    transaction, and both ways give the same plan.
    """

    async def planned(facts: int) -> tuple[Counts, Calls]:
        text = "\n".join(
            f"User: I like fig {n} of the garden, as everybody knows." for n in range(facts)
        )
        request = Request(Mode.INGEST, "life", text=text, dry_run=True)
        task = await application.services.consolidate.start(context(application), request)
        with counted(application) as counts, calls() as called:
            await drained(application)
        done = await application.services.tasks.get(context(application), task.id)
        assert done.outcome is not None
        assert len(done.outcome.created) == facts
        return counts, called

    async with open_app() as application:
        await enter(application)
        short, _ = await planned(10)
        long, called = await planned(150)
        longer, more = await planned(450)

    if application.store.engine == "postgres":
        # The events of the task alone. SQLite takes rows quicker one after the other.
        assert short.rows_alone == longer.rows_alone <= 5
    assert short.fetches[True] > 20
    assert long.fetches[True] == longer.fetches[True] < 20
    assert more.count < 4.5 * called.count


async def test_many_statements_that_are_said_again_are_written_together(open_app: Open) -> None:
    """Control: each has its citations."""
    facts = [f"I like fig {number} of the garden." for number in range(60)]

    async def told(text: str) -> Counts:
        request = Request(Mode.INGEST, "life", text=text)
        with counted(application) as counts:
            await application.services.consolidate.start(context(application), request)
            await drained(application)
        return counts

    async with open_app() as application:
        await enter(application)
        await told("\n".join(facts))
        few = await told("\n".join(facts[:2]) + "\nBye.")
        many = await told("\n".join(facts))
        found = {one.text: one for one in await memories(application, limit=100)}
        async with application.store.transaction(ALICE, write=False) as tx:
            cited = [len(await tx.memories.citations([one.id])) for one in found.values()]

    assert len(found) > 50
    assert len(many.expected) <= len(few.expected) + 2
    assert sum(cited) > 1.9 * len(found)
    assert max(cited) == 3
