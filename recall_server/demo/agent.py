"""An agent at the door: the `mcp` client over streamable HTTP, with a token and nothing else."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client

from recall_server.domain.errors import RecallError

Json = dict[str, Any]
PAGE = 50
READ_S = 60.0


class Agent:
    """Calls tools, and raises what they refuse as the error that it was on the other side."""

    def __init__(self, client: Client) -> None:
        self._client = client

    @property
    def protocol(self) -> str:
        return self._client.protocol_version

    async def call(self, tool: str, **arguments: Any) -> Json:
        """The data that `tool` answers with. Raises the `RecallError` that it answers with."""
        result = await self._client.call_tool(tool, arguments)
        envelope: Json = result.structured_content or {}
        if envelope.get("status") == "ok":
            data: Json = envelope["data"]
            return data
        kinds = {kind.code: kind for kind in _kinds(RecallError)}
        raise kinds.get(envelope.get("code", ""), RecallError)(envelope.get("message"))

    async def tools(self) -> int:
        """How many tools there are; the client checks answers by their schemas from then on."""
        return len((await self._client.list_tools()).tools)

    async def memories(self, most: int) -> list[Json]:
        """The active memories, newest first, up to `most` of them."""
        found: list[Json] = []
        offset: int | None = 0
        while offset is not None and len(found) < most:
            page = await self.call("inspect_memories", limit=PAGE, offset=offset)
            found += page["memories"]
            offset = page["next_offset"]
        return found[:most]


def _kinds(kind: type[RecallError]) -> Iterator[type[RecallError]]:
    yield kind
    for narrower in kind.__subclasses__():
        yield from _kinds(narrower)


@asynccontextmanager
async def arriving(url: str, token: str) -> AsyncIterator[Agent]:
    """An agent with `token` at the server's `url`, for as long as the block lasts."""
    headers = {"Authorization": f"Bearer {token}"}
    async with create_mcp_http_client(headers=headers) as http:
        transport = streamable_http_client(url, http_client=http)
        async with Client(transport, read_timeout_seconds=READ_S) as client:
            yield Agent(client)
