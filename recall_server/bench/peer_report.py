"""The run against the peer as a table for a person and as JSON for a script."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from recall_server.bench.load import FLOOR, Measured
from recall_server.bench.peer import CONCURRENCIES, OURS, PEER, SIZES, Run
from recall_server.bench.peer_server import VERSION
from recall_server.bench.scale_report import Target

_SMALL, _LARGE = (f"search {size:,}" for size in SIZES)
_SOME, _MANY = CONCURRENCIES


def targets(run: Run) -> Iterator[Target]:
    """What is wanted, and whether it holds."""

    def p50(operation: str) -> float:
        theirs, ours = (_of(run, f"{who}: {operation}", 1).quantile(0.5) for who in (PEER, OURS))
        return theirs / ours

    yield Target(f"{_SMALL}: p50 of the peer, x ours", p50(_SMALL), 3.0, at_least=True)
    yield Target(f"{_LARGE}: p50 of the peer, x ours", p50(_LARGE), 8.0, at_least=True)
    yield Target("store: p50 of the peer, x ours", p50("store"), 1.3, at_least=True)
    ours, theirs = (_of(run, f"{who}: {_SMALL}", _SOME) for who in (OURS, PEER))
    floor = _of(run, f"{OURS}: {FLOOR}", _SOME)
    many = f"{_SMALL} at {_SOME} at once"
    yield Target(
        f"{many}: calls/s, x the peer's", ours.per_second / theirs.per_second, 2.5, at_least=True
    )
    yield Target(
        f"{many}: calls/s, x no-op", ours.per_second / floor.per_second, 0.5, at_least=True
    )
    yield Target(f"{many}: p99, x p50", ours.quantile(0.99) / ours.quantile(0.5), 4.0)
    errors = sum(
        count for (name, at), count in run.errors.items() if name.startswith(OURS) and at == _MANY
    )
    yield Target(f"errors at {_MANY} at once", errors, 0)
    yield Target(
        f"the oldest of {SIZES[0]:,} is found",
        float(run.finds_the_oldest[OURS]),
        1.0,
        at_least=True,
    )


def as_json(runs: list[Run]) -> list[dict[str, Any]]:
    return [
        {
            "measured": [
                {"operation": one.operation, "concurrency": one.concurrency} | _numbers(run, one)
                for one in run.measured
            ],
            "finds_the_oldest": run.finds_the_oldest,
            "targets": [target.as_json() for target in targets(run)],
        }
        for run in runs
    ]


def show(run: Run, console: Console) -> None:
    table = Table(box=None, pad_edge=False)
    table.add_column("operation", min_width=16)
    for heading in ("at once", "p50 ms", "p95 ms", "p99 ms", "calls/s", "errors"):
        table.add_column(heading, justify="right")
    for one in run.measured:
        numbers = _numbers(run, one)
        table.add_row(
            one.operation,
            str(one.concurrency),
            *(f"{numbers[key]:.2f}" for key in ("p50_ms", "p95_ms", "p99_ms")),
            f"{numbers['per_second']:.0f}",
            str(numbers["errors"]),
        )
    console.print(table)
    for who, found in run.finds_the_oldest.items():
        console.print(f"{who}: the oldest of {SIZES[0]:,} is {'' if found else 'not '}found")
    for target in targets(run):
        console.print(target.verdict())


def explain(console: Console) -> None:
    console.print(
        f"\nThe peer is szl-recall {VERSION}. Both over SQLite, through the same client on a plain "
        "socket, in turn; neither extracts anything meanwhile."
    )


def _of(run: Run, operation: str, concurrency: int) -> Measured:
    return next(
        one for one in run.measured if (one.operation, one.concurrency) == (operation, concurrency)
    )


def _numbers(run: Run, one: Measured) -> dict[str, Any]:
    return {
        "calls": len(one.latencies),
        "p50_ms": one.quantile(0.5),
        "p95_ms": one.quantile(0.95),
        "p99_ms": one.quantile(0.99),
        "per_second": one.per_second,
        "errors": run.errors.get((one.operation, one.concurrency), 0),
    }
