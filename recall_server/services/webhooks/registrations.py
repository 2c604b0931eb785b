"""Registers, lists, removes and tests webhooks."""

from collections.abc import Sequence
from dataclasses import dataclass

from recall_server.domain.context import Context, Runtime
from recall_server.domain.errors import (
    Invalid,
    LimitReached,
    NamespaceNotFound,
    PushFailed,
    PushUrlRefused,
    SecretUnreadable,
    WebhookNotFound,
)
from recall_server.domain.namespace import Namespace
from recall_server.domain.text.cleaning import storable
from recall_server.domain.webhook import SECRET_BYTES, TEST, WebhookKind, secret_of
from recall_server.integrations.crypto.keys import Sealer
from recall_server.integrations.webhook import Webhook
from recall_server.services.webhooks.messages import headers_of, message, place
from recall_server.storage.store import Store
from recall_server.storage.tables.webhooks import Registration


@dataclass(frozen=True)
class Listed:
    """A webhook, and how many events wait for it, counted up to `pending_max`."""

    registration: Registration
    pending: int


@dataclass(frozen=True)
class Tested:
    """The result of a test: the status that the receiver answered, or why there is none."""

    delivered: bool
    status: int | None = None
    code: str | None = None


@dataclass(frozen=True)
class Registrations:
    """The webhooks of namespaces."""

    store: Store
    runtime: Runtime
    webhook: Webhook
    sealer: Sealer
    webhooks_max: int
    pending_max: int

    async def add(
        self,
        context: Context,
        url: str,
        kinds: Sequence[WebhookKind] = (),
        *,
        include_text: bool = False,
    ) -> tuple[Registration, str]:
        """Send these kinds of event (none: all) to `url` from now on. Return the registration, and
        the secret that signs its deliveries, which is not shown again.

        Raises `PushUrlRefused`, `SecretKeyMissing`, `LimitReached` and `NamespaceNotFound`.
        """
        self.sealer.require()
        await self.webhook.check_url(url, tenant=context.namespace)
        secret = secret_of(self.runtime.random_bytes(SECRET_BYTES))
        wanted = set(kinds) or set(WebhookKind)
        webhook_id = self.runtime.new_id("hook")
        new = Registration(
            id=webhook_id,
            url=url,
            kinds=tuple(one for one in WebhookKind if one in wanted),
            include_text=include_text,
            secret=self.sealer.seal({"secret": secret}, place(context.namespace, webhook_id, url)),
            created_at=self.runtime.now(),
            bearer=context.entry.bearer,
        )
        async with self.store.change(context) as tx:
            await tx.lock()
            if not await tx.exports.exists():
                raise NamespaceNotFound
            if len(await tx.webhooks.all()) >= self.webhooks_max:
                raise LimitReached(
                    f"A namespace may have {self.webhooks_max} webhooks. Remove one of them."
                )
            added = await tx.webhooks.add(new)
            context.entry.ids.append(added.id)
        return added, secret

    async def all(self, namespace: Namespace) -> list[Listed]:
        """Return the webhooks of a namespace, oldest first, each with its waiting events."""
        async with self.store.transaction(namespace, write=False) as tx:
            return [
                Listed(one, await tx.webhooks.pending(one, self.pending_max))
                for one in await tx.webhooks.all()
            ]

    async def remove(self, context: Context, webhook_id: str) -> None:
        """Remove a webhook: it receives nothing more. Raises `WebhookNotFound`."""
        storable(webhook_id)
        async with self.store.change(context) as tx:
            await tx.lock()
            if not await tx.webhooks.remove(webhook_id):
                raise WebhookNotFound
            await tx.webhooks.drop_sent()
            context.entry.ids.append(webhook_id)

    async def test(self, context: Context, webhook_id: str) -> Tested:
        """Send an event without data. A dead webhook that accepts it is revived: it receives the
        events from now on. Raises `WebhookNotFound`.
        """
        storable(webhook_id)
        async with self.store.view(context) as tx:
            found = await tx.webhooks.get(webhook_id)
        if found is None:
            raise WebhookNotFound
        tested = await self._sent(context.namespace, found)
        async with self.store.change(context) as tx:
            await tx.lock()
            if tested.delivered:
                await tx.webhooks.revive(webhook_id)
            context.entry.ids.append(webhook_id)
            context.entry.counts["delivered"] = int(tested.delivered)
        return tested

    async def _sent(self, namespace: Namespace, one: Registration) -> Tested:
        now = self.runtime.now()
        body = message(TEST, now, namespace, {})
        try:
            secrets = self.sealer.open(one.secret, place(namespace, one.id, one.url))
            headers = headers_of(secrets["secret"], self.runtime.new_id(one.id), now, body)
            answer = await self.webhook.post(one.url, body, headers, tenant=namespace)
        except (PushFailed, PushUrlRefused, SecretUnreadable, Invalid) as error:
            return Tested(False, code=error.code)
        return Tested(answer.taken, answer.status, None if answer.taken else PushFailed.code)
