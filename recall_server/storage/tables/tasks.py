"""The tables of tasks (`runs`): consolidations under way, paused and done, and their events."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from recall_server.domain.errors import Stale
from recall_server.domain.permissions import Bearer
from recall_server.domain.task import (
    Event,
    Message,
    Outcome,
    Request,
    Status,
    Task,
    TaskState,
    Work,
)
from recall_server.storage.bound_connection import BoundTable
from recall_server.storage.driver import Document, Row, document, moment, moment_or_none
from recall_server.storage.tables.jobs import Jobs
from recall_server.storage.tables.limits import return_quota, take_quota

_Messages = tuple[Message, ...]
_EVER, _NEVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Cursor:
    """Where a page of tasks begins: behind this one."""

    changed_at: datetime
    task_id: str


@dataclass(frozen=True)
class Filter:
    """The conditions on tasks; changed at `since` or later."""

    context_id: str = ""
    state: TaskState | None = None
    since: datetime | None = None


class TaskTable(BoundTable):
    """A task is changed by compare-and-swap on its version; its events are written with it."""

    async def add(self, task: Task) -> Task:
        """Keep a new task, with its first event. Raises `QuotaExceeded`."""
        task = replace(task, events=1)
        size = await take_quota(self._bound, task.request.text or "")
        await self._bound.send(
            "add_run",
            id=task.id,
            context_id=task.context_id,
            accessor=task.accessor,
            created_at=task.created_at,
            request=_document(Request, task.request),
            stored_bytes=size,
            **(written := _changing(task)),
        )
        await self._add_events(task, 1, [task.status], written)
        return task

    async def get(self, task_id: str) -> Task | None:
        rows = await self._bound.fetch("run", id=task_id)
        return _run(rows[0]) if rows else None

    async def locked(self, task_id: str) -> Task | None:
        """The task, locked: no other transaction changes it before this one ends."""
        rows = await self._bound.fetch("locked_run", id=task_id)
        return _run(rows[0]) if rows else None

    async def save(self, task: Task, *happened: Status | Outcome) -> Task:
        """Put `task` in the place of the version it was made from, with what happened to it.

        Where it was changed meanwhile, `Stale` is raised (see `Connection.expect`).
        """
        saved = replace(task, events=task.events + len(happened))
        await self._bound.expect(
            "change_run",
            Stale(),
            id=task.id,
            version=task.version,
            **(written := _changing(saved)),
        )
        await self._add_events(task, task.events + 1, happened, written)
        return replace(saved, version=task.version + 1)

    async def _add_events(
        self,
        task: Task,
        first: int,
        events: Sequence[Status | Outcome],
        written: Mapping[str, Any],
    ) -> None:
        """Events, by the documents of the task where they are `written` already."""
        rows: list[dict[str, Any]] = []
        for seq, event in enumerate(events, first):
            name = "outcome" if isinstance(event, Outcome) else "status"
            stored = (
                written[name] if event is getattr(task, name) else _document(type(event), event)
            )
            rows.append(
                {"run_id": task.id, "seq": seq, "status": None, "outcome": None} | {name: stored}
            )
        await self._bound.many("add_run_event", rows)

    async def events(self, task_id: str, after: int) -> list[Event]:
        """The events of the task after `after`, in order."""
        rows = await self._bound.fetch("run_events", run_id=task_id, after=after)
        return [
            Event(
                task_id,
                row["context_id"],
                row["seq"],
                _read(Status, row["status"]),
                _read(Outcome, row["outcome"]),
            )
            for row in rows
        ]

    async def page(self, wanted: Filter, *, after: Cursor | None, limit: int) -> list[Task]:
        """The tasks that changed last, newest first."""
        rows = await self._bound.fetch(
            "runs",
            before=after.changed_at if after else _NEVER,
            before_id=after.task_id if after else "",
            limit=limit,
            **_filtering(wanted),
        )
        return [_run(row) for row in rows]

    async def asking(self, question_id: str) -> str | None:
        """The task that waits for an answer to this question."""
        rows = await self._bound.fetch("asking", question=question_id)
        return rows[0]["id"] if rows else None

    async def unfinished_of(self, tokens: Sequence[str], limit: int) -> tuple[list[Task], int]:
        """The tasks of these tokens that have not ended: some, locked, and how many there are."""
        named = {"tokens": list(tokens)}
        counted = await self._bound.fetch("count_of_unfinished_runs", **named)
        rows = await self._bound.fetch("unfinished_runs", limit=limit, **named)
        return [_run(row) for row in rows], int(counted[0]["runs"])

    async def count(self, wanted: Filter) -> int:
        rows = await self._bound.fetch("count_of_runs", **_filtering(wanted))
        return int(rows[0]["runs"])

    async def hand_over(self, task_id: str) -> None:
        """The text of the task becomes an episode, which takes its part of the quota."""
        await self._bound.send("return_quota_of_run", id=task_id)
        await self._bound.send("empty_run", id=task_id)

    async def remove(self, task_id: str) -> None:
        await self._bound.send("delete_run_events", id=task_id)
        for row in await self._bound.fetch("delete_run", id=task_id):
            await return_quota(self._bound, row["stored_bytes"])


def _filtering(wanted: Filter) -> dict[str, Any]:
    return {
        "context_id": wanted.context_id,
        "state": wanted.state or "",
        "since": wanted.since or _EVER,
    }


def _changing(task: Task) -> dict[str, Any]:
    return {
        "state": task.status.state,
        "round": task.round,
        "events": task.events,
        "changed_at": task.status.at,
        "expires_at": task.expires_at,
        "work": _document(Work, task.work),
        "status": _document(Status, task.status),
        "messages": _document(_Messages, task.messages),
        "outcome": _document(Outcome, task.outcome),
        "topic": _only(task.request.topic, (memory.topic for memory in task.memories())),
        "agent_id": _only(
            task.request.source.agent_id, (one.source.agent_id for one in task.memories())
        ),
        "container": _only(task.request.container, (one.container for one in task.memories())),
    }


def _only(one: str | None, others: Iterable[str | None]) -> str | None:
    """`one`, unless there are others beside it."""
    return one if {one, *others} == {one} else None


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    """Made on use: most commands read no task."""
    return TypeAdapter(type_)


def _document(type_: Any, value: Any) -> Document | None:
    if value is None:
        return None
    return Document(_adapter(type_).dump_python(value, mode="json", by_alias=True))


def _read(type_: Any, value: Any) -> Any:
    return None if value is None else _adapter(type_).validate_python(document(value))


def _run(row: Row) -> Task:
    return Task(
        id=row["id"],
        context_id=row["context_id"],
        accessor=row["accessor"],
        created_at=moment(row["created_at"]),
        request=_read(Request, row["request"]),
        work=_read(Work, row["work"]),
        status=_read(Status, row["status"]),
        messages=_read(_Messages, row["messages"]),
        outcome=_read(Outcome, row["outcome"]),
        version=row["version"],
        round=row["round"],
        events=row["events"],
        expires_at=moment_or_none(row["expires_at"]),
    )


PUSH = "push"
CONFIGS_MAX = 10
"""Configs of one task."""


@dataclass(frozen=True)
class PushConfig:
    """Where the events of a task are sent, and what is shown there: the `scheme` of the
    credentials, and the `secret`, sealed.

    `delivered_seq` is the last event that arrived, `failures` the attempts that failed since. It
    ends with the token that set it, its `bearer`.
    """

    task_id: str
    id: str
    url: str
    scheme: str
    secret: bytes | None = field(repr=False)
    delivered_seq: int
    created_at: datetime
    failures: int = 0
    bearer: Bearer | None = None


class Pushes(BoundTable):
    """A config is held by one sender at a time; nothing is written for a sender that no longer
    holds it.
    """

    async def put(self, config: PushConfig) -> PushConfig:
        """Write a config. Where there is one of this id, it takes its place but for what was
        delivered, and a sender that holds it loses it. Returns the config as it now is.
        """
        rows = await self._bound.fetch(
            "put_push",
            run_id=config.task_id,
            id=config.id,
            url=config.url,
            scheme=config.scheme,
            secret=config.secret,
            delivered_seq=config.delivered_seq,
            now=config.created_at,
            accessor=config.bearer and config.bearer.name,
            token_ends_at=config.bearer and config.bearer.until,
        )
        return _config(rows[0])

    async def get(self, task_id: str, config_id: str) -> PushConfig | None:
        rows = await self._bound.fetch("push", run_id=task_id, id=config_id)
        return _config(rows[0]) if rows else None

    async def page(self, task_id: str, *, after: str = "", limit: int) -> list[PushConfig]:
        """The configs of a task behind the id `after`, by id."""
        rows = await self._bound.fetch("pushes", run_id=task_id, after=after, limit=limit)
        return [_config(row) for row in rows]

    async def any_sealed(self) -> bool:
        """Whether a secret is kept."""
        return await self._bound.touched("sealed_secret")

    async def remove(self, task_id: str, config_id: str) -> bool:
        """False where there is none."""
        return await self._bound.touched("remove_push", run_id=task_id, id=config_id)

    async def remove_held(self, config: PushConfig, holder: str) -> bool:
        """Remove the config that `holder` holds; False where it no longer does."""
        return await self._bound.touched(
            "remove_held_push", run_id=config.task_id, id=config.id, holder=holder
        )

    async def remove_of(self, tokens: Sequence[str]) -> int:
        """Remove the configs that these tokens have set; how many there were."""
        return len(await self._bound.fetch("remove_pushes_of", tokens=list(tokens)))

    async def due(self, config: PushConfig, holder: str, seq: int) -> bool:
        """Whether `holder` holds the config, and the event is still there to be sent."""
        return await self._bound.touched(
            "due_push", run_id=config.task_id, id=config.id, holder=holder, seq=seq
        )

    async def clear(self, task_id: str) -> None:
        await self._bound.send("remove_pushes", run_id=task_id)

    async def promise(self, task_id: str, job_id: str, now: datetime) -> None:
        """Add a job for each config of the task, named after `job_id`; to be called in the
        transaction that writes the event.
        """
        await self._bound.send("promise_pushes", run_id=task_id, job_id=job_id, kind=PUSH, now=now)

    async def promise_end(
        self, task_id: str, job_id: str, kind: str, due_at: datetime, now: datetime
    ) -> None:
        """Add one job of that kind, where the task has any config."""
        await self._bound.send(
            "promise_push_end", run_id=task_id, job_id=job_id, kind=kind, due_at=due_at, now=now
        )

    async def promise_one(
        self, config: PushConfig, now: datetime, new_id: Callable[[str], str]
    ) -> None:
        payload = {"run_id": config.task_id, "config_id": config.id}
        await Jobs(self._bound).add(new_id("job"), PUSH, payload, now)

    async def claim(
        self, task_id: str, config_id: str, holder: str, *, now: datetime, until: datetime
    ) -> PushConfig | None:
        """Hold the config until `until`; None where it is held, at rest, or not there."""
        rows = await self._bound.fetch(
            "claim_push", run_id=task_id, id=config_id, holder=holder, now=now, until=until
        )
        return _config(rows[0]) if rows else None

    async def advance(
        self, config: PushConfig, holder: str, *, seq: int, final: bool, until: datetime
    ) -> bool:
        """The event `seq` has arrived: remember it, and hold the config longer. Behind the `final`
        one the secret is forgotten. False where `holder` no longer holds it.
        """
        return await self._bound.touched(
            "advance_push",
            run_id=config.task_id,
            id=config.id,
            holder=holder,
            seq=seq,
            final=int(final),
            until=until,
        )

    async def release(
        self, config: PushConfig, holder: str, *, rest_until: datetime | None, failed: bool
    ) -> None:
        """Let go of the config; it is not claimed before `rest_until`."""
        await self._bound.send(
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
        bearer=row["accessor"]
        and Bearer(
            row["accessor"], moment(row["created_at"]), moment_or_none(row["token_ends_at"])
        ),
    )
