"""Slots of the worker: no tenant can hold all of them, and pushes have their own."""

import asyncio

import pytest

from recall_server.application import Application
from recall_server.bootstrap import working
from recall_server.domain.extraction import Extraction, Passage
from recall_server.domain.ids import Namespace
from recall_server.domain.task import JobState, Mode, Request, Task
from recall_server.services.memory.ingest import Submission
from recall_server.services.tasks.push import PushRequest
from recall_server.storage.store import Transaction
from recall_server.storage.tables.tasks import CONFIGS_MAX
from tests.support.application import Open
from tests.support.conversation import ALICE, context, enter
from tests.support.extractors import Scripted
from tests.support.models import Manner, Reply
from tests.support.processes import until
from tests.support.receivers import Receiver, loopback
from tests.support.server import WITHIN_S

BOB = Namespace("bob")


async def store(application: Application, text: str, namespace: Namespace = ALICE) -> None:
    await application.services.ingest.remember(
        context(application, namespace), Submission(text, "life")
    )


class SlowForAlice(Scripted):
    """An extractor that never ends with a text of Alice."""

    async def extract(self, passage: Passage) -> Extraction:
        self.asked += 1
        if "Alice" in passage.text:
            await asyncio.Event().wait()
        return Extraction((), self.name)


@pytest.mark.parametrize("jobs", [2, 5])
async def test_a_tenant_whose_jobs_are_slow_does_not_hold_all_slots(
    open_app: Open, jobs: int
) -> None:
    extractor = SlowForAlice()
    async with open_app(extractor=extractor, worker_jobs=jobs, drain_s=0.05) as application:
        await enter(application)
        await enter(application, BOB)
        async with working(application):
            for number in range(2 * jobs):
                await store(application, f"Alice: I like tea number {number}.")

            async def alice_has_her_share() -> bool:
                return extractor.asked >= jobs - 1

            await until(alice_has_her_share, WITHIN_S, "Alice's jobs are held up")
            await store(application, "Bob: I like rum.", BOB)

            async def bob_is_served() -> bool:
                async with application.store.transaction(BOB, write=False) as tx:
                    return not await tx.jobs.counts()

            await until(bob_is_served, 5, "Bob's job is done")


async def test_silent_receivers_of_pushes_hold_up_no_other_job_and_no_other_tenants_pushes(
    open_app: Open,
) -> None:
    async with (
        Receiver(host=loopback()) as silent,
        Receiver(host=loopback()) as heard,
        open_app(
            extractor=Scripted(),
            push_allowed_hosts=(silent.authority, heard.authority),
            drain_s=0.05,
        ) as application,
    ):
        silent.otherwise = Reply(manner=Manner.HANG)
        await enter(application)
        await enter(application, BOB)
        async with working(application):
            for _ in range(2):
                await pushed(application, f"http://{silent.authority}/", CONFIGS_MAX)

            async def some_hang() -> bool:
                return silent.connections > 1

            await until(some_hang, WITHIN_S, "deliveries hang")
            await pushed(application, f"http://{heard.authority}/", 1, BOB)

            async def bob_is_told() -> bool:
                return bool(heard.requests)

            await until(bob_is_told, WITHIN_S, "Bob's receiver is told")
            await store(application, "Alice: I like tea.")

            async def stored() -> bool:
                async with application.store.transaction(ALICE, write=False) as tx:
                    counts = await tx.jobs.counts()
                return not any(kind == "extract" for kind, _ in counts)

            await until(stored, WITHIN_S, "Alice's own text is read")
        assert silent.connections <= application.settings.namespace_push_jobs
        async with application.store.transaction(ALICE, write=False) as tx:
            counts = await tx.jobs.counts()
        assert counts["push", JobState.QUEUED] > 0  # The control: these wait for their turn.


async def pushed(
    application: Application, url: str, configs: int, namespace: Namespace = ALICE
) -> None:
    """Make a task whose events all go to this many configurations."""

    async def configured(tx: Transaction, task: Task) -> None:
        for _ in range(configs):
            await application.services.push.add(
                tx, context(application, namespace), task.id, PushRequest(url), after=0
            )

    request = Request(Mode.INGEST, "life", text="Ann: I live in Lisbon.")
    await application.services.consolidate.start(
        context(application, namespace), request, also=configured
    )
