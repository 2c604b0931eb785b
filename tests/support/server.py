"""A server that listens on loopback, with tokens for its clients."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from mcp import Client
from mcp.client.client import ConnectMode
from mcp.client.streamable_http import streamable_http_client
from mcp.types import Implementation

from recall_server.api.app import create_app
from recall_server.application import Application
from recall_server.domain.context import Context
from recall_server.domain.ids import namespace
from recall_server.domain.permissions import Rights, Scope, TokenInfo
from recall_server.server import bound, listening
from recall_server.services.auth import TokenRequest
from tests.support.application import Open

WITHIN_S = 60.0


Json = dict[str, Any]
MAY_ALL = TokenRequest(Rights(frozenset({Scope.ADMIN})))


@dataclass(frozen=True)
class Running:
    """The application of the test behind its real protocols. No worker runs until a test asks."""

    application: Application
    address: str

    @property
    def url(self) -> str:
        return f"{self.address}/mcp"

    async def token(self, name: str = "alice", wanted: TokenRequest = MAY_ALL) -> str:
        """Return a token that may do everything, unless the test is about the token."""
        return (await self.issued(name, wanted))[0]

    async def issued(self, name: str, wanted: TokenRequest = MAY_ALL) -> tuple[str, TokenInfo]:
        services = self.application.services
        owner = namespace(name)
        entry = services.audit.begin(owner, "create_token", "cli", None)
        return await services.access.issue(Context(entry), wanted=wanted)

    async def revoke(self, info: TokenInfo) -> None:
        services = self.application.services
        entry = services.audit.begin(info.namespace, "revoke_token", "cli", None)
        assert await services.access.revoke(Context(entry), info, force=True)

    async def extract(self) -> None:
        """Run all jobs that are due."""
        while await self.application.worker.run_once():
            pass

    def http(self, token: str | None = None, address: str = "127.0.0.1") -> httpx2.AsyncClient:
        """Yield a client for requests that no MCP client would send, from a loopback address."""
        headers = {"Accept": "application/json, text/event-stream"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        # Loopback needs neither certificates nor proxies, and loading them takes long.
        transport = httpx2.AsyncHTTPTransport(verify=False, trust_env=False, local_address=address)
        return httpx2.AsyncClient(
            base_url=self.address, headers=headers, timeout=WITHIN_S, transport=transport
        )

    @asynccontextmanager
    async def client(
        self, token: str, era: ConnectMode, *, name: str = "test"
    ) -> AsyncIterator[Client]:
        async with (
            self.http(token) as http,
            Client(
                streamable_http_client(self.url, http_client=http),
                mode=era,
                client_info=Implementation(name=name, version="1"),
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


Serve = Callable[..., AbstractAsyncContextManager[Running]]


@pytest.fixture
def serve(open_app: Open) -> Serve:
    """Return a function that serves the test's database: `serve(token_calls_per_minute=3)`."""

    @asynccontextmanager
    async def served(**given: object) -> AsyncIterator[Running]:
        async with (
            open_app(port=0, **given) as built,
            listening(create_app(built), built.settings, bound(built.settings)) as address,
        ):
            yield Running(built, address)

    return served


def unnamed(answer: httpx2.Response) -> Json:
    """Return a problem without the id of its request, which differs in each answer."""
    problem: Json = answer.json()
    assert answer.headers["Content-Type"] == "application/problem+json"
    return {key: value for key, value in problem.items() if key != "instance"}
