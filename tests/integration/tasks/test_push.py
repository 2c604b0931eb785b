"""Every event of a task arrives in order and at the right address, or is given up with a reason."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.errors import (
    Invalid,
    LimitReached,
    PushConfigNotFound,
    PushUrlRefused,
    PushWaits,
    SecretKeyMissing,
    TaskNotFound,
)
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import Bearer, TokenInfo
from recall_server.domain.task import Job, JobState, Mode, Request, Status, Task, TaskState, Work
from recall_server.integrations.keys import Cursors, Sealer
from recall_server.integrations.webhook import Webhook
from recall_server.services.audit import Audit, ReadLog
from recall_server.services.supervision import Supervisor
from recall_server.services.tasks.push import PUSH_END, Push, PushEvent, PushRequest
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.jobs import PUSH
from recall_server.storage.tables.tasks import CONFIGS_MAX, PushConfig, new_task
from recall_server.worker import FAILURES_MAX, Lane, Worker
from tests.support.models import Reply
from tests.support.receivers import OK, Receiver
from tests.support.runtime import NOON, Clock, RandomBytes

ALICE, BOB = Namespace("alice"), Namespace("bob")
TASK = "task_" + "1" * 26
KEY = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
LONG = timedelta(hours=1)


async def events_of(tx: Transaction, task_id: str, after: int) -> Sequence[PushEvent]:
    return [
        PushEvent(one.seq, one.final, json.dumps({"seq": one.seq}).encode())
        for one in await tx.tasks.events(task_id, after)
    ]


@dataclass
class Desk:
    """The services, a worker, and one task with events."""

    store: Store
    clock: Clock
    push: Push
    worker: Worker
    audit: Audit

    def entry(self, namespace: Namespace = ALICE) -> AuditEntry:
        return self.audit.begin(namespace, "push_config", "test", None)

    async def start(self, namespace: Namespace = ALICE) -> None:
        """Store the task, with its first event."""
        status = Status(TaskState.SUBMITTED, NOON)
        request = Request(Mode.INGEST, "life")
        task = Task(TASK, "ctx_1", None, NOON, request, Work("ep_1", NOON), status)
        async with self.store.transaction(namespace) as tx:
            await tx.access.add_token(
                TokenInfo(f"acc_{namespace}", namespace, NOON), f"hash of {namespace}"
            )
            await tx.tasks.add(await new_task(task))

    async def happen(self, state: TaskState = TaskState.WORKING, *, fail: bool = False) -> None:
        """Store one more event; `fail` rolls it back."""
        async with self.store.transaction(ALICE) as tx:
            task = await tx.tasks.get(TASK)
            assert task is not None
            status = Status(state, self.clock())
            await tx.tasks.save(replace(task, status=status), status)
            await self.push.announce(tx, replace(task, status=status))
            if fail:
                raise RuntimeError

    async def configure(self, url: str, namespace: Namespace = ALICE, **given: str) -> PushConfig:
        entry = self.entry(namespace)
        return await self.push.configure(Context(entry), TASK, PushRequest(url, **given))

    async def configs(self, namespace: Namespace = ALICE) -> list[str]:
        page = await self.push.page(Context(self.entry(namespace)), TASK)
        return [config.id for config in page.configs]

    async def drain(self, after: timedelta = timedelta()) -> None:
        """Run jobs until none is due, after the clock has moved by `after`."""
        self.clock.pass_(after)
        while await self.worker.run_once():
            pass

    async def jobs(self, kind: str = PUSH) -> dict[JobState, int]:
        async with self.store.transaction(ALICE, write=False) as tx:
            counts = await tx.jobs.counts()
        return {state: number for (one, state), number in counts.items() if one == kind}

    async def buried(self) -> list[str]:
        """Return the error codes of jobs that were given up."""
        async with self.store.transaction(ALICE, write=False) as tx:
            rows = await tx.bound.connection.fetch(
                "SELECT error_code FROM operations WHERE state = 'failed'", {}
            )
        return [row["error_code"] for row in rows]


@pytest.fixture
async def opened(store: Store, clock: Clock) -> AsyncIterator[Callable[..., Desk]]:
    """Return a function that makes desks on the store of the test, one for each process."""
    runtime = Runtime(clock, RandomBytes(), lambda: None, timedelta(minutes=3))
    webhook = Webhook(allowed=["127.0.0.0/8"], timeout_s=5)

    def make(*keys: str) -> Desk:
        cursors = Cursors(bytes(32), clock)
        audit = Audit(store, runtime, cursors, ReadLog(store, Supervisor(store, clock)))
        push = Push(
            store=store,
            runtime=runtime,
            webhook=webhook,
            sealer=Sealer(keys),
            events=events_of,
            cursors=cursors,
        )
        worker = Worker(
            store,
            {PUSH: push.deliver, PUSH_END: push.end},
            runtime,
            lambda job, operation: audit.begin(job.namespace, operation, "worker", None),
            Supervisor(store, clock),
            poll_s=1,
            lanes=[Lane(pushes=one, slots=1, per_namespace=1) for one in (True, False)],
            log_name=lambda _: "",
        )
        return Desk(store, clock, push, worker, audit)

    yield make
    await webhook.close()


@pytest.fixture
async def desk(opened: Callable[..., Desk]) -> Desk:
    made = opened(KEY)
    await made.start()
    return made


def told(receiver: Receiver) -> list[int]:
    """Return the numbers of the events that arrived."""
    return [json.loads(request.body)["seq"] for request in receiver.requests]


async def test_events_after_the_config_arrive_once_and_in_order(desk: Desk) -> None:
    async with Receiver() as receiver:
        await desk.configure(receiver.url)
        await desk.happen()
        await desk.drain()
        await desk.happen()
        await desk.happen(TaskState.COMPLETED)
        await desk.drain()

    assert told(receiver) == [2, 3, 4]
    assert receiver.requests[0].headers["content-type"] == "application/a2a+json"
    assert await desk.jobs() == {}


async def test_a_config_that_comes_with_the_run_is_told_its_first_event_too(desk: Desk) -> None:
    async with Receiver() as receiver:
        wanted = PushRequest(receiver.url, id="mine")
        await desk.push.check(ALICE, wanted)
        async with desk.store.transaction(ALICE) as tx:
            await desk.push.add(tx, Context(desk.entry()), TASK, wanted, after=0)
        await desk.happen()
        await desk.drain()

    assert told(receiver) == [1, 2]


async def test_nothing_is_promised_where_the_change_failed(desk: Desk) -> None:
    async with Receiver() as receiver:
        await desk.configure(receiver.url)
        with pytest.raises(RuntimeError):
            await desk.happen(fail=True)
        await desk.drain()
        before = told(receiver)
        await desk.happen()
        await desk.drain()

    assert (before, told(receiver)) == ([], [2])


async def test_token_and_credentials_are_sent_and_stand_nowhere_in_the_database(
    desk: Desk, database: Path | str
) -> None:
    async with Receiver() as receiver:
        config = await desk.configure(
            receiver.url, token="tokenword", scheme="Bearer", credentials="credentialword"
        )
        rows = await dumped(desk.store)
        await desk.happen()
        await desk.drain()
        (got,) = receiver.requests
    files = b""
    if isinstance(database, Path):
        files = b"".join(path.read_bytes() for path in database.parent.glob("recall.db*"))

    assert got.headers["authorization"] == "Bearer credentialword"
    assert got.headers["x-a2a-notification-token"] == "tokenword"
    assert receiver.url in rows
    for secret in ("tokenword", "credentialword"):
        assert secret not in rows
        assert secret.encode() not in files
        assert secret not in repr(config)


async def dumped(store: Store) -> str:
    """Return every stored value that could hold a secret."""
    found = []
    async with store.transaction(ALICE, write=False) as tx:
        for table in ("push_configs", "operations", "tool_call_records"):
            for row in await tx.bound.connection.fetch(f"SELECT * FROM {table}", {}):
                found += [bytes(v) if isinstance(v, bytes) else v for v in dict(row).values()]
    return repr(found)


async def test_without_a_key_a_secret_is_refused_and_a_config_without_one_works(
    opened: Callable[..., Desk],
) -> None:
    desk = opened()
    await desk.start()
    async with Receiver() as receiver:
        with pytest.raises(SecretKeyMissing):
            await desk.configure(receiver.url, token="secret")
        await desk.configure(receiver.url)
        await desk.happen()
        await desk.drain()

    assert told(receiver) == [2]
    assert "x-a2a-notification-token" not in receiver.requests[0].headers


async def test_a_secret_that_was_moved_to_another_row_is_not_sent(desk: Desk) -> None:
    async with Receiver() as good, Receiver() as bad:
        await desk.configure(good.url, id="good", token="secret")
        await desk.configure(bad.url, id="bad", token="other")
        async with desk.store.transaction(ALICE) as tx:
            await tx.bound.connection.send(
                "UPDATE push_configs SET secret = (SELECT secret FROM push_configs "
                "WHERE id = 'good') WHERE id = 'bad'",
                {},
            )
        await desk.happen()
        for _ in range(20):
            await desk.drain(after=LONG)

        assert told(good) == [2]
        assert bad.requests == []
        assert await desk.buried() == ["SECRET_UNREADABLE"]


async def test_a_failing_receiver_is_told_later_and_in_order(desk: Desk) -> None:
    async with Receiver(Reply(status=500), Reply(status=404)) as receiver:
        await desk.configure(receiver.url)
        await desk.happen()
        await desk.drain()
        await desk.happen()
        await desk.drain()
        at_once = told(receiver)
        await desk.drain(after=LONG)
        await desk.drain(after=LONG)

    assert at_once == [2]
    assert told(receiver) == [2, 2, 2, 3]
    assert await desk.jobs() == {}


async def test_what_is_never_taken_is_given_up_with_its_code(desk: Desk) -> None:
    async with Receiver(*[Reply(status=400)] * 50) as receiver:
        await desk.configure(receiver.url)
        await desk.happen()
        for _ in range(20):
            await desk.drain(after=LONG)

        assert told(receiver) == [2] * FAILURES_MAX
        assert await desk.buried() == ["PUSH_FAILED"]


async def test_a_later_event_brings_what_was_given_up_before_it(desk: Desk) -> None:
    async with Receiver(*[Reply(status=503)] * FAILURES_MAX) as receiver:
        await desk.configure(receiver.url)
        await desk.happen()
        for _ in range(20):
            await desk.drain(after=LONG)
        await desk.happen(TaskState.COMPLETED)
        await desk.drain()

        assert await desk.buried() == ["PUSH_FAILED"]
        assert told(receiver) == [*[2] * FAILURES_MAX, 2, 3]


async def test_the_wait_that_a_receiver_asks_for_is_kept_by_all_jobs(desk: Desk) -> None:
    busy = Reply(status=429, headers={"Retry-After": "600"})
    async with Receiver(busy) as receiver:
        await desk.configure(receiver.url)
        await desk.happen()
        await desk.drain()
        await desk.happen()
        await desk.drain(after=timedelta(seconds=590))
        before = told(receiver)
        await desk.drain(after=LONG)

    assert (before, told(receiver)) == ([2], [2, 2, 3])


async def test_a_wait_of_a_year_is_not_kept(desk: Desk) -> None:
    busy = Reply(status=503, headers={"Retry-After": "31536000"})
    async with Receiver(busy) as receiver:
        await desk.configure(receiver.url)
        await desk.happen()
        await desk.drain()
        await desk.drain(after=LONG)

    assert told(receiver) == [2, 2]


async def test_what_arrives_ends_the_long_rests(desk: Desk) -> None:
    failed = Reply(status=500)
    async with Receiver(failed, failed, OK, failed) as receiver:
        await desk.configure(receiver.url)
        await desk.happen()
        await desk.happen()
        await desk.drain()
        await desk.drain(after=LONG)
        await desk.drain(after=LONG)
        before = told(receiver)
        await desk.drain(after=timedelta(seconds=100))

    assert (before, told(receiver)) == ([2, 2, 2, 3], [2, 2, 2, 3, 3])


async def test_a_receiver_that_is_gone_is_forgotten_and_the_others_are_told(desk: Desk) -> None:
    async with Receiver(Reply(status=410)) as gone, Receiver() as there:
        await desk.configure(gone.url, id="gone")
        await desk.configure(there.url, id="there")
        await desk.happen()
        await desk.happen()
        await desk.drain()

        assert told(gone) == [2]
        assert told(there) == [2, 3]
        assert await desk.configs() == ["there"]
        assert await desk.jobs() == {}


async def test_a_receiver_that_is_gone_does_not_take_its_successor_with_it(desk: Desk) -> None:
    async with Receiver(Reply(status=410)) as gone, Receiver() as new:

        async def meanwhile() -> None:
            await desk.configure(new.url, id="mine")

        gone.meanwhile = meanwhile
        await desk.configure(gone.url, id="mine")
        await desk.happen()
        await desk.drain()
        await desk.drain(after=LONG)

    assert (told(gone), told(new)) == ([2], [2])
    assert await desk.configs() == ["mine"]


async def test_two_jobs_of_one_config_never_send_at_the_same_time(desk: Desk) -> None:
    async with Receiver() as receiver:

        async def meanwhile() -> None:
            receiver.meanwhile = None
            while await desk.worker.run_once():
                pass

        receiver.meanwhile = meanwhile
        await desk.configure(receiver.url)
        await desk.happen()
        await desk.happen()
        await desk.drain()
        during = told(receiver)
        await desk.drain(after=LONG)

    assert (during, told(receiver)) == ([2, 3], [2, 3])
    assert await desk.jobs() == {}


async def test_a_claim_that_ran_out_is_taken_over_and_its_holder_believed_no_more(
    desk: Desk,
) -> None:
    async with Receiver() as receiver:
        await desk.configure(receiver.url, id="mine")

        async def overtaken() -> None:
            receiver.meanwhile = None
            desk.clock.pass_(LONG)
            async with desk.store.transaction(ALICE) as tx:
                until = desk.clock() + LONG
                assert await tx.pushes.claim(TASK, "mine", "other", now=desk.clock(), until=until)

        receiver.meanwhile = overtaken
        await desk.happen()
        await desk.worker.run_once()
        async with desk.store.transaction(ALICE) as tx:
            config = await tx.pushes.get(TASK, "mine")
            until = desk.clock() + LONG
            held = await tx.pushes.claim(TASK, "mine", "third", now=desk.clock(), until=until)

    assert config is not None
    assert config.delivered_seq == 1
    assert held is None
    assert await desk.jobs() == {JobState.QUEUED: 1}


async def test_a_sender_that_is_stopped_lets_go_at_once(desk: Desk) -> None:
    started = asyncio.Event()
    async with Receiver() as receiver:

        async def hang() -> None:
            receiver.meanwhile = None
            started.set()
            await asyncio.Event().wait()

        receiver.meanwhile = hang
        await desk.configure(receiver.url)
        await desk.happen()
        task = asyncio.create_task(desk.worker.run_once())
        async with asyncio.timeout(10):
            await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await desk.drain()

    assert told(receiver) == [2, 2]


async def test_a_new_address_gets_what_the_old_one_did_not_take(desk: Desk) -> None:
    async with Receiver(Reply(status=500)) as old, Receiver() as new:
        await desk.configure(old.url, id="mine", token="one")
        await desk.happen()
        await desk.drain()
        await desk.configure(new.url, id="mine", token="two")
        await desk.drain()

    assert (told(old), told(new)) == ([2], [2])
    assert new.requests[0].headers["x-a2a-notification-token"] == "two"
    assert await desk.configs() == ["mine"]


async def test_a_config_that_was_removed_is_told_nothing_more(desk: Desk) -> None:
    async with Receiver() as receiver:
        await desk.configure(receiver.url, id="mine")
        await desk.happen()
        there = await desk.push.remove(Context(desk.entry()), TASK, "mine")
        again = await desk.push.remove(Context(desk.entry()), TASK, "mine")
        await desk.drain()

    assert (there, again) == (True, False)
    assert not await desk.push.remove(Context(desk.entry()), TASK, "no such\nid")
    assert receiver.requests == []
    assert await desk.jobs() == {}


async def test_after_the_end_first_the_secret_and_then_the_config_is_removed(desk: Desk) -> None:
    async with Receiver() as receiver:
        await desk.configure(receiver.url, id="mine", token="secret")
        await desk.happen()
        await desk.drain()
        before = await desk.push.get(Context(desk.entry()), TASK, "mine")
        await desk.happen(TaskState.COMPLETED)
        await desk.drain()
        after = await desk.push.get(Context(desk.entry()), TASK, "mine")
        await desk.drain(after=timedelta(hours=25))

    assert told(receiver) == [2, 3]
    assert before.secret is not None
    assert after.secret is None
    assert await desk.configs() == []
    assert await desk.jobs(PUSH_END) == {}


async def test_what_is_given_up_at_the_end_is_removed_too(desk: Desk) -> None:
    async with Receiver(*[Reply(status=500)] * 50) as receiver:
        await desk.configure(receiver.url, token="secret")
        await desk.happen(TaskState.FAILED)
        for _ in range(30):
            await desk.drain(after=LONG)

    assert await desk.configs() == []
    assert "PUSH_FAILED" in await desk.buried()


async def test_a_config_for_a_run_that_has_ended_is_kept_for_a_day_and_told_nothing(
    desk: Desk,
) -> None:
    await desk.happen(TaskState.COMPLETED)
    async with Receiver() as receiver:
        await desk.configure(receiver.url, id="late")
        await desk.drain()
        during = await desk.configs()
        await desk.drain(after=timedelta(hours=25))

    assert (during, await desk.configs()) == (["late"], [])
    assert receiver.requests == []


async def test_another_namespace_sees_no_config_and_is_told_nothing(desk: Desk) -> None:
    await desk.start(BOB)
    async with Receiver() as alices, Receiver() as bobs:
        await desk.configure(alices.url, id="mine")
        await desk.configure(bobs.url, BOB, id="bobs")
        await desk.happen()
        await desk.drain()

        assert (told(alices), told(bobs)) == ([2], [])
        assert (await desk.configs(), await desk.configs(BOB)) == (["mine"], ["bobs"])
        with pytest.raises(PushConfigNotFound):
            await desk.push.get(Context(desk.entry(BOB)), TASK, "mine")
        assert not await desk.push.remove(Context(desk.entry(BOB)), TASK, "mine")
        assert (await desk.push.get(Context(desk.entry()), TASK, "mine")).url == alices.url


async def test_a_run_that_is_not_there_or_anothers_cannot_be_watched(desk: Desk) -> None:
    request = PushRequest("http://127.0.0.1:9/")
    for namespace, task_id in ((BOB, TASK), (ALICE, "task_2")):
        entry = desk.entry(namespace)
        for url in (request.url, "not a url"):
            with pytest.raises(TaskNotFound):
                await desk.push.configure(Context(entry), task_id, PushRequest(url))
        with pytest.raises(TaskNotFound):
            await desk.push.get(Context(entry), task_id, "mine")
        with pytest.raises(TaskNotFound):
            await desk.push.page(Context(entry), task_id)
        with pytest.raises(TaskNotFound):
            await desk.push.remove(Context(entry), task_id, "mine")
    assert (await desk.push.configure(Context(desk.entry()), TASK, request)).task_id == TASK


async def test_configs_come_in_pages_by_id_and_are_limited(desk: Desk) -> None:
    ids = ["A", "Z", "a", "b", "b-1", "b.1", "b:1", "b_1", "c", "~"]
    for config_id in reversed(ids):
        await desk.configure("http://127.0.0.1:9/", id=config_id)
    first = await desk.push.page(Context(desk.entry()), TASK, limit=4)
    rest = await desk.push.page(Context(desk.entry()), TASK, cursor=first.next or "")

    assert len(ids) == CONFIGS_MAX
    assert [config.id for config in (*first.configs, *rest.configs)] == sorted(ids)
    assert first.next
    assert rest.next is None
    with pytest.raises(LimitReached):
        await desk.configure("http://127.0.0.1:9/")
    assert (await desk.configure("http://127.0.0.1:9/new", id="a")).url.endswith("new")


@pytest.mark.parametrize(
    "given",
    [
        {"id": "a b"},
        {"id": "a" * 65},
        {"id": "a\x00"},
        {"token": "a\r\nX-Header: 1"},
        {"token": "ä"},
        {"token": " a"},
        {"token": "a" * 1_025},
        {"scheme": "Bearer", "credentials": "a\nb"},
        {"scheme": "Two Words", "credentials": "a"},
        {"credentials": "a"},
    ],
)
async def test_what_cannot_stand_in_a_header_or_an_id_is_refused(
    desk: Desk, given: dict[str, str]
) -> None:
    url = "http://127.0.0.1:9/"
    good = {"id": "a" * 64, "token": "a b", "scheme": "Bearer", "credentials": "a" * 1_024}
    with pytest.raises(Invalid):
        await desk.push.check(ALICE, PushRequest(url, **given))
    await desk.push.check(ALICE, PushRequest(url, **good))


async def test_an_address_that_may_not_be_reached_is_refused_when_it_is_configured(
    desk: Desk,
) -> None:
    with pytest.raises(PushUrlRefused):
        await desk.configure("https://10.0.0.1/")
    assert await desk.configs() == []


async def test_an_address_that_may_no_longer_be_reached_gets_nothing(desk: Desk) -> None:
    async with Receiver() as receiver:
        await desk.configure(receiver.url)
        strict = Webhook()
        push = replace(desk.push, webhook=strict)
        await desk.happen()
        async with desk.store.transaction(None) as tx:
            job = await tx.jobs.claim("", desk.clock(), desk.clock() + LONG, pushes=True)
        assert isinstance(job, Job)
        with pytest.raises(PushUrlRefused):
            await push.deliver(job, lambda _: desk.entry())
        with pytest.raises(PushWaits):
            await push.deliver(job, lambda _: desk.entry())
        await strict.close()

    assert receiver.connections == 0


async def test_each_event_that_was_sent_is_in_the_audit_log(desk: Desk) -> None:
    async with Receiver() as receiver:
        await desk.configure(receiver.url, id="mine")
        await desk.happen()
        await desk.drain(after=timedelta(seconds=1))
    newest = (await desk.audit.newest(ALICE, 1))[0]

    assert (newest.operation, newest.protocol, newest.counts) == ("push", "worker", {"seq": 2})
    # The record leaves out the id of the configuration, which the caller has chosen.
    assert newest.ids[1:] == (TASK,)


@pytest.mark.parametrize("ends", ["config", "task", "event", "token", "nothing"])
async def test_what_ends_while_the_name_is_looked_up_is_told_nothing(desk: Desk, ends: str) -> None:
    """A name server may be slow enough for the task to be erased or the token to be revoked
    meanwhile.
    """

    async def end() -> None:
        async with desk.store.transaction(ALICE, erasing=True) as tx:
            await tx.lock()
            match ends:
                case "config":
                    await tx.pushes.remove(TASK, "mine")
                case "task":
                    await tx.tasks.remove(TASK)
                case "event":
                    await tx.bound.connection.send("DELETE FROM run_events WHERE seq = 2", {})
                case "token":
                    await tx.access.revoke([f"acc_{ALICE}"], desk.clock())

    async with Receiver() as receiver:

        async def resolve(host: str, port: int) -> Sequence[str]:
            await end()
            return ["127.0.0.1"]

        context = Context(desk.entry())
        context.entry.bearer = Bearer(f"acc_{ALICE}", NOON)
        url = receiver.url.replace("127.0.0.1", "hooks.test")
        webhook = Webhook(allowed=["hooks.test"], timeout_s=5, resolve=resolve)
        async with desk.store.transaction(ALICE) as tx:
            await desk.push.add(tx, context, TASK, PushRequest(url, id="mine"), after=1)
        await desk.happen()
        async with desk.store.transaction(None) as tx:
            job = await tx.jobs.claim("", desk.clock(), desk.clock() + LONG, pushes=True)
        assert job is not None
        push = replace(desk.push, webhook=webhook)
        await push.deliver(job, lambda operation: desk.entry())
        await webhook.close()

    assert told(receiver) == ([2] if ends == "nothing" else [])
    assert await desk.jobs() == {}
