"""A process of low priority that computes what takes long, so that calls do not wait for it.

Threads share one interpreter, so a thread that reads a long text delays every step of every call.
The attacks "paragraphs", "answers that say nothing" and "merges" of `make bench BENCH=fairness`
measure it.

Run as `python -m recall_server.integrations.computing NICENESS`, it reads functions with their
arguments from standard input and writes their results to standard output, pickled and preceded by
their length. No bytes mean that the function failed. It ends with its input.
"""

import asyncio
import os
import pickle
import signal
import sys
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import AsyncIterator, Callable, Hashable
from contextlib import asynccontextmanager, suppress
from typing import Any, BinaryIO, TypeVar

import structlog

from recall_server.domain.context import Compute
from recall_server.domain.fairness import FairSemaphore

log = structlog.get_logger()

T = TypeVar("T")

# Servers and databases on this machine go first.
NICENESS = 5
# Merges take seconds, and nobody waits for one as for a call.
NICENESS_OF_MERGES = 10
STOP_S = 5.0
# The longest text takes about half a second.
COMPUTE_S = 60.0
# A process may have been ended by somebody else.
ATTEMPTS = 2
# A text of 8,000 turns takes 50 ms to unpickle.
INLINE_BYTES_MAX = 16_384
_LENGTH_BYTES = 8


@asynccontextmanager
async def computing_process(niceness: int = NICENESS) -> AsyncIterator[Compute]:
    """Yield what computes in the process. The process starts with the first computation."""
    process = _Computing(niceness)
    try:
        yield process.compute
    finally:
        await process.close()


class _Computing:
    """Computes one function at a time. Owners take turns, and so do functions without one."""

    def __init__(self, niceness: int) -> None:
        self._niceness = niceness
        self._process: Process | None = None
        self._turns = FairSemaphore(1)
        self._closed = False

    async def compute(
        self, function: Callable[..., T], /, *given: Any, owner: Hashable = None
    ) -> T:
        """See `Compute`. What the process cannot compute, a thread computes, and raises its error
        here. Raises `TimeoutError` after `COMPUTE_S`, as others are waiting, and `MemoryError` if
        the process is lost each time that it computes this.
        """
        whose = function if owner is None else owner
        answering = self._answer(pickle.dumps((function, given)), whose)
        # Without the shield, a cancelled caller would leave its answer to the next one.
        answer = await asyncio.shield(asyncio.ensure_future(answering))
        if not answer:
            return await asyncio.to_thread(function, *given)
        # Our own process has written it.
        result: T = (
            pickle.loads(answer)  # noqa: S301
            if len(answer) <= INLINE_BYTES_MAX
            else await asyncio.to_thread(pickle.loads, answer)
        )
        return result

    async def close(self) -> None:
        """End the process now: nobody waits any more for what it computes, which may take long."""
        self._closed = True
        await self._end(within_s=0)

    async def _answer(self, asked: bytes, whose: Hashable) -> bytes:
        """Return the pickled result; nothing if the process has none."""
        async with self._turns.slot(whose):
            try:
                for _ in range(ATTEMPTS):
                    self._check_open()
                    self._process = self._process or await _started(self._niceness)
                    with suppress(EOFError, ConnectionError):
                        async with asyncio.timeout(COMPUTE_S):
                            return await _exchanged(self._process, asked)
                    self._check_open()
                    log.warning("computing_process_lost")
                    await self._end()
            except TimeoutError:
                log.exception("computing_too_long", seconds=COMPUTE_S)
                await self._end(within_s=0)
                raise
            except OSError as error:
                log.warning("computing_process_not_started", error=type(error).__name__)
                await self._end()
                return b""
            # The server must not compute what has ended a process, most likely for lack of memory.
            raise MemoryError

    def _check_open(self) -> None:
        if self._closed:
            raise asyncio.CancelledError

    async def _end(self, *, within_s: float = STOP_S) -> None:
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(within_s):
                await process.wait()
        except TimeoutError:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


async def _started(niceness: int) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", __name__, str(niceness)),
        stdin=PIPE,
        stdout=PIPE,
        stderr=DEVNULL,
    )


async def _exchanged(process: Process, asked: bytes) -> bytes:
    """Send a pickled function with its arguments, and return its pickled result."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(_length(asked) + asked)
    await process.stdin.drain()
    length = int.from_bytes(await process.stdout.readexactly(_LENGTH_BYTES))
    return await process.stdout.readexactly(length)


def _length(sent: bytes) -> bytes:
    return len(sent).to_bytes(_LENGTH_BYTES)


def _serve(asked: BinaryIO, answers: BinaryIO) -> None:
    """Compute functions until there are no more."""
    while length := asked.read(_LENGTH_BYTES):
        answer = _computed(asked.read(int.from_bytes(length)))
        answers.write(_length(answer) + answer)
        answers.flush()


def _computed(asked: bytes) -> bytes:
    try:
        function, given = pickle.loads(asked)  # noqa: S301  # the server has written it
        return pickle.dumps(function(*given))
    except Exception:  # noqa: BLE001  # the server computes it again and raises its error
        return b""


def _main() -> None:
    # The server ends this process by the end of its input, whatever signals a terminal or a
    # service manager sends to all processes at once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with suppress(OSError):  # a sandbox may forbid it
        os.nice(int(sys.argv[1]))
    # A library that uses all cores would slow down calls; it reads this when it is loaded.
    os.putenv("OPENBLAS_NUM_THREADS", "1")
    answers = os.fdopen(os.dup(1), "wb")
    # Lines that a library prints must not mix with the answers.
    os.dup2(2, 1)
    _serve(sys.stdin.buffer, answers)


if __name__ == "__main__":
    _main()
