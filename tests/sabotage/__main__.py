"""`python -m tests.sabotage`: all breakages, or those named as arguments; `--jobs N` at once."""

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path

from recall_server import shipped
from recall_server.storage import driver_for
from recall_server.storage.migrations import migrate
from tests.sabotage.breakage import Breakage
from tests.sabotage.changes import Outdated
from tests.sabotage.rows import FAILED, Rows, run
from tests.sabotage.table import BREAKAGES
from tests.sabotage.tree import copy_of, copy_of_project
from tests.support.engines import running_postgres
from tests.support.runtime import NOON

# The limit for the control, which runs all named tests.
CONTROL_S = 600.0
BREAKAGE_S = 120.0
LINES_SHOWN = 40


def sabotage(tree: Path, postgres: str, breakage: Breakage) -> Rows:
    """Break a copy of `tree`, and run the tests of the breakage there."""
    with copy_of(tree) as broken:
        breakage.apply(broken)
        return run(broken, breakage.red, postgres, BREAKAGE_S)


def unnoticed(breakage: Breakage, rows: Rows) -> str:
    """Return why the breakage does not count as noticed, or nothing if it does."""
    if rows.code is None:
        return f"its tests did not end within {BREAKAGE_S:.0f} s"
    if rows.code != FAILED:
        return f"pytest ended with {rows.code}, not with {FAILED}"
    green = [test for test in breakage.red if not rows.red_of(test)]
    return f"not red: {', '.join(green)}" if green else ""


def main() -> int:
    chosen, jobs = _asked()
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="recall-sabotage-") as folder, running_postgres() as pg:
        tree = Path(folder) / "project"
        copy_of_project(tree)
        try:
            for breakage in chosen:
                breakage.broken(tree)
        except Outdated as error:
            print(f"FAILED {error}")
            return 1
        with pg.database() as url:
            asyncio.run(_make_roles(url))
        if not _control(tree, pg.url, chosen, jobs):
            return 1
        holes = _all(tree, pg.url, chosen, jobs)
    seconds = time.monotonic() - started
    print(f"{len(chosen) - holes} of {len(chosen)} breakages noticed, {seconds:.0f} s")
    return 1 if holes else 0


def _asked() -> tuple[list[Breakage], int]:
    parser = argparse.ArgumentParser(prog="python -m tests.sabotage", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="all, where none is named")
    parser.add_argument("--jobs", type=int, default=2, help="how many at once (default: 2)")
    asked = parser.parse_args()
    known = {one.name: one for one in BREAKAGES}
    if unknown := set(asked.names) - set(known):
        parser.error(
            f"no such breakage: {', '.join(sorted(unknown))}; there are {', '.join(known)}"
        )
    return [known[name] for name in asked.names] or list(BREAKAGES), asked.jobs


def _control(tree: Path, postgres: str, chosen: Sequence[Breakage], jobs: int) -> bool:
    """Return True if all tests pass that should fail later. All copies use what is compiled here."""
    tests = list(dict.fromkeys(test for one in chosen for test in one.red))
    parts = [tests[number::jobs] for number in range(min(jobs, len(tests)))]
    green, started = 0, time.monotonic()
    with ThreadPoolExecutor(jobs) as pool:
        for rows in pool.map(lambda part: run(tree, part, postgres, CONTROL_S), parts):
            if rows.code != 0 or not rows.green:
                print("\n".join(rows.output.splitlines()[-LINES_SHOWN:]))
                print(f"FAILED unbroken, the tests are not green (pytest: {rows.code})")
                return False
            green += len(rows.green)
    print(f"control: {green} rows green, {time.monotonic() - started:.0f} s", flush=True)
    return True


async def _make_roles(url: str) -> None:
    """Make the roles, which belong to the server: two migrations at the same time would both make
    them.
    """
    driver = driver_for(url)
    await driver.open()
    await migrate(driver, shipped("migrations"), NOON)
    await driver.close()


def _all(tree: Path, postgres: str, chosen: Sequence[Breakage], jobs: int) -> int:
    """Return how many breakages stayed unnoticed."""
    holes = 0
    width = max(len(one.name) for one in chosen)
    with ThreadPoolExecutor(jobs) as pool:
        running = {pool.submit(partial(sabotage, tree, postgres, one)): one for one in chosen}
        for done in as_completed(running):
            breakage, rows = running[done], done.result()
            why = unnoticed(breakage, rows)
            holes += bool(why)
            said = "GREEN" if why else "red"
            print(
                f"{said:5} {breakage.name:{width}} {rows.seconds:5.1f} s  "
                f"{len(rows.red)} rows of {len(rows.red) + len(rows.green)}: {breakage.drops}",
                flush=True,
            )
            if why:
                print(f"      {why}")
                print("\n".join(rows.output.splitlines()[-LINES_SHOWN:]), flush=True)
            else:
                print("\n".join(f"      {row}" for row in rows.red), flush=True)
    return holes


if __name__ == "__main__":
    sys.exit(main())
