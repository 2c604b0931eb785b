"""A process is killed at each of its writes in turn. It loses nothing that it has reported as done,
repeats nothing when it runs again, and leaves nothing half done.

Needs `strace`, which kills a process at the n-th system call: `make faults`.
"""

import asyncio
from pathlib import Path

import pytest

from tests.support.kill_points import POINTS, Copies, prepared, victim, writes
from tests.support.processes import Database
from tests.support.victim import WORKS, drain, opened, summary

# The calls that reach a file, or the server of the database.
WRITES = {
    "sqlite": "pwrite64,fdatasync,fsync,ftruncate,rename,link,unlink",
    "postgres": "sendto,fsync,rename",
}
AT_ONCE = 2


async def finished(work: str, database: Database) -> dict[str, object]:
    """Return what is there once the work has run again to its end."""
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
