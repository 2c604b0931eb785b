"""Tell a receiver what happens to a run: configure where, and deliver.

The run's events are the outbox: what must be told is written with the change itself. A job for each
config sends them in order; where one is given up, the job of a later event sends its events too.
"""

import asyncio
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from http import HTTPStatus

from recall_server.domain.audit import AuditEntry
from recall_server.domain.errors import Invalid, LimitReached, OutsideAccessScope, TaskNotFound
from recall_server.domain.external_errors import (
    PushConfigNotFound,
    PushFailed,
    PushUrlRefused,
    PushWaits,
    SecretKeyMissing,
    SecretUnreadable,
)
from recall_server.domain.job import Job
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import FULL_ACCESS, AccessScope
from recall_server.domain.task import Task
from recall_server.integrations.crypto.sealing import Sealer
from recall_server.integrations.http.webhook import Webhook
from recall_server.services.cursors import Cursors, Listing
from recall_server.storage.store import Store, Transaction
from recall_server.storage.tables.push import CONFIGS_MAX, PUSH, PushConfig

PUSH_END = "push_end"

CONTENT_TYPE = "application/a2a+json"
SECRET_CHARS_MAX = 1_024
# A run that has ended says nothing more; what has not arrived by then is given up.
KEPT_AFTER_END = timedelta(hours=24)
# Longer than a sender can take for one event: only a lost one loses its claim.
CLAIM_MARGIN = timedelta(seconds=30)
# After a failure no job sends for the config, whatever its event: 2 s, 16 s, 2 min, then 17 min.
RESTS = tuple(timedelta(seconds=seconds) for seconds in (2, 16, 128, 1_024))
REST_MAX = timedelta(minutes=30)

_ID = re.compile(r"[A-Za-z0-9._~:-]{1,64}", re.ASCII)
_SCHEME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,64}", re.ASCII)
_VALUE = re.compile(r"[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?", re.ASCII)


@dataclass(frozen=True)
class PushRequest:
    """Where somebody wants to be told. Without an `id` a new one is made; `token` comes back in a
    header of each push, `scheme` and `credentials` are its Authorization.
    """

    url: str
    id: str = ""
    token: str = field(default="", repr=False)
    scheme: str = ""
    credentials: str = field(default="", repr=False)


@dataclass(frozen=True)
class PushEvent:
    """Something that happened to a run, as it is sent; `seq` counts from 1, `final` is the last."""

    seq: int
    final: bool
    body: bytes = field(repr=False)


@dataclass(frozen=True)
class PushPage:
    """One page of configs, by id; `next` is the cursor of the one behind it."""

    configs: tuple[PushConfig, ...]
    next: str | None


Events = Callable[[Transaction, str, int], Awaitable[Sequence[PushEvent]]]
"""What happened to a run after its event of that number, in order."""


@dataclass(frozen=True)
class Push:
    """Both halves of telling."""

    store: Store
    webhook: Webhook
    sealer: Sealer
    events: Events
    now: Callable[[], datetime]
    new_id: Callable[[str], str]
    lease: timedelta
    wake: Callable[[], None]
    cursors: Cursors

    async def check(self, wanted: PushRequest) -> None:
        """Raise `Invalid` (`PushUrlRefused`, `SecretKeyMissing`) on what cannot be kept. Looks up
        the host, so it must not be called in a transaction.
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
        await self.webhook.check_url(wanted.url)

    async def keep(
        self,
        tx: Transaction,
        namespace: Namespace,
        task_id: str,
        wanted: PushRequest,
        *,
        after: int,
    ) -> PushConfig:
        """Keep what has passed `check`, for a run that is new or locked in `tx`; it is told what
        happens after the run's event `after`. Raises `LimitReached`.
        """
        config_id = wanted.id or self.new_id("push")
        there = await tx.pushes.page(task_id, limit=CONFIGS_MAX)
        if len(there) >= CONFIGS_MAX and config_id not in {config.id for config in there}:
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
            created_at=self.now(),
        )
        if secrets := _secrets(wanted):
            sealed = self.sealer.seal(secrets, _place(namespace, config))
            config = replace(config, secret=sealed)
        return await tx.pushes.put(config)

    async def configure(
        self,
        namespace: Namespace,
        task_id: str,
        wanted: PushRequest,
        *,
        reach: AccessScope = FULL_ACCESS,
        entry: AuditEntry,
    ) -> PushConfig:
        """Tell `wanted.url` what happens to the run from now on; a config of this id is replaced,
        and what it has not been told yet goes to the new address.

        Raises what `check` and `keep` raise, `TaskNotFound`, and `OutsideAccessScope` where the run
        may come to tell more than is in reach.
        """
        async with self.store.transaction(namespace, write=False, reach=reach) as tx:
            if not (await _existing(tx, task_id)).request.effective_scope.within(reach):
                raise OutsideAccessScope(
                    "Not everything that this task may tell is in this token's reach."
                )
        await self.check(wanted)
        async with self.store.transaction(namespace, reach=reach, entry=entry) as tx:
            # Locked, so that no event falls between those before the config and those after it.
            task = await tx.tasks.locked(task_id)
            if task is None:
                raise TaskNotFound
            config = await self.keep(tx, namespace, task_id, wanted, after=task.events)
            if config.delivered_seq < task.events:
                await tx.pushes.promise_one(config, self.now(), self.new_id)
            await self._promise_end(tx, task)
            entry.ids += [task_id, config.id]
        self.wake()
        return config

    async def announce(self, tx: Transaction, task: Task) -> None:
        """Promise to tell what has happened to the run; to be called in the transaction that
        writes it.
        """
        await tx.pushes.promise(task.id, self.new_id("job"), self.now())
        await self._promise_end(tx, task)

    async def _promise_end(self, tx: Transaction, task: Task) -> None:
        if task.status.state.final:
            now = self.now()
            await tx.pushes.promise_end(
                task.id, self.new_id("job"), PUSH_END, now + KEPT_AFTER_END, now
            )

    async def get(
        self,
        namespace: Namespace,
        task_id: str,
        config_id: str,
        *,
        reach: AccessScope = FULL_ACCESS,
        entry: AuditEntry,
    ) -> PushConfig:
        """Raises `TaskNotFound` and `PushConfigNotFound`."""
        async with self.store.transaction(namespace, write=False, reach=reach) as tx:
            await _existing(tx, task_id)
            config = await tx.pushes.get(task_id, config_id) if _ID.fullmatch(config_id) else None
        if config is None:
            raise PushConfigNotFound
        entry.ids += [task_id, config_id]
        return config

    async def page(
        self,
        namespace: Namespace,
        task_id: str,
        *,
        limit: int = CONFIGS_MAX,
        cursor: str = "",
        reach: AccessScope = FULL_ACCESS,
        entry: AuditEntry,
    ) -> PushPage:
        """The configs of a run, from `cursor` on. Raises `InvalidCursor`, `TaskNotFound`."""
        listing = Listing("pushes", namespace, entry.accessor or "", {"run_id": task_id})
        [after] = self.cursors.place(listing, cursor) or [""]
        async with self.store.transaction(namespace, write=False, reach=reach) as tx:
            await _existing(tx, task_id)
            found = await tx.pushes.page(task_id, after=after, limit=limit + 1)
        entry.ids.append(task_id)
        entry.counts["configs"] = len(found[:limit])
        place = [found[limit - 1].id] if len(found) > limit else None
        return PushPage(tuple(found[:limit]), self.cursors.sealed(listing, place))

    async def remove(
        self,
        namespace: Namespace,
        task_id: str,
        config_id: str,
        *,
        reach: AccessScope = FULL_ACCESS,
        entry: AuditEntry,
    ) -> bool:
        """Tell it nothing more; False where there is no such config. Raises `TaskNotFound`."""
        async with self.store.transaction(namespace, reach=reach, entry=entry) as tx:
            await _existing(tx, task_id)
            entry.ids.append(task_id)
            if not _ID.fullmatch(config_id):
                return False
            entry.ids.append(config_id)
            return await tx.pushes.remove(task_id, config_id)

    async def deliver(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """The handler that tells one config all that it has not been told, in order. An event may
        arrive twice (where the answer was lost), never in the wrong order.

        Raises `PushFailed`, `PushUrlRefused`, `SecretKeyMissing` or `SecretUnreadable`, which count
        against the job; `PushWaits` where another job is sending, or the receiver rests.
        """
        config, events = await self._claimed(job)
        try:
            while config is not None and events:
                if await self._send(job, config, events[0]):
                    events = await self._arrived(job, config, events, entry(PUSH))
                    config = replace(config, failures=0)
                else:
                    events = await self._unwanted(job, config, entry(PUSH))
        except asyncio.CancelledError:
            await asyncio.shield(self._let_go(job, config, None))
            raise
        except (PushFailed, PushUrlRefused, SecretKeyMissing, SecretUnreadable) as error:
            await self._let_go(job, config, error)
            raise

    async def _claimed(self, job: Job) -> tuple[PushConfig | None, Sequence[PushEvent]]:
        """The config and what it has not been told; with nothing to do, the job is finished."""
        task_id, config_id = job.payload["run_id"], job.payload["config_id"]
        async with self.store.transaction(job.namespace) as tx:
            now = self.now()
            config = await tx.pushes.claim(
                task_id, config_id, _holder(job), now=now, until=self._claim_until(now)
            )
            if config is None and await tx.pushes.get(task_id, config_id) is not None:
                raise PushWaits
            events = await self.events(tx, task_id, config.delivered_seq) if config else ()
            if not events:
                await self._finish(tx, job, config)
        return config, events

    async def _send(self, job: Job, config: PushConfig, event: PushEvent) -> bool:
        """Send one event; False where the receiver says that it is gone for good."""
        answer = await self.webhook.post(config.url, event.body, self._headers(job, config))
        if HTTPStatus.OK <= answer.status < HTTPStatus.MULTIPLE_CHOICES:
            return True
        if answer.status == HTTPStatus.GONE:
            return False
        raise PushFailed(
            f"The receiver answered {answer.status}.", retry_after_s=answer.retry_after_s
        )

    def _headers(self, job: Job, config: PushConfig) -> Mapping[str, str]:
        headers = {"Content-Type": CONTENT_TYPE}
        if config.secret is not None:
            secrets = self.sealer.open(config.secret, _place(job.namespace, config))
            if "credentials" in secrets:
                headers["Authorization"] = f"{config.scheme} {secrets['credentials']}"
            if "token" in secrets:
                headers["X-A2A-Notification-Token"] = secrets["token"]
        return headers

    async def _arrived(
        self, job: Job, config: PushConfig, events: Sequence[PushEvent], line: AuditEntry
    ) -> Sequence[PushEvent]:
        """Remember that the first of `events` was delivered; what is to be told next, and where
        that is nothing, the job is finished.
        """
        event = events[0]
        async with self.store.transaction(job.namespace, entry=line) as tx:
            now = self.now()
            if not await tx.pushes.advance(
                config,
                _holder(job),
                seq=event.seq,
                final=event.final,
                until=self._claim_until(now),
            ):
                raise PushWaits  # it was replaced or removed meanwhile
            left = events[1:] or await self.events(tx, config.task_id, event.seq)
            if not left:
                await self._finish(tx, job, config)
            else:
                await tx.jobs.advance(job, job.payload, now + self.lease)
            line.ids += [job.id, config.task_id, config.id]
            line.counts["seq"] = event.seq
        return left

    async def _finish(self, tx: Transaction, job: Job, config: PushConfig | None) -> None:
        if config is not None:
            await tx.pushes.release(config, _holder(job), rest_until=None, failed=False)
        await tx.jobs.finish(job, self.now())

    async def _unwanted(
        self, job: Job, config: PushConfig, line: AuditEntry
    ) -> Sequence[PushEvent]:
        """Remove the config, with which nothing is left to be told."""
        async with self.store.transaction(job.namespace, entry=line) as tx:
            if not await tx.pushes.remove_held(config, _holder(job)):
                raise PushWaits  # another address was given meanwhile
            await self._finish(tx, job, None)
            line.ids += [job.id, config.task_id, config.id]
            line.counts["removed"] = 1
        return ()

    async def _let_go(self, job: Job, config: PushConfig | None, error: Exception | None) -> None:
        """Let other jobs have the config, after a rest where it failed."""
        if config is None:
            return
        rest = None
        if error is not None:
            rest = self.now() + _rest(config.failures, error)
        async with self.store.transaction(job.namespace) as tx:
            await tx.pushes.release(config, _holder(job), rest_until=rest, failed=error is not None)

    def _claim_until(self, now: datetime) -> datetime:
        return now + timedelta(seconds=self.webhook.timeout_s) + CLAIM_MARGIN

    async def end(self, job: Job, entry: Callable[[str], AuditEntry]) -> None:
        """The handler that removes the configs of a run some time after it has ended."""
        line = entry(PUSH_END)
        async with self.store.transaction(job.namespace, entry=line) as tx:
            await tx.pushes.clear(job.payload["run_id"])
            await self._finish(tx, job, None)
            line.ids += [job.id, job.payload["run_id"]]


def _rest(failures: int, error: Exception) -> timedelta:
    grown = RESTS[min(failures, len(RESTS) - 1)]
    asked = error.retry_after_s if isinstance(error, PushFailed) else None
    return max(grown, timedelta(seconds=min(asked or 0.0, REST_MAX.total_seconds())))


def _secrets(wanted: PushRequest) -> dict[str, str]:
    given = {"token": wanted.token, "credentials": wanted.credentials}
    return {name: value for name, value in given.items() if value}


def _place(namespace: Namespace, config: PushConfig) -> tuple[str, ...]:
    """What a secret is sealed for: neither row nor address can be exchanged under it."""
    return namespace, config.task_id, config.id, config.url


def _holder(job: Job) -> str:
    return f"{job.id}/{job.attempt}"


async def _existing(tx: Transaction, task_id: str) -> Task:
    task = await tx.tasks.get(task_id)
    if task is None:
        raise TaskNotFound
    return task
