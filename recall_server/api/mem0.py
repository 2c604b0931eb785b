"""The routes of mem0's servers under `/mem0`, for programs that know no other: its REST server, and
the hosted one that its client speaks to. Each is another form of an operation of the registry; they
are served if `RECALL_MEM0` says so.

A `user_id` is a container. `agent_id`, `run_id` and `app_id` are metadata of the text.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import Any, ClassVar

from pydantic import Field, model_validator
from starlette.types import ASGIApp, Receive, Send
from starlette.types import Scope as Connection

from recall_server.api import presenters
from recall_server.api.operations import access, erasure, intents, memories, search
from recall_server.api.operations.intake import Message, StoreMemory
from recall_server.api.operations.operation import Arguments, Call, Caller, Http, Json, Operation
from recall_server.domain.context import Context
from recall_server.domain.erasure import CONFIRMATION
from recall_server.domain.errors import Invalid, OutsideAccessScope
from recall_server.domain.memory import Memory, MemoryType, Status
from recall_server.domain.moments import Past
from recall_server.domain.permissions import AccessScope
from recall_server.domain.query import Query
from recall_server.services.memory.ingest import Submission
from recall_server.services.memory.intents import Report
from recall_server.services.search.recall import Found, History, Page

PREFIX = "/mem0"
LIMIT_MAX = 50
_LABELS = ("agent_id", "run_id", "app_id")


class Mem0Arguments(Arguments):
    # They choose how the hosted server works or how it formats an answer.
    ignored = frozenset(
        {"version", "output_format", "async_mode", "rerank", "enable_graph", "source"}
    )

    user_id: str = ""
    agent_id: str = ""
    run_id: str = ""
    app_id: str = ""

    def labels(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _LABELS if getattr(self, name)}

    def own(self, scope: AccessScope, user_id: str) -> str:
        """Return the container of a user. Raises `OutsideAccessScope` if the token has no access to
        it.
        """
        if user_id and scope.containers is not None and user_id not in scope.containers:
            raise OutsideAccessScope
        return user_id


class Add(Mem0Arguments):
    messages: list[Message] = Field(min_length=1)
    metadata: dict[str, Any] = Field({})
    infer: bool = True
    timestamp: int | None = None

    def submission(self, call: Call) -> Submission:
        given: Json = {
            "messages": [one.model_dump() for one in self.messages],
            "container": self.own(call.context.scope, self.user_id),
            "metadata": self.metadata | self.labels(),
            "session_id": self.run_id,
            "infer": self.infer,
        }
        if not self.infer:
            given["type"] = MemoryType.FACT
        return StoreMemory.parse(given, "add").submission(call)


class Filters(Mem0Arguments, memories.InTime):
    """The filters of a list or a search: names by themselves, or in `filters`, with at most AND."""

    filters: dict[str, Any] = Field({})

    def context(self, call: Call) -> Context:
        wanted: Json = dict(_flat(self.filters))
        user_id = self.user_id or str(wanted.pop("user_id", ""))
        user_id = self.own(call.context.scope, user_id)
        within: Collection[str] | None = [user_id] if user_id else None
        scope = call.context.scope.inside(within).filtered(metadata=wanted | self.labels())
        return call.context.narrowed(scope)


class List(Filters):
    limit: int = Field(LIMIT_MAX, ge=1, le=LIMIT_MAX)
    # In the form that the handler of the operation reads.
    offset: ClassVar[int] = 0
    cursor: ClassVar[str] = ""
    type: ClassVar[str] = ""
    topic: ClassVar[str] = ""
    status: ClassVar[None] = None
    include_expired: ClassVar[bool] = False


class Search(Filters):
    query: str
    limit: int = Field(10, ge=1, le=LIMIT_MAX)
    top_k: int | None = Field(None, ge=1, le=LIMIT_MAX)
    threshold: float = Field(0.0, ge=0, le=1)
    explain: ClassVar[bool] = True

    def to_query(self, past: Past) -> Query:
        asked = self.threshold if "threshold" in self.model_fields_set else None
        return Query(
            text=self.query, limit=self.top_k or self.limit, score_threshold=asked, past=past
        )


class One(Arguments):
    memory_id: str


class Forget(One):
    delete_linked: bool = False
    erase: ClassVar[bool] = False


class Update(One):
    """Only the text can be changed, which older clients send as `data`."""

    text: str = ""
    data: str = ""
    type: ClassVar[MemoryType | None] = None
    confidence: ClassVar[float | None] = None
    dry_run: ClassVar[bool] = False
    review: ClassVar[bool] = False

    @model_validator(mode="after")
    def _one_text(self) -> "Update":
        self.text = self.text or self.data
        return self


class DeleteAll(Mem0Arguments):
    """All memories of one user: no user does not mean every user."""

    confirm: ClassVar[str] = ""
    memory_id: ClassVar[str | None] = None
    subject: ClassVar[str | None] = None
    dry_run: ClassVar[bool] = False

    @property
    def container(self) -> str:
        if not self.user_id or self.labels():
            raise Invalid("Send the user_id whose memories are to be deleted, and nothing else.")
        return self.user_id


class Reset(Arguments):
    confirm: ClassVar[str] = CONFIRMATION


def _flat(filters: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for name, value in filters.items():
        if name == "AND" and isinstance(value, list):
            for one in value:
                yield from _flat(one if isinstance(one, dict) else {})
        elif name == "metadata" and isinstance(value, dict):
            yield from value.items()
        elif name in ("OR", "NOT") or isinstance(value, dict | list):
            raise Invalid("filters take equal values and AND here. Leave out what else there is.")
        elif value != "*":
            yield name, value


def _memory(shown: Json) -> Json:
    metadata = shown.get("metadata") or {}
    return {
        "id": shown["id"],
        "memory": shown["text"],
        "user_id": shown.get("container"),
        **{name: metadata.get(name) for name in _LABELS},
        "metadata": {name: one for name, one in metadata.items() if name not in _LABELS},
        "categories": [shown["type"]],
        "created_at": shown["created_at"],
        "updated_at": shown["created_at"],
    }


def _added(stored: memories.Stored, _: Add) -> Json:
    return {
        "results": [],
        "message": "Memories are made of it in the background.",
        "status": "PENDING",
        "event_id": stored.accepted.job_id,
    }


def _listed(found: Page | History, _: List) -> Json:
    assert isinstance(found, Page)
    results = [_memory(presenters.memory(one)) for one in found.memories]
    return {"count": found.total, "next": None, "previous": None, "results": results}


def _found(answer: Found, given: Search) -> Json:
    shown = presenters.found(answer, explain=given.explain)["results"]
    return {"results": [_memory(one) | {"score": one["score"]} for one in shown]}


def _changes(found: History, given: One) -> list[Json]:
    changes: list[Json] = []
    before: Memory | None = None
    for one in found.chain:
        change = {
            "id": one.id,
            "memory_id": given.memory_id,
            "old_memory": before.text if before else None,
            "new_memory": one.text,
            "event": "UPDATE" if before else "ADD",
            "created_at": presenters.moment(one.recorded_at),
            "updated_at": presenters.moment(one.recorded_at),
            "is_deleted": False,
        }
        changes.append(change)
        if one.status is Status.FORGOTTEN:
            deleted = {"old_memory": one.text, "new_memory": None, "event": "DELETE"}
            changes.append(change | deleted | {"is_deleted": True})
        before = one
    return changes


def _ping(caller: Caller, _: Arguments) -> Json:
    """Answer with an organisation and a project, which mem0's client requires."""
    ids = {"org_id": caller.namespace, "project_id": caller.namespace}
    return {"status": "ok", **ids, "user_email": None}


def _updated(report: Report, _: Update) -> Json:
    """Return the updated memory; the new version has an id of its own."""
    shown = intents.reported(report)
    return {"message": shown["message"], "changes": shown["changes"]}


def _said(message: str) -> Any:
    return lambda *_: {"message": message}


def routes() -> Iterator[tuple[Operation, Http]]:
    """Return the routes of each path of the REST server, and of the hosted one, which ends with a
    slash.
    """

    def both(
        operation: Operation, method: str, path: str, hosted: str, **given: Any
    ) -> Iterator[tuple[Operation, Http]]:
        yield operation, Http(method, PREFIX + path, **given)
        hosted_method, _, hosted_path = hosted.partition(" ")
        yield operation, Http(hosted_method, PREFIX + hosted_path, **given)

    one, hosted_one = "/memories/{memory_id}", "/v1/memories/{memory_id}/"
    yield access.whoami, Http("GET", f"{PREFIX}/v1/ping/", present=_ping, returns=("status",))
    yield from both(
        memories.store_memory, "POST", "/memories", "POST /v3/memories/add/",
        arguments=Add, present=_added, returns=("results", "status", "event_id"),
    )  # fmt: skip
    yield from both(
        memories.inspect_memories, "GET", "/memories", "POST /v3/memories/",
        arguments=List, present=_listed, returns=("results",),
    )  # fmt: skip
    yield from both(
        search.search_memories, "POST", "/search", "POST /v3/memories/search/",
        arguments=Search, present=_found, returns=("results",),
    )  # fmt: skip
    yield from both(
        memories.get_memory, "GET", one, f"GET {hosted_one}",
        present=lambda found, _: _memory(found), returns=("id", "memory"),
    )  # fmt: skip
    yield from both(
        memories.get_memory_history, "GET", f"{one}/history", f"GET {hosted_one}history/",
        present=_changes, returns=(),
    )  # fmt: skip
    yield from both(
        intents.update_memory, "PUT", one, f"PUT {hosted_one}", arguments=Update,
        present=_updated, returns=("message", "changes"),
    )  # fmt: skip
    yield from both(
        memories.delete_memory, "DELETE", one, f"DELETE {hosted_one}", arguments=Forget,
        present=_said("Memory deleted successfully!"), returns=("message",),
    )  # fmt: skip
    yield from both(
        erasure.erase, "DELETE", "/memories", "DELETE /v1/memories/", arguments=DeleteAll,
        present=_said("All relevant memories deleted"), returns=("message",),
    )  # fmt: skip
    yield (
        erasure.delete_namespace_data,
        Http(
            "POST", f"{PREFIX}/reset", arguments=Reset,
            present=_said("All memories reset"), returns=("message",),
        ),
    )  # fmt: skip


class KeysAsTokens:
    """Middleware: takes a key as mem0's clients send it (`Authorization: Token KEY`, or
    `X-API-Key`) as a bearer token, below the prefix of their paths.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"].startswith(f"{PREFIX}/"):
            scope = {**scope, "headers": [_as_bearer(*header) for header in scope["headers"]]}
        await self.app(scope, receive, send)


def _as_bearer(name: bytes, value: bytes) -> tuple[bytes, bytes]:
    if name == b"x-api-key":
        return b"authorization", b"Bearer " + value
    if name == b"authorization" and value[:6].lower() == b"token ":
        return name, b"Bearer " + value[6:]
    return name, value
