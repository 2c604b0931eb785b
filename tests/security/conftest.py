"""The server of a test with limits of its own, and what attackers send it."""

import asyncio
import os
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from urllib.parse import urlsplit

import pytest

from recall_server.api.app import create_app
from recall_server.server import bound, listening
from tests.conftest import Open
from tests.surface.conftest import WITHIN_S, Json, Running, running
from tests.surface.logs import real_logs

__all__ = ["running"]

Serve = Callable[..., AbstractAsyncContextManager[Running]]
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]

Call = tuple[str, str, Json]

TOOLS: Call = ("/mcp", "tools/call", {"name": "get_memory_stats", "arguments": {}})
TASKS: Call = ("/a2a", "ListTasks", {})


@pytest.fixture
def serve(open_app: Open) -> Serve:
    """Serves on the database of the test: `serve(token_calls_per_minute=3)`."""

    @asynccontextmanager
    async def served(**given: object) -> AsyncIterator[Running]:
        async with (
            open_app(port=0, **given) as built,
            listening(create_app(built), built.settings, bound(built.settings)) as address,
        ):
            yield Running(built, address)

    return served


@asynccontextmanager
async def connected(running: Running) -> AsyncIterator[Connection]:
    """A socket."""
    parts = urlsplit(running.address)
    reader, writer = await asyncio.open_connection(parts.hostname, parts.port)
    try:
        yield reader, writer
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the server closes, which it must do."""
    received = b""
    async with asyncio.timeout(WITHIN_S):
        try:
            while part := await reader.read(65_536):
                received += part
        except ConnectionResetError:
            pass  # it closed on what was still being sent
    return received


async def answered(running: Running, sent: bytes) -> bytes:
    """What the server says to these bytes, and that it closes."""
    async with connected(running) as (reader, writer):
        writer.write(sent)
        return await rest(reader)


def statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", received)]


def head(*lines: str, target: str = "/health", method: str = "GET") -> bytes:
    told = [f"{method} {target} HTTP/1.1", "Host: localhost", *lines]
    return "\r\n".join(told).encode() + b"\r\n\r\n"


@pytest.fixture
def nothing_set(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No settings in the environment, and the log as it was afterwards."""
    for name in [name for name in os.environ if name.startswith("RECALL_")]:
        monkeypatch.delenv(name)
    with real_logs():
        yield
