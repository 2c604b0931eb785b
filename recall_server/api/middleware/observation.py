"""The traces of a request for an operator: its id in the answer and in every line of the log, its
client address, and a span that continues the caller's trace. Pure ASGI, before all other
middleware.
"""

from collections.abc import Callable, Iterable

from opentelemetry.trace import SpanKind
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from structlog.contextvars import bound_contextvars

from recall_server.tracing import tracer

REQUEST_ID = "recall.request_id"
HEADER = "X-Request-Id"
UNKNOWN_PATH = "unknown"


class Observation:
    """`new_id` makes the id of a request; an id that a caller sends is ignored. The log has the
    path as far as `paths` names it, up to the first parameter: the rest may be anything.
    """

    def __init__(self, app: ASGIApp, new_id: Callable[[], str], paths: Iterable[str]) -> None:
        self.app = app
        self._new_id = new_id
        self._paths = {path for path in paths if "{" not in path}
        begun = {path.partition("{")[0] for path in paths if "{" in path}
        self._begun = sorted(begun, key=len, reverse=True)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        request_id = scope[REQUEST_ID] = self._new_id()
        client = scope["client"][0] if scope.get("client") else None
        asked = scope["path"]
        begun = (one for one in self._begun if asked.startswith(one))
        path = asked if asked in self._paths else next(begun, UNKNOWN_PATH)
        with (
            bound_contextvars(request_id=request_id, client=client, path=path),
            tracer.trace(
                f"HTTP {scope['method']}",
                {"http.request.method": scope["method"], "recall.request_id": request_id},
                kind=SpanKind.SERVER,
                headers=Headers(scope=scope),
            ) as span,
        ):

            async def named(message: Message) -> None:
                if message["type"] == "http.response.start":
                    MutableHeaders(scope=message)[HEADER] = request_id
                    span.set({"http.response.status_code": message["status"]})
                await send(message)

            await self.app(scope, receive, named)
