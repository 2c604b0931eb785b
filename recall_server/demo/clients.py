"""The clients of the tour: each has an address and a token, and nothing else of the server."""

import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import httpx2
from a2a.client import A2ACardResolver, ClientConfig, ClientFactory
from a2a.client import Client as A2AClient
from a2a.types import Message, Part, Role, SendMessageRequest, Task
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

Json = dict[str, Any]
READ_S = 60.0


class Refused(RuntimeError):
    """The server answered with this error code."""


class McpAgent:
    """Calls MCP tools."""

    def __init__(self, client: Client) -> None:
        self._client = client

    async def call(self, tool: str, **arguments: Any) -> Json:
        """The data of the answer. Raises `Refused`."""
        answer: Json = (await self._client.call_tool(tool, arguments)).structured_content or {}
        if answer.get("status") != "ok":
            raise Refused(answer.get("code"))
        data: Json = answer["data"]
        return data

    async def inspected(self, memory_id: str) -> str:
        """How the server answers an inspection: a code, or the number of memories."""
        try:
            found = await self.call("inspect_memories", memory_id=memory_id)
        except Refused as error:
            return str(error)
        return f"{found['total']} memories"


@asynccontextmanager
async def mcp_agent(address: str, token: str) -> AsyncIterator[McpAgent]:
    async with http_client(address, token) as http:
        transport = streamable_http_client(f"{address}/mcp", http_client=http)
        async with Client(transport, read_timeout_seconds=READ_S) as client:
            yield McpAgent(client)


def http_client(address: str, token: str) -> httpx2.AsyncClient:
    headers = {"Authorization": f"Bearer {token}"}
    return httpx2.AsyncClient(base_url=address, headers=headers, timeout=READ_S, trust_env=False)


@asynccontextmanager
async def a2a_agent(address: str, token: str) -> AsyncIterator[A2AClient]:
    headers = {"Authorization": f"Bearer {token}"}
    async with httpx.AsyncClient(headers=headers, timeout=READ_S, trust_env=False) as http:
        card = await A2ACardResolver(http, address).get_agent_card()
        yield ClientFactory(ClientConfig(httpx_client=http, streaming=False)).create(card)


async def send(client: A2AClient, part: Part, task_id: str = "") -> Task:
    """The task as it stands when the message is answered."""
    message = Message(
        message_id=uuid.uuid4().hex, role=Role.ROLE_USER, parts=[part], task_id=task_id
    )
    answers = [one async for one in client.send_message(SendMessageRequest(message=message))]
    return answers[-1].task
