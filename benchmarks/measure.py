"""Calls operations in turn, measures their times, and makes rows of a report from them."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field
from time import perf_counter
from typing import Annotated

import typer

from benchmarks.clients import Arguments, CallTool
from benchmarks.report import Figure, Row
from benchmarks.texts import Texts

Seconds = Annotated[float, typer.Option(min=0.1, help="For each operation at each concurrency.")]
NOOP = "no-op"
WARM_UP = 5
# Long enough for each of 32 callers to get its turn, short enough that drift affects all alike.
WINDOW_S = 0.75


@dataclass(frozen=True)
class Operation:
    """One call to measure: its name, the token, the tool, and the function that returns its
    arguments.
    """

    name: str
    token: str
    tool: str
    arguments: Callable[[], Arguments]


def search(name: str, token: str, seed: int) -> Operation:
    texts = Texts(seed)
    return Operation(name, token, "search_memories", lambda: {"query": texts.question()})


def store(name: str, token: str, seed: int) -> Operation:
    texts = Texts(seed)
    return Operation(
        name, token, "store_memory", lambda: {"text": texts.conversation(), "topic": "general"}
    )


def inspect(name: str, token: str) -> Operation:
    return Operation(name, token, "inspect_memories", dict)


def noop(name: str, token: str) -> Operation:
    return Operation(name, token, "whoami", dict)


@dataclass
class Measured:
    """The times of one operation."""

    name: str
    seconds: float = 0.0
    latencies: list[float] = field(default_factory=list)

    def quantile(self, share: float) -> float:
        """Milliseconds."""
        ordered = sorted(self.latencies)
        return 1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))]

    @property
    def p50(self) -> float:
        return self.quantile(0.5)

    @property
    def per_second(self) -> float:
        return len(self.latencies) / self.seconds

    def row(self, group: str, base: "Measured | None" = None, of: str = NOOP) -> Row:
        """Return the times, and their ratios to those of `base`, which is called `of`."""
        figures: dict[str, Figure] = {"p50 ms": self.p50}
        if base is not None:
            figures[f"p50 x {of}"] = self.p50 / base.p50
        figures |= {"p95 ms": self.quantile(0.95)}
        if base is not None:
            figures[f"p95 x {of}"] = self.quantile(0.95) / base.quantile(0.95)
        figures |= {"p99 ms": self.quantile(0.99), "calls": len(self.latencies)}
        if self.seconds:
            figures["calls/s"] = self.per_second
        if self.seconds and base is not None:
            figures[f"calls/s x {of}"] = self.per_second / base.per_second
        return Row(group, self.name, figures)


Connect = Callable[[str], AbstractAsyncContextManager[CallTool]]


async def measure(
    operations: Sequence[Operation],
    connect: Connect,
    concurrency: int,
    seconds: float,
    *,
    one_by_one: bool = True,
) -> list[Measured]:
    """Call `operations` in turn, round after round, until each has had `seconds` or more.

    A round is one window of each operation, or at concurrency 1, if wanted, one call of each. A
    caller keeps its connection, and sends its next call after the answer to its last.
    """
    found = [Measured(operation.name) for operation in operations]
    async with AsyncExitStack() as stack:
        callers = [await connected(stack, connect, op, concurrency) for op in operations]
        window = 0.0 if one_by_one and concurrency == 1 else WINDOW_S
        end = perf_counter() + seconds * len(operations)
        while perf_counter() < end:
            for operation, calls, into in zip(operations, callers, found, strict=True):
                await run_for(window, operation, calls, into)
    return found


async def connected(
    stack: AsyncExitStack, connect: Connect, operation: Operation, concurrency: int
) -> list[CallTool]:
    """Return so many callers of an operation, warmed up, for as long as the stack lasts."""
    calls = [await stack.enter_async_context(connect(operation.token)) for _ in range(concurrency)]
    for call in calls[:WARM_UP]:
        await call(operation.tool, operation.arguments())
    return calls


async def run_for(
    window: float, operation: Operation, calls: Sequence[CallTool], into: Measured
) -> None:
    """Let each of `calls` call repeatedly for so many seconds, and add the times to `into`."""
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
