"""What is called, in which order, and how the times are taken."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from time import perf_counter

from recall_server.bench.clients import Arguments, CallTool

FLOOR = "no-op"
WARM_UP = 5
# Long enough for each of 32 callers to get its turn, short enough that drift hits all alike.
WINDOW_S = 0.75


@dataclass(frozen=True)
class Operation:
    """One thing to measure: a tool, whose memory, and what to ask."""

    name: str
    token: str
    tool: str
    arguments: Callable[[], Arguments]


@dataclass
class Measured:
    """The times of one operation at one concurrency, through one client."""

    operation: str
    client: str
    concurrency: int
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Milliseconds."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds


Connect = Callable[[str], AbstractAsyncContextManager[CallTool]]


async def measure(
    operations: Sequence[Operation],
    connect: Connect,
    client: str,
    concurrency: int,
    seconds: float,
    *,
    one_by_one: bool = True,
) -> list[Measured]:
    """Call `operations` in turn, round after round, until each has had `seconds` or more.

    A round is one window of each, or at concurrency 1, if wanted, one call of each. A caller keeps
    its connection, and sends its next call when its last was answered.
    """
    found = [Measured(operation.name, client, concurrency) for operation in operations]
    async with AsyncExitStack() as stack:
        callers = [
            [await stack.enter_async_context(connect(op.token)) for _ in range(concurrency)]
            for op in operations
        ]
        for operation, calls in zip(operations, callers, strict=True):
            for call in calls[:WARM_UP]:
                await call(operation.tool, operation.arguments())
        window = 0.0 if one_by_one and concurrency == 1 else WINDOW_S
        end = perf_counter() + seconds * len(operations)
        while perf_counter() < end:
            for operation, calls, into in zip(operations, callers, found, strict=True):
                await run_for(window, operation, calls, into)
    return found


async def run_for(
    window: float, operation: Operation, calls: Sequence[CallTool], into: Measured
) -> None:
    """Let each of `calls` call again and again for so many seconds, and add up what that took."""
    started = perf_counter()

    async def loop(call: CallTool) -> None:
        while True:
            arguments = operation.arguments()
            before = perf_counter()
            await call(operation.tool, arguments)
            after = perf_counter()
            into.latencies.append(after - before)
            if after - started >= window:
                return

    async with asyncio.TaskGroup() as group:
        for call in calls:
            group.create_task(loop(call))
    into.seconds += perf_counter() - started
