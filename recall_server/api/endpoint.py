"""The HTTP routes of the registry, and files as answers."""

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import aclosing
from functools import partial
from typing import Any, get_origin
from urllib.parse import parse_qsl

import structlog
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Match, Route
from starlette.types import Receive, Scope, Send

from recall_server.api.operations.operation import (
    Arguments,
    Caller,
    Download,
    Http,
    NoArguments,
    Operation,
    Plain,
    caller_of,
)
from recall_server.api.perform import Calls
from recall_server.api.problems import MethodNotAllowed, Problem, problem
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
        self._first = download.first
        self._pieces = download.pieces
        self._reader = download.reader

    async def stream_response(self, send: Send) -> None:
        async with aclosing(self._pieces):
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            try:
                await self._send_piece(send, self._first)
                async for piece in self._pieces:
                    await self._send_piece(send, piece)
            except (RecallError, TimeoutError) as error:
                # The status was sent; only the missing end of the body shows the reader the
                # failure.
                log.warning("export_broken_off", reason=type(error).__name__)
                return
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_piece(self, send: Send, piece: bytes) -> None:
        try:
            async with asyncio.timeout(STALL_S) as self._reader.limit:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        finally:
            self._reader.limit = None


PROTOCOL = "http"
_NOT_CACHED = {"Cache-Control": "no-store"}


class Endpoint:
    """One route of an operation, as an ASGI application."""

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
                caller,
                PROTOCOL,
                self.operation,
                read=read,
                present=self._present,
                client=PROTOCOL,
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
        """Return `given` with the arguments in the path and the headers."""
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
