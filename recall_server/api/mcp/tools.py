"""The MCP tools of the registry: what each says of itself, and the arguments that it takes."""

from collections.abc import Iterable
from typing import Any

import mcp.types

from recall_server.api.operations.operation import INT64_MAX, Json, Mcp, Operation
from recall_server.domain.errors import Invalid
from recall_server.domain.security.screening import screen


class Tool:
    """One operation as a tool; what clients see of it is made once."""

    def __init__(self, operation: Operation, offered: Mcp) -> None:
        self.operation = operation
        self.name = operation.name
        self.arguments = offered.arguments or operation.arguments
        self.present = offered.present or operation.present
        self.shown = _shown(operation, offered)


def tools_of(operations: Iterable[Operation]) -> tuple[Tool, ...]:
    """The operations that are offered as tools. Raises `Invalid` where the text of one tries to
    give orders to a model: then the server does not start.
    """
    tools = tuple(Tool(one, one.mcp) for one in operations if one.mcp is not None)
    for tool in tools:
        for suspicion in screen(tool.shown.model_dump_json()):
            raise Invalid(f"The description of {tool.name} {suspicion}.")
    return tools


def _shown(operation: Operation, offered: Mcp) -> mcp.types.Tool:
    """The tool as clients see it; all hints are stated, as their defaults assume the worst."""
    returns = operation.returns if offered.returns is None else offered.returns
    return mcp.types.Tool(
        name=operation.name,
        title=offered.title,
        description=offered.description,
        input_schema=_plain((offered.arguments or operation.arguments).model_json_schema()),
        # Of the envelope what differs between tools; errors have code and message instead. Left out
        # where it says no more than that: it costs every client more than the rest.
        output_schema={
            "type": "object",
            "properties": {"data": {"type": "object", "required": list(returns)}},
        }
        if returns
        else None,
        annotations=mcp.types.ToolAnnotations(
            read_only_hint=operation.read_only,
            destructive_hint=offered.destructive,
            idempotent_hint=offered.idempotent,
            open_world_hint=False,
        ),
    )


def _plain(schema: Json) -> Json:
    """The schema without what costs a client tokens and tells it nothing."""
    definitions = schema.pop("$defs", {})

    def strip(node: Any) -> Any:
        if isinstance(node, list):
            return [strip(part) for part in node]
        if not isinstance(node, dict):
            return node
        if "$ref" in node:
            # The docstring of a class is for readers of the code.
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
