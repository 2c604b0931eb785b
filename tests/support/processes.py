"""The real server, worker and command line, each in a process of its own; and a caller."""

import asyncio
import json
import os
import socket
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any, Self

import httpx2

from tests.support.engines import KEY_FILE

START_S = 60.0
STOP_S = 20.0
CALL_S = 20.0
POLL_S = 0.05

Database = Path | str


async def until(true: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
    """Ask `true` again and again; fail with `what` where it does not become so in time."""
    try:
        async with asyncio.timeout(seconds):
            while not await true():  # noqa: ASYNC110  # it happens in another process
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Process:
    """`recall COMMAND`. What it writes to standard error is in the message of every failure."""

    def __init__(self, database: Database, *command: str, **settings: object) -> None:
        self._command = command
        self._environment = environment(database, settings)
        self._log: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115  # as long as the process
        self._running: asyncio.subprocess.Process | None = None

    async def start(self) -> None:
        self._running = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", "recall_server", *self._command),
            env=self._environment,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=self._log,
        )

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.returncode is None

    @property
    def pid(self) -> int:
        assert self._running is not None, "it was never started"
        return self._running.pid

    def log(self) -> str:
        return self._written()[-4_000:].decode(errors="replace")

    def said(self, what: str) -> int:
        """How often that stands in its log."""
        return self._written().count(what.encode())

    def _written(self) -> bytes:
        # It writes where its own place in the file is, which is this one's: that must not move.
        file = self._log.fileno()
        return os.pread(file, os.fstat(file).st_size, 0)

    async def kill(self) -> None:
        """SIGKILL: it cannot finish anything."""
        if self._running is not None and self.alive:
            self._running.kill()
            await self._running.wait()

    async def stop(self) -> int:
        """SIGTERM, as an operator stops it; its exit code."""
        assert self._running is not None, "it was never started"
        if self.alive:
            self._running.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                return await self._running.wait()
        except TimeoutError:
            raise AssertionError(f"it does not stop: {self.log()}") from None

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # nobody else will end it
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.kill()
        self._log.close()


class Server(Process):
    """`recall serve` on a port that it keeps when it is started again."""

    def __init__(self, database: Database, **settings: object) -> None:
        port = free_port()
        super().__init__(database, "serve", **{"port": port, **settings})
        self.address = f"http://127.0.0.1:{port}"

    async def start(self) -> None:
        await super().start()
        async with httpx2.AsyncClient() as http:

            async def ready() -> bool:
                assert self.alive, f"it did not start: {self.log()}"
                try:
                    return (await http.get(f"{self.address}/ready")).status_code == 200
                except httpx2.TransportError:
                    return False

            await until(ready, START_S, f"the server is ready. {self.log()}")


async def recall(database: Database, *command: str) -> str:
    """What `recall COMMAND` prints. Fails where it does."""
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "recall_server", *command),
        env=environment(database, {}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        async with asyncio.timeout(START_S):
            output, errors = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0, errors.decode()
    return output.decode()


async def new_token(database: Database, namespace: str, *options: str) -> dict[str, str]:
    """`token` and `accessor`."""
    command = ("create-token", namespace, "--json", *options)
    made: dict[str, str] = json.loads(await recall(database, *command))
    return made


class Refused(Exception):
    """The server answered, and not with what was asked for."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status


class Caller:
    """Calls tools with one token over one connection."""

    def __init__(self, http: httpx2.AsyncClient, address: str) -> None:
        self._http = http
        self._address = address

    async def __call__(self, tool: str, **arguments: object) -> dict[str, Any]:
        """The data of the answer. Raises `Refused`, or `httpx2.TransportError` for none."""
        params = {"name": tool, "arguments": arguments}
        answer = await self._http.post(
            f"{self._address}/mcp",
            json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params},
        )
        if answer.status_code != 200:
            raise Refused(answer.status_code, answer.text)
        result = answer.json()["result"]
        if result["isError"]:
            raise Refused(answer.status_code, answer.text)
        data: dict[str, Any] = result["structuredContent"]["data"]
        return data


@asynccontextmanager
async def calling(address: str, token: str) -> AsyncIterator[Caller]:
    headers = {
        "Authorization": f"Bearer {token}",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": "2025-11-25",
    }
    async with httpx2.AsyncClient(headers=headers, timeout=CALL_S) as http:
        yield Caller(http, address)


def environment(database: Database, settings: Mapping[str, object]) -> dict[str, str]:
    """The variables of a process of ours on that database: none of the developer's own."""
    ours = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RECALL_", "ANTHROPIC_"))
    }
    where = {"RECALL_DB_PATH": str(database)}
    if isinstance(database, str):
        key = str(KEY_FILE)
        where = {"RECALL_DB_URL": database, "RECALL_KEY_FILE": key, "RECALL_TEST_KEY_FILE": key}
    given = {f"RECALL_{key.upper()}": str(value) for key, value in settings.items()}
    return {**ours, **where, "RECALL_LOG_LEVEL": "warning", **given}
