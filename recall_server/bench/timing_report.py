"""A run of the times that could tell a secret, as tables for a person and as JSON for a script."""

from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table

from recall_server.bench.timing import EXPIRED, REVOKED, UNKNOWN, Run

APART_MAX = 0.1
P_MIN = 0.01
# All that their status does not tell apart, and that only the database knows.
ALIKE = {UNKNOWN, REVOKED, EXPIRED}


def as_json(runs: list[Run]) -> list[dict[str, Any]]:
    return [
        {
            "engine": run.engine,
            "apart_at_most": APART_MAX,
            "p_at_least": P_MIN,
            "tokens": list(_tokens(run)),
            "stores": [
                {"text": one.operation, "calls": len(one.latencies), "p50_ms": one.quantile(0.5)}
                for one in run.stores
            ],
            "p": run.p,
            "met": met(run),
        }
        for run in runs
    ]


def met(run: Run) -> bool:
    """Whether nothing that is a secret can be told by time."""
    apart = [row["apart"] for row in _tokens(run) if row["judged"]]
    return run.p > P_MIN and max(apart) <= APART_MAX


def show(run: Run, console: Console) -> None:
    console.print(f"\n[bold]{run.engine}[/bold]: what time tells")
    table = Table(box=None, pad_edge=False)
    table.add_column("a call with a token that is", min_width=16)
    for heading in ("calls", "p50 ms", "x unknown"):
        table.add_column(heading, justify="right")
    for row in _tokens(run):
        ratio = f"{row['ratio']:.3f}"
        bold = row["judged"] and row["apart"] > APART_MAX
        table.add_row(
            row["token"],
            f"{row['calls']:,}",
            f"{row['p50_ms']:.3f}",
            f"[bold]{ratio}[/bold]" if bold else ratio,
        )
    console.print(table)
    theirs, fresh = run.stores
    times = theirs.quantile(0.5) / fresh.quantile(0.5)
    verdict = "no difference" if run.p > P_MIN else "[bold]a difference[/bold]"
    console.print(
        f"to store {theirs.operation}: {times:.3f} x {fresh.operation}, "
        f"{len(theirs.latencies):,} of each, p = {run.p:.3f}: {verdict}"
    )


def explain(console: Console) -> None:
    console.print(
        f"\nUnknown, revoked or expired: at most {APART_MAX:.0%} apart is wanted. A wrong prefix "
        "or checksum is refused by sight, as anybody could, and asks the database nothing: it is "
        "meant to be faster. A valid one is let in, and finds nothing there. p is Mann and "
        f"Whitney's, two-sided; above {P_MIN} is wanted: whether another tenant has the text "
        "cannot be told."
    )


def _tokens(run: Run) -> Iterator[dict[str, Any]]:
    (unknown,) = (one for one in run.tokens if one.operation == UNKNOWN)
    for one in run.tokens:
        ratio = one.quantile(0.5) / unknown.quantile(0.5)
        yield {
            "token": one.operation,
            "calls": len(one.latencies),
            "p50_ms": one.quantile(0.5),
            "ratio": ratio,
            "apart": abs(ratio - 1),
            "judged": one.operation in ALIKE,
        }
