"""The OpenAPI 3.1 document and the page about it, both derived from the registry."""

import asyncio
import base64
import hashlib
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from html import escape
from http import HTTPStatus
from typing import Any

from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from recall_server import __version__
from recall_server.api.endpoint import Endpoint
from recall_server.api.operations.operation import Arguments, Operation
from recall_server.api.problems import DOCS_PATH, MEDIA_TYPE, status_of
from recall_server.domain.errors import RecallError

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
    """Return the document; it names `public_url` as the server, if that is set."""
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
            **{
                str(status): {
                    "description": why,
                    "content": {"application/json": {"schema": {"type": "object"}}},
                }
                for status, why in route.besides.items()
            },
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
    """Return the schema of arguments; the schemas that it refers to are added to `schemas`."""
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    for name, definition in schema.pop("$defs", {}).items():
        # The docstring of a class is for readers of the code.
        schemas[name] = {key: one for key, one in definition.items() if key != "description"}
    return schema


def _places(endpoint: Endpoint, schema: Json) -> tuple[list[Json], Json]:
    """Return the parameters in path, headers and query, and the schema of the body."""
    route, required = endpoint.route, schema.get("required", [])
    parameters: list[Json] = []
    in_body: Json = {}
    for name, one in schema["properties"].items():
        if f"{{{name}}}" in route.path:
            parameters.append({"name": name, "in": "path", "required": True, "schema": one})
        elif name in route.headers:
            header = {"name": route.headers[name], "in": "header", "required": True, "schema": one}
            parameters.append(header)
        elif route.takes_body:
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
    schema: Json = {}  # JSON of another form, or of any form
    if route.media_type:
        schema = {"type": "string"}
    elif returns:
        schema = {"type": "object", "required": [*returns]}
    content = {route.media_type or "application/json": {"schema": schema}}
    return {"description": HTTPStatus(route.status).phrase, "content": content}


MAX_AGE_S = 300

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem }
table { border-collapse: collapse; width: 100% }
th, td { border-bottom: 1px solid #ccc; padding: .3rem .6rem; text-align: left }
td { vertical-align: top }
code { font-size: .9em; overflow-wrap: anywhere }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()
_HEADERS = {
    "Content-Security-Policy": f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": f"public, max-age={MAX_AGE_S}",
}


def routes(
    endpoints: Sequence[Endpoint], operations: Iterable[Operation], public_url: str | None
) -> list[Route]:
    """Return the routes of the document and the page: each is made when it is first asked for, and
    needs no token.
    """

    @cache
    def described() -> Response:
        headers = {"Cache-Control": f"public, max-age={MAX_AGE_S}"}
        return JSONResponse(document(endpoints, public_url), headers=headers)

    @cache
    def page() -> Response:
        return HTMLResponse(_page(endpoints, operations), headers=_HEADERS)

    async def openapi(_: Request) -> Response:
        return await asyncio.to_thread(described)

    async def docs(_: Request) -> Response:
        return await asyncio.to_thread(page)

    return [Route(OPENAPI_PATH, openapi), Route(DOCS_PATH, docs)]


def _page(endpoints: Sequence[Endpoint], operations: Iterable[Operation]) -> str:
    intro = (
        f'<p>The same as a machine reads it: <a href="{OPENAPI_PATH}">{OPENAPI_PATH}</a>. Send a '
        "token as <code>Authorization: Bearer TOKEN</code>. Errors are "
        "<code>application/problem+json</code> with one of the codes below.</p>"
    )
    return "".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width"><title>recall-server</title>',
            f"<style>{_STYLE}</style></head><body><h1>recall-server {escape(__version__)}</h1>",
            intro,
            "<h2>HTTP</h2>",
            _table(("Route", "Scope", "What it does", "Arguments"), _routes(endpoints)),
            "<h2>MCP</h2>",
            _table(("Tool", "Scope", "What it does", "Arguments"), _tools(operations)),
            "<h2>Errors</h2>",
            _errors(),
            "</body></html>",
        ]
    )


def _routes(endpoints: Sequence[Endpoint]) -> Iterator[tuple[str, str, str, str]]:
    for one in endpoints:
        where = f"{one.route.method} {one.route.path}"
        yield where, one.operation.scope or "", one.operation.summary, _names(one.arguments)


def _tools(operations: Iterable[Operation]) -> Iterator[tuple[str, str, str, str]]:
    for one in operations:
        if one.mcp is not None:
            arguments = one.mcp.arguments or one.arguments
            yield one.name, one.scope or "", one.mcp.description, _names(arguments)


def _names(model: type[Arguments]) -> str:
    return ", ".join(model.model_fields)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    first = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    rest = "".join(
        f"<tr><td><code>{escape(row[0])}</code></td>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{first}</tr></thead><tbody>{rest}</tbody></table>"


def _errors() -> str:
    kinds = {kind.code: kind for kind in reversed([*_kinds(RecallError)])}
    rows = "".join(
        f'<tr id="{escape(code)}"><td><code>{escape(code)}</code></td><td>{status_of(kind).value}'
        f"</td><td>{escape(' '.join((kind.__doc__ or '').split()))}</td></tr>"
        for code, kind in sorted(kinds.items())
    )
    return (
        "<table><thead><tr><th>Code</th><th>Status</th><th>What it says</th></tr></thead>"
        f"<tbody>{rows}</tbody></table>"
    )


def _kinds(kind: type[RecallError]) -> Iterator[type[RecallError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)
