"""Webhooks of a test: registered over HTTP, received on loopback, verified as a receiver does."""

import base64
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest

from recall_server.application import Application
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import Bearer
from recall_server.domain.webhook import WebhookKind
from recall_server.storage.tables.tasks import Registration
from tests.support.receivers import Received, Receiver, loopback
from tests.support.server import Running

SECRET_KEY = "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
Json = dict[str, Any]


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    async with Receiver(host=loopback()) as receiver:
        yield receiver


def allowing(*receivers: Receiver) -> dict[str, Any]:
    """Return the settings with which the server sends to these receivers."""
    allowed = tuple(one.authority for one in receivers)
    return {"push_allowed_hosts": allowed, "secret_key": (SECRET_KEY,)}


async def register(
    http: httpx2.AsyncClient, url: str, *kinds: str, include_text: bool = False
) -> Json:
    """Register a webhook, and return it with its secret."""
    given = {"url": url, "kinds": list(kinds), "include_text": include_text}
    answer = await http.post("/v1/webhooks", json=given)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


async def planted(
    application: Application,
    namespace: Namespace,
    accessor: str = "",
    url: str = "https://93.184.215.14/hook",
) -> str:
    """Add a webhook of a token or of the operator whose secret cannot be decrypted, and return its
    id: nothing is sent to it.
    """
    webhook_id = application.runtime.new_id("hook")
    async with application.store.transaction(namespace) as tx:
        await tx.lock()
        now = application.runtime.now()
        await tx.webhooks.add(
            Registration(
                id=webhook_id,
                url=url,
                kinds=tuple(WebhookKind),
                include_text=False,
                secret=b"sealed",
                created_at=now,
                bearer=Bearer(accessor, now) if accessor else None,
            )
        )
    return webhook_id


async def registered(http: httpx2.AsyncClient) -> list[Json]:
    answer = await http.get("/v1/webhooks")
    assert answer.status_code == 200, answer.text
    return list(answer.json()["webhooks"])


async def store(running: Running, http: httpx2.AsyncClient, content: str) -> Json:
    """Store a text, and run all jobs and deliveries that follow."""
    answer = await http.post("/v1/memories", json={"text": content, "topic": "life"})
    assert answer.status_code in (200, 201, 202), answer.text
    await running.extract()
    return dict(answer.json())


def verified(received: Received, secret: str) -> bool:
    """Verify a request as the page on webhooks tells a receiver."""
    key = base64.b64decode(secret.removeprefix("whsec_"))
    head = f"{received.headers['webhook-id']}.{received.headers['webhook-timestamp']}."
    digest = hmac.new(key, head.encode() + received.body, hashlib.sha256).digest()
    return received.headers["webhook-signature"] == f"v1,{base64.b64encode(digest).decode()}"


def told(receiver: Receiver) -> list[Json]:
    """Return what came in, in its order."""
    return [json.loads(one.body) for one in receiver.requests]


def kinds(receiver: Receiver) -> list[str]:
    return [one["type"] for one in told(receiver)]
