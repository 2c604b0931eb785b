"""A purge undoes what a bad source has caused, and nothing else."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from pathlib import Path

import pytest
from typer.testing import CliRunner

from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.cli.commands import app
from recall_server.domain.episode import Source
from recall_server.domain.errors import Invalid, MemoryNotFound, NotRestorable
from recall_server.domain.extraction import Extraction, Passage
from recall_server.domain.memory import Status
from recall_server.domain.moments import Past
from recall_server.domain.permissions import OPERATOR
from recall_server.domain.plan import Choice
from recall_server.domain.query import Query
from recall_server.domain.screening import Held
from recall_server.domain.task import Mode, Request, Task, TaskState
from recall_server.services.erasure.purge_source import BadSource, Purged
from recall_server.services.memory.ingest import Submission
from tests.support.application import Open, settings_for
from tests.support.conversation import ALICE, context, drained, enter, memories
from tests.support.counted import counted
from tests.support.erasure import select
from tests.support.runtime import Clock
from tests.support.statements import Stating, cities, tell

DAY = timedelta(days=1)


class Reading(Stating):
    """Call `meanwhile` while it reads."""

    meanwhile: Callable[[], Awaitable[None]] | None = None

    async def extract(self, passage: Passage) -> Extraction:
        if self.meanwhile is not None:
            await self.meanwhile()
        return await super().extract(passage)


async def purge(application: Application, source: BadSource, *, dry_run: bool = False) -> Purged:
    found = await application.services.sources.purge(context(application), source, dry_run=dry_run)
    await drained(application)
    return found


async def found(application: Application, query: str) -> list[str]:
    answer = await application.services.recall.search(context(application), Query(query))
    return [hit.item.text for hit in answer.hits]


async def poisoned(application: Application, clock: Clock, *, agent: str | None = "mole") -> str:
    """Store what Ana said, then the lies of an agent and what follows from them."""
    await tell(application, "Ana: Ana lives in Lisbon.")
    await tell(application, "Ana: Cid lives in Braga.")
    clock.pass_(DAY)
    episode = await tell(
        application,
        "Ana: Ana lives in Moscow. Bob lives in Oslo. Cid lives in Braga.",
        session="bad",
        agent=agent,
    )
    clock.pass_(DAY)
    await tell(application, "Bob: Bob lives in Oslo.")
    return episode


async def test_a_purge_is_planned_before_others_wait_for_it(open_app: Open) -> None:
    """It read each memory that it changed under the lock, on SQLite under that of all tenants."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        people = [f"Kim{chr(97 + n)} lives in Oslo." for n in range(20)]
        await tell(application, f"Ana: {' '.join(people)}", agent="mole")
        with counted(application) as counts:
            purged = await application.services.sources.purge(
                context(application), BadSource(agent_id="mole"), dry_run=False
            )
        assert len(purged.removed) >= 10
        names = {one.sql: name for name, one in application.store._queries.items()}
        read = [names[sql] for sql in counts.under_lock]
        assert read == ["hold", "number_events", "locked_audit_head"]


@pytest.mark.parametrize("named", ["agent", "session", "episode"])
async def test_what_came_of_a_bad_source_goes_and_what_stood_before_holds_again(
    open_app: Open, clock: Clock, named: str
) -> None:
    """A dry run reports the same and changes nothing."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        episode = await poisoned(application, clock)
        assert set(await cities(application)) == {"Moscow", "Oslo", "Braga"}
        source = {
            "agent": BadSource(agent_id="mole"),
            "session": BadSource(session_id="bad"),
            "episode": BadSource(episode_id=episode),
        }[named]
        before = await memories(application)
        async with application.store.transaction(ALICE) as tx:
            await tx.lock()  # a dry run does not wait for it
            await tx.audit.head()  # PostgreSQL gets the lock with a statement that reads
            async with asyncio.timeout(30):
                planned = await application.services.sources.purge(
                    context(application), source, dry_run=True
                )
        assert await memories(application) == before
        done = await purge(application, source)
        after = await cities(application)

        assert planned.counts() == done.counts()
        assert {m.fact.value for m in done.removed.values() if m.fact} == {"Moscow", "Oslo"}
        assert {m.fact.value for m in done.restored.values() if m.fact} == {"Lisbon"}
        assert {m.fact.value for m in done.kept.values() if m.fact} == {"Braga"}
        assert set(after) == {"Lisbon", "Oslo", "Braga"}
        assert after["Lisbon"].valid_until is None
        # This now cites Bob's own words.
        assert after["Oslo"].citation.speaker == "Bob"
        assert all(one.citation.episode_id != episode for one in after.values())
        assert after["Braga"].reinforcements == 0
        assert any("Lisbon" in text for text in await found(application, "Where does Ana live?"))
        assert not any("Moscow" in text for text in await found(application, "Moscow"))
        held = await application.services.quarantine.list(
            context(application), state=Held.REJECTED, limit=10, offset=0
        )
        assert [one.reasons for one in held.found] == [("source: purged by an operator",)]


async def test_another_source_is_left_as_it_is(open_app: Open, clock: Clock) -> None:
    """Control: that source has stored nothing."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        await poisoned(application, clock)
        before = await memories(application)
        done = await purge(application, BadSource(agent_id="mole", session_id="another"))

        assert not any(done.counts().values())
        assert await memories(application) == before
        with pytest.raises(Invalid):
            BadSource()


async def test_what_came_after_a_lie_still_holds(open_app: Open, clock: Clock) -> None:
    """The chain is closed over the removed memory: the later one supersedes the earlier one."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        await poisoned(application, clock)
        clock.pass_(DAY)
        await tell(application, "Ana: Ana lives in Porto.")
        done = await purge(application, BadSource(agent_id="mole"))
        after = await cities(application)
        told = await application.services.recall.history(context(application), after["Porto"].id)

        assert not done.restored
        assert [one.fact.value for one in told.chain if one.fact] == ["Lisbon", "Porto"]
        assert told.chain[0].status is Status.SUPERSEDED


async def test_a_merge_that_rests_on_a_bad_source_is_undone(open_app: Open, clock: Clock) -> None:
    """Merged memories that cite the source are made again without it."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        for name, agent in (("Una", "good"), ("Uno", "mole"), ("Ume", "good")):
            await tell(application, f"Ana: {name} lives in Lisbon.", agent=agent)
        async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch("UPDATE memories SET entity = 'One'", {})
        merge = Request(Mode.MERGE, "life", similarity_threshold=0.1)
        await application.services.consolidate.start(context(application), merge)
        await drained(application)
        (merged,) = await memories(application)
        done = await purge(application, BadSource(agent_id="mole"))

        assert merged.id in done.removed
        assert {one.text for one in await memories(application)} == {
            "Una lives in Lisbon.",
            "Ume lives in Lisbon.",
        }


async def test_what_a_bad_source_still_has_under_way_does_not_arrive(
    open_app: Open, clock: Clock
) -> None:
    """No waiting text and no waiting task becomes a memory."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        await tell(application, "Ana: Ana lives in Lisbon.")
        clock.pass_(DAY)
        await application.services.ingest.remember(
            context(application),
            Submission("Ana: Bob lives in Kiel.", "life", source=Source(None, "mole")),
        )
        request = Request(
            Mode.INGEST, "life", text="Ana: Ana lives in Moscow.", source=Source(None, "mole")
        )
        task = await application.services.consolidate.start(context(application), request)
        done = await purge(application, BadSource(agent_id="mole"))

        assert done.tasks == [task.id]
        assert set(await cities(application)) == {"Lisbon"}
        assert not await application.services.tasks.questions(context(application), limit=10)


async def test_what_a_worker_has_just_read_of_a_bad_source_does_not_arrive(
    open_app: Open,
) -> None:
    """Control: a text of another source becomes a memory."""
    reading = Reading()
    async with open_app(extractor=reading) as application:
        await enter(application)

        async def purge_once() -> None:
            reading.meanwhile = None
            source = BadSource(agent_id="mole")
            await application.services.sources.purge(context(application), source, dry_run=False)

        for agent, remembered in (("mole", set[str]()), ("good", {"Lisbon"})):
            reading.meanwhile = purge_once
            await tell(application, "Ana: Ana lives in Lisbon.", agent=agent)
            assert set(await cities(application)) == remembered


async def test_a_persons_merge_with_a_lie_is_undone(open_app: Open, clock: Clock) -> None:
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        await tell(application, "Ana: Ana lives in Lisbon.")
        clock.pass_(DAY)
        request = Request(
            Mode.INGEST, "life", text="Ana: Ana lives in Moscow.", source=Source(None, "mole")
        )
        await application.services.consolidate.start(context(application), request)
        await drained(application)
        (asked,) = await application.services.tasks.questions(context(application), limit=10)
        await application.services.tasks.resolve(
            context(application), asked.question.id, Choice.MERGE, "Ana lives in both."
        )
        await drained(application)
        assert [one.text for one in await memories(application)] == ["Ana lives in both."]
        await purge(application, BadSource(agent_id="mole"))

        assert set(await cities(application)) == {"Lisbon"}


async def ask(application: Application, text: str) -> Task:
    """Start a task that waits for an answer."""
    task = await application.services.consolidate.start(
        context(application), Request(Mode.INGEST, "life", text=text)
    )
    await drained(application)
    return await application.services.tasks.get(context(application), task.id)


async def kept(application: Application) -> str:
    """Return everything that is stored of tasks."""
    async with application.store.transaction(ALICE, write=False) as tx:
        return str([task async for task in tx.erasure_scan.tasks()])


@pytest.mark.parametrize("known", [True, False])
async def test_a_task_that_waits_for_an_answer_about_a_lie_is_thought_over(
    open_app: Open, clock: Clock, *, known: bool
) -> None:
    """Its questions, its events and its notifications no longer show the lie. It asks about the
    restored memory, or has no question left. The control: the question of another task stays.
    """
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        if known:
            await tell(application, "Ana: Ana lives in Lisbon.")
        await tell(application, "Ana: Cid lives in Braga.")
        clock.pass_(DAY)
        await tell(application, "Ana: Ana lives in Moscow.", agent="mole")
        other = await ask(application, "Ana: Cid lives in Faro.")
        task = await ask(application, "Ana: Ana lives in Porto.")
        assert [one.existing[0].text for one in task.status.questions] == ["Ana lives in Moscow."]
        assert "Moscow" in await kept(application)
        planned = await purge(application, BadSource(agent_id="mole"), dry_run=True)
        assert (
            await application.services.tasks.get(context(application), task.id)
        ).version == task.version
        done = await purge(application, BadSource(agent_id="mole"))

        assert planned.counts() == done.counts()
        assert (done.tasks, done.requeued) == ([], [task.id])
        assert "Moscow" not in await kept(application)
        after = await application.services.tasks.get(context(application), task.id)
        if known:
            (question,) = after.status.questions
            assert [one.text for one in question.existing] == ["Ana lives in Lisbon."]
            await application.services.tasks.resolve(
                context(application), question.id, Choice.KEEP_NEW, None
            )
            await drained(application)
            after = await application.services.tasks.get(context(application), task.id)
        assert after.status.state is TaskState.COMPLETED
        assert set(await cities(application)) == {"Porto", "Braga"}
        assert await application.services.tasks.get(context(application), other.id) == other
        events = [
            event
            async for event in application.services.tasks.watch(context(application), task.id, 0)
            if event.status
        ]
        assert events[-1].final


async def test_tasks_are_read_before_others_wait_for_a_purge(open_app: Open, clock: Clock) -> None:
    """All tasks of the namespace were read under the lock, with all that they hold."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        await poisoned(application, clock)
        for number in range(3):
            request = Request(Mode.INGEST, "life", text=f"Eve{number} lives in Rome.")
            await application.services.consolidate.start(context(application), request)
            await drained(application)
        with counted(application) as counts:
            await purge(application, BadSource(agent_id="mole"))
    assert counts.under_lock
    assert not any("outcome" in sql and "FROM runs" in sql for sql in counts.under_lock)


async def test_an_answer_about_a_lie_is_taken_back_with_it(open_app: Open, clock: Clock) -> None:
    """If a task had two questions, the answer to the other one holds."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        await tell(application, "Ana: Ana lives in Lisbon.")
        await tell(application, "Ana: Cid lives in Braga.")
        clock.pass_(DAY)
        await tell(application, "Ana: Ana lives in Moscow.", agent="mole")
        task = await ask(application, "Ana: Ana lives in Porto. Cid lives in Faro.")
        lie, braga = sorted(task.status.questions, key=lambda one: "Cid" in one.new.text)
        tasks = application.services.tasks
        await tasks.resolve(context(application), lie.id, Choice.MERGE, "Ana is a spy.")
        await purge(application, BadSource(agent_id="mole"))
        assert "Moscow" not in await kept(application)
        assert "spy" not in await kept(application)
        after = await tasks.get(context(application), task.id)
        assert after.status.questions == (braga,)
        await tasks.resolve(context(application), braga.id, Choice.KEEP_NEW, None)
        await drained(application)
        (question,) = (await tasks.get(context(application), task.id)).status.questions
        assert [one.text for one in question.existing] == ["Ana lives in Lisbon."]
        await tasks.resolve(context(application), question.id, Choice.KEEP_NEW, None)
        await drained(application)
        assert set(await cities(application)) == {"Porto", "Faro"}


def test_an_operator_purges_on_the_command_line(tmp_path: Path) -> None:
    """The command needs a confirmation, and shows a dry run first."""
    file = tmp_path / "recall.db"

    async def fill() -> None:
        settings = settings_for(file, embedder="none")
        async with open_application(settings, extractor=Stating()) as built:
            await enter(built)
            await tell(built, "Ana: Ana lives in Lisbon.")
            await tell(built, "Ana: Bob lives in Oslo\x1b[2J.", agent="mole")

    def said(*words: str, ends: int = 0, typed: str = "") -> str:
        every = ["purge-source", "alice", *words, "--db", str(file)]
        result = CliRunner().invoke(app, every, input=typed)
        assert result.exit_code == ends, result.output
        return result.output

    asyncio.run(fill())
    assert "Name the source" in said(ends=2)
    assert "nothing was removed" in said("--agent", "mole", ends=2, typed="bob\n")
    assert "Would be: 1 episodes, 1 removed." in said("--agent", "mole", "--dry-run")
    assert "Done: 1 episodes, 1 removed." in said("--agent", "mole", typed="alice\n")
    assert json.loads(said("--agent", "mole", "--yes", "--json"))["counts"]["removed"] == 0


# All memories, index entries and quarantine, but not tasks, which a purge deletes.
STANDS = """
SELECT id, status, superseded_by, valid_until, retired_at, reinforcements FROM memories
WHERE status <> 'forgotten' ORDER BY id;
SELECT c.* FROM citations c JOIN memories m ON m.namespace = c.namespace AND m.id = c.memory_id
WHERE m.status <> 'forgotten' ORDER BY c.memory_id, c.position;
SELECT item_id FROM documents WHERE findable ORDER BY item_id;
SELECT term, documents FROM terms WHERE documents > 0 ORDER BY term;
SELECT id, state FROM turns ORDER BY id;
SELECT item_id, state, decided_by, decided_at FROM quarantine ORDER BY item_id
"""


async def stands(application: Application) -> list[list[dict[str, object]]]:
    await drained(application)
    return [await select(application.store, query) for query in STANDS.split(";")]


async def test_a_purge_can_be_undone_and_so_can_its_undo(open_app: Open, clock: Clock) -> None:
    """This includes memories that were made again from the words of others."""
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        await poisoned(application, clock)
        lied = await stands(application)
        clock.pass_(DAY)
        purging = context(application)
        source = BadSource(agent_id="mole")
        await application.services.sources.purge(purging, source, dry_run=False)
        purged = await stands(application)
        assert set(await cities(application)) == {"Lisbon", "Oslo", "Braga"}

        last = purging.entry.change
        for expected in (lied, purged, lied):
            clock.pass_(DAY)
            undoing = context(application)
            await application.services.changes.undo(
                undoing, last, rights=OPERATOR, dry_run=False, with_dependents=False
            )
            last = undoing.entry.change
            assert await stands(application) == expected


async def test_what_was_purged_shows_in_its_past_alone(open_app: Open, clock: Clock) -> None:
    """No list, chain, timeline or id shows it now. A reader of the time before the purge still sees
    it.
    """
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        await poisoned(application, clock)
        recall, whole = application.services.recall, context(application)
        before = await found(application, "Where does Ana live?")
        moscow = (await cities(application))["Moscow"]
        at = clock()
        clock.pass_(DAY)
        await purge(application, BadSource(agent_id="mole"))
        lisbon = (await cities(application))["Lisbon"]

        then = await recall.search(whole, Query("Where does Ana live?", past=Past(known_at=at)))
        assert [hit.item.text for hit in then.hits] == before
        assert any("Moscow" in text for text in before)
        chain = (await recall.history(whole, lisbon.id)).chain
        assert [one.id for one in chain] == [lisbon.id]
        assert moscow.id in [
            one.id for one in (await recall.history(whole, lisbon.id, Past(known_at=at))).chain
        ]
        with pytest.raises(MemoryNotFound):
            await recall.history(whole, moscow.id)
        told = await recall.timeline(whole, "Ana", "lives_in")
        assert [one.id for one in told.memories] == [lisbon.id]
        for refused in (NotRestorable, MemoryNotFound):
            asked = recall.restore if refused is NotRestorable else recall.forget
            with pytest.raises(refused):
                await asked(context(application), moscow.id)


async def test_an_erasure_destroys_what_was_purged(open_app: Open, clock: Clock) -> None:
    async with open_app(extractor=Stating()) as application:
        await enter(application)
        await poisoned(application, clock)
        moscow = (await cities(application))["Moscow"]
        purging = context(application)
        source = BadSource(agent_id="mole")
        await application.services.sources.purge(purging, source, dry_run=False)
        await drained(application)
        await application.services.erase.memory(context(application), moscow.id)
        await drained(application)

        rows = await select(application.store, "SELECT id FROM memories")
        assert moscow.id not in {row["id"] for row in rows}
        await application.services.changes.undo(
            context(application),
            purging.entry.change,
            rights=OPERATOR,
            dry_run=False,
            with_dependents=False,
        )
        assert not any("Moscow" in text for text in await found(application, "Moscow"))
