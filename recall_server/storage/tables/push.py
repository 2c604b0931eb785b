"""The table of push configs: where the events of a task are sent, and how far they were sent."""

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime

from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Row
from recall_server.storage.rows import moment
from recall_server.storage.tables.jobs import Jobs

PUSH = "push"
CONFIGS_MAX = 10
"""Configs of one task."""


@dataclass(frozen=True)
class PushConfig:
    """Where the events of a task are sent, and what is shown there: the `scheme` of the
    credentials, and the `secret`, sealed.

    `delivered_seq` is the last event that arrived, `failures` the attempts that failed since.
    """

    task_id: str
    id: str
    url: str
    scheme: str
    secret: bytes | None = field(repr=False)
    delivered_seq: int
    created_at: datetime
    failures: int = 0


class Pushes:
    """A config is held by one sender at a time; nothing is written for a sender that no longer
    holds it.
    """

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def put(self, config: PushConfig) -> PushConfig:
        """Write a config. Where there is one of this id, it takes its place but for what was
        delivered, and a sender that holds it loses it. Returns the config as it now is.
        """
        rows = await self._handle.fetch(
            "put_push",
            run_id=config.task_id,
            id=config.id,
            url=config.url,
            scheme=config.scheme,
            secret=config.secret,
            delivered_seq=config.delivered_seq,
            now=config.created_at,
        )
        return _config(rows[0])

    async def get(self, task_id: str, config_id: str) -> PushConfig | None:
        rows = await self._handle.fetch("push", run_id=task_id, id=config_id)
        return _config(rows[0]) if rows else None

    async def page(self, task_id: str, *, after: str = "", limit: int) -> list[PushConfig]:
        """The configs of a task behind the id `after`, by id."""
        rows = await self._handle.fetch("pushes", run_id=task_id, after=after, limit=limit)
        return [_config(row) for row in rows]

    async def any_sealed(self) -> bool:
        """Whether a secret is kept."""
        return bool(await self._handle.fetch("sealed_secret"))

    async def remove(self, task_id: str, config_id: str) -> bool:
        """False where there is none."""
        return bool(await self._handle.fetch("remove_push", run_id=task_id, id=config_id))

    async def remove_held(self, config: PushConfig, holder: str) -> bool:
        """Remove the config that `holder` holds; False where it no longer does."""
        return bool(
            await self._handle.fetch(
                "remove_held_push", run_id=config.task_id, id=config.id, holder=holder
            )
        )

    async def clear(self, task_id: str) -> None:
        """Remove all configs of a task."""
        await self._handle.send("remove_pushes", run_id=task_id)

    async def promise(self, task_id: str, job_id: str, now: datetime) -> None:
        """Add a job for each config of the task, named after `job_id`; to be called in the
        transaction that writes the event.
        """
        await self._handle.send("promise_pushes", run_id=task_id, job_id=job_id, kind=PUSH, now=now)

    async def promise_end(
        self, task_id: str, job_id: str, kind: str, due_at: datetime, now: datetime
    ) -> None:
        """Add one job of that kind, where the task has any config."""
        await self._handle.send(
            "promise_push_end", run_id=task_id, job_id=job_id, kind=kind, due_at=due_at, now=now
        )

    async def promise_one(
        self, config: PushConfig, now: datetime, new_id: Callable[[str], str]
    ) -> None:
        """Add a job for one config."""
        payload = {"run_id": config.task_id, "config_id": config.id}
        await Jobs(self._handle).add(new_id("job"), PUSH, payload, now)

    async def claim(
        self, task_id: str, config_id: str, holder: str, *, now: datetime, until: datetime
    ) -> PushConfig | None:
        """Hold the config until `until`; None where it is held, at rest, or not there."""
        rows = await self._handle.fetch(
            "claim_push", run_id=task_id, id=config_id, holder=holder, now=now, until=until
        )
        return _config(rows[0]) if rows else None

    async def advance(
        self, config: PushConfig, holder: str, *, seq: int, final: bool, until: datetime
    ) -> bool:
        """The event `seq` has arrived: remember it, and hold the config longer. Behind the `final`
        one the secret is forgotten. False where `holder` no longer holds it.
        """
        return bool(
            await self._handle.fetch(
                "advance_push",
                run_id=config.task_id,
                id=config.id,
                holder=holder,
                seq=seq,
                final=int(final),
                until=until,
            )
        )

    async def release(
        self, config: PushConfig, holder: str, *, rest_until: datetime | None, failed: bool
    ) -> None:
        """Let go of the config; it is not claimed before `rest_until`."""
        await self._handle.send(
            "release_push",
            run_id=config.task_id,
            id=config.id,
            holder=holder,
            until=rest_until,
            failed=int(failed),
        )


def _config(row: Row) -> PushConfig:
    return PushConfig(
        task_id=row["run_id"],
        id=row["id"],
        url=row["url"],
        scheme=row["scheme"],
        secret=None if row["secret"] is None else bytes(row["secret"]),
        delivered_seq=row["delivered_seq"],
        created_at=moment(row["created_at"]),
        failures=row["failures"],
    )
