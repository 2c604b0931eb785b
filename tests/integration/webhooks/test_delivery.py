"""The webhooks of a namespace get its events once, in order and signed, and nothing else."""

import asyncio
import json
from datetime import timedelta

import pytest

from recall_server.services.webhooks import PAUSES, TRIES_MAX
from tests.support.a2a_bindings import Wire
from tests.support.a2a_clients import LISBON, PORTO
from tests.support.conversation import ALICE, contradicted
from tests.support.counted import counted
from tests.support.models import Manner, Reply
from tests.support.receivers import OK, Receiver
from tests.support.runtime import Clock
from tests.support.server import Running, Serve
from tests.support.transfer import BOB, taken_in
from tests.support.webhooks import (
    allowing,
    kinds,
    register,
    registered,
    store,
    told,
    verified,
)

OF_MEMORIES = [f"memory.{one}" for one in ("added", "superseded", "forgotten", "restored")]


async def test_what_happens_to_memories_is_told_in_order_and_without_words(
    serve: Serve, receiver: Receiver, clock: Clock
) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        hook = await register(http, receiver.url)
        first = await store(running, http, "User: I live in Porto.")
        clock.pass_(timedelta(hours=1))
        second = await store(running, http, "User: I live in Lisbon now.")
        (lisbon,) = (await http.get("/v1/memories")).json()["memories"]
        await http.delete(f"/v1/memories/{lisbon['id']}")
        await running.extract()
        [listed] = await registered(http)

    added, done, _, superseded, again, forgotten = told(receiver)
    assert kinds(receiver) == [
        "memory.added",
        "extraction.completed",
        "memory.added",
        "memory.superseded",
        "extraction.completed",
        "memory.forgotten",
    ]
    assert added["namespace"] == "alice"
    assert added["timestamp"] == "2026-03-01T12:00:00.000000+00:00"
    porto = added["data"]["id"]
    assert done["data"] == {
        "job_id": first["job_id"],
        "text_id": done["data"]["text_id"],
        "memories": [porto],
    }
    assert superseded["data"]["superseded_by"] == lisbon["id"] == forgotten["data"]["id"]
    assert superseded["data"]["id"] == porto
    assert superseded["data"]["change_id"] == second["job_id"] == again["data"]["job_id"]
    assert not any(b"Porto" in one.body or b"Lisbon" in one.body for one in receiver.requests)
    assert all(verified(one, hook["secret"]) for one in receiver.requests)
    assert len({one.headers["webhook-id"] for one in receiver.requests}) == 6
    assert (listed["state"], listed["pending"], listed["failures"]) == ("active", 0, 0)
    assert listed["delivered_at"] is not None
    assert "secret" not in listed


async def test_a_webhook_is_told_of_its_kinds_only_and_of_what_came_after_it(
    serve: Serve, receiver: Receiver
) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await store(running, http, "User: I like tea.")
        await register(http, receiver.url, "memory.added")
        before = kinds(receiver)
        await store(running, http, "User: I live in Porto.")
        await store(running, http, "User: I live in Lisbon now.")
        async with running.application.store.transaction(ALICE, write=False) as tx:
            kept = await tx.bound.connection.fetch("SELECT seq FROM webhook_events", {})

    assert (before, kinds(receiver)) == ([], ["memory.added", "memory.added"])
    assert kept == []


async def test_what_is_taken_back_and_brought_back_is_told(
    serve: Serve, receiver: Receiver, clock: Clock
) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await register(http, receiver.url, *OF_MEMORIES)
        await store(running, http, "User: I live in Porto.")
        clock.pass_(timedelta(hours=1))
        second = await store(running, http, "User: I live in Lisbon now.")
        (lisbon,) = (await http.get("/v1/memories")).json()["memories"]
        porto = told(receiver)[0]["data"]["id"]
        receiver.requests.clear()
        undo = (await http.post(f"/v1/changes/{second['job_id']}/undo")).json()
        await http.post(f"/v1/changes/{undo['change_id']}/undo")
        await http.delete(f"/v1/memories/{lisbon['id']}")
        await http.post(f"/v1/memories/{lisbon['id']}/restore")
        await running.extract()

    found = [(one["type"], one["data"]["id"], one["data"].get("status")) for one in told(receiver)]
    text = told(receiver)[2]["data"]["text_id"]
    assert found == [
        ("memory.forgotten", lisbon["id"], "forgotten"),
        ("memory.restored", porto, "active"),
        ("memory.forgotten", text, None),
        ("memory.restored", lisbon["id"], "active"),
        ("memory.superseded", porto, "superseded"),
        ("memory.restored", text, None),
        ("memory.forgotten", lisbon["id"], "forgotten"),
        ("memory.restored", lisbon["id"], "active"),
    ]


async def test_an_undo_that_leaves_a_memory_believed_tells_nothing_of_it(
    serve: Serve, receiver: Receiver
) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await register(http, receiver.url, *OF_MEMORIES)
        await store(running, http, "User: I live in Porto.")
        again = await store(running, http, "User: I live in Porto.\nUser: I play chess.")
        receiver.requests.clear()
        undo = await http.post(f"/v1/changes/{again['job_id']}/undo")
        assert len(undo.json()["memory_ids"] + undo.json()["forgotten_ids"]) == 2, undo.text
        await running.extract()

    of_memories = [one for one in told(receiver) if "status" in one["data"]]
    assert [(one["type"], one["data"]["id"]) for one in of_memories] == [
        ("memory.forgotten", *undo.json()["forgotten_ids"])
    ]


async def test_a_memory_whose_time_is_over_is_told_as_forgotten(
    serve: Serve, receiver: Receiver, clock: Clock
) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await register(http, receiver.url, *OF_MEMORIES)
        ends = (clock() + timedelta(hours=1)).isoformat()
        given = {"text": "User: I live in Porto.", "expires_at": ends}
        assert (await http.post("/v1/memories", json=given)).status_code == 202
        await running.extract()
        added = kinds(receiver)
        receiver.requests.clear()
        clock.pass_(timedelta(hours=2))
        await running.extract()

    assert added == ["memory.added"]
    assert [(one["type"], one["data"].get("status")) for one in told(receiver)] == [
        ("memory.forgotten", "expired"),
        ("memory.forgotten", None),
    ]


async def test_an_import_tells_what_is_believed_by_it(
    serve: Serve, receiver: Receiver, clock: Clock
) -> None:
    async with serve(**allowing(receiver)) as running:
        async with running.http(await running.token()) as http:
            await store(running, http, "User: I live in Porto.")
            clock.pass_(timedelta(hours=1))
            await store(running, http, "User: I live in Lisbon now.")
            (lisbon,) = (await http.get("/v1/memories")).json()["memories"]
            file = (await http.get("/v1/export")).content
        async with running.http(await running.token("bob")) as http:
            await register(http, receiver.url, *OF_MEMORIES)
            await taken_in(running.application, file, BOB)
            await running.extract()

    assert [(one["type"], one["data"]["id"], one["namespace"]) for one in told(receiver)] == [
        ("memory.added", lisbon["id"], "bob")
    ]


async def test_a_namespace_without_webhooks_pays_no_statement_for_them(
    serve: Serve, receiver: Receiver
) -> None:
    """The control: with a webhook, its events are stored and queued."""
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await store(running, http, "User: I live in Porto.")
        sent: list[str] = []
        for url in (None, receiver.url):
            if url:
                await register(http, url, "memory.forgotten")
            (one,) = (await http.get("/v1/memories")).json()["memories"]
            with counted(running.application) as counts:
                await http.delete(f"/v1/memories/{one['id']}")
            sent.append(" ".join(counts.written))
            await http.post(f"/v1/memories/{one['id']}/restore")

    without, with_one = sent
    assert "INSERT INTO webhook_events" not in without
    assert "INSERT INTO webhook_events" in with_one


async def test_words_are_told_where_they_are_asked_for(serve: Serve, receiver: Receiver) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await register(http, receiver.url, "memory.added", include_text=True)
        await store(running, http, "User: I live in Porto.")

    [added] = told(receiver)
    assert "Porto" in added["data"]["text"]


async def test_conflicts_are_told_with_their_sides(serve: Serve, receiver: Receiver) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        kinds_ = ("conflict.opened", "conflict.settled")
        await register(http, receiver.url, *kinds_, include_text=True)
        question = await contradicted(running.application)
        await running.extract()
        answer = await http.post("/v1/conflicts", json={"id": question, "choice": "keep_new"})
        await running.extract()

    assert answer.status_code == 200, answer.text
    opened, settled = told(receiver)
    assert (opened["type"], settled["type"]) == kinds_
    assert opened["data"]["id"] == settled["data"]["id"] == question
    sides = {one["side"]: one.get("text", "") for one in opened["data"]["memories"]}
    assert ("Oslo" in sides["existing"], "Bergen" in sides["new"]) == (True, True)


async def test_tasks_are_told_when_they_ask_and_when_they_end(
    serve: Serve, receiver: Receiver
) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        task_kinds = [
            f"task.{one}" for one in ("completed", "failed", "input_required", "canceled")
        ]
        await register(http, receiver.url, *task_kinds)
        wire = Wire(http)
        first = await wire.task({"text": LISBON})
        await running.extract()
        second = await wire.task({"text": PORTO})
        await running.extract()
        await wire.result("CancelTask", id=second["id"])
        await running.extract()

    assert [(one["type"], one["data"]) for one in told(receiver)] == [
        ("task.completed", {"id": first["id"]}),
        ("task.input_required", {"id": second["id"]}),
        ("task.canceled", {"id": second["id"]}),
    ]


async def test_an_erasure_is_told_when_its_receipt_is_final(
    serve: Serve, receiver: Receiver
) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await store(running, http, "User: I live in Porto.")
        (porto,) = (await http.get("/v1/memories")).json()["memories"]
        await register(http, receiver.url, "erasure.completed")
        answer = await http.delete(f"/v1/memories/{porto['id']}?erase=true")
        assert answer.status_code == 200, answer.text
        await running.extract()

    [done] = told(receiver)
    assert done["data"]["kind"] == "memory"


async def test_an_event_is_told_again_with_the_same_id_until_it_is_taken(
    serve: Serve, receiver: Receiver, clock: Clock
) -> None:
    receiver.replies += [Reply(status=500), Reply(manner=Manner.CUT)]
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await register(http, receiver.url, "memory.added")
        await store(running, http, "User: I live in Porto.")
        [failing] = await registered(http)
        early = len(receiver.requests)
        await store(running, http, "User: I like tea.")
        waited = len(receiver.requests)
        for pause in PAUSES[:2]:
            clock.pass_(pause)
            await running.extract()
        [listed] = await registered(http)

    ids = [one.headers["webhook-id"] for one in receiver.requests]
    assert (failing["state"], failing["code"], failing["pending"]) == ("failing", "PUSH_FAILED", 1)
    assert (early, waited) == (1, 1)
    assert ids[0] == ids[1] == ids[2] != ids[3]
    assert (listed["state"], listed["code"], listed["pending"]) == ("active", None, 0)


async def test_a_receiver_that_never_answers_is_given_up_and_a_test_brings_it_back(
    serve: Serve, receiver: Receiver, clock: Clock
) -> None:
    receiver.otherwise = Reply(status=503)
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        hook = await register(http, receiver.url, "memory.added")
        await store(running, http, "User: I live in Porto.")
        for _ in range(TRIES_MAX + 3):
            clock.pass_(PAUSES[-1])
            await running.extract()
        tries = len(receiver.requests)
        [dead] = await registered(http)
        await store(running, http, "User: I like tea.")
        refused = (await http.post(f"/v1/webhooks/{hook['id']}/test")).json()
        receiver.otherwise = OK
        taken = (await http.post(f"/v1/webhooks/{hook['id']}/test")).json()
        [alive] = await registered(http)
        await store(running, http, "User: I play chess.")

    assert (tries, dead["state"], dead["code"]) == (TRIES_MAX, "dead", "PUSH_FAILED")
    assert refused == {"delivered": False, "status": 503, "code": "PUSH_FAILED"}
    assert taken == {"delivered": True, "status": 204, "code": None}
    assert (alive["state"], alive["failures"], alive["pending"]) == ("active", 0, 0)
    assert kinds(receiver)[tries:] == ["webhook.test", "webhook.test", "memory.added"]
    assert verified(receiver.requests[-2], hook["secret"])


async def test_a_receiver_that_is_gone_for_good_is_told_nothing_more(
    serve: Serve, receiver: Receiver
) -> None:
    receiver.otherwise = Reply(status=410)
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await register(http, receiver.url)
        await store(running, http, "User: I live in Porto.")
        [dead] = await registered(http)

    assert (len(receiver.requests), dead["state"], dead["code"]) == (1, "dead", "WEBHOOK_GONE")


async def test_a_receiver_that_falls_too_far_behind_is_given_up(
    serve: Serve, receiver: Receiver, clock: Clock
) -> None:
    receiver.otherwise = Reply(status=500)
    given = allowing(receiver)
    async with (
        serve(**given, webhook_pending_max=3) as running,
        running.http(await running.token()) as http,
    ):
        await register(http, receiver.url, "extraction.completed")
        for number in range(4):
            await store(running, http, f"User: I own {number + 1} boats.")
        clock.pass_(PAUSES[0])
        await running.extract()
        [dead] = await registered(http)

    assert (len(receiver.requests), dead["state"], dead["code"]) == (1, "dead", "WEBHOOK_BEHIND")


async def test_a_slow_webhook_holds_up_no_other_one(serve: Serve, receiver: Receiver) -> None:
    receiver.otherwise = Reply(status=500)
    async with (
        Receiver(host="127.0.0.1") as other,
        serve(**allowing(receiver, other)) as running,
        running.http(await running.token()) as http,
    ):
        await register(http, receiver.url, "memory.added")
        await register(http, other.url, "memory.added")
        await store(running, http, "User: I live in Porto.")
        await store(running, http, "User: I like tea.")

    assert (len(receiver.requests), kinds(other)) == (1, ["memory.added"] * 2)


async def test_what_was_committed_is_told_although_the_process_ended_before(
    serve: Serve, receiver: Receiver
) -> None:
    given = allowing(receiver)
    async with serve(**given) as running, running.http(await running.token()) as http:
        await register(http, receiver.url, "memory.added")
        await http.post("/v1/memories", json={"text": "User: I live in Porto."})
        # Run everything before the delivery.
        while not await _kept(running):
            assert await running.application.worker.run_once()
    assert receiver.requests == []
    async with serve(**given) as running:
        await running.extract()

    assert kinds(receiver) == ["memory.added"]


async def _kept(running: Running) -> bool:
    async with running.application.store.transaction(ALICE, write=False) as tx:
        return bool(await tx.bound.connection.fetch("SELECT seq FROM webhook_events", {}))


async def test_a_change_that_is_taken_back_is_told_to_nobody(
    serve: Serve, receiver: Receiver
) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await register(http, receiver.url, "memory.added")
        asked = {"text": "User: I live in Porto.", "dry_run": True}
        await http.post("/v1/memories:submit", json=asked)
        await running.extract()
        before = kinds(receiver)
        await store(running, http, "User: I live in Porto.")

    assert (before, kinds(receiver)) == ([], ["memory.added"])


async def test_removing_a_webhook_ends_it(serve: Serve, receiver: Receiver) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        hook = await register(http, receiver.url, "memory.added")
        await store(running, http, "User: I live in Porto.")
        removed = await http.delete(f"/v1/webhooks/{hook['id']}")
        again = await http.delete(f"/v1/webhooks/{hook['id']}")
        await store(running, http, "User: I like tea.")
        listed = await registered(http)

    assert (removed.json(), listed) == ({"removed": hook["id"]}, [])
    assert (again.status_code, again.json()["code"]) == (404, "WEBHOOK_NOT_FOUND")
    assert kinds(receiver) == ["memory.added"]


@pytest.mark.parametrize(
    ("given", "code"),
    [
        ({"url": "http://127.0.0.1/hook"}, "PUSH_URL_REFUSED"),
        ({"url": "https://169.254.169.254/"}, "PUSH_URL_REFUSED"),
        ({"kinds": ["memory.read"]}, "INVALID_ARGUMENT"),
    ],
)
async def test_what_no_webhook_may_be_is_refused(
    serve: Serve, receiver: Receiver, given: dict[str, object], code: str
) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        answer = await http.post("/v1/webhooks", json={"url": receiver.url, **given})
        good = await http.post("/v1/webhooks", json={"url": receiver.url})

    assert (answer.status_code, answer.json()["code"], good.status_code) == (400, code, 201)


async def test_a_namespace_has_a_limit_of_webhooks(serve: Serve, receiver: Receiver) -> None:
    async with serve(**allowing(receiver), namespace_webhooks=1) as running:
        async with running.http(await running.token()) as http:
            first, second = [
                await http.post("/v1/webhooks", json={"url": receiver.url}) for _ in range(2)
            ]
        async with running.http(await running.token("bob")) as http:
            bobs = await http.post("/v1/webhooks", json={"url": receiver.url})

    assert (first.status_code, bobs.status_code) == (201, 201)
    assert second.json()["code"] == "LIMIT_REACHED"


async def test_two_workers_tell_each_event_once(serve: Serve, receiver: Receiver) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await register(http, receiver.url, "extraction.completed")
        for number in range(5):
            content = f"User: I own {number + 1} boats."
            await http.post("/v1/memories", json={"text": content})
        await asyncio.gather(running.extract(), running.extract(), running.extract())
        await running.extract()

    jobs = [one["data"]["job_id"] for one in told(receiver)]
    assert len(jobs) == len(set(jobs)) == 5


async def test_the_secret_stands_nowhere_in_the_database(serve: Serve, receiver: Receiver) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        hook = await register(http, receiver.url)
        async with running.application.store.transaction(ALICE, write=False) as tx:
            rows = await tx.bound.connection.fetch("SELECT * FROM webhooks", {})

    assert rows
    assert hook["secret"] not in json.dumps([str(dict(row)) for row in rows])
