"""Push notifications: configures receivers of a task's events and delivers the events.

The events of a task are stored in the transaction of its change. One job per config sends them in
order; if a job is given up, the job of a later event sends its events too.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from recall_server.domain.audit import AuditEntry
from recall_server.domain.context import Context, Runtime
from recall_server.domain.errors import (
    Invalid,
    LimitReached,
    OutsideAccessScope,
    PushConfigNotFound,
    PushFailed,
    PushUrlRefused,
    PushWaits,
    SecretKeyMissing,
    SecretUnreadable,
)
from recall_server.domain.ids import Namespace
from recall_server.domain.permissions import Rights, Scope
from recall_server.domain.task import Job, Task, TaskState
from recall_server.integrations.keys import Cursors, Listing, Sealer
from recall_server.integrations.webhook import Webhook, pause
from recall_server.services.auth import stands
from recall_server.services.tasks.transitions import existing, existing_version
from recall_server.services.webhooks import NotDue, ReceiverGone, send
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.jobs import PUSH
from recall_server.storage.tables.tasks import CONFIGS_MAX, PushConfig

PUSH_END = "push_end"

CONTENT_TYPE = "application/a2a+json"
SECRET_CHARS_MAX = 1_024
# How long after the end of a task, and so after its last event, its configs are kept; undelivered
# events are then given up.
KEPT_AFTER_END = timedelta(hours=24)
# A claim outlasts the delivery of one event by this: only a lost sender loses its claim.
CLAIM_MARGIN = timedelta(seconds=30)
# Pauses after a failure, during which no job sends for the config.
PAUSES = tuple(timedelta(seconds=seconds) for seconds in (2, 16, 128, 1_024))

_ID = re.compile(r"[A-Za-z0-9._~:-]{1,64}", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", re.ASCII)


@dataclass(frozen=True)
class PushRequest:
    """A receiver. Without an `id` it gets a new one. `token` is sent in a header of each push;
    `scheme` and `credentials` become its Authorization header.
    """

    url: str
    id: str = ""
    token: str = field(default="", repr=False)
    scheme: str = ""
    credentials: str = field(default="", repr=False)


@dataclass(frozen=True)
class PushEvent:
    """An event of a task in the form that is sent. `seq` counts from 1; `final`: it is the last."""

    seq: int
    final: bool
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class PushPage:
    """One page of configs, by id; `next` is the cursor of the next page."""

    configs: tuple[PushConfig, ...]
    next: str | None


Events = Callable[[Transaction, str, int], Awaitable[Sequence[PushEvent]]]
"""Returns the events of a task after the event with this number, in order."""


@dataclass(frozen=True)
class Push:
    store: Store
    runtime: Runtime
    webhook: Webhook
    sealer: Sealer
    events: Events
    cursors: Cursors

    async def check(self, namespace: Namespace, wanted: PushRequest) -> None:
        """Raise `Invalid`, `PushUrlRefused` or `SecretKeyMissing` if a config is not acceptable.
        Resolves the host, so do not call it in a transaction.
        """
        if wanted.id and not _ID.fullmatch(wanted.id):
            raise Invalid("The id of a push configuration is 1 to 64 of A-Z a-z 0-9 . _ ~ : and -.")
        for name, value in (("token", wanted.token), ("credentials", wanted.credentials)):
            if value and (len(value) > SECRET_CHARS_MAX or not _VALUE.fullmatch(value)):
                raise Invalid(f"{name} must be 1 to {SECRET_CHARS_MAX} printable ASCII characters.")
        if wanted.scheme and not _SCHEME.fullmatch(wanted.scheme):
            raise Invalid("The authentication scheme must be one word, such as Bearer.")
        if wanted.credentials and not wanted.scheme:
            raise Invalid("Credentials need the authentication scheme that they are for.")
        if _secrets(wanted):
            self.sealer.require()
        await self.webhook.check_url(wanted.url, tenant=namespace)

    async def add(
        self, tx: Transaction, context: Context, task_id: str, wanted: PushRequest, *, after: int
    ) -> PushConfig:
        """Store a checked config for a task that is new or locked in `tx`. It receives the events
        after the event `after`, as long as the caller's token is good. Raises `LimitReached`.
        """
        config_id = wanted.id or self.runtime.new_id("push")
        stored = await tx.pushes.page(task_id, limit=CONFIGS_MAX)
        if len(stored) >= CONFIGS_MAX and config_id not in {config.id for config in stored}:
            raise LimitReached(
                f"A task may have {CONFIGS_MAX} push configurations. Delete one of them."
            )
        config = PushConfig(
            task_id=task_id,
            id=config_id,
            url=wanted.url,
            scheme=wanted.scheme,
            secret=None,
            delivered_seq=after,
            created_at=self.runtime.now(),
            bearer=context.entry.bearer,
        )
        if secrets := _secrets(wanted):
            sealed = self.sealer.seal(secrets, _place(context.namespace, config))
            config = replace(config, secret=sealed)
        return await tx.pushes.put(config)

    async def configure(self, context: Context, task_id: str, wanted: PushRequest) -> PushConfig:
        """Push the task's events from now on to `wanted.url`. An existing config of this id is
        replaced; its undelivered events go to the new address.

        Raises what `check` and `add` raise, `TaskNotFound`, and `OutsideAccessScope` if the task
        may show more than the token may access.
        """
        async with self.store.view(context) as tx:
            if not (await existing(tx, task_id)).request.effective_scope.within(context.scope):
                raise OutsideAccessScope(
                    "This task may show more than this token may access. Use a token with wider "
                    "access."
                )
        await self.check(context.namespace, wanted)
        async with self.store.change(context) as tx:
            # Under the lock, so that every event is either before the config or after it.
            found = await existing_version(tx, task_id)
            config = await self.add(tx, context, task_id, wanted, after=found.events)
            if config.delivered_seq < found.events:
                await tx.pushes.promise_one(config, self.runtime.now(), self.runtime.new_id)
            await self._promise_end(tx, task_id, found.state)
            context.entry.ids += [task_id, config.id]
        self.runtime.wake_pushes()
        return config

    async def announce(self, tx: Transaction, task: Task) -> None:
        """Enqueue the delivery of the new events of a task, which this transaction writes."""
        await tx.pushes.promise(task.id, self.runtime.new_id("job"), self.runtime.now())
        await self._promise_end(tx, task.id, task.status.state)

    async def _promise_end(self, tx: Transaction, task_id: str, state: TaskState) -> None:
        if state.final:
            now = self.runtime.now()
            await tx.pushes.promise_end(
                task_id, self.runtime.new_id("job"), PUSH_END, now + KEPT_AFTER_END, now
            )

    async def get(self, context: Context, task_id: str, config_id: str) -> PushConfig:
        """Return a config. Raises `TaskNotFound` and `PushConfigNotFound`."""
        async with self.store.view(context) as tx:
            await existing_version(tx, task_id)
            config = await tx.pushes.get(task_id, config_id) if _ID.fullmatch(config_id) else None
        if config is None:
            raise PushConfigNotFound
        context.entry.ids += [task_id, config_id]
        return config

    async def page(
        self, context: Context, task_id: str, *, limit: int = CONFIGS_MAX, cursor: str = ""
    ) -> PushPage:
        """Return one page of a task's configs, from `cursor` on. Raises `InvalidCursor`,
        `TaskNotFound`.
        """
        listing = Listing("pushes", context, {"run_id": task_id})
        [after] = self.cursors.place(listing, cursor) or [""]
        async with self.store.view(context) as tx:
            await existing_version(tx, task_id)
            found = await tx.pushes.page(task_id, after=after, limit=limit + 1)
        context.entry.ids.append(task_id)
        context.entry.counts["configs"] = len(found[:limit])
        place = [found[limit - 1].id] if len(found) > limit else None
        return PushPage(tuple(found[:limit]), self.cursors.sealed(listing, place))

    async def remove(self, context: Context, task_id: str, config_id: str) -> bool:
        """Remove a config; False if there is none. Raises `TaskNotFound`."""
        async with self.store.change(context) as tx:
            await existing_version(tx, task_id)
            context.entry.ids.append(task_id)
            if not _ID.fullmatch(config_id):
                return False
            context.entry.ids.append(config_id)
            return await tx.pushes.remove(task_id, config_id)

    async def deliver(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Handle a job: send one config all undelivered events, in order. An event may arrive twice
        (if the response was lost), never out of order.

        Raises `PushFailed`, `PushUrlRefused`, `SecretKeyMissing` or `SecretUnreadable`, which count
        against the job; `PushWaits` if another job is sending, or the receiver is paused.
        """
        config, events = await self._claimed(job)
        if config is None:
            return
        try:
            while events:
                due = partial(self._due, job, config, events[0])
                await send(
                    self.webhook,
                    config.url,
                    events[0].body,
                    self._headers(job, config),
                    tenant=job.namespace,
                    due=due,
                )
                events = await self._delivered(job, config, events, entry(PUSH))
                config = replace(config, failures=0)
        except ReceiverGone:
            record = entry(PUSH)
            async with self.store.transaction(job.namespace, entry=record, locked=True) as tx:
                if not await tx.pushes.remove_held(config, _holder(job)):
                    raise PushWaits from None  # the config was replaced meanwhile
                await tx.jobs.finish(job, self.runtime.now())
                record.ids += [job.id, config.task_id, config.id]
                record.counts["removed"] = 1
        except NotDue:
            async with self.store.transaction(job.namespace) as tx:
                await self._finish(tx, job, config)
        except asyncio.CancelledError:
            await asyncio.shield(self._release(job, config, None))
            raise
        except (PushFailed, PushUrlRefused, SecretKeyMissing, SecretUnreadable) as error:
            await self._release(job, config, error)
            raise

    async def _claimed(self, job: Job) -> tuple[PushConfig | None, Sequence[PushEvent]]:
        """Claim the config and return its undelivered events; if there are none, finish the job."""
        task_id, config_id = job.payload["run_id"], job.payload["config_id"]
        async with self.store.transaction(job.namespace, locked=True) as tx:
            now = self.runtime.now()
            config = await tx.pushes.claim(
                task_id, config_id, _holder(job), now=now, until=self._claim_until(now)
            )
            if config is None:
                if await tx.pushes.get(task_id, config_id) is not None:
                    raise PushWaits
                await tx.jobs.finish(job, now)
                return None, ()
            events = await self.events(tx, task_id, config.delivered_seq)
            if not events:
                await self._finish(tx, job, config)
        return config, events

    async def _due(self, job: Job, config: PushConfig, event: PushEvent) -> bool:
        """True if config and event still exist, and the token may still learn of the task."""
        async with self.store.transaction(job.namespace, write=False) as tx:
            task = await tx.tasks.get(config.task_id)
            if task is None or not await tx.pushes.due(config, _holder(job), event.seq):
                return False
        needed = Rights(frozenset({Scope.CONSOLIDATE}), task.request.effective_scope)
        now = self.runtime.now()
        return await stands(self.store, now, job.namespace, config.bearer, needed)

    def _headers(self, job: Job, config: PushConfig) -> Mapping[str, str]:
        headers = {"Content-Type": CONTENT_TYPE}
        if config.secret is not None:
            secrets = self.sealer.open(config.secret, _place(job.namespace, config))
            if "credentials" in secrets:
                headers["Authorization"] = f"{config.scheme} {secrets['credentials']}"
            if "token" in secrets:
                headers["X-A2A-Notification-Token"] = secrets["token"]
        return headers

    async def _delivered(
        self, job: Job, config: PushConfig, events: Sequence[PushEvent], record: AuditEntry
    ) -> Sequence[PushEvent]:
        """Record the delivery of the first event; return the rest, or finish the job."""
        event = events[0]
        async with self.store.transaction(job.namespace, entry=record, locked=True) as tx:
            now = self.runtime.now()
            if not await tx.pushes.advance(
                config, _holder(job), seq=event.seq, final=event.final, until=self._claim_until(now)
            ):
                raise PushWaits  # the config was replaced or removed meanwhile
            left = events[1:] or await self.events(tx, config.task_id, event.seq)
            if not left:
                await self._finish(tx, job, config)
            else:
                await tx.jobs.advance(job, job.payload, now + self.runtime.lease)
            record.ids += [job.id, config.task_id, config.id]
            record.counts["seq"] = event.seq
        return left

    async def _finish(self, tx: Transaction, job: Job, config: PushConfig) -> None:
        await tx.pushes.release(config, _holder(job), rest_until=None, failed=False)
        await tx.jobs.finish(job, self.runtime.now())

    async def _release(self, job: Job, config: PushConfig, error: Exception | None) -> None:
        """Release the config for other jobs, after a pause if it failed."""
        rest = self.runtime.now() + pause(PAUSES, config.failures, error) if error else None
        async with self.store.transaction(job.namespace) as tx:
            await tx.pushes.release(config, _holder(job), rest_until=rest, failed=error is not None)

    def _claim_until(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self.webhook.timeout_s) + CLAIM_MARGIN

    async def end(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """Handle a job: remove the configs of a task some time after its end."""
        record = entry(PUSH_END)
        async with self.store.transaction(job.namespace, entry=record, locked=True) as tx:
            await tx.pushes.clear(job.payload["run_id"])
            await tx.jobs.finish(job, self.runtime.now())
            record.ids += [job.id, job.payload["run_id"]]


def _secrets(wanted: PushRequest) -> dict[str, str]:
    given = {"token": wanted.token, "credentials": wanted.credentials}
    return {name: value for name, value in given.items() if value}


def _place(namespace: Namespace, config: PushConfig) -> tuple[str, ...]:
    """Return what a secret is bound to: a changed row or address makes it unreadable."""
    return namespace, config.task_id, config.id, config.url


def _holder(job: Job) -> str:
    return f"{job.id}/{job.attempt}"
