"""`szl-recall` from PyPI in an environment of its own, with memories as extraction leaves them.

Its model never answers, so it extracts nothing while it is measured.
"""

import asyncio
import os
import re
import socket
import sqlite3
import subprocess
import uuid
import venv
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.fill import APART
from benchmarks.servers import START_S
from recall_server.domain.errors import Invalid
from recall_server.domain.memory import MemoryType

VERSION = "0.4.0"
INSTALL_S = 600.0
POLL_S = 0.05
_KINDS = tuple(MemoryType)


def installed(folder: Path) -> Path:
    """Install the program in `folder`, and return its path. Raises `Invalid`."""
    venv.create(folder, with_pip=True)
    try:
        subprocess.run(  # noqa: S603  # nothing of it comes from outside
            [folder / "bin" / "pip", "install", "--quiet", f"szl-recall=={VERSION}"],
            check=True,
            capture_output=True,
            timeout=INSTALL_S,
        )
    except (subprocess.SubprocessError, OSError) as error:
        raise Invalid(f"The peer cannot be installed from PyPI: {error}") from None
    return folder / "bin" / "recall"


@asynccontextmanager
async def _silence() -> AsyncIterator[str]:
    """Yield the address of a model that never answers."""

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(65_536):
            pass
        writer.close()

    async with await asyncio.start_server(listen, "127.0.0.1", 0) as server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


@asynccontextmanager
async def serving(
    program: Path, database: Path, statements: Sequence[str], sizes: Sequence[int]
) -> AsyncIterator[tuple[str, dict[int, str]]]:
    """Yield the address, and the token of a namespace with so many of `statements`, for each of
    `sizes` and for none. Raises `Invalid` if the server does not start.
    """
    async with _silence() as model:
        environment = {
            "PATH": os.environ["PATH"],
            "RECALL_DB_PATH": str(database),
            "ANTHROPIC_API_KEY": "none",
            "ANTHROPIC_BASE_URL": model,
        }
        # The peer makes its tables when it starts.
        async with _started(program, environment):
            pass
        tokens = {}
        for size in (0, *sizes):
            tokens[size] = await _token(program, environment, f"of-{size}")
            await asyncio.to_thread(_write, database, f"of-{size}", statements[:size])
        async with _started(program, environment) as address:
            yield address, tokens


@asynccontextmanager
async def _started(program: Path, environment: Mapping[str, str]) -> AsyncIterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    process = await asyncio.create_subprocess_exec(
        *(program, "serve", "--host", "127.0.0.1", "--port", str(port)),
        *("--db", environment["RECALL_DB_PATH"]),
        env=environment,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        await _listening(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()


async def _listening(port: int, process: asyncio.subprocess.Process) -> None:
    for _ in range(int(START_S / POLL_S)):
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            if process.returncode is not None:
                break
            await asyncio.sleep(POLL_S)
        else:
            writer.close()
            return
    raise Invalid("The peer does not start.")


async def _token(program: Path, environment: Mapping[str, str], name: str) -> str:
    process = await asyncio.create_subprocess_exec(
        *(program, "create-token", name, "--db", environment["RECALL_DB_PATH"]),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    found = re.search(rb"Bearer (\S+)", printed)
    if found is None:
        raise Invalid("The peer gives no token.")
    return found[1].decode()


def _write(database: Path, name: str, statements: Sequence[str]) -> None:
    """Write memories of the same kinds and at the same intervals as ours."""
    now = datetime.now(UTC)
    rows = [
        (str(uuid.uuid4()), name, text, _KINDS[number % len(_KINDS)], said.isoformat())
        for number, text in enumerate(statements)
        for said in [now - APART * (len(statements) - number)]
    ]
    with closing(sqlite3.connect(database)) as raw, raw:
        raw.executemany(
            "INSERT INTO memories (id, namespace, text, type, topic, created_at, valid_from) "
            "VALUES (?1, ?2, ?3, ?4, 'general', ?5, ?5)",
            rows,
        )
