"""The OpenAPI 3.1 document of the HTTP routes, derived from the registry."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from recall_server import __version__
from recall_server.api.arguments import Arguments
from recall_server.api.http.endpoint import Endpoint
from recall_server.api.problems import MEDIA_TYPE

Json = dict[str, Any]

OPENAPI_PATH = "/openapi.json"
BEARER = "bearer"

_PROBLEM: Json = {
    "type": "object",
    "description": "Problem details (RFC 9457).",
    "properties": {
        "type": {"type": "string", "format": "uri-reference"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string", "description": "What is wrong, and what to do next."},
        "code": {"type": "string", "description": "A stable code."},
        "instance": {"type": "string", "description": "The id of the request in the audit log."},
    },
    "required": ["type", "title", "status", "detail", "code"],
}


def document(endpoints: Sequence[Endpoint], public_url: str | None) -> Json:
    """`public_url` is named as the server, where it is known."""
    schemas: Json = {"Problem": _PROBLEM}
    paths: dict[str, Json] = {}
    ids: set[str] = set()
    for endpoint in endpoints:
        name = endpoint.operation.name
        number = sum(one == name or one.startswith(f"{name}__") for one in ids)
        ids.add(operation_id := f"{name}__{number + 1}" if number else name)
        paths.setdefault(endpoint.route.path, {})[endpoint.route.method.lower()] = {
            "operationId": operation_id,
            **_described(endpoint, schemas),
        }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "recall-server",
            "version": __version__,
            "description": "Shared memory for AI agents. The same operations are offered over MCP "
            "at /mcp and, for tasks, over A2A at /a2a.",
        },
        **({"servers": [{"url": public_url}]} if public_url else {}),
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                BEARER: {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "A token of this server. The roles of an operation are the "
                    "scopes that it needs.",
                }
            },
        },
    }


def _described(endpoint: Endpoint, schemas: Json) -> Json:
    operation, route = endpoint.operation, endpoint.route
    schema = _schema_of(endpoint.arguments, schemas)
    parameters, body = _places(endpoint, schema)
    described: Json = {
        "summary": operation.summary,
        "tags": [route.path.removeprefix("/v1").split("/")[1]],
        "security": []
        if route.holder
        else [{BEARER: [operation.scope] if operation.scope else []}],
        "responses": {
            str(route.status): _answer(endpoint),
            "default": {
                "description": "The call was refused, or failed.",
                "content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    }
    if parameters:
        described["parameters"] = parameters
    if body["properties"]:
        described["requestBody"] = {
            "required": bool(body.get("required")),
            "content": {"application/json": {"schema": body}},
        }
    return described


def _schema_of(model: type[Arguments], schemas: Json) -> Json:
    """The schema of arguments; what it refers to goes to `schemas`."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    for name, definition in schema.pop("$defs", {}).items():
        # The docstring of a class is for readers of the code.
        schemas[name] = {key: one for key, one in definition.items() if key != "description"}
    return schema


def _places(endpoint: Endpoint, schema: Json) -> tuple[list[Json], Json]:
    """The parameters in the path, in headers and in the query, and the schema of the body."""
    route, required = endpoint.route, schema.get("required", [])
    parameters: list[Json] = []
    in_body: Json = {}
    for name, one in schema["properties"].items():
        if f"{{{name}}}" in route.path:
            parameters.append({"name": name, "in": "path", "required": True, "schema": one})
        elif name in route.headers:
            header = {"name": route.headers[name], "in": "header", "required": True, "schema": one}
            parameters.append(header)
        elif route.method == "POST":
            in_body[name] = one
        else:
            parameters.append(
                {"name": name, "in": "query", "required": name in required, "schema": one}
            )
    body: Json = {"type": "object", "properties": in_body, "additionalProperties": False}
    if needed := [name for name in required if name in in_body]:
        body["required"] = needed
    return parameters, body


def _answer(endpoint: Endpoint) -> Json:
    operation, route = endpoint.operation, endpoint.route
    returns = operation.returns if route.returns is None else route.returns
    content: Json = {"application/x-ndjson": {"schema": {"type": "string"}}}
    if returns:
        content = {"application/json": {"schema": {"type": "object", "required": [*returns]}}}
    return {"description": HTTPStatus(route.status).phrase, "content": content}
