"""Servers in processes of their own, for as long as they are measured."""

import asyncio
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.databases import key_file, settings
from recall_server.domain.errors import Unavailable

START_S = 30.0
STOP_S = 15.0


@dataclass(frozen=True)
class Served:
    """The address and the process of a server."""

    address: str
    pid: int

    def processor_s(self) -> float | None:
        """Seconds of processor time that it has used; None if the system does not say."""
        try:
            # After the name of the program, which may hold anything.
            fields = Path(f"/proc/{self.pid}/stat").read_text("utf-8").rpartition(")")[2].split()
        except OSError:
            return None
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float | None:
        """Megabytes of memory that it holds; None if the system does not say."""
        try:
            status = Path(f"/proc/{self.pid}/status").read_text("utf-8")
        except OSError:
            return None
        (kib,) = (int(line.split()[1]) for line in status.splitlines() if line[:6] == "VmRSS:")
        return kib * 1024 / 1e6


@asynccontextmanager
async def served(module: str, given: Mapping[str, str], *arguments: str) -> AsyncIterator[Served]:
    """Run `python -m module arguments`, whose first line is its address. It gets the given
    settings, and none of the operator's.
    """
    with tempfile.TemporaryFile() as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            *("-m", module, *arguments),
            env={**_without_ours(), **given},
            stdout=asyncio.subprocess.PIPE,
            stderr=log,
        )
        try:
            assert process.stdout is not None
            async with asyncio.timeout(START_S):
                address = (await process.stdout.readline()).decode().strip()
            if not address:
                log.seek(0)
                raise Unavailable(f"The server did not start: {log.read()[-500:].decode()}")
            yield Served(address, process.pid)
        finally:
            if process.returncode is None:
                process.terminate()
            async with asyncio.timeout(STOP_S):
                await process.wait()


def target(
    database: Path | str, worker_jobs: int = 0, *options: str, **more: str
) -> AbstractAsyncContextManager[Served]:
    """Run the real server with the settings of production, except for the number of calls a minute
    and `more`, by the names of their variables.
    """
    return served("benchmarks.target", _given(database, worker_jobs, more), *options)


@asynccontextmanager
async def working(database: Path | str) -> AsyncIterator[None]:
    """Run a worker of its own, with the settings of production."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "recall_server", "worker"),
        env={**_without_ours(), **_given(database, 4, {})},
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        yield
    finally:
        process.terminate()
        async with asyncio.timeout(STOP_S):
            await process.wait()


def _without_ours() -> dict[str, str]:
    """Return the environment without the operator's own settings."""
    return {key: value for key, value in os.environ.items() if not key.startswith("RECALL_")}


def _given(database: Path | str, worker_jobs: int, more: Mapping[str, str]) -> dict[str, str]:
    chosen = settings(database)
    given = {
        "RECALL_DB_URL" if isinstance(database, str) else "RECALL_DB_PATH": str(database),
        "RECALL_EXTRACTOR": chosen.extractor,
        "RECALL_PORT": "0",
        "RECALL_TOKEN_CALLS_PER_MINUTE": "0",
        "RECALL_NAMESPACE_CALLS_PER_MINUTE": "0",
        "RECALL_BAD_TOKENS_PER_MINUTE": "0",
        "RECALL_WORKER_JOBS": str(worker_jobs),
        **more,
    }
    if isinstance(database, str):
        given["RECALL_KEY_FILE"] = str(key_file())
    return given
