"""Webhooks: registers, lists, removes and tests them, and delivers events, in order: one job for
each webhook, in the lane of pushes.

A message is composed from the tables for each delivery, so that it holds nothing that was erased or
forgotten since. The last delivered event is stored with the webhook, so that a crash repeats one
delivery at most.
"""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from http import HTTPStatus
from typing import Any

import structlog

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.errors import (
    Invalid,
    LimitReached,
    NamespaceNotFound,
    PushFailed,
    PushUrlRefused,
    PushWaits,
    RecallError,
    SecretKeyMissing,
    SecretUnreadable,
    WebhookNotFound,
)
from recall_server.domain.ids import Namespace
from recall_server.domain.moments import passed
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.task import Job
from recall_server.domain.text.cleaning import storable
from recall_server.domain.webhook import SECRET_BYTES, TEST, WebhookKind, secret_of, signed
from recall_server.integrations.keys import Sealer
from recall_server.integrations.webhook import Webhook, pause
from recall_server.services.auth import stands
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.tasks import Registration, WebhookEvent


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
            if not await tx.webhooks.remove(webhook_id):
                raise WebhookNotFound
            await tx.webhooks.drop_sent()
            context.entry.ids.append(webhook_id)

    async def test(self, context: Context, webhook_id: str) -> Tested:
        """Send an event without data. A dead webhook that accepts it is revived: it receives the
        events from now on. Raises `WebhookNotFound`.
        """
        storable(webhook_id)
        found = await self.store.autocommit(context.namespace).webhooks.get(webhook_id)
        if found is None:
            raise WebhookNotFound
        tested = await self._sent(context.namespace, found)
        async with self.store.change(context) as tx:
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


Json = dict[str, Any]

_CONFLICTS = {WebhookKind.CONFLICT_OPENED, WebhookKind.CONFLICT_SETTLED}


def message(kind: str, at: datetime, namespace: Namespace, data: Json) -> bytes:
    moment = at.astimezone(UTC).isoformat(timespec="microseconds")
    body = {"type": kind, "timestamp": moment, "namespace": namespace, "data": data}
    return json.dumps(body, separators=(",", ":")).encode()


def headers_of(secret: str, message_id: str, now: datetime, body: bytes) -> Mapping[str, str]:
    return {"Content-Type": "application/json", **signed(secret, message_id, now, body)}


def place(namespace: Namespace, webhook_id: str, url: str) -> tuple[str, ...]:
    """Return what a webhook's secret is bound to: a changed row or address makes it unreadable."""
    return namespace, webhook_id, url


async def compose(
    tx: Transaction, namespace: Namespace, one: Registration, event: WebhookEvent, now: datetime
) -> bytes | None:
    """Return the body of an event as of now; None if its subject is gone."""
    data = await _data(tx, one, event, now)
    return None if data is None else message(event.kind, event.at, namespace, data)


async def _data(
    tx: Transaction, one: Registration, event: WebhookEvent, now: datetime
) -> Json | None:
    if event.kind in _CONFLICTS:
        return await _conflict(tx, one, event.item_id, now)
    if event.kind is WebhookKind.ERASURE_COMPLETED:
        erasure = await tx.erasures.get(event.item_id)
        return {"id": erasure.id, "kind": erasure.kind} if erasure else None
    if event.kind is WebhookKind.EXTRACTION_COMPLETED:
        return await _extraction(tx, event.item_id)
    if event.kind.startswith("task."):
        return {"id": event.item_id} if await tx.tasks.version(event.item_id) else None
    return await _memory(tx, one, event, now)


async def _memory(
    tx: Transaction, one: Registration, event: WebhookEvent, now: datetime
) -> Json | None:
    happened = await tx.events.numbered(event.seq)
    if happened is None:
        return None
    texts = await _texts(tx, one, [event.item_id], now)
    superseded_by = happened.state and happened.state.superseded_by
    return {
        "id": happened.item_id,
        "change_id": happened.change_id,
        "operation": happened.operation,
        "by": happened.accessor,
        **({"text_id": happened.episode_id} if happened.episode_id else {}),
        **({"status": happened.state.status} if happened.state else {}),
        **({"superseded_by": superseded_by} if superseded_by else {}),
        **({"text": text} if (text := texts.get(event.item_id)) else {}),
    }


async def _conflict(
    tx: Transaction, one: Registration, question_id: str, now: datetime
) -> Json | None:
    sides = await tx.disputes.sides(question_id)
    texts = await _texts(tx, one, [memory_id for memory_id, _ in sides], now)
    memories = [
        {"id": memory_id, "side": side, **({"text": text} if text else {})}
        for memory_id, side in sides
        for text in [texts.get(memory_id)]
    ]
    return {"id": question_id, "memories": memories} if memories else None


async def _extraction(tx: Transaction, job_id: str) -> Json | None:
    job = await tx.jobs.of_text(job_id)
    if job is None:
        return None
    memories = await tx.memories.of_episode(job.episode_id)
    return {
        "job_id": job.id,
        "text_id": job.episode_id,
        "memories": [memory.id for memory in memories],
        **({"code": job.error_code} if job.error_code else {}),
    }


async def _texts(
    tx: Transaction, one: Registration, ids: Sequence[str], now: datetime
) -> dict[str, str]:
    """Return the texts of those memories that search finds now, if the webhook receives texts."""
    if not one.include_text:
        return {}
    found = await tx.memories.found(ids)
    return {memory.id: memory.text for memory in found if not passed(memory.expires_at, now)}


log = structlog.get_logger()

WEBHOOK = "webhook"
# How many events one job sends before other jobs of its namespace get its slot.
EVENTS_AT_ONCE = 100
# The pauses after failures; the last one repeats.
PAUSES = tuple(timedelta(seconds=seconds) for seconds in (5, 60, 600, 3_600))
# After this many failures in a row, about a day, a webhook is dead.
TRIES_MAX = 24

TOKEN_ENDED = "TOKEN_ENDED"  # noqa: S105  # why a webhook is dead
GONE = "WEBHOOK_GONE"
BEHIND = "WEBHOOK_BEHIND"


class NotDue(Exception):
    """An event, or its receiver, has changed or ended before the event was sent."""


class ReceiverGone(Exception):
    """The receiver answers that it is gone for good."""


async def send(
    webhook: Webhook,
    url: str,
    body: bytes,
    headers: Mapping[str, str],
    *,
    tenant: Namespace,
    due: Callable[[], Awaitable[bool]],
) -> None:
    """Send an event. Raises `NotDue`, `ReceiverGone`, and what `Webhook.post` raises."""

    async def before() -> None:
        # Check again: name servers and receivers may be slow, and an erasure or a revocation may
        # come meanwhile.
        if not await due():
            raise NotDue

    answer = await webhook.post(url, body, headers, tenant=tenant, before=before)
    if answer.status == HTTPStatus.GONE:
        raise ReceiverGone
    if not answer.taken:
        raise PushFailed(
            f"The receiver answered {answer.status}.", retry_after_s=answer.retry_after_s
        )


@dataclass(frozen=True)
class Delivery:
    store: Store
    runtime: Runtime
    webhook: Webhook
    sealer: Sealer
    pending_max: int

    async def deliver(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Send one webhook the events that wait for it, in order. An event may arrive twice, if the
        answer was lost; it has the same id then. Raises `PushWaits` if the webhook pauses after a
        failure, and `Fenced` if another worker holds the job.
        """
        for _ in range(EVENTS_AT_ONCE):
            one, event = await self._next(job)
            if one is None or event is None:
                if await self._finished(job):
                    return
            elif (dead := await self._why_dead(job.namespace, one)) is not None:
                await self._die(job, one, dead)
                return
            elif not await self._handled(job, one, event, entry):
                return
        async with self.store.transaction(job.namespace) as tx:
            await tx.jobs.release(job, self.runtime.now(), None, failed=False)

    async def _next(self, job: Job) -> tuple[Registration | None, WebhookEvent | None]:
        async with self.store.transaction(job.namespace, write=False) as tx:
            one = await tx.webhooks.get(job.payload["webhook_id"])
            return one, await tx.webhooks.next(one) if one is not None and one.active else None

    async def _finished(self, job: Job) -> bool:
        """End the job; False if an event has come meanwhile. Writers of events hold the lock too,
        so they find the job either ended or still going on.
        """
        async with self.store.transaction(job.namespace, locked=True) as tx:
            one = await tx.webhooks.get(job.payload["webhook_id"])
            if one is not None and one.active and await tx.webhooks.next(one) is not None:
                return False
            await tx.jobs.finish(job, self.runtime.now())
            await tx.webhooks.drop_sent()
        return True

    async def _why_dead(self, namespace: Namespace, one: Registration) -> str | None:
        """Return why the webhook may receive nothing more; None if it may."""
        if not await self._stands(namespace, one):
            return TOKEN_ENDED
        webhooks = self.store.autocommit(namespace).webhooks
        behind = await webhooks.pending(one, self.pending_max + 1) > self.pending_max
        return BEHIND if behind else None

    async def _stands(self, namespace: Namespace, one: Registration) -> bool:
        """True if the token that registered it is good, and may know what the webhook receives."""
        scopes = {Scope.WEBHOOKS, *([Scope.READ] if one.include_text else [])}
        return await stands(
            self.store, self.runtime.now(), namespace, one.bearer, Rights(frozenset(scopes))
        )

    async def _handled(
        self, job: Job, one: Registration, event: WebhookEvent, entry: Callable[[str], AuditEntry]
    ) -> bool:
        """Send an event, or skip one whose subject is gone; False if the webhook is dead."""
        body = await self._composed(job.namespace, one, event)
        if body is None:
            await self._passed(job, one, event, None)
            return True
        try:
            secret = self.sealer.open(one.secret, place(job.namespace, one.id, one.url))["secret"]
            headers = headers_of(secret, f"{one.id}_{event.seq}", self.runtime.now(), body)
            due = partial(self._due, job.namespace, one, event, body)
            await send(self.webhook, one.url, body, headers, tenant=job.namespace, due=due)
        except NotDue:
            return True  # the next round reads it again
        except (PushFailed, PushUrlRefused, SecretKeyMissing, SecretUnreadable) as error:
            if one.failures + 1 < TRIES_MAX:
                await self._pause(job, one, error)
                raise PushWaits from None
            await self._die(job, one, error.code)
            return False
        except ReceiverGone:
            await self._die(job, one, GONE)
            return False
        await self._passed(job, one, event, entry(WEBHOOK))
        return True

    async def _composed(
        self, namespace: Namespace, one: Registration, event: WebhookEvent
    ) -> bytes | None:
        async with self.store.transaction(namespace, write=False) as tx:
            return await compose(tx, namespace, one, event, self.runtime.now())

    async def _due(
        self, namespace: Namespace, one: Registration, event: WebhookEvent, body: bytes
    ) -> bool:
        """True if webhook and event are unchanged, and its token may still receive the event."""
        return (
            await self.store.autocommit(namespace).webhooks.get(one.id) == one
            and await self._composed(namespace, one, event) == body
            and await self._stands(namespace, one)
        )

    async def _passed(
        self, job: Job, one: Registration, event: WebhookEvent, record: AuditEntry | None
    ) -> None:
        """Advance past an event, which was sent if there is a record, and else skipped."""
        now = self.runtime.now()
        async with self.store.transaction(job.namespace, entry=record, locked=True) as tx:
            await tx.webhooks.delivered(one.id, event.seq, now if record else None)
            await tx.jobs.advance(job, job.payload, now + self.runtime.lease)
            if record is not None:
                record.ids += [job.id, event.item_id]
                record.counts["seq"] = event.seq

    async def _pause(self, job: Job, one: Registration, error: RecallError) -> None:
        """Let the job wait after a failure; new events do not shorten the pause."""
        log.warning("webhook_failed", webhook=one.id, code=error.code)
        due_at = self.runtime.now() + pause(PAUSES, one.failures, error)
        async with self.store.transaction(job.namespace, locked=True) as tx:
            await tx.webhooks.failed(one.id, error.code, dead=False)
            await tx.jobs.release(job, due_at, error.code, failed=False)

    async def _die(self, job: Job, one: Registration, code: str) -> None:
        log.warning("webhook_dead", webhook=one.id, code=code)
        async with self.store.transaction(job.namespace, locked=True) as tx:
            await tx.webhooks.failed(one.id, code, dead=True)
            await tx.jobs.finish(job, self.runtime.now(), code)
            await tx.webhooks.drop_sent()
