"""A run of tasks as tables for a person and as JSON for a script."""

from dataclasses import asdict
from statistics import fmean
from typing import Any

from rich.console import Console
from rich.table import Table

from recall_server.bench.tasks import Pair, Side, TasksRun

RATIO_MIN = 0.25
AT = 16


def as_json(runs: list[TasksRun]) -> list[dict[str, Any]]:
    return [
        {
            "engine": run.engine,
            "worker_jobs": run.worker_jobs,
            "fsync_ms": run.fsync_ms,
            "measured": [
                {
                    "concurrency": pair.concurrency,
                    "recall": _row(pair.recall),
                    "echo": _row(pair.echo),
                    "ratio": pair.ratio,
                    "phases_ms": {**asdict(pair.phases), "rest": _rest(pair)},
                }
                for pair in run.pairs
            ],
            "targets": [
                {"at_least": RATIO_MIN, "ratio": pair.ratio, "met": pair.ratio >= RATIO_MIN}
                for pair in run.pairs
                if pair.concurrency == AT
            ],
        }
        for run in runs
    ]


def show(run: TasksRun, console: Console) -> None:
    disk = "" if run.fsync_ms is None else f", one fsync takes {run.fsync_ms:.2f} ms here"
    console.print(f"\n[bold]{run.engine}[/bold]: tasks, {run.worker_jobs} jobs at once{disk}")
    for pair in run.pairs:
        table = Table(box=None, pad_edge=False, title_justify="left")
        table.title = f"concurrency {pair.concurrency}, A2A SendMessage on a plain socket"
        table.add_column("server", min_width=16)
        for heading in ("tasks/s", "p50 ms", "p95 ms", "processor ms a task"):
            table.add_column(heading, justify="right")
        for side in (pair.recall, pair.echo):
            table.add_row(side.measured.operation, *_cells(_row(side)))
        console.print(table)
        console.print(_spent(pair))
    for pair in run.pairs:
        if pair.concurrency == AT:
            verdict = "met" if pair.ratio >= RATIO_MIN else "[bold]missed[/bold]"
            console.print(
                f"tasks/s at {AT} at once: {pair.ratio:.2f} x echo, at least {RATIO_MIN}: {verdict}"
            )


def explain(console: Console) -> None:
    console.print(
        "\nA task is one sentence, sent with SendMessage and waited for. Ours is checked, written "
        "down, claimed by a worker, read, compared with what is known and committed as a memory "
        "with its source, its events and its lines in the book; two commits reach the disk before "
        "the answer, on SQLite shared with the tasks beside it, and on Postgres that of the claim. "
        "The echo is the SDK's own server, which "
        "keeps its tasks in memory and says what it was told; it has no tokens, no worker and no "
        "disk."
    )


def _spent(pair: Pair) -> str:
    spent = pair.phases
    after = "" if spent.vectors is None else f"; afterwards vectors {spent.vectors:.1f}"
    return (
        f"of a task's {_mean(pair.recall):.1f} ms: accept {spent.accept:.1f}, wait for a worker "
        f"{spent.wait:.1f}, work {spent.work:.1f}, commit, HTTP, token and answer "
        f"{_rest(pair):.1f}{after}"
    )


def _rest(pair: Pair) -> float:
    spent = pair.phases
    return _mean(pair.recall) - spent.accept - spent.wait - spent.work


def _mean(side: Side) -> float:
    return 1000 * fmean(side.measured.latencies)


def _row(side: Side) -> dict[str, Any]:
    return {
        "tasks": len(side.measured.latencies),
        "per_second": side.measured.per_second,
        "p50_ms": side.measured.quantile(0.5),
        "p95_ms": side.measured.quantile(0.95),
        "mean_ms": _mean(side),
        "processor_ms": side.processor_ms,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    used = row["processor_ms"]
    return [
        f"{row['per_second']:.0f}",
        f"{row['p50_ms']:.1f}",
        f"{row['p95_ms']:.1f}",
        "-" if used is None else f"{used:.1f}",
    ]
