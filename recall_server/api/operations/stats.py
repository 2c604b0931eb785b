"""Counts of what a namespace holds."""

from recall_server.api import presenters
from recall_server.api.arguments import NoArguments
from recall_server.api.operations.operation import Call, Http, Mcp, Operation
from recall_server.domain.permissions import Scope
from recall_server.services.search.recall import Counts


async def stats(call: Call, _: NoArguments) -> Counts:
    return await call.services.recall.stats(call.context)


GET_MEMORY_STATS = Operation(
    "get_memory_stats",
    Scope.READ,
    "Count the memories of each type, and the texts that wait for extraction.",
    NoArguments,
    stats,
    lambda counts, _: presenters.counts(counts),
    ("by_type", "total", "pending_extractions"),
    http=(Http("GET", "/v1/stats"),),
    mcp=Mcp(
        "Memory statistics",
        "Memories of each type, and texts that wait for extraction.",
        idempotent=True,
    ),
    read_only=True,
)

OPERATIONS = (GET_MEMORY_STATS,)
