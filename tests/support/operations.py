"""Every operation of every protocol, found at run time, and a request for each."""

from dataclasses import dataclass
from typing import Any

import httpx2
from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
from starlette.routing import Mount, Route

from recall_server.api.app import create_app
from recall_server.api.mcp.tools import TOOLS
from tests.support.a2a_bindings import HOOK, message, of_rpc
from tests.support.mcp_clients import request
from tests.support.server import Running

Json = dict[str, Any]

PUBLIC = {
    *("/health", "/ready", "/.well-known/agent-card.json", "/.well-known/jwks.json"),
    "/v1/receipts/{id}",  # opened by a secret of its own
}
# Where many operations share an endpoint: their names are asked for instead.
SHARED = {"/mcp", "/a2a", "/a2a/"}
BODIES: dict[str, Json] = {
    "/a2a": {"skill": "consolidate_memories", "input": {"text": "Ann: I ski.", "topic": "sport"}},
    "/v1/tokens": {"scopes": ["memory:read"]},
    "/v1/process": {"text": "x"},
    "/v1/search": {"query": "x"},
}


@dataclass(frozen=True)
class Operation:
    """One way to ask for something: `name` is the door and what it calls it."""

    name: str
    method: str
    path: str
    body: Json | None = None
    headers: tuple[tuple[str, str], ...] = ()

    async def ask(self, http: httpx2.AsyncClient) -> httpx2.Response:
        headers = dict(self.headers)
        async with http.stream(self.method, self.path, json=self.body, headers=headers) as answer:
            if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                await answer.aread()
            return answer


def operations(running: Running) -> list[Operation]:
    """Those of MCP by their tools, of A2A by its methods, of HTTP by their routes."""
    return [*_tools(), *_methods(), *_routes(running)]


def _tools() -> list[Operation]:
    found = []
    for tool in TOOLS:
        given = dict.fromkeys(tool.face().input_schema.get("required", ()), "x")
        headers, body = request("tools/call", {"name": tool.name, "arguments": given}, modern=False)
        found.append(Operation(f"mcp {tool.name}", "POST", "/mcp", body, tuple(headers.items())))
    return found


def _methods() -> list[Operation]:
    found = [Operation("a2a plain", "POST", "/a2a", BODIES["/a2a"])]
    given = {"id": "task_x", "taskId": "task_x", "url": HOOK}
    models: dict[str, Any] = dict(JsonRpcDispatcher.METHOD_TO_MODEL)
    for name, model in models.items():
        fields = {field.json_name for field in model.DESCRIPTOR.fields}
        params: Json = {key: value for key, value in given.items() if key in fields}
        if "message" in fields:
            params["message"] = message()
        body = of_rpc(name, **params).body
        found.append(Operation(f"a2a {name}", "POST", "/a2a", body, (("A2A-Version", "1.0"),)))
    return found


def _routes(running: Running) -> list[Operation]:
    app: Any = create_app(running.application)
    while not hasattr(app, "routes"):
        app = app._app
    found = []
    for route, prefix in _flat(app.routes, ""):
        path = prefix + route.path
        if path in PUBLIC | SHARED or "{tenant}" in path:
            continue
        for method in sorted(route.methods or {"GET"}):
            if method == "HEAD":
                continue
            body = BODIES.get(path) if method == "POST" else None
            if "message:" in path:
                body = {"message": message()}
            elif path.endswith("Configs") and method == "POST":
                body = {"url": HOOK}
            elif method == "POST" and body is None:
                body = {}
            for part in ("id", "accessor", "push_id", "jti"):
                path = path.replace(f"{{{part}}}", "acc_x" if part == "accessor" else "x")
            headers = (("A2A-Version", "1.0"),) if prefix else ()
            found.append(Operation(f"{method} {prefix + route.path}", method, path, body, headers))
    return found


def _flat(routes: Any, prefix: str) -> list[tuple[Route, str]]:
    found: list[tuple[Route, str]] = []
    for route in routes:
        if isinstance(route, Mount):
            found += _flat(route.routes, prefix + route.path)
        elif isinstance(route, Route):
            found.append((route, prefix))
    return found
