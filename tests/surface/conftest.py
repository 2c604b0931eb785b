"""A server that listens on loopback, and clients of it with a token."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.client.streamable_http import streamable_http_client

from recall_server.api.app import create_app
from recall_server.application import Application
from recall_server.domain.namespace import namespace
from recall_server.domain.permissions import Rights, Scope, TokenInfo
from recall_server.server import bound, listening
from recall_server.services.auth.access import TokenRequest
from tests.conftest import Open

LEGACY: ConnectMode = "legacy"
MODERN: ConnectMode = "2026-07-28"
ERAS = (LEGACY, MODERN)
WITHIN_S = 20.0

Json = dict[str, Any]


MAY_ALL = TokenRequest(Rights(frozenset({Scope.ADMIN})))


@dataclass(frozen=True)
class Running:
    """The house of the test behind its real doors. No worker runs unless a test lets it."""

    application: Application
    address: str

    @property
    def url(self) -> str:
        return f"{self.address}/mcp"

    async def token(self, name: str = "alice", wanted: TokenRequest = MAY_ALL) -> str:
        """One that may do everything, unless it is the token that a test is about."""
        return (await self.issued(name, wanted))[0]

    async def issued(self, name: str, wanted: TokenRequest = MAY_ALL) -> tuple[str, TokenInfo]:
        services = self.application.services
        owner = namespace(name)
        entry = services.audit.begin(owner, "create_token", "cli", None)
        return await services.access.issue(owner, wanted=wanted, entry=entry)

    async def revoke(self, info: TokenInfo) -> None:
        services = self.application.services
        entry = services.audit.begin(info.namespace, "revoke_token", "cli", None)
        assert await services.access.revoke(info, force=True, entry=entry)

    async def extract(self) -> None:
        """Do all that is due."""
        while await self.application.worker.run_once():
            pass

    def http(self, token: str | None = None) -> httpx2.AsyncClient:
        """For requests that no MCP client would send."""
        headers = {"Accept": "application/json, text/event-stream"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # Neither certificates nor proxies have a part in loopback, and loading them takes long.
        return httpx2.AsyncClient(
            base_url=self.address, headers=headers, timeout=WITHIN_S, verify=False, trust_env=False
        )

    @asynccontextmanager
    async def client(self, token: str, era: ConnectMode) -> AsyncIterator[Client]:
        async with (
            self.http(token) as http,
            Client(
                streamable_http_client(self.url, http_client=http),
                mode=era,
                read_timeout_seconds=WITHIN_S,
            ) as client,
        ):
            yield client


@pytest.fixture
async def running(open_app: Open) -> AsyncIterator[Running]:
    async with (
        open_app(port=0) as built,
        listening(create_app(built), built.settings, bound(built.settings)) as address,
    ):
        yield Running(built, address)


@pytest.fixture(params=ERAS)
def era(request: pytest.FixtureRequest) -> ConnectMode:
    chosen: ConnectMode = request.param
    return chosen


@pytest.fixture
async def client(running: Running, era: ConnectMode) -> AsyncIterator[Client]:
    """Alice's, in each era."""
    token = await running.token()
    connected: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
    over = asyncio.Event()

    async def live() -> None:
        async with running.client(token, era) as client:
            connected.set_result(client)
            await over.wait()

    # It must end in the task that it began in, and a fixture begins and ends in two.
    life = asyncio.create_task(live())
    futures: set[asyncio.Future[Any]] = {life, connected}
    await asyncio.wait(futures, return_when=asyncio.FIRST_COMPLETED)
    if connected.done():
        yield connected.result()
    over.set()
    await life


async def told(client: Client, tool: str, **arguments: object) -> Json:
    """The whole envelope that a tool answers with."""
    result = await client.call_tool(tool, arguments)
    envelope = result.structured_content
    assert isinstance(envelope, dict)
    assert [json.loads(part.text) for part in result.content if part.type == "text"] == [envelope]
    assert bool(result.is_error) == (envelope["status"] == "error")
    return envelope


async def data(client: Client, tool: str, **arguments: object) -> Json:
    """The data of a call that succeeds."""
    envelope = await told(client, tool, **arguments)
    assert envelope["status"] == "ok", envelope
    answer: Json = envelope["data"]
    return answer


def request(method: str, params: Json, *, modern: bool, id_: int = 1) -> tuple[Json, Json]:
    """Headers and body of one raw request of either era."""
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
