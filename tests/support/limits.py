"""Calls that count against a limit."""

from tests.support.mcp_clients import request
from tests.support.server import Json, Running

Call = tuple[str, str, Json]

TOOLS: Call = ("/mcp", "tools/call", {"name": "get_memory_stats", "arguments": {}})
TASKS: Call = ("/a2a", "ListTasks", {})
ROUTES = {"mcp": TOOLS, "a2a": TASKS}
SEARCH: Call = ("/mcp", "tools/call", {"name": "search_memories", "arguments": {"query": "tea"}})


async def called(running: Running, token: str, protocol: str = "mcp") -> tuple[int, Json, Json]:
    """Return status, headers and body of one call."""
    path, method, params = ROUTES.get(protocol, SEARCH)
    headers, body = request(method, params, modern=False)
    async with running.http(token) as http:
        answer = await http.post(path, json=body, headers={**headers, "A2A-Version": "1.0"})
    return answer.status_code, dict(answer.headers), answer.json()
