"""Consolidation: what is committed, what is shown, what waits for an answer, and how long."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.domain.episode import Source, turn_id
from recall_server.domain.errors import (
    ModelUnavailable,
    NotFound,
    NotWaiting,
    TaskEnded,
    TaskNotFound,
)
from recall_server.domain.extraction import Merged, Usage
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import Memory
from recall_server.domain.plan import Choice, Policy, Question
from recall_server.domain.task import Expiry, Mode, Request, Task, TaskState
from recall_server.services.memory.commit import PLANNED_INSIDE_MAX
from recall_server.worker import FAILURES_MAX
from tests.support.application import Open, settings_for
from tests.support.conversation import context, drained, enter, memories, remember
from tests.support.counted import counted, interrupted
from tests.support.extractors import Scripted
from tests.support.models import HashEmbedder
from tests.support.runtime import Clock

LISBON, PORTO = "User: I live in Lisbon.", "User: I live in Porto."


@pytest.fixture
async def application(open_app: Open) -> Application:  # type: ignore[misc]
    async with open_app() as built:
        await enter(built)
        yield built


async def task(application: Application, text: str = "", **given: object) -> Task:
    """Run a task on a text (or on the given request) until it pauses or ends."""
    request = Request(
        **{"mode": Mode.INGEST if text else Mode.MERGE, "topic": "life", "text": text, **given}  # type: ignore[arg-type]
    )
    started = await application.services.consolidate.start(context(application), request)
    await drained(application)
    return await application.services.tasks.get(context(application), started.id)


async def answered(application: Application, paused: Task, given: object) -> Task:
    await application.services.tasks.answer(context(application), paused.id, given)  # type: ignore[arg-type]
    await drained(application)
    return await application.services.tasks.get(context(application), paused.id)


async def values(application: Application) -> list[str]:
    return sorted(
        m.fact.value for m in await memories(application) if m.fact and not m.fact.negated
    )


def question(paused: Task) -> Question:
    assert paused.status.state is TaskState.INPUT_REQUIRED, paused.status
    (one,) = paused.status.questions
    return one


# --- questions, and what needs none ---


async def test_another_value_of_a_single_valued_attribute_is_asked_about(
    application: Application,
) -> None:
    await task(application, LISBON)
    asked = question(await task(application, PORTO))

    assert asked.existing[0].citation.quote == "I live in Lisbon."
    assert asked.new.citation.quote == "I live in Porto."
    assert asked.recommended is Choice.KEEP_NEW
    assert await values(application) == ["Lisbon"]


async def test_a_statement_that_denies_a_stored_one_is_asked_about(
    application: Application,
) -> None:
    await task(application, "User: I like sushi.")
    asked = question(await task(application, "User: I don't like sushi."))

    assert asked.new.fact is not None
    assert asked.new.fact.negated


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("User: I don't live in Lisbon any more, I live in Porto now.", ["Porto"]),
        ("User: I live in Lisbon.", ["Lisbon"]),
        ("User: I like chess.", ["Lisbon", "chess"]),
    ],
)
async def test_what_is_clear_settles_itself(
    application: Application, text: str, left: list[str]
) -> None:
    await task(application, LISBON)
    done = await task(application, text)

    assert done.status.state is TaskState.COMPLETED
    assert await values(application) == left


@pytest.mark.parametrize(
    ("policy", "left"),
    [
        (Policy.DECIDE, ["Porto"]),
        (Policy.KEEP_NEW, ["Porto"]),
        (Policy.KEEP_EXISTING, ["Lisbon"]),
        (Policy.KEEP_BOTH, ["Lisbon", "Porto"]),
    ],
)
async def test_a_policy_answers_without_asking(
    application: Application, clock: Clock, policy: Policy, left: list[str]
) -> None:
    await task(application, LISBON)
    clock.pass_(timedelta(minutes=1))
    done = await task(application, PORTO, policy=policy)

    assert done.status.state is TaskState.COMPLETED
    assert await values(application) == left


async def test_a_policy_of_the_namespace_holds_where_a_request_says_nothing(
    application: Application,
) -> None:
    tasks = application.services.tasks
    await task(application, LISBON)
    await tasks.set_policy(context(application), Policy.KEEP_BOTH)
    done = await task(application, PORTO)
    assert done.status.state is TaskState.COMPLETED
    assert await values(application) == ["Lisbon", "Porto"]

    asked = await task(application, "User: I live in Madrid.", policy=Policy.ASK)
    assert asked.status.state is TaskState.INPUT_REQUIRED

    await tasks.set_policy(context(application), Policy.KEEP_EXISTING)
    await remember(application, "User: I live in Faro.")
    await drained(application)
    assert await values(application) == ["Lisbon", "Porto"]
    with pytest.raises(NotFound):
        await tasks.set_policy(context(application, Namespace("nobody")), Policy.ASK)


async def test_a_run_whose_worker_was_lost_is_taken_up_again_and_applied_once(
    application: Application, clock: Clock
) -> None:
    request = Request(Mode.INGEST, "life", LISBON)
    started = await application.services.consolidate.start(context(application), request)
    async with application.store.transaction(None) as tx:
        assert await tx.jobs.claim("", clock(), clock() + timedelta(minutes=3))  # The worker dies.
    await drained(application)
    assert not (
        await application.services.tasks.get(context(application), started.id)
    ).status.state.final

    clock.pass_(timedelta(minutes=4))
    await drained(application)

    done = await application.services.tasks.get(context(application), started.id)
    assert done.status.state is TaskState.COMPLETED
    assert await values(application) == ["Lisbon"]


# --- answers ---


@pytest.mark.parametrize(
    ("choice", "left"),
    [("keep_new", ["Porto"]), ("keep_existing", ["Lisbon"]), ("keep_both", ["Lisbon", "Porto"])],
)
async def test_an_answer_takes_effect_and_says_who_gave_it(
    application: Application, choice: str, left: list[str]
) -> None:
    await task(application, LISBON)
    paused = await task(application, PORTO)
    asked = question(paused)
    done = await answered(application, paused, choice)

    assert done.status.state is TaskState.COMPLETED
    assert await values(application) == left
    for memory in (asked.new, asked.existing[0]):
        told = await application.services.recall.history(context(application), memory.id)
        (decision,) = told.decisions[memory.id]
        assert (decision.choice, decision.decided_by) == (Choice(choice), "acc_test")


async def test_a_merged_text_takes_the_place_of_both(application: Application) -> None:
    await task(application, LISBON)
    paused = await task(application, PORTO)
    text = "Lives in Lisbon on weekdays and in Porto at weekends."
    given = [{"id": question(paused).id, "choice": "merge", "text": text}]
    done = await answered(application, paused, given)

    assert done.status.state is TaskState.COMPLETED
    (left,) = await memories(application)
    assert left.text == text
    told = await application.services.recall.history(context(application), left.id)
    assert len(told.chain) == 3


async def test_a_part_of_the_answers_is_kept_and_the_rest_is_asked_again(
    application: Application,
) -> None:
    await task(application, "User: I live in Lisbon. I work at Acme.")
    paused = await task(application, "User: I live in Porto. I work at Globex.")
    first, second = paused.status.questions
    half = await answered(application, paused, [{"id": second.id, "choice": "keep_new"}])

    assert [one.id for one in half.status.questions] == [first.id]
    assert await values(application) == ["Acme", "Lisbon"]
    done = await answered(application, half, "1: keep existing")
    assert done.status.state is TaskState.COMPLETED
    assert await values(application) == ["Globex", "Lisbon"]


@pytest.mark.parametrize(
    "given",
    [
        [],
        ["keep_new"],
        [{"id": "q_unknown", "choice": "keep_new"}],
        [{"choice": "keep_new"}],
        "what do you mean?",
        "keep the new one and keep the old one",
        "merge",
    ],
)
async def test_an_unclear_answer_leaves_the_task_paused_and_says_why(
    application: Application, given: object
) -> None:
    await task(application, LISBON)
    paused = await task(application, PORTO)
    told = await application.services.tasks.answer(context(application), paused.id, given)  # type: ignore[arg-type]
    still = await application.services.tasks.get(context(application), paused.id)

    assert question(told) == question(still) == question(paused)
    assert told.status.note
    assert await values(application) == ["Lisbon"]
    done = await answered(application, still, "please keep the new one")
    assert done.status.state is TaskState.COMPLETED


async def test_of_several_answers_at_once_one_is_taken(application: Application) -> None:
    await task(application, LISBON)
    paused = await task(application, PORTO)

    async def one(choice: str) -> Task | BaseException:
        return await application.services.tasks.answer(context(application), paused.id, choice)

    said = await asyncio.gather(
        *(one(("keep_new", "keep_existing")[n % 2]) for n in range(10)), return_exceptions=True
    )

    assert sum(isinstance(answer, Task) for answer in said) == 1
    assert sum(isinstance(answer, NotWaiting) for answer in said) == 9
    assert all("acc_test" in str(answer) for answer in said if isinstance(answer, NotWaiting))


async def test_facts_that_moved_while_it_was_paused_are_asked_about_anew(
    application: Application, clock: Clock
) -> None:
    await task(application, LISBON)
    paused = await task(application, PORTO)
    clock.pass_(timedelta(days=1))
    await remember(application, "User: I live in Madrid.")
    await drained(application)
    again = await answered(application, paused, "keep_new")

    (moved,) = question(again).existing
    assert moved.text == "The user lives in Madrid."
    assert question(again).id != question(paused).id
    done = await answered(application, again, "keep_existing")
    assert done.status.state is TaskState.COMPLETED
    assert await values(application) == ["Madrid"]


# --- memory stays as it was ---


async def test_a_paused_or_cancelled_run_leaves_memory_as_it_was(application: Application) -> None:
    await task(application, LISBON)
    before = await memories(application)
    paused = await task(application, "User: I live in Porto. I like chess.")
    assert await memories(application) == before

    await application.services.tasks.cancel(context(application), paused.id)

    assert await memories(application) == before
    with pytest.raises(NotWaiting):
        await answered(application, paused, "keep_new")
    with pytest.raises(TaskEnded):
        await application.services.tasks.cancel(context(application), paused.id)


async def test_a_dry_run_shows_the_plan_and_applying_it_does_exactly_that(
    application: Application,
) -> None:
    planned = await task(application, LISBON, dry_run=True)
    assert planned.outcome is not None
    assert await memories(application) == []

    done = await task(application, mode=Mode.APPLY, plan_id=planned.id)

    assert done.outcome is not None
    assert [m.id for m in done.outcome.created] == [m.id for m in planned.outcome.created]
    assert await values(application) == ["Lisbon"]


async def test_a_plan_whose_ground_has_moved_is_refused(application: Application) -> None:
    planned = await task(application, LISBON, dry_run=True, policy=Policy.DECIDE)
    await task(application, PORTO)
    stale = await task(application, mode=Mode.APPLY, plan_id=planned.id)

    assert stale.status.failure is not None
    assert stale.status.failure.code == "PLAN_OUTDATED"
    assert await values(application) == ["Porto"]
    with pytest.raises(NotFound):
        await task(application, mode=Mode.APPLY, plan_id="task_unknown")


# --- time ---


@pytest.mark.parametrize(
    ("on_expiry", "state", "left"),
    [
        (Expiry.KEEP_NEW, TaskState.COMPLETED, ["Porto"]),
        (Expiry.KEEP_EXISTING, TaskState.COMPLETED, ["Lisbon"]),
        (Expiry.CANCEL, TaskState.CANCELED, ["Lisbon"]),
    ],
)
async def test_what_nobody_answers_in_time_ends_as_was_said(
    application: Application, clock: Clock, on_expiry: Expiry, state: TaskState, left: list[str]
) -> None:
    await task(application, LISBON)
    paused = await task(application, PORTO, expires_in_s=3600.0, on_expiry=on_expiry)
    clock.pass_(timedelta(minutes=59))
    await drained(application)
    assert (
        await application.services.tasks.get(context(application), paused.id)
    ).status == paused.status

    clock.pass_(timedelta(minutes=2))
    await drained(application)

    assert (
        await application.services.tasks.get(context(application), paused.id)
    ).status.state is state
    assert await values(application) == left


async def test_an_ended_run_is_removed_after_its_time(
    application: Application, clock: Clock
) -> None:
    done = await task(application, LISBON)
    clock.pass_(timedelta(days=29))
    await drained(application)
    assert (await application.services.tasks.get(context(application), done.id)).id == done.id

    clock.pass_(timedelta(days=2))
    await drained(application)

    with pytest.raises(TaskNotFound):
        await application.services.tasks.get(context(application), done.id)
    assert await values(application) == ["Lisbon"]


# --- failure ---


async def test_a_model_that_is_away_is_waited_for(open_app: Open, clock: Clock) -> None:
    extractor = Scripted()
    extractor.fails = [ModelUnavailable()]
    async with open_app(extractor=extractor) as application:
        await enter(application)
        waiting = await task(application, LISBON)
        assert not waiting.status.state.final

        clock.pass_(timedelta(minutes=1))
        await drained(application)

        assert (
            await application.services.tasks.get(context(application), waiting.id)
        ).status.state.final


async def test_a_run_that_another_process_has_ended_is_not_worked_on_from_memory(
    open_app: Open, clock: Clock
) -> None:
    """That process works from its own memory of the task, and must notice the end all the same."""
    request = Request(mode=Mode.INGEST, topic="life", text=LISBON)
    async with open_app() as first, open_app() as second:
        await enter(first)
        control = await first.services.consolidate.start(context(first), request)
        await drained(first)
        kept = await values(first)
        ended = await first.services.consolidate.start(context(first), replace(request, text=PORTO))
        await second.services.tasks.cancel(context(second), ended.id)
        await drained(first)
        clock.pass_(timedelta(minutes=1))
        await drained(first)

        found = await first.services.tasks.get(context(first), control.id)
        left = await first.services.tasks.get(context(first), ended.id)
        assert found.status.state is TaskState.COMPLETED
        assert left.status.state is TaskState.CANCELED
        assert await values(first) == kept == ["Lisbon"]


async def test_whoever_waits_for_a_run_that_is_given_up_is_told_at_once(
    open_app: Open, clock: Clock
) -> None:
    """The next look at changes of other processes would be an hour later."""
    async with open_app(task_poll_s=3600) as application:
        await enter(application)
        request = Request(mode=Mode.INGEST, topic="life", text=LISBON)
        started = await application.services.consolidate.start(context(application), request)
        for _ in range(FAILURES_MAX + 1):
            async with application.store.transaction(None) as tx:
                await tx.jobs.claim("", clock(), clock() + timedelta(minutes=1))
            clock.pass_(timedelta(minutes=2))
        waiting = asyncio.create_task(
            application.services.tasks.wait_until_idle(context(application), started)
        )
        await asyncio.sleep(0)
        await drained(application)
        async with asyncio.timeout(5):
            rested = await waiting

    assert rested.status.state is TaskState.FAILED
    assert rested.status.failure is not None
    assert rested.status.failure.code == "WORKER_LOST"


async def test_a_defect_ends_the_run_with_a_reference_and_nothing_else(open_app: Open) -> None:
    extractor = Scripted()
    extractor.fails = [RuntimeError("secret at /etc/passwd: SELECT")]
    async with open_app(extractor=extractor) as application:
        await enter(application)
        failed = await task(application, LISBON)

    assert failed.status.state is TaskState.FAILED
    assert failed.status.note.startswith("internal error (ref req_")
    assert "passwd" not in str(failed.status)


async def test_fifty_paused_runs_hold_no_task_of_the_loop(application: Application) -> None:
    await task(application, LISBON)
    before = len(asyncio.all_tasks())
    for _ in range(50):
        request = Request(Mode.INGEST, "life", PORTO)
        await application.services.consolidate.start(context(application), request)
    await drained(application)

    waiting = await application.services.tasks.questions(context(application), limit=1_000)
    assert len(waiting) == 50
    assert len(asyncio.all_tasks()) == before


async def test_another_tenant_finds_nothing(application: Application) -> None:
    mallory = Namespace("mallory")
    await enter(application, mallory)
    await task(application, LISBON)
    paused = await task(application, PORTO)
    tasks = application.services.tasks

    with pytest.raises(TaskNotFound):
        await tasks.get(context(application, mallory), paused.id)
    with pytest.raises(TaskNotFound):
        await tasks.answer(context(application, mallory), paused.id, "keep_new")
    with pytest.raises(TaskNotFound):
        await tasks.cancel(context(application, mallory), paused.id)
    assert await tasks.questions(context(application, mallory), limit=10) == []
    assert len(await tasks.questions(context(application), limit=10)) == 1


# --- merging ---


async def test_similar_memories_of_a_topic_become_one_that_says_all_they_say(
    application: Application,
) -> None:
    for text in (
        "User: I like hiking in the mountains.",
        "User: I really like hiking in the mountains near Porto.",
    ):
        await remember(application, text)
        await drained(application)
    sources = await memories(application)
    planned = await task(application, dry_run=True, similarity_threshold=0.6)
    assert await memories(application) == sources

    done = await task(application, similarity_threshold=0.6)

    assert planned.outcome is not None
    assert done.outcome is not None
    (merged,) = await memories(application)
    assert [m.text for m in planned.outcome.created] == [merged.text]
    assert "Porto" in merged.text
    assert sorted(done.outcome.superseded) == sorted(m.id for m in sources)
    told = await application.services.recall.history(context(application), merged.id)
    assert {m.id for m in told.chain} == {merged.id, *(m.id for m in sources)}


class Model:
    """A merger that asks a model, and counts its calls."""

    name = "model/1"
    call_tokens_max = 100

    def __init__(self) -> None:
        self.asked = 0

    async def merge(self, memories: Sequence[Memory]) -> Merged | None:
        self.asked += 1
        return Merged(f"All {len(memories)} at once.", self.name, Usage(self.name, 10, 5))

    async def preview(self, memories: Sequence[Memory]) -> Merged | None:
        return Merged(f"To be written from {len(memories)}.", self.name, draft=True)

    async def close(self) -> None:
        """Do nothing: nothing is open."""


async def test_a_dry_run_of_a_merge_pays_no_model_and_applying_it_pays_once(
    database: Path | str, clock: Clock
) -> None:
    model = Model()
    async with open_application(
        settings_for(database), merger=model, embedder=HashEmbedder(), now=clock
    ) as application:
        await enter(application)
        for text in (
            "User: I like hiking in the mountains.",
            "User: I really like hiking in the mountains near Porto.",
        ):
            await remember(application, text)
            await drained(application)
        sources = sorted(m.id for m in await memories(application))
        assert len(sources) == 2
        planned = await task(application, dry_run=True, similarity_threshold=0.6)
        assert planned.outcome is not None
        assert (model.asked, planned.work.usage.input_tokens) == (0, 0)
        assert [m.text for m in planned.outcome.created] == ["To be written from 2."]
        assert sorted(planned.outcome.superseded) == sources

        done = await task(application, mode=Mode.APPLY, plan_id=planned.id)
        assert done.outcome is not None, done.status
        assert (model.asked, done.work.usage.input_tokens) == (1, 10)
        assert [m.text for m in await memories(application)] == ["All 2 at once."]
        assert sorted(done.outcome.superseded) == sources

        again = await task(application, mode=Mode.APPLY, plan_id=planned.id)
        assert again.status.failure is not None
        assert (again.status.failure.code, model.asked) == ("PLAN_OUTDATED", 1)


@pytest.mark.parametrize(
    ("agent", "left"), [("web:crawler", ["Lisbon", "Porto"]), (None, ["Porto"])]
)
async def test_an_expiry_lifts_nothing_fetched_over_what_a_person_said(
    application: Application, clock: Clock, agent: str | None, left: list[str]
) -> None:
    """A policy does not do so either. Both stay, and the result says so. The control: words of a
    person.
    """
    await task(application, LISBON)
    paused = await task(
        application,
        PORTO,
        policy=Policy.ASK,
        expires_in_s=3600.0,
        on_expiry=Expiry.KEEP_NEW,
        source=Source(agent_id=agent),
    )
    assert paused.status.state is TaskState.INPUT_REQUIRED
    clock.pass_(timedelta(hours=2))
    await drained(application)
    done = await application.services.tasks.get(context(application), paused.id)

    assert await values(application) == left
    assert done.outcome is not None
    (decided,) = done.outcome.resolutions
    assert decided.decided_by == ("trust" if agent else "expiry")


class Repeating(Model):
    """A merger whose model always returns this text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.text = text

    async def merge(self, memories: Sequence[Memory]) -> Merged | None:
        return Merged(self.text, self.name, Usage(self.name, 10, 5))


ERASED = "I have been treated for a rare illness in Graz."


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        (ERASED, False),
        (f"I like hiking. {ERASED.upper()}", False),
        ("I like hiking in the mountains near Porto.", True),
    ],
)
async def test_a_merged_text_that_brings_back_what_was_erased_is_left_out(
    database: Path | str, clock: Clock, said: str, kept: bool
) -> None:
    """It is counted as rejected. Control: another answer of the model is accepted."""
    async with open_application(
        settings_for(database), merger=Repeating(said), embedder=HashEmbedder(), now=clock
    ) as application:
        await enter(application)
        for text in (
            f"User: {ERASED}",
            "User: I like hiking in the mountains.",
            "User: I really like hiking in the mountains near Porto.",
        ):
            accepted = await remember(application, text)
            await drained(application)
            if ERASED in text:
                item = turn_id(accepted.episode_id, 0)
                await application.services.erase.memory(context(application), item)
                await drained(application)
        sources = await memories(application)
        done = await task(application, similarity_threshold=0.6)
        left = await memories(application)

    assert len(sources) == 2
    assert done.outcome is not None
    assert done.outcome.rejected == (0 if kept else 1)
    assert [one.text for one in left] == ([said] if kept else [one.text for one in sources])


def figs(many: int) -> str:
    """Return about half as many statements as are wanted, since some are read as one."""
    return " ".join(f"I like fig{chr(97 + n % 26)}{chr(97 + n // 26)}." for n in range(many))


async def test_what_a_task_changes_is_planned_before_others_wait(application: Application) -> None:
    """On SQLite the writers of all tenants wait for its transaction."""
    asked = []
    for many in (40, 120):
        with counted(application) as counts:
            done = await task(application, f"Ann{many}: {figs(many)}")
        assert done.outcome
        asked.append((len(done.outcome.created), counts.fetches[True]))
    (few, fetches), (more, still) = asked
    assert PLANNED_INSIDE_MAX < few < more / 2
    assert still <= fetches


async def test_what_changes_while_a_task_is_planned_is_planned_with(
    application: Application,
) -> None:
    """It is asked about, as if it had been there before."""

    async def live() -> None:
        await remember(application, PORTO)
        await drained(application)

    with interrupted(application, "memories_of_value", live):
        asked = question(await task(application, f"{LISBON} {figs(60)}"))

    assert asked.existing[0].citation.quote == "I live in Porto."
