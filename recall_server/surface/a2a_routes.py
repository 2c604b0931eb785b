"""Where A2A is served: JSON-RPC and the plain body at `/a2a`, REST under `/a2a/v1`."""

from collections.abc import Callable
from typing import Any

from a2a.server.context import ServerCallContext
from a2a.server.routes import DefaultServerCallContextBuilder, create_rest_routes
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.types import TaskState
from a2a.utils.constants import VERSION_HEADER
from a2a.utils.errors import InvalidParamsError, VersionNotSupportedError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.types import Scope

from recall_server.surface.a2a import BASE, CALLER, A2ADoor
from recall_server.surface.a2a_plain import PlainTasks
from recall_server.surface.caller import caller_of
from recall_server.surface.card import JSONRPC_PATH, REST_PATH

VERSIONS = ("", "0.3", "1.0")
_MAJOR_MINOR = 2


class ContextBuilder(DefaultServerCallContextBuilder):
    """What the SDK's handlers know of a request: the caller whom the guard admitted; and what must
    be looked at before protobuf has read it, as it takes an unknown enum for none.
    """

    def __init__(self, base: Callable[[Scope], str]) -> None:
        self._base = base

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        context.state[CALLER] = caller_of(request.scope)
        context.state[BASE] = self._base(request.scope)
        headers: dict[str, str] = context.state["headers"]
        name = VERSION_HEADER.lower()
        version = headers.get(name) or request.query_params.get(VERSION_HEADER, "")
        if ".".join(version.split(".")[:_MAJOR_MINOR]) not in VERSIONS:
            raise VersionNotSupportedError("This agent speaks A2A 1.0 and 0.3.")
        headers[name] = version
        _check_status(request)
        return context


def _check_status(request: Request) -> None:
    body = request.scope.get("recall.json")
    params: Any = body.get("params") if isinstance(body, dict) else None
    status = params.get("status") if isinstance(params, dict) else None
    status = request.query_params.get("status", status)
    if isinstance(status, str) and status not in TaskState.keys():  # noqa: SIM118  # not a mapping
        raise InvalidParamsError("The status is not a state of a task, as TASK_STATE_WORKING is.")


def routes(door: A2ADoor, plain: PlainTasks, base: Callable[[Scope], str]) -> list[BaseRoute]:
    """JSON-RPC and the plain body share a path: the key "jsonrpc" tells them apart. `base` is the
    address by which a request reached the server.
    """
    builder = ContextBuilder(base)
    rpc = JsonRpcDispatcher(door, context_builder=builder, enable_v0_3_compat=True)

    async def post(request: Request) -> Response:
        body = request.scope.get("recall.json")
        if isinstance(body, dict) and "skill" in body and "jsonrpc" not in body:
            return await plain.create(request, body)
        return await rpc.handle_requests(request)

    return [
        Route(JSONRPC_PATH, post, methods=["POST"]),
        Route(f"{JSONRPC_PATH}/", post, methods=["POST"]),
        Mount(REST_PATH, routes=create_rest_routes(door, context_builder=builder)),
        Route(f"{JSONRPC_PATH}/{{id}}", plain.get, methods=["GET"]),
        Route(f"{JSONRPC_PATH}/{{id}}/resume", plain.resume, methods=["POST"]),
    ]
