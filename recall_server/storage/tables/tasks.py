"""The tables of tasks (`runs`), under way, paused and done, of their events and push configs; and
of webhooks: where the events of a namespace are sent, and the events that wait.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cache, partial
from typing import Any, NamedTuple, get_args, get_type_hints

from pydantic import TypeAdapter

from recall_server.domain.errors import Stale
from recall_server.domain.permissions import Bearer
from recall_server.domain.task import (
    LARGE_BYTES,
    Event,
    Message,
    Outcome,
    Request,
    Status,
    Task,
    TaskState,
    Work,
)
from recall_server.domain.webhook import WebhookKind
from recall_server.storage.bound_connection import ANY, BoundTable
from recall_server.storage.driver import (
    ITEMS_AT_ONCE,
    Document,
    Row,
    apart,
    bearer,
    document,
    fitting,
    reader,
    registered_by,
)
from recall_server.storage.tables.access import bytes_of, return_quota, take_quota
from recall_server.storage.tables.jobs import PUSH, Jobs

# A change that adds no more than this is never refused by the quota.
SMALL_BYTES = 4_096
# How many bytes of tasks are read at once; a single task may have more.
PAGE_BYTES = 4_194_304

_EVER, _NEVER = datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True)
class Cursor:
    """Where a page of tasks begins: after this one."""

    changed_at: datetime
    task_id: str


@dataclass(frozen=True)
class Filter:
    """The conditions on tasks; changed at `since` or later."""

    context_id: str = ""
    state: TaskState | None = None
    since: datetime | None = None


class TaskTable(BoundTable):
    """Tasks are changed by compare-and-swap on their version, together with their events."""

    async def add(self, new: "NewTask") -> Task:
        """Store a new task with its first event. Raises `QuotaExceeded`."""
        task, written, request = new
        await take_quota(self._bound, task.stored_bytes)
        await self._bound.send(
            "add_run",
            id=task.id,
            context_id=task.context_id,
            accessor=task.accessor,
            created_at=task.created_at,
            request=request,
            request_bytes=task.request_bytes,
            **_changing(task, written),
        )
        await self._bound.many("add_run_event", written.events)
        return task

    async def get(self, task_id: str) -> Task | None:
        found = await _tasks(await self._bound.fetch("run", id=task_id))
        return found[0] if found else None

    async def version(self, task_id: str) -> "Version | None":
        """Return what is known of a task without its documents, which may be large."""
        return await self._first(_version, "version_of_run", id=task_id)

    async def save(
        self, task: Task, *happened: Status | Outcome, ahead: "TaskRows | None" = None
    ) -> Task:
        """Replace the version that `task` was made from, and add its new events. `ahead`: what
        `task_rows` returns for these.

        Raises `Stale` if it was changed meanwhile (see `Connection.expect`), and `QuotaExceeded` if
        it grows by more than the quota has left.
        """
        written = ahead or await task_rows(task, *happened)
        saved = _counted(task, written, task.request_bytes)
        more = saved.stored_bytes - task.stored_bytes
        if more > SMALL_BYTES:
            await take_quota(self._bound, more)
        else:
            # A small change may exceed the quota, so that every task can be ended.
            await return_quota(self._bound, -more)
        await self._bound.expect(
            "change_run", Stale, id=task.id, version=task.version, **_changing(saved, written)
        )
        await self._bound.many("add_run_event", written.events)
        return replace(saved, version=task.version + 1)

    async def events(self, task_id: str, after: int, *, limit: int = ANY) -> list[Event]:
        """Return the events of the task after `after`, in order."""
        rows = await self._bound.fetch("run_events", run_id=task_id, after=after, limit=limit)
        large = bool(rows) and rows[0]["event_bytes"] > LARGE_BYTES
        return await apart(large, lambda: [_event(task_id, row) for row in rows])

    async def page(
        self, wanted: Filter, *, after: Cursor | None, limit: int
    ) -> tuple[list[Task], bool]:
        """Return the tasks that changed last, newest first, as many as `PAGE_BYTES` allow but at
        least one; and whether there are more.
        """
        rows = await self._bound.fetch(
            "ids_of_runs",
            before=after.changed_at if after else _NEVER,
            before_id=after.task_id if after else "",
            limit=limit + 1,
            **_filtering(wanted),
        )
        ids = _fitting(rows)[:limit]
        found = {one.id: one for one in await _tasks(await self._by_ids("runs_by_id", ids))}
        return [found[one] for one in ids if one in found], len(ids) < len(rows)

    async def asking(self, question_id: str) -> str | None:
        """Return the task that waits for an answer to this question."""
        return await self._first(lambda row: str(row["id"]), "asking", question=question_id)

    async def unfinished_of(self, tokens: Sequence[str], limit: int) -> list[tuple[str, int]]:
        """Return the ids and bytes of tasks of these tokens that have not ended, `limit` at most,
        the smallest first.
        """
        rows = await self._bound.fetch("sizes_of_unfinished_runs", tokens=list(tokens), limit=limit)
        return [(row["id"], row["stored_bytes"]) for row in rows]

    async def number_unfinished(self, tokens: Sequence[str]) -> int:
        return await self._int("runs", "count_of_unfinished_runs", tokens=list(tokens))

    async def unfinished(self, ids: Sequence[str]) -> list[Task]:
        """Return those of these tasks that have not ended."""
        return await _tasks(await self._by_ids("unfinished_runs", ids))

    async def count(self, wanted: Filter) -> int:
        return await self._int("runs", "count_of_runs", **_filtering(wanted))

    async def hand_over(self, task: Task) -> Task:
        """Free the quota of a task's text, which becomes an episode with a quota of its own. Return
        the task without it, to be saved in this transaction.
        """
        await return_quota(self._bound, task.owed_bytes)
        return replace(task, stored_bytes=task.stored_bytes - task.owed_bytes)

    async def remove(self, task_id: str) -> None:
        await self._bound.send("delete_run_events", id=task_id)
        for row in await self._bound.fetch("delete_run", id=task_id):
            await return_quota(self._bound, row["stored_bytes"])


def _fitting(rows: Sequence[Row]) -> list[str]:
    """Return the ids of the first of these tasks, as many as `PAGE_BYTES` allow, but at least
    one.
    """
    return fitting(((row["id"], row["stored_bytes"]) for row in rows), PAGE_BYTES)


def _filtering(wanted: Filter) -> dict[str, Any]:
    return {
        "context_id": wanted.context_id,
        "state": wanted.state or "",
        "since": wanted.since or _EVER,
    }


class Version(NamedTuple):
    """A task without its documents."""

    version: int
    events: int
    state: TaskState


def _version(row: Row) -> Version:
    return Version(row["version"], row["events"], TaskState(row["state"]))


class TaskRows(NamedTuple):
    """The documents of a task and the rows of its new events, in the form that is stored."""

    documents: dict[str, Document | None]
    events: list[dict[str, Any]]
    bytes: int
    event_bytes: int


class NewTask(NamedTuple):
    """A new task, with the rows and the request that it is written with."""

    task: Task
    rows: TaskRows
    request: Document


async def new_task(task: Task) -> NewTask:
    """Return what a new task is written with: of a large task that takes time."""
    return await apart(task.large, _new_task, task)


def _new_task(task: Task) -> NewTask:
    written, request = _written(task, [task.status]), _document(Request, task.request)
    assert request is not None
    return NewTask(_counted(task, written, bytes_of([request])), written, request)


async def task_rows(task: Task, *happened: Status | Outcome) -> TaskRows:
    """Return what a change of a task is written with: of a large task that takes time."""
    return await apart(task.large, _written, task, happened)


def _written(task: Task, happened: Sequence[Status | Outcome]) -> TaskRows:
    documents = {
        "work": _document(Work, task.work),
        "status": _document(Status, task.status),
        "messages": Document([_dumped(Message, one) for one in task.messages]),
        "outcome": _document(Outcome, task.outcome),
    }
    rows: list[dict[str, Any]] = []
    for seq, event in enumerate(happened, task.events + 1):
        name = "outcome" if isinstance(event, Outcome) else "status"
        same = event is getattr(task, name)
        stored = documents[name] if same else _document(type(event), event)
        rows.append(
            {"run_id": task.id, "seq": seq, "status": None, "outcome": None} | {name: stored}
        )
    event_bytes = sum(bytes_of((row["status"], row["outcome"])) for row in rows)
    return TaskRows(documents, rows, bytes_of(documents.values()), event_bytes)


def _counted(task: Task, written: TaskRows, request_bytes: int) -> Task:
    """Return the task with its new events and bytes counted."""
    task = replace(
        task,
        events=task.events + len(written.events),
        request_bytes=request_bytes,
        event_bytes=task.event_bytes + written.event_bytes,
    )
    size = request_bytes + written.bytes + task.event_bytes + task.owed_bytes
    return replace(task, stored_bytes=size)


def _changing(task: Task, written: TaskRows) -> dict[str, Any]:
    return {
        "state": task.status.state,
        "round": task.round,
        "events": task.events,
        "changed_at": task.status.at,
        "expires_at": task.expires_at,
        "stored_bytes": task.stored_bytes,
        "event_bytes": task.event_bytes,
        "topic": _only(task.request.topic, (memory.topic for memory in task.memories())),
        "agent_id": _only(
            task.request.source.agent_id, (one.source.agent_id for one in task.memories())
        ),
        "container": _only(task.request.container, (one.container for one in task.memories())),
        **written.documents,
    }


def _only(one: str | None, others: Iterable[str | None]) -> str | None:
    """Return `one` if all the others are equal to it, else None."""
    return one if {one, *others} == {one} else None


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    """Return the adapter of a type; made on first use, as most commands read no task."""
    return TypeAdapter(type_)


@cache
def _items(type_: Any) -> Mapping[str, Any]:
    """Return the fields of a type that hold any number of items, with the types of these."""
    hints = get_type_hints(type_)
    return {name: get_args(one)[0] for name, one in hints.items() if get_args(one)[1:] == (...,)}


def _dumped(type_: Any, value: Any) -> Any:
    """Return a value as it is stored. Many items are turned one by one: see `ITEMS_AT_ONCE`."""
    dump = partial(TypeAdapter.dump_python, mode="json", by_alias=True)
    many = {name: getattr(value, name) for name in _items(type_)}
    many = {name: items for name, items in many.items() if len(items) > ITEMS_AT_ONCE}
    if not many:
        return dump(_adapter(type_), value)
    made = dump(_adapter(type_), replace(value, **dict.fromkeys(many, ())))
    for name, items in many.items():
        made[name] = [dump(_adapter(_items(type_)[name]), one) for one in items]
    return made


def _validated(type_: Any, made: Any) -> Any:
    """Return what `_dumped` has turned."""
    many = {
        name: made.pop(name) for name in _items(type_) if len(made.get(name, ())) > ITEMS_AT_ONCE
    }
    whole = _adapter(type_).validate_python(made)
    if not many:
        return whole
    found = {
        name: tuple(map(_adapter(_items(type_)[name]).validate_python, items))
        for name, items in many.items()
    }
    return replace(whole, **found)


def _document(type_: Any, value: Any) -> Document | None:
    return None if value is None else Document(_dumped(type_, value))


def _read(type_: Any, value: Any) -> Any:
    return None if value is None else _validated(type_, document(value))


async def _tasks(rows: Sequence[Row]) -> list[Task]:
    large = sum(row["stored_bytes"] for row in rows) > LARGE_BYTES
    return await apart(large, lambda: [_run(row) for row in rows])


def _event(task_id: str, row: Row) -> Event:
    return Event(
        task_id,
        row["context_id"],
        row["seq"],
        _read(Status, row["status"]),
        _read(Outcome, row["outcome"]),
    )


def _stored(type_: Any, name: str) -> Callable[[Row], Any]:
    return lambda row: _read(type_, row[name])


_run = reader(
    Task,
    request=_stored(Request, "request"),
    work=_stored(Work, "work"),
    status=_stored(Status, "status"),
    messages=lambda row: tuple(_validated(Message, one) for one in document(row["messages"])),
    outcome=_stored(Outcome, "outcome"),
)


CONFIGS_MAX = 10
"""The most push configs that one task may have."""


@dataclass(frozen=True)
class PushConfig:
    """Where the events of a task are sent, and the credentials for it: their `scheme`, and the
    `secret`, encrypted.

    `delivered_seq` is the last event that arrived, `failures` counts the failed attempts since. The
    config ends with the token that set it, its `bearer`.
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
    """A config is held by one sender at a time. A sender that no longer holds it cannot change
    it.
    """

    async def put(self, config: PushConfig) -> PushConfig:
        """Write a config. If there is one of this id, replace it except for `delivered_seq`, and
        take it from its sender. Return the config as stored.
        """
        given = vars(config) | registered_by(config.bearer)
        rows = await self._bound.fetch("put_push", **given)
        return _config(rows[0])

    async def get(self, task_id: str, config_id: str) -> PushConfig | None:
        return await self._first(_config, "push", run_id=task_id, id=config_id)

    async def page(self, task_id: str, *, after: str = "", limit: int) -> list[PushConfig]:
        """Return the configs of a task after the id `after`, by id."""
        return await self._all(_config, "pushes", run_id=task_id, after=after, limit=limit)

    async def any_sealed(self) -> bool:
        """Return whether an encrypted secret of a push or a webhook is stored."""
        return await self._bound.touched("sealed_secret")

    async def remove(self, task_id: str, config_id: str) -> bool:
        """Remove a config. Return False if there is none."""
        return await self._bound.touched("remove_push", run_id=task_id, id=config_id)

    async def remove_held(self, config: PushConfig, holder: str) -> bool:
        """Remove the config that `holder` holds. Return False if it no longer does."""
        return await self._bound.touched("remove_held_push", **_held(config, holder))

    async def remove_of(self, tokens: Sequence[str]) -> int:
        """Remove the configs that these tokens have set. Return how many."""
        return len(await self._bound.fetch("remove_pushes_of", tokens=list(tokens)))

    async def due(self, config: PushConfig, holder: str, seq: int) -> bool:
        """Return whether `holder` holds the config and the event still exists."""
        return await self._bound.touched("due_push", **_held(config, holder), seq=seq)

    async def clear(self, task_id: str) -> None:
        await self._bound.send("remove_pushes", run_id=task_id)

    async def promise(self, task_id: str, job_id: str, now: datetime) -> None:
        """Queue a job for each config of the task, with ids derived from `job_id`. Call it in the
        transaction that writes the event.
        """
        await self._bound.send("promise_pushes", run_id=task_id, job_id=job_id, kind=PUSH, now=now)
        self._bound.note_due(now, pushes=True)

    async def promise_end(
        self, task_id: str, job_id: str, kind: str, due_at: datetime, now: datetime
    ) -> None:
        """Queue one job of this kind if the task has any config."""
        await self._bound.send(
            "promise_push_end", run_id=task_id, job_id=job_id, kind=kind, due_at=due_at, now=now
        )
        self._bound.note_due(due_at, pushes=False)

    async def promise_one(
        self, config: PushConfig, now: datetime, new_id: Callable[[str], str]
    ) -> None:
        payload = {"run_id": config.task_id, "config_id": config.id}
        await Jobs(self._bound).add(new_id("job"), PUSH, payload, now)

    async def claim(
        self, task_id: str, config_id: str, holder: str, *, now: datetime, until: datetime
    ) -> PushConfig | None:
        """Hold the config until `until`. Return None if it is held, resting, or does not exist."""
        given = {"run_id": task_id, "id": config_id, "holder": holder, "now": now}
        return await self._first(_config, "claim_push", **given, until=until)

    async def advance(
        self, config: PushConfig, holder: str, *, seq: int, final: bool, until: datetime
    ) -> bool:
        """Note that the event `seq` has arrived, and hold the config until `until`. After the
        `final` event its secret is deleted. Return False if `holder` no longer holds it.
        """
        given = {"seq": seq, "final": int(final), "until": until}
        return await self._bound.touched("advance_push", **_held(config, holder), **given)

    async def release(
        self, config: PushConfig, holder: str, *, rest_until: datetime | None, failed: bool
    ) -> None:
        """Release the config. It cannot be claimed again before `rest_until`."""
        given = {"until": rest_until, "failed": int(failed)}
        await self._bound.send("release_push", **_held(config, holder), **given)


_config = reader(PushConfig, task_id="run_id", bearer=bearer)


def _held(config: PushConfig, holder: str) -> dict[str, Any]:
    """Return the key of a config as query parameters, with its holder."""
    return {"run_id": config.task_id, "id": config.id, "holder": holder}


@dataclass(frozen=True)
class Registration:
    """A webhook: which events are sent to it, and where. `secret` is encrypted. Events after
    `delivered_seq` are still to be sent, unless it is dead. `failures` counts those since the last
    delivery, and `error_code` is that of the last failure. It ends with the token that registered
    it, its `bearer`.
    """

    id: str
    url: str
    kinds: tuple[WebhookKind, ...]
    include_text: bool
    secret: bytes = field(repr=False)
    created_at: datetime
    bearer: Bearer | None = None
    active: bool = True
    error_code: str | None = None
    failures: int = 0
    delivered_seq: int = 0
    delivered_at: datetime | None = None


@dataclass(frozen=True)
class WebhookEvent:
    """An event to be sent. For an event of a memory, `seq` is that of its memory event."""

    seq: int
    kind: WebhookKind
    item_id: str
    at: datetime


class Webhooks(BoundTable):
    """The events are written in the transaction that causes them, and sent by one job for each
    webhook.
    """

    async def add(self, new: Registration) -> Registration:
        """Register a webhook for events from now on. Return it as stored."""
        given = vars(new) | registered_by(new.bearer) | {"kinds": Document(list(new.kinds))}
        given["include_text"] = int(new.include_text)
        rows = await self._bound.fetch("add_webhook", **given)
        return _registration(rows[0])

    async def get(self, webhook_id: str) -> Registration | None:
        return await self._first(_registration, "webhook", id=webhook_id)

    async def all(self) -> list[Registration]:
        """Return the webhooks of the namespace, the oldest first."""
        return await self._all(_registration, "webhooks")

    async def remove(self, webhook_id: str) -> bool:
        """Remove a webhook. Return False if there is none."""
        return await self._bound.touched("remove_webhook", id=webhook_id)

    async def remove_of(self, tokens: Sequence[str]) -> int:
        """Remove the webhooks that these tokens have registered. Return how many."""
        return len(await self._bound.fetch("remove_webhooks_of", tokens=list(tokens)))

    def tell(self, kind: WebhookKind, item_id: str, at: datetime) -> None:
        """Notify the webhooks if this transaction commits: see `BoundConnection.tell`."""
        self._bound.tell(kind, item_id, at)

    async def keep(self, events: Sequence[WebhookEvent], now: datetime) -> None:
        """Store those of these events that a webhook wants, and queue the jobs that send them."""
        if not events:
            return
        rows = [
            [one.seq, one.kind, one.item_id, one.at.isoformat(timespec="microseconds")]
            for one in events
        ]
        await self._bound.send("keep_webhook_events", events=Document(rows))
        kinds = sorted({one.kind for one in events})
        if await self._bound.touched("promise_webhooks", kind=PUSH, kinds=kinds, now=now):
            self._bound.note_due(now, pushes=True)

    async def next(self, one: Registration) -> WebhookEvent | None:
        """Return the first event that is still to be sent to a webhook."""
        wanted = {"after": one.delivered_seq, "kinds": list(one.kinds)}
        return await self._first(reader(WebhookEvent), "next_webhook_event", **wanted)

    async def pending(self, one: Registration, limit: int) -> int:
        """Return how many events wait for a webhook, counted up to `limit`."""
        wanted = {"after": one.delivered_seq, "kinds": list(one.kinds), "limit": limit}
        return await self._int("events", "pending_webhook_events", **wanted)

    async def delivered(self, webhook_id: str, seq: int, at: datetime | None) -> bool:
        """Note that events up to `seq` were delivered at `at`; None: there was nothing to send.
        Return False if that was noted before, or the webhook is gone.
        """
        return await self._bound.touched(
            "webhook_delivered", id=webhook_id, seq=seq, delivered_at=at
        )

    async def failed(self, webhook_id: str, code: str, *, dead: bool) -> None:
        """Note a failed delivery. A `dead` webhook gets no further events."""
        await self._bound.send("webhook_failed", id=webhook_id, code=code, dead=int(dead))

    async def revive(self, webhook_id: str) -> None:
        """Make a dead webhook active again, for events from now on."""
        await self._bound.send("revive_webhook", id=webhook_id)

    async def drop_sent(self) -> None:
        """Delete the events that no webhook waits for."""
        await self._bound.send("drop_sent_webhook_events")


_registration = reader(Registration, bearer=bearer, active=lambda row: row["state"] == "active")
