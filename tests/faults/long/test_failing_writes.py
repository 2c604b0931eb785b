"""A disk fails at one of its writes. What was reported as stored is stored, and after a failed
flush nothing more is reported.

Needs `strace`, which makes a system call fail: `make faults`.
"""

import asyncio
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.support.kill_points import POINTS, Copies, prepared, victim, writes
from tests.support.victim import WORKS, opened

WORK = "store"
CALLS = {"pwrite64": ("ENOSPC", "EIO"), "fdatasync": ("EIO",)}


@pytest.mark.parametrize(
    ("call", "error"), [(call, error) for call, errors in CALLS.items() for error in errors]
)
def test_a_write_that_fails_loses_nothing_that_was_said_to_be_kept(
    call: str, error: str, tmp_path: Path
) -> None:
    trace = f"trace={call}"

    async def all_points(copies: Copies) -> int:
        with copies.one() as database:
            said = await victim(WORK, database, tmp_path / "trace", "-e", trace)
            count = writes(tmp_path / "trace")
        refused = 0
        for number in range(1, count + 1)[:: max(1, count // POINTS) if POINTS else 1]:
            inject = f"inject={call}:error={error}:when={number}"
            with copies.one() as database:
                told = await victim(WORK, database, tmp_path / "log", "-e", trace, "-e", inject)
                refused += told != said
                async with opened(database) as built:
                    lost = [one for one in told if not await WORKS[WORK].holds(built, one)]
                    kept = await WORKS[WORK].whole(built)
                assert not lost, f"{call} {number} failed with {error}, lost {lost}"
                assert kept
        return refused

    with _before(tmp_path) as copies:
        refused = asyncio.run(all_points(copies))
    print(f"{call} {error}: {refused} times something was refused")
    assert refused, "nothing failed: the points are not where it writes"


def test_after_a_flush_that_failed_nothing_more_is_taken(tmp_path: Path) -> None:
    """The system forgets what it could not write, and the next flush would succeed. `insist` goes
    on as a server does, and prints the answers.
    """

    async def insisted(copies: Copies, *strace: str) -> list[str]:
        with copies.one() as database:
            return await victim("insist", database, tmp_path / "log", *strace)

    async def both(copies: Copies) -> tuple[list[str], list[str]]:
        inject = "inject=fdatasync:error=EIO:when=1"
        return (
            await insisted(copies, "-e", "trace=fdatasync"),
            await insisted(copies, "-e", "trace=fdatasync", "-e", inject),
        )

    with _before(tmp_path) as copies:
        well, failed = asyncio.run(both(copies))

    assert well == ["store-0", "store-1", "store-2"]
    assert failed == ["DATABASE_UNAVAILABLE", "DATABASE_UNUSABLE", "DATABASE_UNUSABLE"]


def _before(folder: Path) -> AbstractContextManager[Copies]:
    return prepared("sqlite", WORK, folder, None)
