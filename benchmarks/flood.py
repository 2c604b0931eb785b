"""A tenant that calls without a pause, in a process of its own, until SIGTERM.

Run as `python -m benchmarks.flood ADDRESS TOKEN CALLERS`; it prints one line once every caller has
been answered.
"""

import asyncio
import sys

import typer

from benchmarks.clients import plain
from benchmarks.texts import Texts
from recall_server.lifecycle import stop_signal

SEED = 7


async def _flood(address: str, token: str, callers: int) -> None:
    texts, stop = Texts(SEED), stop_signal()
    begun = asyncio.Semaphore(0)

    async def call_on() -> None:
        async with plain(address, token) as call:
            while not stop.is_set():
                await call("store_memory", {"text": texts.conversation()})
                await call("search_memories", {"query": texts.question()})
                begun.release()

    async with asyncio.TaskGroup() as group:
        for _ in range(callers):
            group.create_task(call_on())
        for _ in range(callers):
            await begun.acquire()
        typer.echo(address)


def main() -> None:
    address, token, callers = sys.argv[1:]
    asyncio.run(_flood(address, token, int(callers)))


if __name__ == "__main__":
    main()
