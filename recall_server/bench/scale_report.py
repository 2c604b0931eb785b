"""What grows with the number of memories, as tables for a person and as JSON for a script."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from recall_server.bench.load import Measured
from recall_server.bench.scale import NEIGHBOUR, Scale

# What is wanted. A hundredfold may take three times as long, a thousandfold ten times.
SEARCH_100_MAX = 3.0
SEARCH_1000_MAX = 10.0
RECALL_MIN = 0.98
NEIGHBOURS_MAX = 1.2
RESIDENT_MB_MAX = 400.0
COLD_START_MAX = 3.0
RESIDENT_AT = 100_000


@dataclass(frozen=True)
class Target:
    """A number, and what it may be at most, or must be at least."""

    name: str
    number: float
    limit: float
    at_least: bool = False

    @property
    def met(self) -> bool:
        return self.number >= self.limit if self.at_least else self.number <= self.limit

    def as_json(self) -> dict[str, Any]:
        most = "at_least" if self.at_least else "at_most"
        return {"name": self.name, "number": self.number, most: self.limit, "met": self.met}

    def verdict(self) -> str:
        most = "at least" if self.at_least else "at most"
        met = "met" if self.met else "[bold]missed[/bold]"
        return f"{self.name}: {self.number:.2f}, {most} {self.limit:g}: {met}"


def targets(scale: Scale) -> Iterator[Target]:
    least = scale.sweep[0]
    for size, one in zip(scale.sizes, scale.sweep, strict=True):
        grown = size // scale.sizes[0]
        if grown in (100, 1_000):
            most = SEARCH_100_MAX if grown == 100 else SEARCH_1000_MAX
            yield Target(f"{one.operation}, x {least.operation}", _ratio(one, least), most)
        yield Target(f"recall@10 of the vectors of {size:,}", scale.recall[size], RECALL_MIN, True)
    if scale.alone is not None and scale.beside is not None:
        name = f"search beside {scale.neighbours:,} neighbours, x alone"
        yield Target(name, _ratio(scale.beside, scale.alone), NEIGHBOURS_MAX)
    if scale.resident_mb is not None and max(scale.sizes) == RESIDENT_AT:
        yield Target("megabytes resident", scale.resident_mb, RESIDENT_MB_MAX)
    yield Target(
        "start to first answer, x without memories",
        scale.cold_start_s / scale.empty_start_s,
        COLD_START_MAX,
    )


def as_json(scale: Scale) -> dict[str, Any]:
    return {
        "sweep": [
            {"memories": size, **_times(one), "p50_ratio": _ratio(one, scale.sweep[0])}
            for size, one in zip(scale.sizes, scale.sweep, strict=True)
        ],
        "vector_recall_at_10": {str(size): found for size, found in scale.recall.items()},
        "resident_mb": scale.resident_mb,
        "cold_start_s": scale.cold_start_s,
        "empty_start_s": scale.empty_start_s,
        "neighbours": {
            "namespaces": scale.neighbours,
            "alone": scale.alone and _times(scale.alone),
            "beside": scale.beside and _times(scale.beside),
        },
        "targets": [target.as_json() for target in targets(scale)],
    }


def show(scale: Scale, console: Console) -> None:
    table = Table(box=None, pad_edge=False, title_justify="left")
    table.title = "one search after the other, each over one namespace"
    table.add_column("memories", min_width=16)
    for heading in ("p50 ms", "x first", "p95 ms", "p99 ms", "recall@10 of vectors"):
        table.add_column(heading, justify="right")
    for size, one in zip(scale.sizes, scale.sweep, strict=True):
        table.add_row(f"{size:,}", *_cells(one, scale.sweep[0]), f"{scale.recall[size]:.3f}")
    if scale.alone is not None and scale.beside is not None:
        for name, one in ((f"alone, {NEIGHBOUR:,}", scale.alone), ("beside others", scale.beside)):
            table.add_row(name, *_cells(one, scale.alone), "")
    console.print(table)
    resident = "" if scale.resident_mb is None else f"; {scale.resident_mb:.0f} MB resident"
    console.print(
        f"{max(scale.sizes):,} memories: first answer {scale.cold_start_s:.2f} s after the start, "
        f"without memories {scale.empty_start_s:.2f} s{resident}"
    )
    for target in targets(scale):
        console.print(target.verdict())


def _cells(one: Measured, other: Measured) -> list[str]:
    return [
        f"{one.quantile(0.5):.2f}",
        f"{_ratio(one, other):.2f}",
        f"{one.quantile(0.95):.2f}",
        f"{one.quantile(0.99):.2f}",
    ]


def _ratio(one: Measured, other: Measured) -> float:
    return one.quantile(0.5) / other.quantile(0.5)


def _times(one: Measured) -> dict[str, Any]:
    return {
        "calls": len(one.latencies),
        "p50_ms": one.quantile(0.5),
        "p95_ms": one.quantile(0.95),
        "p99_ms": one.quantile(0.99),
    }
