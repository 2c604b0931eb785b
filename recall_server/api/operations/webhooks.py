"""Webhooks: receivers that are told of the events of a namespace."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated

from pydantic import Field

from recall_server.api import presenters
from recall_server.api.operations.operation import (
    Arguments,
    Call,
    Http,
    Json,
    NoArguments,
    Operation,
)
from recall_server.domain.permissions import Scope
from recall_server.domain.webhook import WebhookKind
from recall_server.services.webhooks import Listed
from recall_server.storage.tables.webhooks import Registration

CREATED = 201


class AddWebhook(Arguments):
    url: str
    kinds: list[Annotated[WebhookKind, Field(strict=False)]] = Field([])
    include_text: bool = False


class OneWebhook(Arguments):
    webhook_id: str


async def add_webhook(call: Call, given: AddWebhook) -> tuple[Registration, str]:
    if given.include_text:
        call.caller.rights.require(Scope.READ, whole_namespace=True)
    return await call.services.webhooks.add(
        call.context, given.url, given.kinds, include_text=given.include_text
    )


async def list_webhooks(call: Call, _: NoArguments) -> Sequence[Listed]:
    found = await call.services.webhooks.all(call.caller.namespace)
    call.context.entry.counts["webhooks"] = len(found)
    return found


async def remove_webhook(call: Call, given: OneWebhook) -> Json:
    await call.services.webhooks.remove(call.context, given.webhook_id)
    return {"removed": given.webhook_id}


def _added(made: tuple[Registration, str], _: Arguments) -> Json:
    registration, secret = made
    return {"secret": secret, **presenters.webhook(registration)}


_WEBHOOK = ("id", "url", "kinds", "include_text", "state")

ADD_WEBHOOK = Operation(
    "add_webhook",
    Scope.WEBHOOKS,
    "Have a URL told of events of the namespace, signed with a secret that is shown once.",
    AddWebhook,
    add_webhook,
    _added,
    ("secret", *_WEBHOOK),
    whole_namespace=True,
    http=(Http("POST", "/v1/webhooks", CREATED),),
    cli="recall webhooks add",
)
LIST_WEBHOOKS = Operation(
    "list_webhooks",
    Scope.WEBHOOKS,
    "List the webhooks of the namespace: what each is told, whether it takes it, what waits.",
    NoArguments,
    list_webhooks,
    lambda found, _: {
        "webhooks": [
            {**presenters.webhook(one.registration), "pending": one.pending} for one in found
        ]
    },
    ("webhooks",),
    whole_namespace=True,
    http=(Http("GET", "/v1/webhooks"),),
    cli="recall webhooks list",
    read_only=True,
)
REMOVE_WEBHOOK = Operation(
    "remove_webhook",
    Scope.WEBHOOKS,
    "Remove a webhook: it gets no more events.",
    OneWebhook,
    remove_webhook,
    returns=("removed",),
    whole_namespace=True,
    http=(Http("DELETE", "/v1/webhooks/{webhook_id}"),),
    cli="recall webhooks remove",
)
TEST_WEBHOOK = Operation(
    "test_webhook",
    Scope.WEBHOOKS,
    "Send a webhook an event without data; a dead one that accepts it gets events again.",
    OneWebhook,
    lambda call, given: call.services.webhooks.test(call.context, given.webhook_id),
    lambda tested, _: asdict(tested),
    ("delivered", "status", "code"),
    whole_namespace=True,
    http=(Http("POST", "/v1/webhooks/{webhook_id}/test"),),
    cli="recall webhooks test",
)

OPERATIONS = (ADD_WEBHOOK, LIST_WEBHOOKS, REMOVE_WEBHOOK, TEST_WEBHOOK)
