"""Run a program in its own process to its end."""

import asyncio
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ended:
    """How a program ended."""

    code: int
    out: str
    err: str


async def run(
    command: Sequence[str], environment: Mapping[str, str], cwd: Path, *, within_s: float
) -> Ended:
    """Run the program. Raises `TimeoutError` if it does not end; then it is killed."""
    child = await asyncio.create_subprocess_exec(
        *command, env=environment, cwd=cwd, stdin=DEVNULL, stdout=PIPE, stderr=PIPE
    )
    try:
        async with asyncio.timeout(within_s):
            out, err = await child.communicate()
    except BaseException:
        child.kill()
        await child.wait()
        raise
    return Ended(child.returncode or 0, out.decode(), err.decode())
