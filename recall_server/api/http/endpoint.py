"""The routes of the registry: an endpoint for each reads arguments and writes the answer."""

from collections.abc import Iterable
from functools import partial
from typing import Any
from urllib.parse import parse_qsl

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from recall_server.api.arguments import Arguments, NoArguments
from recall_server.api.caller import Caller, caller_of
from recall_server.api.http.download import DownloadResponse
from recall_server.api.operations.operation import Download, Http, Operation
from recall_server.api.perform import Calls
from recall_server.api.problems import problem
from recall_server.domain.errors import Invalid, RecallError

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
            response = (
                DownloadResponse(data)
                if isinstance(data, Download)
                else JSONResponse(data, self.route.status, headers=_NOT_CACHED)
            )
        await response(scope, receive, send)

    async def _holder(self, scope: Scope) -> Caller:
        assert self.route.holder is not None
        return await self.route.holder(self._calls.services, self._read(scope))

    def _read(self, scope: Scope) -> Arguments:
        """The arguments of a request. Raises `Invalid` where one stands in the wrong place, since a
        dry_run there must not be passed over.
        """
        from_query = self.route.method != "POST"
        query = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        given: Any
        if from_query:
            if _has_body(scope):
                raise Invalid("This takes no body. Send arguments in the query, or leave them out.")
            given = dict(query)
            if len(given) < len(query):
                raise Invalid("The query names something twice. Say each thing once.")
        else:
            if query:
                NoArguments.parse(dict(query), "the query")
            given = scope.get("recall.json", None if self._needs_body else {})
        if self.route.headers or scope["path_params"]:
            given = self._with_places(given, scope)
        return self.arguments.parse(given, self._name, as_text=from_query)

    def _with_places(self, given: Any, scope: Scope) -> Any:
        """`given`, with what stands in the path and the headers."""
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
