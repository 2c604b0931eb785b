"""A real receiver of webhooks on a loopback address, which answers from a list."""

from __future__ import annotations

import asyncio
import itertools
import os
import ssl
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from tests.support.models import Manner, Reply

OK = Reply(status=204)
_numbers = itertools.count(1)


def loopback() -> str:
    """Return an address of this machine alone that no other test uses at the same time."""
    process, number = os.getpid() % 251 + 1, next(_numbers)
    return f"127.{process}.{number // 250 + 1}.{number % 250 + 1}"


@dataclass(frozen=True)
class Received:
    """One request, as it came in."""

    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Receiver:
    """`async with Receiver(Reply(status=500)) as receiver`: answers from its list, then with
    `otherwise`, 204. `meanwhile` is awaited between a request and its answer.
    """

    def __init__(
        self,
        *replies: Reply,
        host: str = "127.0.0.1",
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.replies = list(replies)
        self.requests: list[Received] = []
        self.connections = 0
        self.otherwise = OK
        self.meanwhile: Callable[[], Awaitable[None]] | None = None
        self._host, self._port, self._tls = host, port, tls
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def authority(self) -> str:
        return f"{self._host}:{self._port}"

    @property
    def url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self.authority}/hook"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(
            self._connected, self._host, self._port, ssl=self._tls
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        failure: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                await self._serve(head, reader, writer)
        except (asyncio.IncompleteReadError, OSError):
            pass  # the caller hung up
        finally:
            writer.close()

    async def _serve(
        self, head: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        first, *lines = head.decode().split("\r\n")[:-2]
        headers = {k.lower(): v for k, v in (line.split(": ", 1) for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
        method, path, _ = first.split(" ")
        self.requests.append(Received(method, path, headers, body))
        if self.meanwhile is not None:
            await self.meanwhile()
        await _answer(self.replies.pop(0) if self.replies else self.otherwise, reader, writer)


async def _answer(reply: Reply, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    if reply.manner is Manner.HANG:
        await reader.read()
        return
    if reply.manner is Manner.CUT:
        writer.close()
        return
    head = f"HTTP/1.1 {reply.status} Status\r\nContent-Length: {len(reply.body)}\r\n"
    writer.write(head.encode())
    if reply.manner is Manner.TRICKLE:
        while True:  # one more header, without end
            writer.write(b"X-Slow: 1\r\n")
            await writer.drain()
            await asyncio.sleep(0.002)
    for name, value in reply.headers.items():
        writer.write(f"{name}: {value}\r\n".encode())
    writer.write(b"\r\n" + reply.body)
    await writer.drain()
