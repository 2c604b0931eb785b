"""The routes of A2A: JSON-RPC and the plain body at `/a2a`, REST under `/a2a/v1`."""

from collections.abc import Callable

from a2a.server.context import ServerCallContext
from a2a.server.routes import DefaultServerCallContextBuilder, create_rest_routes
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from a2a.utils.constants import VERSION_HEADER
from a2a.utils.errors import A2AError
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.routing import BaseRoute, Mount, Route, Router
from starlette.types import ASGIApp, Scope

from recall_server.api.a2a.card import JSONRPC_PATH, REST_PATH
from recall_server.api.a2a.checks import check_call, check_new_enough, check_rest, version_of
from recall_server.api.a2a.errors import rpc_error, unreadable
from recall_server.api.a2a.handler import BASE, CALLER, TURN, A2AHandler, check_tenant
from recall_server.api.caller import caller_of
from recall_server.api.http.endpoint import Endpoint
from recall_server.api.middleware.limits import turn_of
from recall_server.api.middleware.streams import StreamLimit, Streams


class Context(DefaultServerCallContextBuilder):
    """The context of the SDK's handlers: the caller that authentication admitted."""

    def __init__(self, base: Callable[[Scope], str]) -> None:
        self._base = base

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        caller = caller_of(request.scope)
        context.state[CALLER] = caller
        context.state[TURN] = turn_of(request.scope)
        context.state[BASE] = self._base(request.scope)
        # The SDK knows the header only, and takes any minor version.
        context.state["headers"][VERSION_HEADER.lower()] = version_of(request)
        check_tenant(caller, request.query_params.get("tenant", ""))
        return context


class RestContext(Context):
    """The same, for requests that have not been checked yet."""

    def build(self, request: Request) -> ServerCallContext:
        context = super().build(request)
        check_new_enough(version_of(request))
        check_rest(request)
        return context


def routes(
    handler: A2AHandler, create_task: Endpoint, base: Callable[[Scope], str], streams: Streams
) -> list[BaseRoute]:
    """JSON-RPC and the plain body of `create_task` share a path: the key "jsonrpc" tells them
    apart. `base` is the address by which a request reached the server.
    """
    rpc = JsonRpcDispatcher(handler, context_builder=Context(base), enable_v0_3_compat=True)
    rest = create_rest_routes(handler, context_builder=RestContext(base))

    async def post(request: Request) -> ASGIApp:
        if "recall.json" not in request.scope:
            return unreadable("The body is empty. Send a JSON-RPC 2.0 request.")
        body = request.scope["recall.json"]
        if isinstance(body, dict) and "skill" in body and "jsonrpc" not in body:
            return create_task
        try:
            check_call(body, version_of(request))
        except A2AError as error:
            return rpc_error(body, error)
        return await rpc.handle_requests(request)

    limited = [Middleware(StreamLimit, streams)]
    return [
        Route(JSONRPC_PATH, post, methods=["POST"], middleware=limited),
        Route(f"{JSONRPC_PATH}/", post, methods=["POST"], middleware=limited),
        Mount(REST_PATH, Router(rest, redirect_slashes=False), middleware=limited),
    ]
