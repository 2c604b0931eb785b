"""The tables of tasks (`runs`): consolidations under way, paused and done, and their events."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cache
from typing import Any

from pydantic import TypeAdapter

from recall_server.domain.errors import Stale
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
from recall_server.storage.bound_connection import BoundConnection
from recall_server.storage.driver import Document, Row
from recall_server.storage.rows import document, moment, moment_or_none
from recall_server.storage.tables.usage import return_quota, take_quota

_Messages = tuple[Message, ...]
_EVER, _NEVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Cursor:
    """Where a page of runs begins: behind this one."""

    changed_at: datetime
    task_id: str


@dataclass(frozen=True)
class Filter:
    """Which runs are asked for; changed at `since` or later."""

    context_id: str = ""
    state: TaskState | None = None
    since: datetime | None = None


class TaskTable:
    """A run is changed by compare-and-swap on its version; its events are written with it."""

    def __init__(self, handle: BoundConnection) -> None:
        self._handle = handle

    async def add(self, task: Task) -> Task:
        """Keep a new run, with the event that it is there. Raises `QuotaExceeded`."""
        task = replace(task, events=1)
        size = await take_quota(self._handle, task.request.text or "")
        await self._handle.send(
            "add_run",
            id=task.id,
            context_id=task.context_id,
            accessor=task.accessor,
            created_at=task.created_at,
            request=_document(Request, task.request),
            stored_bytes=size,
            **(written := _changing(task)),
        )
        await self._happened(task, 1, [task.status], written)
        return task

    async def get(self, task_id: str) -> Task | None:
        rows = await self._handle.fetch("run", id=task_id)
        return _run(rows[0]) if rows else None

    async def locked(self, task_id: str) -> Task | None:
        """The run, locked: no other transaction changes it before this one ends."""
        rows = await self._handle.fetch("locked_run", id=task_id)
        return _run(rows[0]) if rows else None

    async def save(self, task: Task, *happened: Status | Outcome) -> Task:
        """Put `task` in the place of the version it was made from, with what happened to it.

        Where it was changed meanwhile, `Stale` is raised (see `Connection.expect`).
        """
        saved = replace(task, events=task.events + len(happened))
        await self._handle.expect(
            "change_run",
            Stale(),
            id=task.id,
            version=task.version,
            **(written := _changing(saved)),
        )
        await self._happened(task, task.events + 1, happened, written)
        return replace(saved, version=task.version + 1)

    async def _happened(
        self,
        task: Task,
        first: int,
        what: Sequence[Status | Outcome],
        written: Mapping[str, Any],
    ) -> None:
        """Events, by the documents of the run where they are `written` already."""
        rows: list[dict[str, Any]] = []
        for seq, one in enumerate(what, first):
            name = "outcome" if isinstance(one, Outcome) else "status"
            known = written[name] if one is getattr(task, name) else _document(type(one), one)
            rows.append(
                {"run_id": task.id, "seq": seq, "status": None, "outcome": None} | {name: known}
            )
        await self._handle.many("add_run_event", rows)

    async def events(self, task_id: str, after: int) -> list[Event]:
        """The events of the run after `after`, in order."""
        rows = await self._handle.fetch("run_events", run_id=task_id, after=after)
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
        """The runs that changed last, newest first."""
        rows = await self._handle.fetch(
            "runs",
            before=after.changed_at if after else _NEVER,
            before_id=after.task_id if after else "",
            limit=limit,
            **_filtering(wanted),
        )
        return [_run(row) for row in rows]

    async def asking(self, question_id: str) -> str | None:
        """The run that waits for an answer to this question."""
        rows = await self._handle.fetch("asking", question=question_id)
        return rows[0]["id"] if rows else None

    async def count(self, wanted: Filter) -> int:
        rows = await self._handle.fetch("count_of_runs", **_filtering(wanted))
        return int(rows[0]["runs"])

    async def hand_over(self, task_id: str) -> None:
        """The text of the run becomes an episode, which takes its part of the quota."""
        await self._handle.send("return_quota_of_run", id=task_id)
        await self._handle.send("empty_run", id=task_id)

    async def remove(self, task_id: str) -> None:
        """Forget the run and all that happened to it."""
        await self._handle.send("delete_run_events", id=task_id)
        for row in await self._handle.fetch("delete_run", id=task_id):
            await return_quota(self._handle, row["stored_bytes"])


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
        "agent_id": _only(task.request.source.agent_id, (one.agent_id for one in task.memories())),
        "container": _only(task.request.container, (one.container for one in task.memories())),
    }


def _only(one: str | None, others: Iterable[str | None]) -> str | None:
    """`one`, unless there are others beside it."""
    return one if {one, *others} == {one} else None


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    """Made on use: most commands read no run."""
    return TypeAdapter(type_)


def _document(type_: Any, value: Any) -> Document | None:
    return None if value is None else Document(_adapter(type_).dump_python(value, mode="json"))


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
