"""The registry of operations: one entry for each operation, one module for each feature.

MCP tools, HTTP routes, the OpenAPI document, required scopes and audit names are derived from it.
"""

from collections.abc import Iterable, Mapping

from recall_server.api.operations import (
    access,
    contents,
    erasure,
    history,
    hooks,
    intents,
    memories,
    reviews,
    search,
    tasks,
)
from recall_server.api.operations.operation import Operation

UNKNOWN_TOOL = Operation(
    "unknown_tool", None, "A call of an MCP tool that does not exist.", read_only=True
)

# Clients list the tools in this order.
OPERATIONS: tuple[Operation, ...] = (
    memories.store_memory,
    *search.OPERATIONS,
    *(one for one in memories.OPERATIONS if one is not memories.store_memory),
    *intents.OPERATIONS,
    *erasure.OPERATIONS,
    tasks.consolidate_memories,
    contents.get_memory_stats,
    contents.get_status,
    *access.TOKENS,
    contents.get_job,
    *history.CHANGES,
    *contents.TEXTS,
    *reviews.OPERATIONS,
    *memories.ALIASES,
    *tasks.OPERATIONS,
    *history.AUDIT,
    *reviews.QUARANTINE,
    *hooks.OPERATIONS,
    *search.GROUNDING,
    *access.WEBHOOKS,
    contents.read_metrics,
    contents.export_namespace,
    contents.IMPORT_NAMESPACE,
    UNKNOWN_TOOL,
)


def by_name(operations: Iterable[Operation]) -> Mapping[str, Operation]:
    """Return the operations by their names. Raises `ValueError` if two share a name or a route."""
    found: dict[str, Operation] = {}
    routes: set[tuple[str, str]] = set()
    for operation in operations:
        of_operation = {(route.method, route.path) for route in operation.http}
        if operation.name in found or of_operation & routes:
            raise ValueError(f"{operation.name} or one of its routes is registered twice")
        found[operation.name] = operation
        routes |= of_operation
    return found


BY_NAME = by_name(OPERATIONS)
