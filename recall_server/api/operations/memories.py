"""Memories: store a text, list, get, forget and restore; and the aliases of their subjects, names
that stand for one person or thing.
"""

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from recall_server.api import presenters
from recall_server.api.operations.erasure import ERASE_MEMORY
from recall_server.api.operations.intake import (
    AddMemory,
    ProcessTurn,
    RecordInteraction,
    StoreMemory,
)
from recall_server.api.operations.operation import (
    CAMILLO,
    ENGRAM,
    INT64_MAX,
    REVIEWS,
    Arguments,
    Call,
    Http,
    Json,
    Mcp,
    NoArguments,
    Operation,
    checked_id,
    operation,
)
from recall_server.domain.attributes import ALIASES_MAX, Alias, Timeline
from recall_server.domain.context import Context
from recall_server.domain.errors import Invalid, MemoryNotFound
from recall_server.domain.memory import Layer, Listed, MemoryType, Place
from recall_server.domain.moments import Past, parse_moment, past
from recall_server.domain.permissions import AFTER, BEFORE, AccessScope, Rights, Scope
from recall_server.services.erasure import Erased
from recall_server.services.memory.ingest import Accepted
from recall_server.services.search.recall import History, Page

ACCEPTED = 202


def _object(value: Any) -> Any:
    """An object, which a query gives as JSON. Raises `Invalid`."""
    if not isinstance(value, str):
        return value
    try:
        found = json.loads(value, parse_constant=str)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise Invalid('metadata must be a JSON object such as {"project": "red"}.')
    return found


class InTime(Arguments):
    """Arguments that ask for a moment of the past."""

    as_of: str = Field("", description="what was true then: ISO date, or time with zone")
    known_at: str = Field("", description="what was known here then")

    def past(self, call: Call) -> Past:
        return past(self.as_of, self.known_at, call.context.entry.started_at)


class Selection(Arguments):
    container: str = ""
    tags: list[str] = Field([])  # a memory must have all of them
    metadata: Annotated[dict[str, Any], BeforeValidator(_object)] = Field(
        {}, description="names with their values, all of them"
    )
    said_after: str = Field("", description="ISO date, or time with zone")
    said_before: str = ""
    recorded_after: str = Field("", description="when it came to be known here")
    recorded_before: str = ""
    valid_after: str = Field("", description="when it began to be true")
    valid_before: str = ""
    expires_after: str = Field("", description="leaves out what does not expire")
    expires_before: str = ""
    app: str = Field("", description="that a text was sent from")
    group_id: str = ""
    layer: Annotated[Layer | None, Field(strict=False)] = None

    def context(self, call: Call) -> Context:
        """Return the context of the call, with the part of its access scope that is asked for."""
        whole = call.context
        part = self.narrowed(whole.scope)
        return whole if part is whole.scope else whole.narrowed(part)

    def narrowed(self, scope: AccessScope) -> AccessScope:
        """Return the part of an access scope that is asked for."""
        return scope.inside(self.within(), self.tags).filtered(
            metadata=self.metadata,
            layer=self.layer,
            app=self.app,
            group_id=self.group_id,
            times={
                name: parse_moment(given, name)
                for name in (*AFTER, *BEFORE)
                if (given := getattr(self, name))
            },
        )

    def within(self) -> Collection[str] | None:
        """Return the containers that are asked for; None for any."""
        return [self.container] if self.container else None


UNLISTED_TIMES = frozenset({*AFTER, *BEFORE} - {"said_after", "said_before"})
UNLISTED = frozenset(
    {"metadata", "layer", "app", "group_id", "as_of", "known_at", "include_expired"}
)
"""The filters that a model is spared in the list of tools; it may send them all the same."""


class Filtered(Selection, InTime):
    """The same filters, with a moment of now or of the past."""

    include_expired: bool = Field(default=False, description="add what has expired, at the end")


class ListMemories(Filtered):
    limit: int = Field(20, ge=1, le=50)
    offset: int = Field(0, ge=0, le=INT64_MAX)
    cursor: str = Field("", description="the next_cursor of a page: goes on there")
    type: Annotated[MemoryType | None, Field(strict=False)] = None
    topic: str = ""
    status: Annotated[Listed | None, Field(strict=False)] = None


class InspectMemories(ListMemories):
    memory_id: str = ""


class OneMemory(Arguments):
    memory_id: str


class OneMemoryInTime(OneMemory, InTime):
    """One memory, as of a moment."""


class GetTimeline(InTime):
    entity: str
    attribute: str


class DeleteMemory(OneMemory):
    erase: bool = Field(default=False, description="destroy it")


@dataclass(frozen=True)
class Stored:
    """`masked`: how many secrets in it were written over."""

    accepted: Accepted
    at: datetime
    masked: int


def _queued(stored: Stored, _: Arguments) -> Json:
    accepted = stored.accepted
    return {
        **({"queued": False, "cached": True} if accepted.cached else {"queued": True}),
        "job_id": accepted.job_id,
        **({"masked": stored.masked} if stored.masked else {}),
    }


def _processed(stored: Stored, _: Arguments) -> Json:
    """Return the answer of aCMF. No user is ever created: a namespace exists by its tokens."""
    accepted = stored.accepted
    return {
        "accepted": True,
        "cached": accepted.cached,
        "job_id": accepted.job_id,
        "container": accepted.container or None,
        "created_user": False,
        "created_containers": [accepted.container] if accepted.new_container else [],
        "accepted_at": presenters.moment(stored.at),
        **({"masked": stored.masked} if stored.masked else {}),
    }


def _place(given: ListMemories) -> Place | None:
    """Return where the list goes on. Raises `Invalid`."""
    if not given.cursor:
        return None
    if given.include_expired:
        raise Invalid("A list with expired memories has no cursor. Use offset.")
    recorded_at, _, memory_id = given.cursor.partition("~")
    place = Place(parse_moment(recorded_at, "cursor"), checked_id(memory_id, "cursor"))
    if not memory_id:
        raise Invalid("cursor must be the next_cursor of a page.")
    return place


async def list_page(call: Call, given: ListMemories) -> Page:
    return await call.services.recall.inspect(
        given.context(call),
        limit=given.limit,
        offset=given.offset,
        after=_place(given),
        type_=given.type or "",
        topic=given.topic,
        status=given.status.status if given.status else None,
        unreconciled=given.status is Listed.UNRECONCILED,
        include_expired=given.include_expired,
        past=given.past(call),
    )


async def _history(call: Call, given: OneMemoryInTime | InspectMemories) -> History:
    return await call.services.recall.history(call.context, given.memory_id, given.past(call))


def _deleted_as(given: DeleteMemory, _: Rights) -> Operation:
    return ERASE_MEMORY if given.erase else delete_memory


def _deleted(erased: Erased | None, given: DeleteMemory) -> Json:
    return {"deleted": given.memory_id, **(presenters.erased(erased) if erased else {})}


@operation(
    Scope.WRITE,
    arguments=StoreMemory,
    present=_queued,
    returns=("queued", "job_id"),
    http=(
        Http("POST", "/v1/memories", ACCEPTED),
        Http(
            "POST",
            "/v1/process",
            ACCEPTED,
            ProcessTurn,
            present=_processed,
            returns=("accepted", "job_id", "created_user", "created_containers", "accepted_at"),
        ),
        Http("POST", "/ingest", ACCEPTED, RecordInteraction),
        Http("POST", "/api/v1/episodes", ACCEPTED, AddMemory),
    ),
    mcp=Mcp(
        "Keep a conversation or a fact. Typed memories are extracted in the background; the text "
        "can be searched meanwhile.",
        unlisted=frozenset(
            {"source", "trace_id", "user_message", "assistant_response", "expires_at"}
        ),
        aliases={
            "add_memory": (AddMemory, ENGRAM),
            "record_interaction": (RecordInteraction, CAMILLO),
        },
    ),
    cli="recall add",
)
async def store_memory(call: Call, given: StoreMemory | RecordInteraction | AddMemory) -> Stored:
    """Store a text; memories are extracted from it in the background."""
    accepted = await call.services.ingest.remember(call.context, given.submission(call))
    entry = call.context.entry
    return Stored(accepted, entry.started_at, entry.counts.get("masked", 0))


@operation(
    Scope.READ,
    present=lambda found, _: (
        presenters.page(found) if isinstance(found, Page) else presenters.history(found)
    ),
    returns=("memories", "total", "has_more", "next_offset", "next_cursor"),
    http=(Http("GET", "/v1/memories"), Http("GET", "/api/memory/archival")),
    mcp=Mcp(
        "List the active memories, newest first; or the history of the one with memory_id.",
        InspectMemories,
        unlisted=UNLISTED | {"cursor", "status", *AFTER, *BEFORE},
        idempotent=True,
    ),
    cli="recall list",
    read_only=True,
)
async def inspect_memories(call: Call, given: ListMemories) -> Page | History:
    """List the active memories, newest first."""
    # Return one page; over MCP also the history of one memory, which saves clients a tool.
    if isinstance(given, InspectMemories) and given.memory_id:
        return await _history(call, given)
    return await list_page(call, given)


@operation(
    Scope.READ,
    returns=("id", "text", "topic", "type", "status", "source", "relations"),
    http=(Http("GET", "/v1/memories/{memory_id}"),),
    read_only=True,
)
async def get_memory(call: Call, given: OneMemoryInTime) -> Json:
    """Get one memory, with the words that it cites."""
    found = await _history(call, given)
    memory = next((one for one in found.chain if one.id == given.memory_id), None)
    if memory is None:
        raise MemoryNotFound
    return presenters.with_relations(memory, found)


@operation(
    Scope.READ,
    present=lambda found, _: presenters.history(found),
    returns=("memories", "total", "has_more", "next_offset", "next_cursor"),
    http=(Http("GET", "/v1/memories/{memory_id}/history"),),
    cli="recall show",
    read_only=True,
)
async def get_memory_history(call: Call, given: OneMemoryInTime) -> History:
    """List what a memory replaced and what replaced it, oldest first, with what became of each and
    why.
    """
    return await _history(call, given)


@operation(
    Scope.READ,
    present=lambda found, _: presenters.timeline(found),
    returns=("entity", "attribute", "values", "gaps", "overlaps", "cut"),
    http=(Http("GET", "/v1/timeline"),),
    read_only=True,
    cli="recall timeline",
)
async def get_timeline(call: Call, given: GetTimeline) -> Timeline:
    """List the values of an attribute over time, with gaps and overlaps."""
    return await call.services.recall.timeline(
        call.context, given.entity, given.attribute, given.past(call)
    )


@operation(
    Scope.FORGET,
    present=_deleted,
    returns=("deleted",),
    becomes=_deleted_as,
    http=(Http("DELETE", "/v1/memories/{memory_id}"),),
    mcp=Mcp("Forget one memory: it is no longer found.", destructive=True, idempotent=True),
    cli="recall forget",
)
async def delete_memory(call: Call, given: DeleteMemory) -> Erased | None:
    """Forget one memory; with erase, destroy it and all that could show it."""
    if given.erase:
        return await call.services.erase.memory(call.context, given.memory_id)
    await call.services.recall.forget(call.context, given.memory_id)
    return None


@operation(
    Scope.FORGET,
    returns=("restored",),
    http=(Http("POST", "/v1/memories/{memory_id}/restore"),),
    cli="recall restore",
)
async def restore_memory(call: Call, given: OneMemory) -> Json:
    """Restore a forgotten memory, within RECALL_FORGET_DAYS."""
    await call.services.recall.restore(call.context, given.memory_id)
    return {"restored": given.memory_id}


OPERATIONS = (
    store_memory,
    inspect_memories,
    get_memory,
    get_memory_history,
    get_timeline,
    delete_memory,
    restore_memory,
)


class SetAliases(Arguments):
    subject: str
    aliases: list[str] = Field(max_length=ALIASES_MAX)


class OneAlias(Arguments):
    alias: str


def _aliases(found: Sequence[Alias], _: Arguments) -> Json:
    return {"aliases": [one._asdict() for one in found]}


@operation(
    Scope.READ,
    present=_aliases,
    returns=("aliases",),
    whole_namespace=True,
    http=(Http("GET", "/v1/aliases"),),
    mcp=Mcp("List the names that stand for one person or thing.", toolset=REVIEWS, idempotent=True),
    cli="recall aliases list",
    read_only=True,
)
async def list_aliases(call: Call, _: NoArguments) -> Sequence[Alias]:
    """List the aliases of subjects: names that stand for one person or thing."""
    return await call.services.aliases.all(call.context)


@operation(
    Scope.EDIT,
    present=_aliases,
    returns=("aliases",),
    whole_namespace=True,
    http=(Http("POST", "/v1/aliases"),),
    mcp=Mcp(
        "Say which other names a person or thing has: facts about them are about it from now on.",
        toolset=REVIEWS,
        idempotent=True,
    ),
    cli="recall aliases set",
)
async def set_aliases(call: Call, given: SetAliases) -> Sequence[Alias]:
    """Set the aliases of a subject, in place of those it had: facts about them are facts
    about it.
    """
    return await call.services.aliases.set(call.context, given.subject, given.aliases)


@operation(
    Scope.EDIT,
    returns=("removed",),
    whole_namespace=True,
    http=(Http("DELETE", "/v1/aliases"),),
    mcp=Mcp("Remove an alias of a person or thing.", toolset=REVIEWS),
    cli="recall aliases remove",
)
async def remove_alias(call: Call, given: OneAlias) -> Json:
    """Remove an alias: it is a subject of its own again."""
    await call.services.aliases.remove(call.context, given.alias)
    return {"removed": given.alias}


ALIASES = (list_aliases, set_aliases, remove_alias)
