"""Clients whose tokens are limited to topics, types, agents or containers."""

from typing import Any

import httpx2

from recall_server.domain.permissions import DEFAULT_SCOPES, AccessScope, Rights
from recall_server.services.auth import TokenRequest
from tests.support.mcp_clients import request

Json = dict[str, Any]


def limited(**parts: Any) -> TokenRequest:
    return TokenRequest(Rights(DEFAULT_SCOPES, AccessScope(**parts)))


async def told(http: httpx2.AsyncClient, tool: str, **arguments: Any) -> Json:
    headers, body = request("tools/call", {"name": tool, "arguments": arguments}, modern=False)
    answer = await http.post("/mcp", headers=headers, json=body)
    found: Json = answer.json()["result"]["structuredContent"]
    return found


async def data(http: httpx2.AsyncClient, tool: str, **arguments: Any) -> Json:
    envelope = await told(http, tool, **arguments)
    assert envelope["status"] == "ok", envelope
    found: Json = envelope["data"]
    return found


async def code(http: httpx2.AsyncClient, tool: str, **arguments: Any) -> str:
    return str((await told(http, tool, **arguments))["code"])
