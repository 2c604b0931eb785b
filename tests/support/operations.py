"""Every operation of every protocol, from the registry, and a request for each."""

import re
from dataclasses import dataclass
from typing import Any

import httpx2
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from starlette.routing import Mount, Route

from recall_server.api.app import create_app
from recall_server.api.mcp import tools_of
from recall_server.api.operations import OPERATIONS
from recall_server.api.operations.operation import Operation as Registered
from tests.support.a2a_bindings import HOOK, message, of_rpc
from tests.support.mcp_clients import request
from tests.support.server import Running

Json = dict[str, Any]

PUBLIC = {
    *(
        "/health",
        "/ready",
        "/api/health",
        "/api/v1/health",
        "/.well-known/agent-card.json",
        "/.well-known/jwks.json",
    ),
    *("/openapi.json", "/docs"),
    "/v1/receipts/{receipt_id}",  # takes a secret of its own
}
# The endpoints that many operations share: their names are asked for instead.
SHARED = {"/mcp", "/mcp/", "/a2a", "/a2a/"}
BODIES: dict[str, Json] = {
    "/a2a": {"skill": "consolidate_memories", "input": {"text": "Ann: I ski.", "topic": "sport"}},
    "/v1/memories": {"text": "x"},
    "/v1/process": {"text": "x"},
    "/ingest": {"user_msg": "x"},
    "/api/v1/episodes": {"content": "x"},
    "/v1/tokens": {"scopes": ["memory:read"]},
    "/v1/conflicts": {"id": "x", "choice": "keep_new"},
    "/v1/webhooks": {"url": "https://93.184.215.14/hook"},
}
TOOLS = tools_of(OPERATIONS)
_PART = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Operation:
    """One request form: `name` is the protocol and its name for the operation, `registered` the
    operation of the registry.
    """

    name: str
    method: str
    path: str
    body: Json | None = None
    headers: tuple[tuple[str, str], ...] = ()
    registered: Registered | None = None

    async def ask(self, http: httpx2.AsyncClient) -> httpx2.Response:
        headers = dict(self.headers)
        async with http.stream(self.method, self.path, json=self.body, headers=headers) as answer:
            if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                await answer.aread()
            return answer


def operations(running: Running) -> list[Operation]:
    """Return the operations of the registry as tools and routes, and the methods of A2A that the
    SDK serves.
    """
    return [*_tools(), *_methods(), *_routes(), *_rest(running)]


def _tools() -> list[Operation]:
    found = []
    for tool in TOOLS:
        needed = ["text"] if tool.name == "store_memory" else []
        given = dict.fromkeys([*tool.shown.input_schema.get("required", ()), *needed], "x")
        headers, body = request("tools/call", {"name": tool.name, "arguments": given}, modern=False)
        found.append(
            Operation(
                f"mcp {tool.name}", "POST", "/mcp", body, tuple(headers.items()), tool.operation
            )
        )
    return found


def _methods() -> list[Operation]:
    found = []
    given = {"id": "task_x", "taskId": "task_x", "url": HOOK}
    models: dict[str, Any] = dict(JsonRpcDispatcher.METHOD_TO_MODEL)
    for name, model in models.items():
        fields = {field.json_name for field in model.DESCRIPTOR.fields}
        params: Json = {key: value for key, value in given.items() if key in fields}
        if "message" in fields:
            params["message"] = message()
        body = of_rpc(name, **params).body
        version = (("A2A-Version", "1.0"),)
        found.append(Operation(f"a2a {name}", "POST", "/a2a", body, version, method_of(name)))
    return found


def method_of(name: str) -> Registered:
    """Return the operation of a method of A2A."""
    [operation] = [one for one in OPERATIONS if name in one.a2a]
    return operation


def _routes() -> list[Operation]:
    found = []
    for operation in OPERATIONS:
        for route in operation.http:
            if route.path in PUBLIC:
                continue
            path = _PART.sub(lambda part: "acc_x" if part[1] == "accessor" else "x", route.path)
            body = None
            if route.method == "POST":
                fields = (route.arguments or operation.arguments).model_fields.items()
                needed = [name for name, field in fields if field.is_required()]
                in_body = [name for name in needed if f"{{{name}}}" not in route.path]
                body = BODIES.get(route.path, dict.fromkeys(in_body, "x"))
            name = f"{route.method} {route.path}"
            found.append(Operation(name, route.method, path, body, registered=operation))
    return found


def _rest(running: Running) -> list[Operation]:
    """Yield the routes that the SDK makes for A2A's methods."""
    app: Any = create_app(running.application)
    while not hasattr(app, "routes"):
        app = app.app
    known = {route.path for operation in OPERATIONS for route in operation.http}
    found = []
    for route, prefix in _flat(app.routes, ""):
        path = prefix + route.path
        if not prefix or "{tenant}" in path:
            assert path in known | PUBLIC | SHARED or prefix, f"{path} is not in the registry"
            continue
        for method in sorted((route.methods or {"GET"}) - {"HEAD"}):
            body: Json | None = {} if method == "POST" else None
            if "message:" in path:
                body = {"message": message()}
            elif path.endswith("Configs") and method == "POST":
                body = {"url": HOOK}
            asked = _PART.sub("x", path)
            card = "extendedAgentCard" in path
            registered = method_of("GetExtendedAgentCard" if card else "SendMessage")
            version = (("A2A-Version", "1.0"),)
            found.append(Operation(f"{method} {path}", method, asked, body, version, registered))
    return found


def _flat(routes: Any, prefix: str) -> list[tuple[Route, str]]:
    found: list[tuple[Route, str]] = []
    for route in routes:
        if isinstance(route, Mount):
            found += _flat(route.routes, prefix + route.path)
        elif isinstance(route, Route):
            found.append((route, prefix))
    return found
