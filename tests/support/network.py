"""A network between a server and its Postgres, which fails at the moment that a test chooses."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import psycopg

# The message of Postgres when a commit is done.
COMMITTED = b"COMMIT\x00"
BLOCK_BYTES = 65_536


class Network:
    """Passes everything on, until a test tells it otherwise."""

    def __init__(self, url: str) -> None:
        self._to = url
        self._writers: set[asyncio.StreamWriter] = set()
        self._open = asyncio.Event()
        self._open.set()
        self.cut_after_commit = False
        self.cuts = 0
        self.url = ""

    def vanish(self) -> None:
        """Deliver nothing from now on, and report no error."""
        self._open.clear()

    def return_(self) -> None:
        """Deliver data again from now on; what was on the way is lost with its connection."""
        for writer in self._writers:
            writer.transport.abort()
        self._open.set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection of the server under test."""
        await self._open.wait()
        info = psycopg.conninfo.conninfo_to_dict(self._to)
        host, port = str(info.get("host", "")), int(info.get("port") or 5432)
        try:
            if host.startswith("/"):
                there = await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
            else:
                there = await asyncio.open_connection(host, port)
        except OSError:  # nobody listens at the moment
            writer.transport.abort()
            return
        pair = {writer, there[1]}
        self._writers |= pair
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pass(reader, there[1], replies=False))
                group.create_task(self._pass(there[0], writer, replies=True))
        except* (ConnectionError, EOFError):
            pass
        finally:
            self._writers -= pair
            for one in pair:
                one.transport.abort()

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, replies: bool
    ) -> None:
        while data := await reader.read(BLOCK_BYTES):
            await self._open.wait()
            if replies and self.cut_after_commit and COMMITTED in data:
                self.cut_after_commit = False
                self.cuts += 1
                break
            writer.write(data)
            await writer.drain()
        raise EOFError


@asynccontextmanager
async def network(url: str) -> AsyncIterator[Network]:
    """Yield a network to the Postgres at `url`; its own `url` leads through it."""
    between = Network(url)
    listener = await asyncio.start_server(between.serve, "127.0.0.1", 0, family=socket.AF_INET)
    port = listener.sockets[0].getsockname()[1]
    given = psycopg.conninfo.conninfo_to_dict(url)
    between.url = psycopg.conninfo.make_conninfo(
        "",
        **{
            **given,
            "host": "127.0.0.1",
            "port": port,
            "sslmode": "disable",
            "gssencmode": "disable",
        },
    )
    try:
        yield between
    finally:
        between.return_()
        listener.close()
