"""Killed at each of its writes in turn, a work loses nothing that it has said is done, does
nothing twice when it is done again, and leaves nothing half done (SECURITY F-01 to F-05).

Needs `strace`, which kills a process at the n-th call to the system: `make faults`.
"""

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

import pytest

from tests.engines import Postgres
from tests.faults.victim import WORKS, drain, opened, summary
from tests.processes import Database, environment

# What reaches a file, or the server of the database.
WRITES = {
    "sqlite": "pwrite64,fdatasync,fsync,ftruncate,link,unlink",
    "postgres": "sendto",
}
# How many of the points are tried, spread over all of them; 0: every one.
POINTS = int(os.environ.get("POINTS", "8"))
AT_ONCE = 2
VICTIM_S = 180.0


async def victim(work: str, database: Database, trace: Path, *strace: str) -> list[str]:
    """What the victim said is done, until its end or before it."""
    process = await asyncio.create_subprocess_exec(
        *("strace", "-f", "-qq", "-o", str(trace), *strace),
        *(sys.executable, "-m", "tests.faults.victim", work, str(database)),
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
    """How many writes the busiest thread made: each thread's are counted by itself."""
    threads = Counter(line.split()[0] for line in trace.read_text("utf-8").splitlines())
    return max(threads.values())


@contextmanager
def prepared(engine: str, work: str, folder: Path, postgres: Postgres | None) -> Iterator["Copies"]:
    """What is there before the work, to be copied for each time that it is done."""
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
    """Copies of a database, each gone after its use."""

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


async def finished(work: str, database: Database) -> dict[str, object]:
    """What is there once the work has been done again, to its end."""
    async with opened(database) as built:
        await WORKS[work].do(built, lambda _: None)
        await drain(built)
        return await summary(built)


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize("engine", WRITES)
def test_killed_at_any_write_nothing_is_lost_and_nothing_is_done_twice(
    engine: str, work: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    postgres = request.getfixturevalue("postgres") if engine == "postgres" else None
    trace = f"trace={WRITES[engine]}"

    async def all_points(copies: Copies) -> tuple[int, int]:
        with copies.one() as database:
            said = await victim(work, database, tmp_path / "trace", "-e", trace)
            count = writes(tmp_path / "trace")
            expected = await finished(work, database)
        assert said, "the victim said nothing, so nothing could be lost"
        places, cut = asyncio.Semaphore(AT_ONCE), 0

        async def point(number: int) -> None:
            nonlocal cut
            inject = f"inject={WRITES[engine]}:signal=SIGKILL:when={number}"
            async with places:
                with copies.one() as database:
                    log = tmp_path / f"trace-{number}"
                    told = await victim(work, database, log, "-e", trace, "-e", inject)
                    cut += told != said
                    async with opened(database) as built:
                        lost = [one for one in told if not await WORKS[work].holds(built, one)]
                        whole = await WORKS[work].whole(built)
                    assert not lost, f"killed at write {number}, lost {lost}"
                    assert whole, f"killed at write {number}, it is neither here nor there"
                    again = await finished(work, database)
                    assert again == expected, f"killed at write {number}"

        async with asyncio.TaskGroup() as group:
            tried = range(1, count + 1)[:: max(1, count // POINTS) if POINTS else 1]
            for number in tried:
                group.create_task(point(number))
        return len(tried), cut

    with prepared(engine, work, tmp_path, postgres) as copies:
        count, cut = asyncio.run(all_points(copies))
    print(f"{engine} {work}: killed at {count} points, {cut} times before its end")
    assert cut > count / 2, "it was hardly ever cut off: the points are not where it writes"
