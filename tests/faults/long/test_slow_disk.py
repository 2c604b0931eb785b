"""Each flush takes a fifth of a second. A writer waits that long, nobody is refused, readers are
not delayed, and afterwards everything is as before.

Needs `strace`, which delays the flushes of running processes: `make faults`.
"""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path

import httpx2
import psycopg
import pytest

from tests.support.engines import ENGINES
from tests.support.faults import own_postgres
from tests.support.processes import Database, Server, calling, new_token, until
from tests.support.stored import ALICE

DELAY_S = 0.2
FLUSHES = "fdatasync,fsync"
WRITERS = 4
EACH = 4
WITHIN_S = 20.0


@asynccontextmanager
async def slow(pids: Sequence[int], trace: Path) -> AsyncIterator[None]:
    """Delay every flush of these processes, their threads and their children."""
    inject = f"inject={FLUSHES}:delay_enter={round(DELAY_S * 1_000_000)}"
    command = ["strace", "-f", "-o", str(trace), "-e", f"trace={FLUSHES}", "-e", inject]
    for pid in pids:
        command += ["-p", str(pid)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)

    async def attached() -> bool:
        return all("TracerPid:\t0" not in _status(pid) for pid in pids)

    try:
        await until(attached, WITHIN_S, "strace looks on")
        yield
    finally:
        process.send_signal(signal.SIGINT)
        await process.wait()


def _status(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/status").read_text("utf-8")
    except FileNotFoundError:  # A process of Postgres has ended meanwhile.
        return ""


def of_postgres(url: str) -> list[int]:
    """Return the ids of its processes."""
    with psycopg.connect(url) as raw:
        row = raw.execute("SHOW data_directory").fetchone()
    assert row is not None
    first = int((Path(row[0]) / "postmaster.pid").read_text("utf-8").splitlines()[0])
    children = Path(f"/proc/{first}/task/{first}/children").read_text("utf-8").split()
    return [first, *map(int, children)]


async def tried(server: Server, token: str, part: str) -> tuple[list[float], list[float], set[int]]:
    """Return seconds of each store and of each search meanwhile, and the answers of the probes."""
    storing, searching, healthy = list[float](), list[float](), set[int]()

    async def store(writer: int) -> None:
        async with calling(server.address, token) as call:
            for number in range(EACH):
                began = time.monotonic()
                await call("store_memory", text=f"Alice: I own bike {part}-{writer}-{number}.")
                storing.append(time.monotonic() - began)

    async def look() -> None:
        async with httpx2.AsyncClient(base_url=server.address) as http:
            while True:
                began = time.monotonic()
                for path in ("/health", "/ready"):
                    healthy.add((await http.get(path)).status_code)
                searching.append(time.monotonic() - began)

    looking = asyncio.create_task(look())
    await asyncio.gather(*(store(writer) for writer in range(WRITERS)))
    looking.cancel()
    await asyncio.wait({looking})
    return storing, searching, healthy


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_slow_disk_makes_writers_wait_and_refuses_nobody(
    engine: str, tmp_path: Path
) -> None:
    with ExitStack() as stack:
        database: Database = tmp_path / "recall.db"
        if engine == "postgres":
            database = stack.enter_context(stack.enter_context(own_postgres())[0].database())
        token = (await new_token(database, ALICE))["token"]
        async with Server(database, worker_jobs=0, embedder="none") as server:
            before = await tried(server, token, "before")
            pids = of_postgres(database) if isinstance(database, str) else [server.pid]
            trace = tmp_path / "trace"
            async with slow(pids, trace):
                during = await tried(server, token, "during")
            after = await tried(server, token, "after")
    delayed = trace.read_text("utf-8").count("DELAYED")
    for name, (storing, looking, _) in {"before": before, "during": during, "after": after}.items():
        print(
            f"{engine} {name}: a store took {min(storing):.3f} to {max(storing):.3f} s, a look at"
            f" its health {max(looking):.3f} s at most"
        )

    assert delayed >= WRITERS * EACH / 2  # Several stores may share one flush.
    assert [healthy for *_, healthy in (before, during, after)] == [{200}] * 3
    assert len(during[0]) == WRITERS * EACH
    assert min(during[0]) >= DELAY_S / 2
    assert max(during[1]) < max(during[0]), "who reads is held up by those who write"
    assert min(after[0]) < DELAY_S
