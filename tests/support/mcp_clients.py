"""MCP clients of both protocol eras, and raw MCP requests."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from mcp import Client
from mcp.client.client import ConnectMode

from tests.support.server import Json, Running

LEGACY: ConnectMode = "legacy"
MODERN: ConnectMode = "2026-07-28"
ERAS = (LEGACY, MODERN)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> ConnectMode:
    chosen: ConnectMode = request.param
    return chosen


@pytest.fixture
async def client(running: Running, era: ConnectMode) -> AsyncIterator[Client]:
    """Yield a client of Alice's, in each era."""
    token = await running.token()
    connected: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def live() -> None:
        async with running.client(token, era) as client:
            connected.set_result(client)
            await over.wait()

    # The client must end in the task in which it began, and a fixture begins and ends in two.
    life = asyncio.create_task(live())
    futures: set[asyncio.Future[Any]] = {life, connected}
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    if connected.done():
        yield connected.result()
    over.set()
    await life


async def told(client: Client, tool: str, **arguments: object) -> Json:
    """Return the whole envelope of a tool's answer."""
    result = await client.call_tool(tool, arguments)
    envelope = result.structured_content
    assert isinstance(envelope, dict)
    assert [json.loads(part.text) for part in result.content if part.type == "text"] == [envelope]
    assert bool(result.is_error) == (envelope["status"] == "error")
    return envelope


async def data(client: Client, tool: str, **arguments: object) -> Json:
    """Return the data of a call that succeeds."""
    envelope = await told(client, tool, **arguments)
    assert envelope["status"] == "ok", envelope
    answer: Json = envelope["data"]
    return answer


def request(method: str, params: Json, *, modern: bool, id_: int = 1) -> tuple[Json, Json]:
    """Return headers and body of one raw request of either era."""
    version = MODERN if modern else "2025-11-25"
    headers = {"MCP-Protocol-Version": version}
    if modern:
        told_of = {"protocolVersion": version, "clientCapabilities": {}}
        meta = {f"io.modelcontextprotocol/{key}": value for key, value in told_of.items()}
        params = {**params, "_meta": meta}
        headers["Mcp-Method"] = method
        if "name" in params:
            headers["Mcp-Name"] = params["name"]
    return headers, {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
