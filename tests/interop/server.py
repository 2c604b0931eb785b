"""The real server: `recall serve` in its own process, on a free port and a new file."""

import asyncio
import json
import os
import re
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography.fernet import Fernet

from tests.interop.report import demand

PUSH = {
    "RECALL_PUSH_ALLOWED_HOSTS": "127.0.0.1",
    "RECALL_SECRET_KEY": Fernet.generate_key().decode(),
}
START_S = 60.0
STOP_S = 20.0


@dataclass(frozen=True)
class Server:
    """A running server, and a token of one of its tenants."""

    url: str
    token: str
    database: Path

    @property
    def address(self) -> str:
        return self.url.removesuffix("/mcp")

    async def issued(self, namespace: str) -> str:
        """Return a token of another tenant."""
        return await _issued(namespace, self.database)


@asynccontextmanager
async def serving(folder: Path, **settings: str) -> AsyncIterator[Server]:
    """Run a server with these settings for the block. Afterwards it must end by itself when it is
    told to.
    """
    database = folder / "interop.db"
    token = await _issued("interop", database)
    child = await _recall("serve", "--port", "0", "--db", str(database), "--create", **settings)
    try:
        url = await asyncio.wait_for(_address(child), START_S)
        reader = asyncio.create_task(_drain(child))
        yield Server(url, token, database)
        child.terminate()
        code = await asyncio.wait_for(child.wait(), STOP_S)
        await reader
        demand(code == 0, f"the server ended with exit code {code}")
    finally:
        if child.returncode is None:
            child.kill()
            await child.wait()


async def _issued(namespace: str, database: Path) -> str:
    made = await _recall("create-token", namespace, "--json", "--db", str(database), "--create")
    out, err = await made.communicate()
    demand(made.returncode == 0, f"create-token failed: {err.decode()}")
    token: str = json.loads(out)["token"]
    return token


async def _recall(*arguments: str, **settings: str) -> Process:
    # The settings of the person who runs this do not apply. The defaults are tested, except for
    # push, which must reach receivers on this machine.
    ours = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RECALL_", "ANTHROPIC_", "OPENAI_"))
    }
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "recall_server", *arguments,
        env={**ours, **PUSH, **settings}, stdin=DEVNULL, stdout=PIPE, stderr=PIPE,
    )  # fmt: skip


async def _address(child: Process) -> str:
    assert child.stderr is not None
    said = ""
    while line := (await child.stderr.readline()).decode():
        said += line
        if found := re.search(r'"address": "(http://\S+/mcp)"', line):
            return found[1]
    raise RuntimeError(f"the server did not start: {said[-1000:]}")


async def _drain(child: Process) -> None:
    """Read its log, since it would wait otherwise."""
    assert child.stderr is not None
    while await child.stderr.read(65_536):
        pass
