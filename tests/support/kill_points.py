"""Processes that are killed at one of their writes, and copies of their databases."""

import asyncio
import os
import re
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.engines import Postgres
from tests.support.processes import Database, environment
from tests.support.victim import WORKS, opened

# The number of points that are tried, spread over all of them; 0: every one.
POINTS = int(os.environ.get("POINTS", "8"))
VICTIM_S = 180.0


async def victim(work: str, database: Database, trace: Path, *strace: str) -> list[str]:
    """Yield what the victim reports as done, until its end or before it."""
    process = await asyncio.create_subprocess_exec(
        *("strace", "-f", "-qq", "-o", str(trace), *strace),
        *(sys.executable, "-m", "tests.support.victim", work, str(database)),
        env=environment(database, {}),
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(VICTIM_S):
        said, errors = await process.communicate()
    killed = "inject" in " ".join(strace)
    assert killed or process.returncode == 0, errors.decode()[-2_000:]
    return said.decode().split()


def writes(trace: Path) -> int:
    """Return the number of writes of the busiest thread: strace counts each thread by itself."""
    threads = Counter(line.split()[0] for line in trace.read_text("utf-8").splitlines())
    return max(threads.values())


@contextmanager
def prepared(engine: str, work: str, folder: Path, postgres: Postgres | None) -> Iterator["Copies"]:
    """Yield copies of the state before the work, one for each try."""
    if engine == "sqlite":
        original: Database = folder / "before.db"
        asyncio.run(_prepare(work, original))
        yield Copies(original, folder, None)
        return
    assert postgres is not None
    with postgres.database() as url:
        asyncio.run(_prepare(work, url))
        yield Copies(url, folder, postgres)


async def _prepare(work: str, database: Database) -> None:
    if work == "migrate":
        return
    async with opened(database) as built:
        await WORKS[work].prepare(built)


class Copies:
    """Copies of a database, each removed after its use."""

    def __init__(self, original: Database, folder: Path, postgres: Postgres | None) -> None:
        self._original = original
        self._folder = folder
        self._postgres = postgres

    @contextmanager
    def one(self) -> Iterator[Database]:
        if self._postgres is not None:
            assert isinstance(self._original, str)
            name = re.search(r"dbname=(\S+)", self._original)
            assert name is not None
            with self._postgres.database(name[1]) as url:
                yield url
            return
        with tempfile.TemporaryDirectory(dir=self._folder) as place:
            for file in self._folder.glob("before.db*"):
                shutil.copy(file, place)
            yield Path(place) / "before.db"
