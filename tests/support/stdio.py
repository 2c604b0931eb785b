"""`recall stdio` in processes and folders of its own, and the server that they share."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import Client, StdioServerParameters
from mcp.client.client import ConnectMode
from platformdirs import user_cache_path

from recall_server.local import address_of, private, write_private
from tests.support.mcp_clients import LEGACY
from tests.support.processes import START_S, environment, new_token, until

ENDED_S = 60.0


@dataclass(frozen=True)
class Home:
    """The folders of a user who runs `recall stdio`."""

    folder: Path
    environment: dict[str, str]

    @property
    def database(self) -> Path:
        return self.folder / "data" / "recall-server" / "recall.db"

    @property
    def token_file(self) -> Path:
        return self.folder / "config" / "recall-server" / "token"

    @property
    def address(self) -> str | None:
        return address_of(self.database)

    @asynccontextmanager
    async def client(self, *options: str, era: ConnectMode = LEGACY) -> AsyncIterator[Client]:
        command = ["-m", "recall_server", "stdio", *options]
        parameters = StdioServerParameters(
            command=sys.executable, args=command, env=self.environment, cwd=self.folder
        )
        async with Client(parameters, mode=era, read_timeout_seconds=START_S) as client:
            yield client

    def started(self, *options: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [sys.executable, "-m", "recall_server", "stdio", *options],
            env=self.environment,
            cwd=self.folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def servers(self) -> list[int]:
        """Return the processes that serve the database."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                words = path.read_bytes().split(b"\0")
            except OSError:
                continue
            if b"serve" in words and str(self.database).encode() in words:
                found.append(int(path.parent.name))
        return found

    async def none_left(self) -> None:
        async def gone() -> bool:
            return not self.servers()

        await until(gone, ENDED_S, "the local server has ended")

    async def closed(self, address: str) -> None:
        """Wait until the sockets of a killed process are closed, which is after it is gone from the
        list.
        """

        async def refused() -> bool:
            try:
                async with httpx2.AsyncClient(verify=False, trust_env=False) as http:
                    await http.get(address)
            except httpx2.ConnectError:
                return True
            except httpx2.TransportError:
                pass
            return False

        await until(refused, ENDED_S, f"nothing listens at {address}")


@pytest.fixture
def fresh_home(tmp_path: Path) -> Iterator[Home]:
    """Yield folders in which nothing was ever started."""
    variables = {
        **environment(tmp_path, {"embedder": "none", "unused_s": 60}),
        "XDG_DATA_HOME": str(tmp_path / "data"),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "HOME": str(tmp_path),
        # The code that is compiled once on a machine, which takes 12 s.
        "XDG_CACHE_HOME": str(user_cache_path()),
    }
    del variables["RECALL_DB_PATH"]
    made = Home(tmp_path, variables)
    yield made
    for process in made.servers():
        os.kill(process, signal.SIGKILL)


@pytest.fixture
async def home(fresh_home: Home) -> Home:
    """Return folders with a database and a token, as the first use makes them."""
    private(fresh_home.database.parent)
    made = await new_token(fresh_home.database, "local", "--never")
    write_private(fresh_home.token_file, made["token"])
    return fresh_home


def lines(*messages: dict[str, Any]) -> str:
    return "".join(json.dumps({"jsonrpc": "2.0", **one}) + "\n" for one in messages)
