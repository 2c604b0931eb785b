"""When a token ends, everything that it began ends: jobs, tasks, streams, calls, webhooks."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.errors import ModelKeyRejected, Unauthenticated
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import AccessScope, Bearer, Rights, Scope, TokenInfo
from recall_server.domain.plan import Policy
from recall_server.domain.task import Expiry, Job, Mode, Request, Task, TaskState
from recall_server.services.auth import KINDS, TokenRequest, stands
from recall_server.services.memory.ingest import Submission
from recall_server.services.tasks import transitions
from recall_server.services.tasks.transitions import COUNTED, END, STORED, TASKS_AT_ONCE
from recall_server.storage.store import Store
from recall_server.storage.tables import registry
from recall_server.storage.tables.jobs import Fenced
from recall_server.storage.tables.tasks import Filter
from tests.support.a2a_bindings import BY_HAND, Wire, message
from tests.support.a2a_clients import LISBON, PORTO
from tests.support.application import Open
from tests.support.columns import INNER
from tests.support.conversation import drained, memories
from tests.support.extractors import Scripted
from tests.support.receivers import Receiver, loopback
from tests.support.runtime import Clock
from tests.support.server import MAY_ALL, WITHIN_S, Running, Serve
from tests.support.webhooks import planted

ALICE = Namespace("alice")
HOUR = timedelta(hours=1)
WAYS = ("revoked", "revoked by its issuer's end", "child", "children only", "no overlap", "expired")


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver(host=loopback()) as receiver:
        yield receiver


def line(running: Running | Application, operation: str) -> Context:
    application = running.application if isinstance(running, Running) else running
    return Context(application.services.audit.begin(ALICE, operation, "cli", None))


async def thief(running: Running, way: str) -> tuple[str, TokenInfo, str]:
    """Return a token that will end in this `way`, the token to revoke for that, and the name of a
    child.
    """
    owner, info = await running.issued("alice", MAY_ALL if way != "expired" else SHORT)
    async with running.http(owner) as http:
        if "child" in way:
            made = (await http.post("/v1/tokens/children", json={})).json()
            return made["token"], info, made["accessor"].partition("/")[2]
        if "issuer" in way:
            made = (await http.post("/v1/tokens", json={"label": "made by another"})).json()
            return made["token"], info, ""
    return owner, info, ""


SHORT = TokenRequest(MAY_ALL.rights, expires_in=HOUR)


async def end(running: Running, clock: Clock, way: str, info: TokenInfo, child: str) -> None:
    clock.pass_(timedelta(seconds=1))
    on_behalf, services = line(running, "end"), running.application.services
    match way:
        case "child":
            await services.delegation.revoke(on_behalf, info.accessor, child)
        case "no overlap":
            await services.access.rotate(on_behalf, info, timedelta())
        case "expired":
            clock.pass_(HOUR)
        case _:
            await services.access.revoke(on_behalf, info, children_only="only" in way, force=True)


async def asking(running: Running, http: httpx2.AsyncClient) -> str:
    """Start a task that asks whether Lisbon or Porto is right."""
    wire = Wire(http)
    await wire.task({"text": LISBON})
    await running.extract()
    task = await wire.task({"text": PORTO})
    await running.extract()
    return str(task["id"])


@pytest.mark.parametrize("way", WAYS)
async def test_nothing_is_told_to_an_address_once_the_token_that_set_it_has_ended(
    serve: Serve, receiver: Receiver, clock: Clock, way: str
) -> None:
    """The address is not told that anything happened, either. The control: the owner's own address
    gets every notification.
    """
    async with serve(push_allowed_hosts=(receiver.authority,)) as running:
        stolen, info, child = await thief(running, way)
        async with running.http(await running.token()) as http, running.http(stolen) as bad:
            task = await asking(running, http)
            for one, path in ((http, "owners"), (bad, "thiefs")):
                url = f"http://{receiver.authority}/{path}"
                await Wire(one).result("CreateTaskPushNotificationConfig", taskId=task, url=url)
            listed = (await http.get(f"/v1/consolidations/{task}/push_configs")).json()
            thiefs = (await bad.get("/v1/whoami")).json()["accessor"]
            await end(running, clock, way, info, child)
            answer = await http.post(f"/a2a/{task}/resume", json={"resolution": "keep_new"})
            await running.extract()

    assert answer.status_code == 200
    told = [request.path for request in receiver.requests]
    assert set(told) == {"/owners"}
    assert len(told) >= 2
    set_by = {one["url"].rpartition("/")[2]: one["set_by"] for one in listed["push_configs"]}
    assert set_by["thiefs"] == thiefs != set_by["owners"]


@pytest.mark.parametrize("way", WAYS[:4])
async def test_a_revocation_ends_and_tells_what_was_begun(
    serve: Serve, receiver: Receiver, clock: Clock, way: str
) -> None:
    """Whatever other tokens began goes on."""
    async with serve(push_allowed_hosts=(receiver.authority,), extractor=Scripted()) as running:
        stolen, info, child = await thief(running, way)
        begun: dict[str, dict[str, str]] = {}
        async with running.http(await running.token()) as http, running.http(stolen) as bad:
            for name, one in (("others", http), ("thiefs", bad)):
                task = (await Wire(one).task({"text": PORTO}))["id"]
                url = f"http://{receiver.authority}/{name}"
                await Wire(one).result("CreateTaskPushNotificationConfig", taskId=task, url=url)
                stored = await one.post("/v1/memories", json={"text": f"User: I swim, {name}."})
                begun[name] = {"task": task, "job": stored.json()["job_id"]}
                accessor = (await one.get("/v1/whoami")).json()["accessor"]
                await planted(running.application, ALICE, accessor)
            clock.pass_(timedelta(seconds=1))
            path = f"/v1/tokens/{info.accessor}"
            only = {"children_only": "true"} if "only" in way else {}
            path += f"/children/{child}" if way == "child" else ""
            answer = (await http.delete(path, params=only)).json()
            again = (await http.delete(path, params=only)).json()
            found = {
                name: (
                    (await http.get(f"/a2a/{ids['task']}")).json()["status"],
                    (await http.get(f"/v1/jobs/{ids['job']}")).json(),
                )
                for name, ids in begun.items()
            }
        book = await running.application.services.audit.newest(ALICE, 20)

    open_ = dict.fromkeys(KINDS, 0)
    assert answer["ended"] == dict.fromkeys(STORED, 1) | open_
    assert again["ended"] == dict.fromkeys(COUNTED, 0)
    revocations = [one for one in book if one.operation.startswith("revoke_")]
    assert any(answer["ended"].items() <= one.counts.items() for one in revocations)
    status, job = found["thiefs"]
    assert status == "canceled"
    assert (job["state"], job["error_code"]) == ("failed", "TOKEN_REVOKED")
    status, job = found["others"]
    assert status == "submitted"
    assert job["state"] == "queued"


async def test_a_text_that_is_read_as_its_token_is_revoked_makes_no_memories(
    open_app: Open, clock: Clock
) -> None:
    """The job is running when the token ends, and nothing of it is stored. The control: another
    token's job makes its memory.
    """
    async with open_app() as built:
        running = Running(built, "")
        _, info = await running.issued("alice")
        other = (await running.issued("alice"))[1]
        for who, text in ((info, "I live in Lisbon."), (other, "My name is Ana.")):
            context = line(built, "store_memory")
            context.entry.bearer = who.bearer
            await built.services.ingest.remember(context, Submission(f"User: {text}", "life"))
        job = await claimed(built, clock)
        await built.services.access.revoke(line(built, "revoke_token"), info, force=True)
        with pytest.raises(Fenced):
            await built.worker.handlers[job.kind](
                job, lambda operation: line(built, operation).entry
            )
        await drained(built)
        found = [one.text for one in await memories(built)]

    assert any("Ana" in text for text in found)
    assert not any("Lisbon" in text for text in found)


@pytest.mark.parametrize("revoked", [True, False])
@pytest.mark.parametrize("by_rules", [True, False], ids=["read by rules", "given up"])
async def test_a_text_that_waits_for_the_key_of_a_model_is_not_read_for_a_revoked_token(
    open_app: Open, clock: Clock, by_rules: bool, revoked: bool
) -> None:
    """Its job had ended when the token was revoked, to be done again once there is a key."""
    async with open_app() as built:
        running = Running(built, "")
        info = (await running.issued("alice"))[1]
        context = line(built, "store_memory")
        context.entry.bearer = info.bearer
        await built.services.ingest.remember(context, Submission("User: I live in Lisbon.", "life"))
        job = await claimed(built, clock)
        async with built.store.transaction(ALICE) as tx:
            if by_rules:
                await tx.jobs.finish(job, clock(), ModelKeyRejected.code)
            else:
                await tx.jobs.bury(job, ModelKeyRejected.code, clock())
        revocation = line(built, "revoke_token")
        if revoked:
            await built.services.access.revoke(revocation, info, force=True)
        await built.services.model_keys.begin()
        await drained(built)
        found = [one.text for one in await memories(built)]

    assert (found == []) is revoked
    assert revocation.entry.counts.get("jobs", 0) == int(revoked)


async def test_a_text_of_a_revoked_token_is_read_once_another_token_sends_it_again(
    open_app: Open,
) -> None:
    """With the same key it was told that the text is stored, and nobody read it."""
    async with open_app() as built:
        running = Running(built, "")
        stored = []
        for number in range(2):
            info = (await running.issued("alice"))[1]
            context = line(built, "store_memory")
            context.entry.bearer = info.bearer
            submission = Submission("User: I live in Lisbon.", "life", "a key")
            stored.append(await built.services.ingest.remember(context, submission))
            if not number:
                await running.revoke(info)
                await drained(built)
                before = await memories(built)
        await drained(built)
        after = [one.text for one in await memories(built)]

    assert [one.cached for one in stored] == [False, True]
    assert stored[0].job_id == stored[1].job_id
    assert (before, after) == ([], ["The user lives in Lisbon."])


async def claimed(built: Application, clock: Clock) -> Job:
    async with built.store.transaction(None) as tx:
        job = await tx.jobs.claim("", clock(), clock() + HOUR)
    assert job is not None
    return job


async def started(built: Application, who: TokenInfo, text: str, **given: Any) -> Task:
    context = line(built, "send_message")
    context.entry.bearer, context.entry.accessor = who.bearer, who.accessor
    request = Request(Mode.INGEST, "life", text=text, **given)
    return await built.services.consolidate.start(context, request)


async def state_of(built: Application, task: Task) -> TaskState:
    return (await built.services.tasks.get(line(built, "get_task"), task.id)).status.state


@pytest.mark.parametrize("revoked", [True, False])
async def test_what_was_to_be_decided_by_time_is_not_decided_for_a_revoked_token(
    open_app: Open, clock: Clock, revoked: bool
) -> None:
    async with open_app() as built:
        running = Running(built, "")
        owner, planter = [(await running.issued("alice"))[1] for _ in range(2)]
        await started(built, owner, LISBON)
        await drained(built)
        planted = await started(
            built, planter, PORTO, policy=Policy.ASK, expires_in_s=6, on_expiry=Expiry.KEEP_NEW
        )
        await drained(built)
        if revoked:
            await running.revoke(planter)
        clock.pass_(timedelta(seconds=9))
        await drained(built)
        found = [one.fact.value for one in await memories(built) if one.fact]
        state = await state_of(built, planted)

    assert found == (["Lisbon"] if revoked else ["Porto"])
    assert state is (TaskState.CANCELED if revoked else TaskState.COMPLETED)


async def test_more_tasks_than_one_transaction_ends_are_ended_behind_it_and_none_goes_on(
    open_app: Open, clock: Clock
) -> None:
    """A revocation stays short, however many tasks the token has started."""
    async with open_app() as built:
        running = Running(built, "")
        owner, planter = [(await running.issued("alice"))[1] for _ in range(2)]
        await started(built, owner, LISBON)
        await drained(built)
        paused = await started(
            built, planter, PORTO, policy=Policy.ASK, expires_in_s=6, on_expiry=Expiry.KEEP_NEW
        )
        await drained(built)
        tasks = [await started(built, planter, PORTO) for _ in range(TASKS_AT_ONCE + 5)]
        context = line(built, "revoke_token")
        await built.services.access.revoke(context, planter, force=True)
        begun = [paused, *tasks]
        left = [one for one in begun if await state_of(built, one) is not TaskState.CANCELED]
        # The job that ends the other tasks runs last.
        async with built.store.transaction(ALICE) as tx:
            rows = await tx.bound.connection.fetch(
                f"UPDATE operations SET due_at = '{(clock() + HOUR).isoformat()}'"
                f" WHERE kind = '{END}' RETURNING id",
                {},
            )
        await drained(built)
        worked_on = [one for one in left if one is not paused]
        without = [await state_of(built, one) for one in worked_on]
        clock.pass_(2 * HOUR)
        await drained(built)
        states = {await state_of(built, one) for one in begun}
        found = [one.fact.value for one in await memories(built) if one.fact]

    assert len(rows) == 1
    assert context.entry.counts["tasks"] == len(begun)
    assert len(left) == len(begun) - TASKS_AT_ONCE
    assert set(without) == states == {TaskState.CANCELED}
    assert found == ["Lisbon"]


async def test_a_revocation_reads_small_tasks_and_a_job_ends_the_others(
    open_app: Open, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The job reads so many bytes at once, but at least one task. Control: all are ended."""
    monkeypatch.setattr(transitions, "PAGE_BYTES", 1)
    async with open_app() as built:
        planter = (await Running(built, "").issued("alice"))[1]
        small = await started(built, planter, PORTO)
        monkeypatch.setattr(transitions, "INSIDE_BYTES", small.stored_bytes)
        begun = [small, *[await started(built, planter, PORTO + " " * 9) for _ in range(2)]]
        context = line(built, "revoke_token")
        await built.services.access.revoke(context, planter, force=True)
        at_once = [await state_of(built, one) for one in begun].count(TaskState.CANCELED)
        await drained(built)
        states = {await state_of(built, one) for one in begun}
        records = await built.services.audit.newest(ALICE, 100)

    assert context.entry.counts["tasks"] == 3
    assert at_once == 1
    assert [one.counts["tasks"] for one in records if one.operation == END] == [1, 1]
    assert states == {TaskState.CANCELED}


@pytest.mark.parametrize("binding", [*BY_HAND, "HTTP"])
async def test_a_call_that_waits_for_its_task_is_not_answered_once_its_token_is_revoked(
    serve: Serve, binding: str
) -> None:
    """The call does not get the result of the task. The control: another token's call does."""
    async with serve() as running:
        stolen, info = await running.issued("alice")
        kept = await running.token("alice")

        async def ask(http: httpx2.AsyncClient) -> httpx2.Response:
            if binding == "HTTP":
                return await http.post("/v1/consolidations", json={"text": LISBON, "policy": "ask"})
            return await Wire(http, binding).answer("SendMessage", message=message())

        async with running.http(stolen) as bad, running.http(kept) as good:
            calls = [asyncio.create_task(ask(one)) for one in (bad, good)]
            await begun(running.application.store, 2)
            await running.revoke(info)
            await running.extract()
            refused, answered = [await one for one in calls]

    assert "Lisbon" in answered.text
    assert "Lisbon" not in refused.text
    assert "UNAUTHENTICATED" in refused.text


async def begun(store: Store, tasks: int) -> None:
    """Wait until there are this many tasks."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            async with store.transaction(ALICE, write=False) as tx:
                if await tx.tasks.count(Filter()) == tasks:
                    return


async def test_a_stream_tells_nothing_of_what_happened_after_its_token_was_revoked(
    running: Running,
) -> None:
    """This holds even before the next check of the token, which comes once a second."""
    stolen, info = await running.issued("alice")
    async with running.http(stolen) as bad, running.http(await running.token()) as good:
        task = (await Wire(good).task())["id"]
        async with (
            Wire(bad).stream("SubscribeToTask", id=task) as thiefs,
            Wire(good).stream("SubscribeToTask", id=task) as owners,
        ):
            firsts = [await one.next() for one in (thiefs, owners)]
            await running.revoke(info)
            await Wire(good).result("CancelTask", id=task)
            told, all_ = await thiefs.rest(), await owners.rest()

    assert all(firsts)
    assert told == []
    assert "TASK_STATE_CANCELED" in json.dumps(all_)


@pytest.mark.parametrize("way", WAYS[:4])
async def test_a_revocation_counts_the_streams_exports_and_calls_that_it_ends(
    serve: Serve, clock: Clock, way: str
) -> None:
    """Each counts once, and those of others do not count."""
    async with serve() as running:
        built = running.application
        stolen, info, child = await thief(running, way)
        async with running.http(await running.token()) as http, running.http(stolen) as bad:
            task = (await Wire(http).task())["id"]
            accessor = (await bad.get("/v1/whoami")).json()["accessor"]
            calls = [
                asyncio.create_task(Wire(one).answer("SendMessage", message=message()))
                for one in (http, bad)
            ]
            await begun(built.store, 3)
            async with (
                Wire(bad).stream("SubscribeToTask", id=task) as first,
                Wire(bad).stream("SubscribeToTask", id=task) as second,
                Wire(http).stream("SubscribeToTask", id=task) as others,
                export_of(built, accessor, clock) as export,
            ):
                for one in (first, second, others):
                    await one.next()
                await anext(export)
                clock.pass_(timedelta(seconds=1))
                path = f"/v1/tokens/{info.accessor}"
                path += f"/children/{child}" if way == "child" else ""
                only = {"children_only": "true"} if "only" in way else {}
                answer = (await http.delete(path, params=only)).json()
                again = (await http.delete(path, params=only)).json()
                with pytest.raises(Unauthenticated):
                    _ = [piece async for piece in export]
            await running.extract()
            _ = [await one for one in calls]
        later = (await running.issued("alice"))[1]
        free = line(built, "revoke_token")
        await built.services.access.revoke(free, later)

    assert {kind: answer["ended"][kind] for kind in KINDS} == {
        "streams": 2,
        "exports": 1,
        "calls": 1,
    }
    assert again["ended"] == dict.fromkeys(COUNTED, 0)
    assert dict.fromkeys(COUNTED, 0).items() <= free.entry.counts.items()


@asynccontextmanager
async def export_of(
    built: Application, accessor: str, clock: Clock
) -> AsyncIterator[AsyncGenerator[bytes, None]]:
    """Begin an export with a token."""
    context = line(built, "export_namespace")
    context.entry.bearer = Bearer(accessor, clock())
    async with aclosing(built.services.export.stream(context)) as export:
        yield export


async def test_an_export_that_is_under_way_ends_with_its_token(running: Running) -> None:
    """The export is cut off. The control: the export of another token is whole."""
    built = running.application
    stolen, info = await running.issued("alice")
    del stolen
    for number in range(40):
        submission = Submission(f"User: I know {number} songs.", "life")
        await built.services.ingest.remember(line(built, "store_memory"), submission)

    async def export(who: TokenInfo, meanwhile: Callable[[], Any] | None) -> list[bytes]:
        context = line(built, "export_namespace")
        context.entry.bearer = who.bearer
        pieces = []
        async with aclosing(built.services.export.stream(context)) as export:
            async for piece in export:
                pieces.append(piece)
                if meanwhile and len(pieces) == 2:
                    await meanwhile()
        return pieces

    other = (await running.issued("alice"))[1]
    whole = await export(other, None)
    with pytest.raises(Unauthenticated):
        await export(info, lambda: running.revoke(info))

    assert len(whole) > 4
    assert b'"kind":"end"' in whole[-1]


async def test_a_token_of_a_provider_ends_by_its_name_by_its_time_and_by_a_line(
    open_app: Open, clock: Clock
) -> None:
    """No table holds such a token, so its jobs and streams store its name and its end."""
    async with open_app() as built:
        running, services = Running(built, ""), built.services
        await running.issued("alice")
        first, second, third = (
            Bearer(f"corp:abc/{name}", clock(), clock() + length)
            for name, length in (("one", HOUR), ("two", 2 * HOUR), ("three", 9 * HOUR))
        )

        async def good() -> list[bool]:
            bearers = (first, second, third)
            return [await stands(built.store, clock(), ALICE, one) for one in bearers]

        async def writes(bearer: Bearer) -> bool:
            context = line(built, "store_memory")
            context.entry.accessor, context.entry.bearer = "corp:abc", bearer
            try:
                await services.ingest.remember(context, Submission("User: I swim.", "life"))
            except Unauthenticated:
                return False
            return True

        found = [await good()]
        await services.delegation.revoke(line(built, "revoke_child"), "corp:abc", "one")
        found.append(await good())
        wrote = [await writes(one) for one in (first, second)]
        clock.pass_(3 * HOUR)
        found.append(await good())
        on_behalf = line(built, "tokens_not_before")
        await services.access.not_before(ALICE, None, entry=on_behalf.entry)
        found.append(await good())
        wrote.append(await writes(third))

    assert found == [[True] * 3, [False, True, True], [False, False, True], [False] * 3]
    assert wrote == [False, True, False]


# What a revocation does with a job of each kind. Some kinds go on, for the reason given.
JOBS = {
    "extract": "ends: it is the token's, and so are the memories that it would make",
    "consolidate": "ends with its task",
    "expire": "ends with its task",
    "push": "ends with its push configuration or webhook",
    "end_tasks": "goes on: it is the end",
    "expire_text": "goes on: a text is hidden when its time is over",
    "embed": "goes on: it makes what is stored findable",
    "discard": "goes on: it removes tasks that have ended",
    "push_end": "goes on: it removes push configurations",
    "recheck": "ends: it is the token's",
    "judge": "ends: it is the job of the token that opened the dispute, which stays open",
    "purge": "goes on: an erasure that was accepted is completed",
}
TABLES = {
    "runs": "those that have not ended are cancelled",
    "push_configs": "they are removed",
    "webhooks": "they are removed",
    "operations": "those that have not ended are given up",
    "api_tokens": "the token itself",
    "tool_call_records": "a record of what it did",
    "call_counts": "numbers",
    "memory_events": "what it changed stays so, and can be undone",
}


async def test_all_that_a_token_can_begin_is_named_here(open_app: Open) -> None:
    """A new kind of job, or a new table with a token, needs an entry here and a test above."""
    async with open_app() as built:
        kinds = set(built.worker.handlers)
    with_token = {
        table.name
        for table in registry.TABLES
        if "accessor" in (*table.key, *INNER.get(table.name, ()), *dict(table.fields))
    }

    assert kinds == JOBS.keys()
    assert with_token == TABLES.keys()


async def test_a_token_that_is_limited_is_told_of_what_it_may_see(
    serve: Serve, receiver: Receiver
) -> None:
    """Before each push, the server checks the token for the access that the task needs."""
    limit = AccessScope(topics=frozenset({"life"}), containers=frozenset({"red"}))
    wanted = TokenRequest(Rights(frozenset({Scope.CONSOLIDATE}), limit))
    async with (
        serve(push_allowed_hosts=(receiver.authority,)) as running,
        running.http(await running.token("alice", wanted)) as http,
    ):
        task = await Wire(http).task({"data": {"text": LISBON, "topic": "life"}})
        url = f"http://{receiver.authority}/hook"
        await Wire(http).result("CreateTaskPushNotificationConfig", taskId=task["id"], url=url)
        await running.extract()

    assert "Lisbon" in "".join(request.body.decode() for request in receiver.requests)
