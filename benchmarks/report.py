"""The form of every report: named rows of figures, and checks of figures against bounds."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

Figure = float | str | None


@dataclass(frozen=True)
class Row:
    """Figures by the names of their columns; rows of one group make one table."""

    group: str
    name: str
    figures: Mapping[str, Figure]


@dataclass(frozen=True)
class Check:
    """A figure and its bound: at most `bound`, or at least."""

    name: str
    value: float
    bound: float
    at_least: bool = False

    @property
    def passed(self) -> bool:
        return self.value >= self.bound if self.at_least else self.value <= self.bound


@dataclass(frozen=True)
class Report:
    """The result of one benchmark on one engine."""

    benchmark: str
    engine: str
    rows: Sequence[Row]
    checks: Sequence[Check] = ()
    facts: Mapping[str, Figure] = field(default_factory=dict)
    notes: str = ""
    """The meaning of the columns, and how they were measured."""

    @property
    def missed(self) -> list[str]:
        return [check.name for check in self.checks if not check.passed]

    def figures(self, name: str) -> Mapping[str, Figure]:
        """Return the figures of the first row with this name."""
        return next(row.figures for row in self.rows if row.name == name)


def show(report: Report, console: Console) -> None:
    facts = ", ".join(f"{name} {_text(value)}" for name, value in report.facts.items())
    title = f"\n[bold]{report.benchmark} on {report.engine}[/bold]"
    console.print(title + (f": {escape(facts)}" if facts else ""))
    for group in dict.fromkeys(row.group for row in report.rows):
        console.print(_table(group, [row for row in report.rows if row.group == group]))
    for check in report.checks:
        bound = f"at {'least' if check.at_least else 'most'} {check.bound:g}"
        verdict = "pass" if check.passed else "[bold]miss[/bold]"
        console.print(f"{escape(check.name)}: {_text(check.value)}, {bound}: {verdict}")


def show_notes(reports: Iterable[Report], console: Console) -> None:
    """Print the notes of the reports, each once."""
    for notes in dict.fromkeys(report.notes for report in reports if report.notes):
        console.print(f"\n{escape(notes)}")


def write_json(reports: Iterable[Report], file: Path) -> None:
    file.write_text(json.dumps([_json(one) for one in reports], indent=1) + "\n", encoding="utf-8")


def _json(report: Report) -> dict[str, Any]:
    checks = [{**asdict(check), "passed": check.passed} for check in report.checks]
    return {**asdict(report), "checks": checks}


def _table(group: str, rows: Sequence[Row]) -> Table:
    columns = dict.fromkeys(name for row in rows for name in row.figures)
    table = Table(box=None, pad_edge=False, title=group or None, title_justify="left")
    table.add_column("", min_width=16, no_wrap=True)
    for name in columns:
        table.add_column(name, justify="right")
    for row in rows:
        table.add_row(row.name, *(_text(row.figures.get(name, "")) for name in columns))
    return table


def _text(value: Figure) -> str:
    if value is None:
        return "-"
    if isinstance(value, str):
        return value
    whole = isinstance(value, int) or abs(value) >= 1_000
    return f"{value:,.0f}" if whole else f"{value:.2f}"
