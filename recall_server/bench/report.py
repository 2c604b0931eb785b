"""A run as tables for a person and as JSON for a script."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from recall_server.bench import scale_report
from recall_server.bench.load import FLOOR, Measured
from recall_server.bench.run import Run

STORE_MAX = 2.0
SEARCH_MAX = 3.0
_CLIENTS = {
    "socket": "JSON-RPC on a plain socket",
    "sdk": "the mcp client of the SDK, its own cost included",
}


def as_json(runs: list[Run]) -> list[dict[str, Any]]:
    return [
        {
            "engine": run.engine,
            "memories": run.memories,
            "worker_jobs": run.worker_jobs,
            "fsync_ms": run.fsync_ms,
            "measured": [_row(one, floor) for one, floor in _pairs(run)],
            "targets": [
                {
                    "operation": one.operation,
                    "client": one.client,
                    "at_most": most,
                    "ratio": ratio,
                    "met": ratio <= most,
                }
                for one, most, ratio in _targets(run)
            ],
            "scale": run.scale and scale_report.as_json(run.scale),
        }
        for run in runs
    ]


def show(run: Run, console: Console) -> None:
    disk = "" if run.fsync_ms is None else f", one fsync takes {run.fsync_ms:.2f} ms here"
    console.print(f"\n[bold]{run.engine}[/bold]: {_jobs(run)}{disk}")
    groups = dict.fromkeys((one.client, one.concurrency) for one in run.measured)
    for client, concurrency in groups:
        table = Table(box=None, pad_edge=False, title_justify="left")
        table.title = f"concurrency {concurrency}, {_CLIENTS[client]}"
        table.add_column("operation", min_width=16)
        for heading in ("p50 ms", "x no-op", "p95 ms", "x no-op", "calls/s", "x no-op"):
            table.add_column(heading, justify="right")
        for one, floor in _pairs(run):
            if (one.client, one.concurrency) == (client, concurrency):
                table.add_row(one.operation, *_cells(_row(one, floor)))
        console.print(table)
    for one, most, ratio in _targets(run):
        verdict = "met" if ratio <= most else "[bold]missed[/bold]"
        console.print(
            f"{one.operation}, {one.client}: p50 {ratio:.2f} x no-op, at most {most}: {verdict}"
        )
    if run.scale is not None:
        scale_report.show(run.scale, console)


def explain(console: Console) -> None:
    console.print(
        "\nThe no-op is a tool of the same server. Its time holds the connection, the checks of "
        "the edge, the look-up of the token in the database, the MCP SDK, the parsing of the "
        "arguments, the answer and the log line; it writes nothing, not even its line in the "
        "book. Store, search and inspect each commit once, and with it their line in the book.\n"
        "Through the socket a ratio says most about the server: the client of the SDK costs as "
        "much as the server, above and below the line, and lets every ratio look better."
    )


def _jobs(run: Run) -> str:
    return f"{run.worker_jobs} jobs at once" if run.worker_jobs else "extraction at rest"


def _pairs(run: Run) -> Iterator[tuple[Measured, Measured]]:
    """Each measurement with the no-op of its group."""
    floors = {(one.client, one.concurrency): one for one in run.measured if one.operation == FLOOR}
    for one in run.measured:
        yield one, floors[one.client, one.concurrency]


def _row(one: Measured, floor: Measured) -> dict[str, Any]:
    return {
        "operation": one.operation,
        "client": one.client,
        "concurrency": one.concurrency,
        "calls": len(one.latencies),
        "p50_ms": one.quantile(0.5),
        "p50_ratio": one.quantile(0.5) / floor.quantile(0.5),
        "p95_ms": one.quantile(0.95),
        "p95_ratio": one.quantile(0.95) / floor.quantile(0.95),
        "per_second": one.per_second,
        "per_second_ratio": one.per_second / floor.per_second,
    }


def _cells(row: dict[str, Any]) -> list[str]:
    return [
        f"{row['p50_ms']:.2f}",
        f"{row['p50_ratio']:.2f}",
        f"{row['p95_ms']:.2f}",
        f"{row['p95_ratio']:.2f}",
        f"{row['per_second']:.0f}",
        f"{row['per_second_ratio']:.2f}",
    ]


def _targets(run: Run) -> Iterator[tuple[Measured, float, float]]:
    """What is wanted: medians at concurrency 1. Which limit, and what was reached."""
    limits = {"store": STORE_MAX, f"search {run.memories:,}": SEARCH_MAX}
    for one, floor in _pairs(run):
        if one.concurrency == 1 and one.operation in limits:
            yield one, limits[one.operation], one.quantile(0.5) / floor.quantile(0.5)
