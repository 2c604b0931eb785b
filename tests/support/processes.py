"""The real server, worker and command line, each in a process of its own; and a caller."""

import asyncio
import contextlib
import json
import os
import random
import socket
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any, Self

import httpx2

from tests.support.engines import KEY_FILE
from tests.support.forked import forked

START_S = 180.0
STOP_S = 180.0
CALL_S = 180.0
POLL_S = 0.05
EPHEMERAL = 32_768  # the first port that Linux gives to outgoing connections

Database = Path | str


async def until(true: Callable[[], Awaitable[bool]], seconds: float, what: str) -> None:
    """Call `true` repeatedly; fail with `what` if it does not become true in time."""
    try:
        async with asyncio.timeout(seconds):
            while not await true():  # noqa: ASYNC110  # it happens in another process
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(f"not within {seconds} s: {what}") from None


async def ended(process: ForkServerProcess, written: Callable[[], str], seconds: float) -> int:
    """Return the exit code of a process that has ended by itself; `written` is called if it has
    not.
    """
    try:
        async with asyncio.timeout(seconds):
            while (code := process.exitcode) is None:  # noqa: ASYNC110  # another process
                await asyncio.sleep(POLL_S)
    except TimeoutError:
        raise AssertionError(f"it does not end: {written()}") from None
    return code


def free_port() -> int:
    """Return a port that nothing listens on and that no connection gets.

    The system gives the ports from `EPHEMERAL` on to outgoing connections: one of those can be
    taken before the process that is to use it binds it.
    """
    for _ in range(100):
        port = random.SystemRandom().randrange(10_000, EPHEMERAL)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("A hundred ports were tried, and none is free.")


class Process:
    """`recall COMMAND`. Every message of a failure contains its standard error."""

    def __init__(self, database: Database, *command: str, **settings: object) -> None:
        self._command = command
        self._release: Path | None = None
        self._environment = environment(database, settings)
        self._log = tempfile.NamedTemporaryFile()  # noqa: SIM115  # as long as the process
        self._running: ForkServerProcess | None = None

    def of(self, release: Path) -> Self:
        """Return the same command of another release, which is in this folder."""
        self._release = release
        return self

    async def start(self) -> None:
        self._running = forked(
            self._command,
            self._environment,
            Path(os.devnull),
            Path(self._log.name),
            self._release,
        )

    @property
    def alive(self) -> bool:
        return self._running is not None and self._running.exitcode is None

    @property
    def pid(self) -> int:
        assert self._running is not None, "it was never started"
        assert self._running.pid is not None
        return self._running.pid

    def log(self) -> str:
        return self._written()[-4_000:].decode(errors="replace")

    def said(self, what: str) -> int:
        """Return how often the words are in its log."""
        return self._written().count(what.encode())

    def _written(self) -> bytes:
        return Path(self._log.name).read_bytes()

    async def kill(self) -> None:
        """Send SIGKILL: it cannot finish anything."""
        if self._running is not None and self.alive:
            self._running.kill()
            await ended(self._running, self.log, STOP_S)

    async def stop(self) -> int:
        """Send SIGTERM, as an operator stops it, and return its exit code."""
        assert self._running is not None, "it was never started"
        if self.alive:
            self._running.terminate()
        return await ended(self._running, self.log, STOP_S)

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:  # no other code ends it
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
        async with httpx2.AsyncClient(
            verify=False, trust_env=False
        ) as http:  # loading certificates takes 20 ms

            async def ready() -> bool:
                assert self.alive, f"it did not start: {self.log()}"
                try:
                    return (await http.get(f"{self.address}/ready")).status_code == 200
                except httpx2.TransportError:
                    return False

            await until(ready, START_S, f"the server is ready. {self.log()}")


async def ran(database: Database, *command: str) -> tuple[int, str, str]:
    """Return the exit code of `recall COMMAND`, its output and its errors."""
    with tempfile.NamedTemporaryFile() as out, tempfile.NamedTemporaryFile() as errors:
        process = forked(command, environment(database, {}), Path(out.name), Path(errors.name))
        try:
            code = await ended(process, lambda: errors.read().decode(), START_S)
        finally:
            process.kill()
        return code, out.read().decode(), errors.read().decode()


async def recall(database: Database, *command: str) -> str:
    """Return the output of `recall COMMAND`. Fails if the command does."""
    code, out, errors = await ran(database, *command)
    assert code == 0, errors
    return out


async def new_token(database: Database, namespace: str, *options: str) -> dict[str, str]:
    """Return `token` and `accessor`."""
    command = ("create-token", namespace, "--json", *options)
    made: dict[str, str] = json.loads(await recall(database, *command))
    return made


class Refused(Exception):
    """The server answered with an error."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body}")
        self.status = status


class Caller:
    """Calls tools with one token over one connection."""

    def __init__(self, http: httpx2.AsyncClient, address: str) -> None:
        self._http = http
        self._address = address

    async def __call__(self, tool: str, **arguments: object) -> dict[str, Any]:
        """Return the data of the answer. Raises `Refused`, or `httpx2.TransportError` if there is
        none.
        """
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
    async with httpx2.AsyncClient(
        headers=headers, timeout=CALL_S, verify=False, trust_env=False
    ) as http:
        yield Caller(http, address)


def environment(database: Database, settings: Mapping[str, object]) -> dict[str, str]:
    """Return the environment of a process on that database, with no variables of the developer."""
    ours = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RECALL_", "ANTHROPIC_", "OPENAI_"))
    }
    where = {"RECALL_DB_PATH": str(database)}
    if isinstance(database, str):
        key = str(KEY_FILE)
        where = {"RECALL_DB_URL": database, "RECALL_KEY_FILE": key, "RECALL_TEST_KEY_FILE": key}
    given = {f"RECALL_{key.upper()}": str(value) for key, value in settings.items()}
    return {**ours, **where, "RECALL_LOG_LEVEL": "warning", **given}
