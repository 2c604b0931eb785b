"""The MCP tools: what each takes, what it says of itself, and the verb it stands for."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import mcp.types
from pydantic import Field

from recall_server.api import presenters
from recall_server.api.arguments import Arguments
from recall_server.api.caller import Caller
from recall_server.domain.audit import AuditEntry
from recall_server.domain.episode import Source
from recall_server.domain.errors import Invalid
from recall_server.domain.external_errors import TaskFailed
from recall_server.domain.memory import MemoryType
from recall_server.domain.namespace import Namespace
from recall_server.domain.permissions import AccessScope
from recall_server.domain.query import Query, SearchMode
from recall_server.domain.security.screening import screen
from recall_server.domain.task import Mode, Request
from recall_server.services import Services
from recall_server.services.memory.ingest import Submission

Json = dict[str, Any]

INT64_MAX = 2**63 - 1
# Below every deadline of a call: a larger merge goes on behind the reply.
MERGE_WAIT_S = 20.0


@dataclass(frozen=True)
class Call:
    """What a tool knows of the call besides its arguments."""

    services: Services
    caller: Caller
    client: str | None
    entry: AuditEntry

    @property
    def namespace(self) -> Namespace:
        return self.caller.namespace

    @property
    def reach(self) -> AccessScope:
        return self.caller.reach


class StoreMemory(Arguments):
    text: str
    topic: str = Field("general", description="context label")
    idempotency_key: str = Field("", description="same key and text: stored once")
    session_id: str = ""
    agent_id: str = ""
    container: str = Field("", description="a room to keep it in")

    def submission(self, client: str | None) -> Submission:
        source = Source(self.session_id or None, self.agent_id or None, client)
        return Submission(
            self.text, self.topic, self.idempotency_key or None, source, self.container
        )


class SearchMemories(Arguments):
    query: str
    limit: int = Field(20, ge=1, le=50)
    recency_weight: float = Field(0.3, ge=0, le=1)
    mmr_lambda: float = Field(0.5, ge=0, le=1, description="0 diverse, 1 relevance only")
    score_threshold: float = Field(0.0, ge=0, le=1)
    max_tokens: int = Field(0, ge=0, le=INT64_MAX, description="0: no budget")
    mode: Annotated[SearchMode, Field(strict=False)] = SearchMode.HYBRID
    neighbours: int = Field(0, ge=0, le=5, description="turns shown around each")
    container: str = Field("", description="this room only")
    explain: bool = Field(default=False, description="add scores and the cited words")

    def asked(self) -> Query:
        return Query(
            text=self.query,
            limit=self.limit,
            mode=self.mode,
            neighbours=self.neighbours,
            recency_weight=self.recency_weight,
            mmr_lambda=self.mmr_lambda,
            score_threshold=self.score_threshold,
            max_tokens=self.max_tokens or None,
            containers=frozenset({self.container}) if self.container else None,
        )


class InspectMemories(Arguments):
    limit: int = Field(20, ge=1, le=50)
    offset: int = Field(0, ge=0, le=INT64_MAX)
    type: Annotated[MemoryType | None, Field(strict=False)] = None
    topic: str = ""
    container: str = ""
    memory_id: str = Field("", description="show the history of this one")


class DeleteMemory(Arguments):
    memory_id: str
    erase: bool = Field(default=False, description="destroy it")


class DeleteNamespaceData(Arguments):
    confirm: str = Field("", description="DELETE MY DATA")


class GetMemoryStats(Arguments):
    pass


class Whoami(Arguments):
    pass


class ConsolidateMemories(Arguments):
    topic: str
    container: str = ""
    similarity_threshold: float = Field(0.85, ge=0, le=1)
    dry_run: bool = Field(default=False, description="show the plan only")


async def store_memory(call: Call, given: StoreMemory) -> Json:
    accepted = await call.services.ingest.remember(
        call.namespace,
        given.submission(call.client),
        reach=call.reach,
        entry=call.entry,
    )
    if accepted.cached:
        return {"queued": False, "cached": True, "job_id": accepted.job_id}
    return {"queued": True, "job_id": accepted.job_id}


async def search_memories(call: Call, given: SearchMemories) -> Json:
    answer = await call.services.recall.search(
        call.namespace,
        given.asked(),
        cite=given.explain,
        reach=call.reach,
        entry=call.entry,
    )
    return presenters.found(answer, explain=given.explain)


async def inspect_memories(call: Call, given: InspectMemories) -> Json:
    if given.memory_id:
        chain = await call.services.recall.history(
            call.namespace, given.memory_id, reach=call.reach, entry=call.entry
        )
        return presenters.history(chain)
    page = await call.services.recall.inspect(
        call.namespace,
        limit=given.limit,
        offset=given.offset,
        type_=given.type or "",
        topic=given.topic,
        containers=[given.container] if given.container else None,
        reach=call.reach,
        entry=call.entry,
    )
    return presenters.page(page)


async def delete_memory(call: Call, given: DeleteMemory) -> Json:
    if given.erase:
        erased = await call.services.erase.memory(call.namespace, given.memory_id, entry=call.entry)
        return {"deleted": given.memory_id, **presenters.erased(erased)}
    await call.services.recall.forget(
        call.namespace, given.memory_id, reach=call.reach, entry=call.entry
    )
    return {"deleted": given.memory_id}


async def delete_namespace_data(call: Call, given: DeleteNamespaceData) -> Json:
    erased = await call.services.erase.namespace(call.namespace, given.confirm, entry=call.entry)
    return {"deleted": True, **presenters.erased(erased)}


def _forget_or_erase(given: Json) -> str:
    return "erase_memory" if given.get("erase") is True else "delete_memory"


async def get_memory_stats(call: Call, _: GetMemoryStats) -> Json:
    found = await call.services.recall.stats(call.namespace, reach=call.reach, entry=call.entry)
    return presenters.counts(found)


async def consolidate_memories(call: Call, given: ConsolidateMemories) -> Json:
    services = call.services
    run = await services.consolidate.start(
        call.namespace,
        Request(
            Mode.MERGE,
            given.topic,
            similarity_threshold=given.similarity_threshold,
            dry_run=given.dry_run,
            source=Source(client=call.client),
            container=given.container,
        ),
        reach=call.reach,
        entry=call.entry,
    )
    with suppress(TimeoutError):  # it goes on: the reply says under which id
        async with asyncio.timeout(MERGE_WAIT_S):
            run = await services.tasks.wait_until_idle(call.namespace, run, reach=call.reach)
    if run.status.failure is not None:
        raise TaskFailed(run.status.failure.message)
    return presenters.merged(run)


async def whoami(call: Call, _: Whoami) -> Json:
    return presenters.whoami(call.caller)


@dataclass(frozen=True)
class Tool:
    """One tool: its face, its arguments, its verb, and what its `data` always has."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Call, Any], Awaitable[Json]]
    data: tuple[str, ...]
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False
    # What the call does, for the book and the guard, where that depends on the arguments.
    named: Callable[[Json], str] | None = None

    def operation(self, given: Json) -> str:
        return self.named(given) if self.named else self.name

    def face(self) -> mcp.types.Tool:
        """The tool as clients see it; all hints are stated, as their defaults assume the worst."""
        return mcp.types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=_plain(self.arguments.model_json_schema()),
            # Of the envelope (FEATURES I13) what differs; errors have code and message instead.
            # Left out where it says no more than that: it costs every client more than the rest.
            output_schema={
                "type": "object",
                "properties": {"data": {"type": "object", "required": list(self.data)}},
            }
            if self.data
            else None,
            annotations=mcp.types.ToolAnnotations(
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent,
                open_world_hint=False,
            ),
        )

    def parse(self, given: Json) -> Arguments:
        """The arguments, checked. Raises `Invalid`."""
        return self.arguments.parse(given, self.name)


def _plain(schema: Json) -> Json:
    """The schema without what costs a client tokens and tells it nothing."""
    definitions = schema.pop("$defs", {})

    def strip(node: Any) -> Any:
        if isinstance(node, list):
            return [strip(part) for part in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            # The docstring of a class is for who reads the code.
            named = {**definitions[node["$ref"].rsplit("/", 1)[1]], "description": ""}
            node = {**named, **node}
            del node["$ref"]
        if "anyOf" in node:
            # "or null" is what leaving an optional argument out means anyway.
            options = [part for part in node["anyOf"] if part != {"type": "null"}]
            rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
            node = {**rest, **strip(options[0])}
        return {
            key: strip(value)
            for key, value in node.items()
            if value != INT64_MAX
            # "", 0 and false are what leaving an argument out means anyway.
            and (key != "default" or value)
            if (not (key == "title" and isinstance(value, str)) and key != "description")
            or (key == "description" and value and "type" in node and "properties" not in node)
        }

    return {"properties": {}, **strip(schema)}


TOOLS = (
    Tool(
        "store_memory",
        "Store memory",
        "Keep a conversation or a fact. Typed memories are extracted in the background; the text "
        "can be searched meanwhile. Transcripts read best as lines of 'Name: words'.",
        StoreMemory,
        store_memory,
        ("queued", "job_id"),
        idempotent=True,
    ),
    Tool(
        "search_memories",
        "Search memories",
        "Find what is remembered about a question, best first: memories, and passages that no "
        "memory has been made of. With 'weak_evidence' the answer is likely not among them; "
        "'degraded' says what was missing.",
        SearchMemories,
        search_memories,
        ("results", "total", "weak_evidence", "degraded"),
        read_only=True,
        idempotent=True,
    ),
    Tool(
        "inspect_memories",
        "Inspect memories",
        "List the active memories, newest first; or, given a memory_id, what it replaced and what "
        "replaced it, each with the words it cites.",
        InspectMemories,
        inspect_memories,
        ("memories", "total", "has_more", "next_offset"),
        read_only=True,
        idempotent=True,
    ),
    Tool(
        "delete_memory",
        "Delete memory",
        "Forget one memory: it is never found again.",
        DeleteMemory,
        delete_memory,
        ("deleted",),
        destructive=True,
        idempotent=True,
        named=_forget_or_erase,
    ),
    Tool(
        "delete_namespace_data",
        "Delete all data",
        "Erase everything and revoke all tokens, for good.",
        DeleteNamespaceData,
        delete_namespace_data,
        ("tokens_revoked", "receipt_id"),
        destructive=True,
        idempotent=True,
    ),
    Tool(
        "consolidate_memories",
        "Consolidate memories",
        "Merge similar memories of a topic into one each; the originals stay in its history.",
        ConsolidateMemories,
        consolidate_memories,
        ("groups_found", "memories_created", "deleted_ids"),
        destructive=True,
        idempotent=True,
    ),
    Tool(
        "get_memory_stats",
        "Memory statistics",
        "Memories of each type, and texts that wait for extraction.",
        GetMemoryStats,
        get_memory_stats,
        ("by_type", "total", "pending_extractions"),
        read_only=True,
        idempotent=True,
    ),
    Tool(
        "whoami",
        "Who am I",
        "Your rights.",
        Whoami,
        whoami,
        (),
        read_only=True,
        idempotent=True,
    ),
)


def screened(tools: tuple[Tool, ...]) -> tuple[Tool, ...]:
    """`tools`, unless one of their texts tries to give orders to a model (FEATURES I09): then the
    server does not start.
    """
    for tool in tools:
        face = tool.face()
        for suspicion in screen(face.model_dump_json()):
            raise Invalid(f"The description of {tool.name} {suspicion}.")
    return tools
