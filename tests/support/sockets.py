"""Raw bytes to the server of a test."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

from tests.support.server import WITHIN_S, Running

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def connected(running: Running, address: str = "127.0.0.1") -> AsyncIterator[Connection]:
    """Return a socket of a client at an address of loopback."""
    parts = urlsplit(running.address)
    reader, writer = await asyncio.open_connection(
        parts.hostname, parts.port, local_addr=(address, 0)
    )
    try:
        yield reader, writer
    finally:
        writer.close()
        await asyncio.gather(writer.wait_closed(), return_exceptions=True)


async def rest(reader: asyncio.StreamReader) -> bytes:
    """Return all bytes until the server closes the connection, which it must do."""
    received = b""
    async with asyncio.timeout(WITHIN_S):
        try:
            while part := await reader.read(65_536):
                received += part
        except ConnectionResetError:
            pass  # it closed while more was being sent
    return received


async def answered(running: Running, sent: bytes) -> bytes:
    """Return the server's answer to these bytes, and check that it closes the connection."""
    async with connected(running) as (reader, writer):
        writer.write(sent)
        return await rest(reader)


def statuses(received: bytes) -> list[int]:
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3})", received)]


def head(*lines: str, target: str = "/health", method: str = "GET") -> bytes:
    told = [f"{method} {target} HTTP/1.1", "Host: localhost", *lines]
    return "\r\n".join(told).encode() + b"\r\n\r\n"
