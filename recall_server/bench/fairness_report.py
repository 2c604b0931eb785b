"""A run of fairness as a table for a person and as JSON for a script."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from recall_server.bench.fairness import Run
from recall_server.bench.load import Measured

BESIDE_MAX = 2.0
COST_MAX = 1.3


def as_json(runs: list[Run]) -> list[dict[str, Any]]:
    return [
        {
            "engine": run.engine,
            "callers": run.callers,
            "beside_at_most": BESIDE_MAX,
            "cost_at_most": COST_MAX,
            "measured": list(_rows(run)),
        }
        for run in runs
    ]


def show(run: Run, console: Console) -> None:
    console.print(f"\n[bold]{run.engine}[/bold]: a quiet tenant, {run.callers} callers of another")
    table = Table(box=None, pad_edge=False)
    table.add_column("operation", min_width=10)
    for heading in (
        "alone p50/p95 ms",
        "beside p50/p95 ms",
        "p95 x alone",
        "guarded/bare p50",
        "cost x p50",
    ):
        table.add_column(heading, justify="right")
    for row in _rows(run):
        table.add_row(
            row["operation"],
            f"{row['alone_p50_ms']:.2f} / {row['alone_p95_ms']:.2f}",
            f"{row['beside_p50_ms']:.2f} / {row['beside_p95_ms']:.2f}",
            _judged(row["beside"], BESIDE_MAX),
            f"{row['guarded_p50_ms']:.2f} / {row['bare_p50_ms']:.2f}",
            _judged(row["cost"], COST_MAX),
        )
    console.print(table)


def explain(console: Console) -> None:
    console.print(
        f"\nBeside: at most {BESIDE_MAX} is wanted; the flood stores and searches without a pause, "
        "from a process of its own. Cost: at most "
        f"{COST_MAX}; bare is the same server that lets everybody in, counts nothing and writes no "
        "book."
    )


def _rows(run: Run) -> Iterator[dict[str, Any]]:
    for alone, beside, guarded, bare in zip(
        run.alone, run.flooded, run.guarded, run.bare, strict=True
    ):
        yield {
            "operation": alone.operation,
            **_times("alone", alone),
            **_times("beside", beside),
            **_times("guarded", guarded),
            **_times("bare", bare),
            "beside": beside.quantile(0.95) / alone.quantile(0.95),
            "cost": guarded.quantile(0.5) / bare.quantile(0.5),
        }


def _times(name: str, one: Measured) -> dict[str, float]:
    return {f"{name}_p50_ms": one.quantile(0.5), f"{name}_p95_ms": one.quantile(0.95)}


def _judged(ratio: float, limit: float) -> str:
    return f"{ratio:.2f}" if ratio <= limit else f"[bold]{ratio:.2f}[/bold]"
