"""The HTTP routes of the registry, and files as answers; the OpenAPI 3.1 document and the page
about it, both derived from the registry.
"""

import asyncio
import base64
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import aclosing
from functools import cache, partial
from html import escape
from http import HTTPStatus
from typing import Any, get_origin
from urllib.parse import parse_qsl

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from recall_server import __version__
from recall_server.api.operations.operation import (
    Arguments,
    Caller,
    Calls,
    Download,
    Http,
    Json,
    NoArguments,
    Operation,
    Plain,
    caller_of,
)
from recall_server.api.problems import (
    DOCS_PATH,
    MEDIA_TYPE,
    MethodNotAllowed,
    Problem,
    problem,
    status_of,
)
from recall_server.domain.errors import Invalid, NotFound, RecallError

log = structlog.get_logger()

# The snapshot stays open during the download; Postgres ends one that is idle for a minute.
STALL_S = 30.0


class DownloadResponse(StreamingResponse):
    """Pieces as a file. A reader that reads nothing for `STALL_S` seconds loses the connection; a
    file without its last line is not complete.
    """

    def __init__(self, download: Download) -> None:
        super().__init__(
            download.pieces,
            media_type=download.media_type,
            headers={
                "Content-Disposition": f'attachment; filename="{download.name}"',
                "Cache-Control": "no-store",
            },
        )
        self._download = download

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._download.pieces):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await self._send_piece(send, self._download.first)
                async for piece in self._download.pieces:
                    await self._send_piece(send, piece)
            except (RecallError, TimeoutError) as error:
                # The status was sent; only the missing end of the body shows the reader the
                # failure.
                log.warning("export_broken_off", reason=type(error).__name__)
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_piece(self, send: Send, piece: bytes) -> None:
        try:
            async with asyncio.timeout(STALL_S) as self._download.reader.limit:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            self._download.reader.limit = None


PROTOCOL = "http"
_NOT_CACHED = {"Cache-Control": "no-store"}


class Endpoint:
    def __init__(self, calls: Calls, operation: Operation, route: Http) -> None:
        self.operation = operation
        self.route = route
        self.arguments = route.arguments or operation.arguments
        self._present = route.present or operation.present
        self._name = f"{route.method} {route.path}"
        self._needs_body = any(
            field.is_required() and f"{{{name}}}" not in route.path
            for name, field in self.arguments.model_fields.items()
        )
        fields = self.arguments.model_fields.items()
        self._lists = [name for name, field in fields if get_origin(field.annotation) is list]
        self._calls = calls

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response: Response
        try:
            caller = await self._holder(scope) if self.route.holder else caller_of(scope)
            read = partial(self._read, scope)
            data = await self._calls.run(
                caller, PROTOCOL, self.operation, read=read, present=self._present, client=PROTOCOL
            )
        except RecallError as error:
            response = problem(error)
        else:
            response = self._answer(data)
        await response(scope, receive, send)

    def _answer(self, data: Any) -> Response:
        if isinstance(data, Download):
            return DownloadResponse(data)
        if isinstance(data, Plain):
            return Response(data.body, headers=_NOT_CACHED, media_type=data.media_type)
        return JSONResponse(data, self.route.status, headers=_NOT_CACHED)

    async def _holder(self, scope: Scope) -> Caller:
        assert self.route.holder is not None
        return await self.route.holder(self._calls.services, self._read(scope))

    def _read(self, scope: Scope) -> Arguments:
        """Return the arguments of a request. Raises `Invalid` if one is in the wrong place, since a
        dry_run there must not be ignored.
        """
        from_query = not self.route.takes_body
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given: Any
        if from_query:
            if _has_body(scope):
                raise Invalid("This takes no body. Send arguments in the query, or leave them out.")
            given = self._from_query(query)
        else:
            if query:
                NoArguments.parse(dict(query), "the query")
            given = scope.get("recall.json", None if self._needs_body else {})
        if self.route.headers or scope["path_params"]:
            given = self._with_places(given, scope)
        return self.arguments.parse(given, self._name, as_text=from_query)

    def _from_query(self, query: Sequence[tuple[str, str]]) -> dict[str, str | list[str]]:
        """Return the arguments in a query, in which only a list may be named more than once."""
        lists: dict[str, list[str]] = {name: [] for name in self._lists}
        single = [(name, value) for name, value in query if name not in lists]
        for name, value in query:
            if name in lists:
                lists[name].append(value)
        if len(dict(single)) < len(single):
            raise Invalid("The query names something twice. Say each thing once.")
        return {**dict(single), **{name: values for name, values in lists.items() if values}}

    def _with_places(self, given: Any, scope: Scope) -> Any:
        if not isinstance(given, dict):
            return given
        headers = Headers(scope=scope)
        placed = {name: headers.get(header, "") for name, header in self.route.headers.items()}
        placed |= scope["path_params"]
        for name in placed.keys() & given.keys():
            raise Invalid(f"{name} has its place in the path or a header. Leave it out elsewhere.")
        return given | placed


def routes(endpoints: Iterable[Endpoint]) -> list[Route]:
    return [Route(one.route.path, one, methods=[one.route.method]) for one in endpoints]


def _has_body(scope: Scope) -> bool:
    headers = dict(scope["headers"])
    return headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers


async def not_found(_: Request, __: Exception) -> Problem:
    return problem(NotFound("There is nothing at this path. MCP is at /mcp, a list at /docs."))


async def method_not_allowed(request: Request, error: Exception) -> Problem:
    """Return the answer that names all methods of the path, since each route knows only its own."""
    known = (error.headers or {}).get("Allow", "") if isinstance(error, HTTPException) else ""
    allowed = {one for one in known.split(", ") if one}
    for route in request.app.routes:
        if isinstance(route, Route) and route.matches(request.scope)[0] is not Match.NONE:
            allowed |= route.methods or set()
    named = ", ".join(sorted(allowed))
    return problem(MethodNotAllowed(f"This path takes {named}."), {"Allow": named})


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
    routes = Counter[str]()
    for endpoint in endpoints:
        name = endpoint.operation.name
        routes[name] += 1
        operation_id = f"{name}__{routes[name]}" if routes[name] > 1 else name
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


def about_routes(
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
            _table(("Code", "Status", "What it says"), _errors(), linked=True),
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
            yield one.name, one.scope or "", one.mcp.description or one.summary, _names(arguments)


def _names(model: type[Arguments]) -> str:
    return ", ".join(model.model_fields)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, linked: bool = False) -> str:
    """Return a table; `linked`: a row has its first cell, a code, as its id."""
    first = "".join(f"<th>{escape(cell)}</th>" for cell in head)
    rest = "".join(
        (f'<tr id="{escape(row[0])}">' if linked else "<tr>")
        + f"<td><code>{escape(row[0])}</code></td>"
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{first}</tr></thead><tbody>{rest}</tbody></table>"


def _errors() -> Iterator[tuple[str, str, str]]:
    kinds = {kind.code: kind for kind in reversed([*_kinds(RecallError)])}
    for code, kind in sorted(kinds.items()):
        yield code, str(status_of(kind).value), " ".join((kind.__doc__ or "").split())


def _kinds(kind: type[RecallError]) -> Iterator[type[RecallError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)
