"""A webhook never gets what was erased or forgotten meanwhile, or what its owner may not see."""

from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any

import httpx2
import pytest

from recall_server.domain.context import Context
from recall_server.domain.erasure import CONFIRMATION
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import AccessScope, Rights, Scope
from recall_server.domain.webhook import WebhookKind
from recall_server.integrations.keys import Sealer
from recall_server.integrations.webhook import Webhook
from recall_server.services.auth import TokenRequest
from recall_server.services.webhooks import PAUSES, Delivery
from recall_server.storage.tables.jobs import PUSH
from tests.support.models import Reply
from tests.support.receivers import Receiver
from tests.support.runtime import Clock
from tests.support.server import MAY_ALL, Running, Serve
from tests.support.webhooks import (
    SECRET_KEY,
    allowing,
    kinds,
    register,
    registered,
    store,
    told,
)

ALICE = Namespace("alice")
Act = Callable[[httpx2.AsyncClient, str], Coroutine[Any, Any, None]]


async def erase(http: httpx2.AsyncClient, memory_id: str) -> None:
    assert (await http.delete(f"/v1/memories/{memory_id}?erase=true")).status_code == 200


async def forget(http: httpx2.AsyncClient, memory_id: str) -> None:
    assert (await http.delete(f"/v1/memories/{memory_id}")).status_code == 200


async def nothing(_: httpx2.AsyncClient, __: str) -> None:
    """Do nothing: this is the control."""


@pytest.mark.parametrize("act", [nothing, forget, erase])
async def test_what_waits_for_a_receiver_is_told_as_it_is_then(
    serve: Serve, receiver: Receiver, clock: Clock, act: Act
) -> None:
    receiver.replies.append(Reply(status=500))
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await register(http, receiver.url, "memory.added", include_text=True)
        await store(running, http, "User: I live in Porto.")
        receiver.requests.clear()
        (porto,) = (await http.get("/v1/memories")).json()["memories"]
        await act(http, porto["id"])
        clock.pass_(PAUSES[0])
        await running.extract()
        [listed] = await registered(http)

    texts = [one["data"].get("text") for one in told(receiver)]
    assert texts == {nothing: [porto["text"]], forget: [None], erase: []}[act]
    assert (listed["pending"], listed["state"]) == (0, "active" if act is not erase else "failing")


@pytest.mark.parametrize("act", [nothing, forget, erase])
async def test_what_is_taken_back_while_the_name_of_a_receiver_is_looked_up_is_not_sent(
    serve: Serve, receiver: Receiver, act: Act
) -> None:
    host, _, port = receiver.authority.partition(":")
    texts: list[str] = []
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:

        async def resolve(_: str, __: int) -> Sequence[str]:
            found = (await http.get("/v1/memories")).json()["memories"]
            if found and not texts:
                texts.append(found[0]["text"])
                await act(http, found[0]["id"])
            return [host]

        webhook = Webhook(allowed=["hooks.test"], timeout_s=5, resolve=resolve)
        built = running.application
        line = built.services.audit.begin(ALICE, "add_webhook", "cli", None)
        await replace(built.services.webhooks, webhook=webhook).add(
            Context(line),
            f"http://hooks.test:{port}/hook",
            [WebhookKind.MEMORY_ADDED],
            include_text=True,
        )
        delivery = Delivery(built.store, built.runtime, webhook, Sealer([SECRET_KEY]), 100)
        handlers = {**built.worker.handlers, PUSH: delivery.deliver}
        worker = replace(built.worker, handlers=handlers)
        await http.post("/v1/memories", json={"text": "User: I live in Porto."})
        while await worker.run_once():
            pass
        await webhook.close()

    sent = [one["data"].get("text") for one in told(receiver)]
    assert sent == {nothing: texts, forget: [None], erase: []}[act]


async def limited(running: Running) -> str:
    access_scope = AccessScope(topics=frozenset({"life"}))
    rights = Rights(frozenset({Scope.ADMIN}), access_scope)
    return await running.token("alice", TokenRequest(rights))


async def test_a_limited_token_registers_sees_and_ends_none(
    serve: Serve, receiver: Receiver
) -> None:
    async with (
        serve(**allowing(receiver)) as running,
        running.http(await running.token()) as owner,
        running.http(await limited(running)) as http,
    ):
        hook = await register(owner, receiver.url)
        answers = [
            await http.post("/v1/webhooks", json={"url": receiver.url}),
            await http.get("/v1/webhooks"),
            await http.post(f"/v1/webhooks/{hook['id']}/test"),
            await http.delete(f"/v1/webhooks/{hook['id']}"),
        ]
        left = await registered(owner)

    assert [one.json()["code"] for one in answers] == ["OUT_OF_REACH"] * 4
    assert [one["id"] for one in left] == [hook["id"]]
    assert receiver.requests == []


@pytest.mark.parametrize("include_text", [False, True])
async def test_texts_need_the_right_to_read(
    serve: Serve, receiver: Receiver, *, include_text: bool
) -> None:
    wanted = TokenRequest(Rights(frozenset({Scope.WEBHOOKS})))
    async with serve(**allowing(receiver)) as running:
        await running.token()
        async with running.http(await running.token("alice", wanted)) as http:
            given = {"url": receiver.url, "include_text": include_text}
            answer = await http.post("/v1/webhooks", json=given)

    assert answer.status_code == (403 if include_text else 201)


async def test_another_namespace_has_none_of_it(serve: Serve, receiver: Receiver) -> None:
    async with (
        serve(**allowing(receiver)) as running,
        running.http(await running.token()) as alice,
        running.http(await running.token("bob")) as bob,
    ):
        hook = await register(alice, receiver.url)
        answers = [
            await bob.post(f"/v1/webhooks/{hook['id']}/test"),
            await bob.delete(f"/v1/webhooks/{hook['id']}"),
        ]
        bobs = await registered(bob)
        await store(running, bob, "User: I live in Oslo.")
        before = kinds(receiver)
        await store(running, alice, "User: I live in Porto.")

    assert [one.json()["code"] for one in answers] == ["WEBHOOK_NOT_FOUND"] * 2
    assert (bobs, before) == ([], [])
    assert {one["namespace"] for one in told(receiver)} == {"alice"}


@pytest.mark.parametrize("way", ["revoked", "no overlap", "expired"])
async def test_a_webhook_ends_with_the_token_that_registered_it(
    serve: Serve, receiver: Receiver, clock: Clock, way: str
) -> None:
    """The control: a webhook of the operator stays."""
    async with serve(**allowing(receiver)) as running:
        services = running.application.services

        def line(operation: str) -> Context:
            return Context(services.audit.begin(ALICE, operation, "cli", None))

        wanted = TokenRequest(MAY_ALL.rights, expires_in=timedelta(hours=1))
        token, info = await running.issued("alice", wanted)
        async with running.http(token) as http, running.http(await running.token()) as owner:
            await services.webhooks.add(line("add_webhook"), f"{receiver.url}/operators")
            await register(http, f"{receiver.url}/thiefs")
            await store(running, owner, "User: I live in Porto.")
            before = {one.path for one in receiver.requests}
            receiver.requests.clear()
            clock.pass_(timedelta(seconds=1))
            if way == "revoked":
                answer = (await owner.delete(f"/v1/tokens/{info.accessor}")).json()
                assert answer["ended"]["webhooks"] == 1
            elif way == "no overlap":
                await services.access.rotate(line("rotate_token"), info, timedelta())
            else:
                clock.pass_(timedelta(hours=1))
            await store(running, owner, "User: I like tea.")
            left = await registered(owner)

    assert before == {"/hook/operators", "/hook/thiefs"}
    assert {one.path for one in receiver.requests} == {"/hook/operators"}
    states = {one["url"].rpartition("/")[2]: (one["state"], one["code"]) for one in left}
    ended = {} if way == "revoked" else {"thiefs": ("dead", "TOKEN_ENDED")}
    assert states == {"operators": ("active", None), **ended}


async def test_an_erased_namespace_has_no_webhooks_and_tells_nobody(
    serve: Serve, receiver: Receiver, clock: Clock
) -> None:
    receiver.replies.append(Reply(status=500))
    async with serve(**allowing(receiver)) as running:
        async with running.http(await running.token()) as http:
            await register(http, receiver.url)
            await store(running, http, "User: I live in Porto.")
            asked = len(receiver.requests)
            answer = await http.post("/v1/erasure", json={"confirm": CONFIRMATION})
            clock.pass_(PAUSES[-1])
            await running.extract()
        async with running.application.store.transaction(ALICE, write=False) as tx:
            kept = [
                await tx.bound.connection.fetch(f"SELECT * FROM {table}", {})
                for table in ("webhooks", "webhook_events")
            ]

    assert (asked, answer.status_code) == (1, 200)
    assert (kept, len(receiver.requests)) == ([[], []], 1)


async def test_a_webhook_whose_address_names_an_erased_person_is_removed(
    serve: Serve, receiver: Receiver
) -> None:
    async with serve(**allowing(receiver)) as running, running.http(await running.token()) as http:
        await register(http, f"{receiver.url}/Okonkwo", "erasure.completed")
        await register(http, f"{receiver.url}/other", "erasure.completed")
        await store(running, http, "Okonkwo: I live in Porto.")
        answer = await http.post("/v1/erasure", json={"subject": "Okonkwo"})
        await running.extract()
        left = await registered(http)

    assert answer.status_code == 200
    assert [one["url"].rpartition("/")[2] for one in left] == ["other"]
    assert [one.path for one in receiver.requests] == ["/hook/other"]
