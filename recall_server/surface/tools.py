"""The MCP tools: what each takes, what it says of itself, and the verb it stands for."""

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import mcp.types
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from recall_server.domain.errors import Invalid
from recall_server.domain.model import (
    AuditEntry,
    MemoryType,
    Namespace,
    Query,
    SearchMode,
    Source,
)
from recall_server.domain.screening import screen
from recall_server.services import Services
from recall_server.services.ingest import Submission
from recall_server.surface import wire

Json = dict[str, Any]

INT64_MAX = 2**63 - 1
FAULTS_TOLD = 5
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,40}")


@dataclass(frozen=True)
class Call:
    """What a tool knows of the call besides its arguments."""

    services: Services
    namespace: Namespace
    client: str | None
    entry: AuditEntry


class Arguments(BaseModel):
    """Arguments of a tool: exact types, finite numbers, and nothing that it does not know.

    Texts are plain `str` with "" for "none": the SDK would parse other strings as JSON.
    """

    model_config = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)


class StoreMemory(Arguments):
    text: str
    topic: str = Field("general", description="context label")
    idempotency_key: str = Field("", description="same key and text: stored once")
    session_id: str = ""
    agent_id: str = ""


class SearchMemories(Arguments):
    query: str
    limit: int = Field(20, ge=1, le=50)
    recency_weight: float = Field(0.3, ge=0, le=1)
    mmr_lambda: float = Field(0.5, ge=0, le=1, description="0 diverse, 1 relevance only")
    score_threshold: float = Field(0.0, ge=0, le=1)
    max_tokens: int = Field(0, ge=0, le=INT64_MAX, description="0: no budget")
    mode: Annotated[SearchMode, Field(strict=False)] = SearchMode.RECALL
    explain: bool = Field(default=False, description="add scores and the cited words")


class InspectMemories(Arguments):
    limit: int = Field(20, ge=1, le=50)
    offset: int = Field(0, ge=0, le=INT64_MAX)
    type: Annotated[MemoryType | None, Field(strict=False)] = None
    topic: str = ""
    memory_id: str = Field("", description="show the history of this one")


class DeleteMemory(Arguments):
    memory_id: str


class GetMemoryStats(Arguments):
    pass


async def store_memory(call: Call, given: StoreMemory) -> Json:
    accepted = await call.services.ingest.remember(
        call.namespace,
        Submission(
            given.text,
            given.topic,
            given.idempotency_key or None,
            Source(given.session_id or None, given.agent_id or None, call.client),
        ),
        entry=call.entry,
    )
    if accepted.cached:
        return {"queued": False, "cached": True, "job_id": accepted.job_id}
    return {"queued": True, "job_id": accepted.job_id}


async def search_memories(call: Call, given: SearchMemories) -> Json:
    answer = await call.services.recall.search(
        call.namespace,
        Query(
            text=given.query,
            limit=given.limit,
            mode=given.mode,
            recency_weight=given.recency_weight,
            mmr_lambda=given.mmr_lambda,
            score_threshold=given.score_threshold,
            max_tokens=given.max_tokens or None,
        ),
        cite=given.explain,
        entry=call.entry,
    )
    return wire.found(answer, explain=given.explain)


async def inspect_memories(call: Call, given: InspectMemories) -> Json:
    if given.memory_id:
        chain = await call.services.recall.history(
            call.namespace, given.memory_id, entry=call.entry
        )
        return wire.history(chain)
    page = await call.services.recall.inspect(
        call.namespace,
        limit=given.limit,
        offset=given.offset,
        type_=given.type or "",
        topic=given.topic,
        entry=call.entry,
    )
    return wire.page(page)


async def delete_memory(call: Call, given: DeleteMemory) -> Json:
    await call.services.recall.forget(call.namespace, given.memory_id, entry=call.entry)
    return {"deleted": given.memory_id}


async def get_memory_stats(call: Call, _: GetMemoryStats) -> Json:
    return wire.counts(await call.services.recall.stats(call.namespace, entry=call.entry))


@dataclass(frozen=True)
class Tool:
    """One tool: its face, its arguments and its verb."""

    name: str
    title: str
    description: str
    arguments: type[Arguments]
    run: Callable[[Call, Any], Awaitable[Json]]
    data: Json
    read_only: bool = False
    destructive: bool = False
    idempotent: bool = False

    # The envelope (FEATURES I13); errors have no data.
    _ENVELOPE: ClassVar[Json] = {"status": {"enum": ["ok", "error"]}}

    def face(self) -> mcp.types.Tool:
        """The tool as clients see it; all hints are stated, as their defaults assume the worst."""
        return mcp.types.Tool(
            name=self.name,
            title=self.title,
            description=self.description,
            input_schema=_plain(self.arguments.model_json_schema()),
            output_schema={
                "type": "object",
                "properties": {
                    **self._ENVELOPE,
                    "data": {"type": "object", "properties": self.data},
                    "code": {"type": "string"},
                    "message": {"type": "string"},
                },
                "required": ["status"],
            },
            annotations=mcp.types.ToolAnnotations(
                read_only_hint=self.read_only,
                destructive_hint=self.destructive,
                idempotent_hint=self.idempotent,
                open_world_hint=False,
            ),
        )

    def parse(self, given: Json) -> Arguments:
        """The arguments, checked. Raises `Invalid`, naming each fault and what is allowed; never
        repeats what was sent.
        """
        try:
            return self.arguments.model_validate(given)
        except ValidationError as error:
            raise Invalid(self._explained(error)) from None

    def _explained(self, error: ValidationError) -> str:
        found = error.errors(include_url=False, include_input=False, include_context=False)
        faults = [
            self._fault(each["type"], each["loc"], each["msg"]) for each in found[:FAULTS_TOLD]
        ]
        return " ".join(faults)

    def _fault(self, kind: str, place: tuple[int | str, ...], why: str) -> str:
        field = next((str(part) for part in place), "arguments")
        if kind != "extra_forbidden":
            return f"{field}: {why}."
        known = ", ".join(self.arguments.model_fields) or "no arguments"
        # Only what could be the name of an argument is worth repeating, and safe to.
        named = f"'{field}'" if _NAME.fullmatch(field) else "An argument"
        return f"{named} is not known to {self.name}, which takes {known}."


def _plain(schema: Json) -> Json:
    """The schema without what costs a client tokens and tells it nothing."""
    definitions = schema.pop("$defs", {})

    def strip(node: Any) -> Any:
        if isinstance(node, list):
            return [strip(part) for part in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            node = {**definitions[node["$ref"].rsplit("/", 1)[1]], **node}
            del node["$ref"]
        if "anyOf" in node:
            # "or null" is what leaving an optional argument out means anyway.
            options = [part for part in node["anyOf"] if part != {"type": "null"}]
            rest = {key: value for key, value in node.items() if key not in ("anyOf", "default")}
            node = {**rest, **strip(options[0])}
        return {
            key: strip(value)
            for key, value in node.items()
            if (not (key == "title" and isinstance(value, str)) and key != "description")
            or (key == "description" and "type" in node and "properties" not in node)
        }

    return {"properties": {}, **strip(schema)}


_ANY_ARRAY: Json = {"type": "array", "items": {"type": "object"}}


def _or_none(kind: str) -> Json:
    # A list of types would say the same; not every client's validator reads one.
    return {"anyOf": [{"type": kind}, {"type": "null"}]}


TOOLS = (
    Tool(
        "store_memory",
        "Store memory",
        "Keep a conversation or a fact. Returns at once; typed memories are extracted in the "
        "background, and the text can be searched meanwhile. Transcripts read best as lines of "
        "'Name: words'.",
        StoreMemory,
        store_memory,
        {
            "queued": {"type": "boolean"},
            "cached": {"type": "boolean"},
            "job_id": {"type": "string"},
        },
        idempotent=True,
    ),
    Tool(
        "search_memories",
        "Search memories",
        "Find what is remembered about a question, best first: memories, and passages that no "
        "memory has been made of. 'degraded' says why an answer may be less than usual.",
        SearchMemories,
        search_memories,
        {
            "results": _ANY_ARRAY,
            "total": {"type": "integer"},
            "degraded": _or_none("string"),
        },
        read_only=True,
        idempotent=True,
    ),
    Tool(
        "inspect_memories",
        "Inspect memories",
        "List the active memories, newest first, page by page; or, given a memory_id, what that "
        "one replaced and what replaced it, each with the words it cites.",
        InspectMemories,
        inspect_memories,
        {
            "memories": _ANY_ARRAY,
            "total": {"type": "integer"},
            "has_more": {"type": "boolean"},
            "next_offset": _or_none("integer"),
        },
        read_only=True,
        idempotent=True,
    ),
    Tool(
        "delete_memory",
        "Delete memory",
        "Forget one memory: it is never found again.",
        DeleteMemory,
        delete_memory,
        {"deleted": {"type": "string"}},
        destructive=True,
        idempotent=True,
    ),
    Tool(
        "get_memory_stats",
        "Memory statistics",
        "How many memories there are of each type, and how many texts still wait for extraction.",
        GetMemoryStats,
        get_memory_stats,
        {
            "by_type": {"type": "object", "additionalProperties": {"type": "integer"}},
            "total": {"type": "integer"},
            "pending_extractions": {"type": "integer"},
            "failed_extractions": {"type": "integer"},
            "pending_embeddings": {"type": "integer"},
        },
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
