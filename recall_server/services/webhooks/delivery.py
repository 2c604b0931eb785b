"""Delivers events to webhooks, in order: one job for each webhook, in the lane of pushes.

The last delivered event is stored with the webhook, so that a crash repeats one delivery at most.
"""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from http import HTTPStatus

import structlog

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Runtime
from recall_server.domain.errors import (
    PushFailed,
    PushUrlRefused,
    PushWaits,
    RecallError,
    SecretKeyMissing,
    SecretUnreadable,
)
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.task import Job
from recall_server.integrations.crypto.keys import Sealer
from recall_server.integrations.webhook import Webhook, pause
from recall_server.services.auth.access import stands
from recall_server.services.webhooks.messages import compose, headers_of, place
from recall_server.storage.store import Store
from recall_server.storage.tables.webhooks import Registration, WebhookEvent

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


class _Changed(Exception):
    """The event or the webhook changed before the event was sent."""


class _Gone(Exception):
    """The receiver answers that it is gone for good."""


@dataclass(frozen=True)
class Delivery:
    """Handles the jobs of webhooks."""

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
        async with self.store.transaction(job.namespace) as tx:
            await tx.lock()
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
        async with self.store.transaction(namespace, write=False) as tx:
            behind = await tx.webhooks.pending(one, self.pending_max + 1) > self.pending_max
        return BEHIND if behind else None

    async def _stands(self, namespace: Namespace, one: Registration) -> bool:
        """True if the token that registered it is good, and may know what the webhook receives."""
        scopes = {Scope.WEBHOOKS, *([Scope.READ] if one.include_text else [])}
        return await stands(
            self.store, self.runtime.now(), namespace, one.bearer, Rights(frozenset(scopes))
        )

    async def _handled(
        self,
        job: Job,
        one: Registration,
        event: WebhookEvent,
        entry: Callable[[str], AuditEntry],
    ) -> bool:
        """Send an event, or skip one whose subject is gone; False if the webhook is dead."""
        body = await self._composed(job.namespace, one, event)
        if body is None:
            await self._passed(job, one, event, None)
            return True
        try:
            await self._send(job, one, event, body)
        except _Changed:
            return True  # the next round reads it again
        except (PushFailed, PushUrlRefused, SecretKeyMissing, SecretUnreadable) as error:
            if one.failures + 1 < TRIES_MAX:
                await self._pause(job, one, error)
                raise PushWaits from None
            await self._die(job, one, error.code)
            return False
        except _Gone:
            await self._die(job, one, GONE)
            return False
        await self._passed(job, one, event, entry(WEBHOOK))
        return True

    async def _composed(
        self, namespace: Namespace, one: Registration, event: WebhookEvent
    ) -> bytes | None:
        async with self.store.transaction(namespace, write=False) as tx:
            return await compose(tx, namespace, one, event, self.runtime.now())

    async def _send(self, job: Job, one: Registration, event: WebhookEvent, body: bytes) -> None:
        async def before() -> None:
            # Check again: name servers and receivers may be slow, and an erasure or a revocation
            # may come meanwhile.
            if not await self._due(job.namespace, one, event, body):
                raise _Changed

        secret = self.sealer.open(one.secret, place(job.namespace, one.id, one.url))["secret"]
        headers = headers_of(secret, f"{one.id}_{event.seq}", self.runtime.now(), body)
        answer = await self.webhook.post(
            one.url, body, headers, tenant=job.namespace, before=before
        )
        if answer.status == HTTPStatus.GONE:
            raise _Gone
        if not answer.taken:
            raise PushFailed(
                f"The receiver answered {answer.status}.", retry_after_s=answer.retry_after_s
            )

    async def _due(
        self, namespace: Namespace, one: Registration, event: WebhookEvent, body: bytes
    ) -> bool:
        """True if webhook and event are unchanged, and its token may still receive the event."""
        async with self.store.transaction(namespace, write=False) as tx:
            if await tx.webhooks.get(one.id) != one:
                return False
        return await self._composed(namespace, one, event) == body and await self._stands(
            namespace, one
        )

    async def _passed(
        self, job: Job, one: Registration, event: WebhookEvent, record: AuditEntry | None
    ) -> None:
        """Advance past an event, which was sent if there is a record, and else skipped."""
        now = self.runtime.now()
        async with self.store.transaction(job.namespace, entry=record) as tx:
            await tx.lock()
            await tx.webhooks.delivered(one.id, event.seq, now if record else None)
            await tx.jobs.advance(job, job.payload, now + self.runtime.lease)
            if record is not None:
                record.ids += [job.id, event.item_id]
                record.counts["seq"] = event.seq

    async def _pause(self, job: Job, one: Registration, error: RecallError) -> None:
        """Let the job wait after a failure; new events do not shorten the pause."""
        log.warning("webhook_failed", webhook=one.id, code=error.code)
        due_at = self.runtime.now() + pause(PAUSES, one.failures, error)
        async with self.store.transaction(job.namespace) as tx:
            await tx.lock()
            await tx.webhooks.failed(one.id, error.code, dead=False)
            await tx.jobs.release(job, due_at, error.code, failed=False)

    async def _die(self, job: Job, one: Registration, code: str) -> None:
        log.warning("webhook_dead", webhook=one.id, code=code)
        async with self.store.transaction(job.namespace) as tx:
            await tx.lock()
            await tx.webhooks.failed(one.id, code, dead=True)
            await tx.jobs.finish(job, self.runtime.now(), code)
            await tx.webhooks.drop_sent()
