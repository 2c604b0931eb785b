"""How the demo is printed: a hundred columns, colour on a terminal, plain text anywhere else."""

import io
import sys
import unicodedata
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table
from rich.text import Text

Json = dict[str, Any]
WIDTH = 100


class Page:
    """Writes to standard output. Nothing that it is given is read as markup."""

    def __init__(self) -> None:
        out = sys.stdout
        if isinstance(out, io.TextIOWrapper):
            # A terminal that lacks a letter shows a question mark instead of a stack trace.
            out.reconfigure(errors="replace")
        self.live = out.isatty()
        self._console = Console(
            file=out,
            # Said outright: FORCE_COLOR, which CI systems set, would put ANSI into logs.
            force_terminal=self.live,
            color_system="auto" if self.live else None,
            markup=False,
            highlight=False,
            emoji=False,
        )
        self._console.width = min(self._console.width, WIDTH) if self.live else WIDTH
        self.width = self._console.width
        self._scenes = 0

    def heading(self, title: str, why: str) -> None:
        """The title of the next scene, and why it is shown."""
        self._scenes += 1
        self._print(Text(f"\n{self._scenes}  {title}", style="bold cyan"))
        self._print(Text(why))

    def line(self, text: str, *, style: str = "") -> None:
        self._print(Text(text, style=style))

    def code(self, text: str) -> None:
        """Text to be copied: never wrapped."""
        self._print(Text(text, style="green"), wrap=False)

    def table(self, columns: Sequence[Column], rows: Iterable[Sequence[str | Text]]) -> None:
        table = Table(*columns, box=None, pad_edge=False, header_style="dim")
        for row in rows:
            table.add_row(*(Text(cell) if isinstance(cell, str) else cell for cell in row))
        self._print(table)

    def progress(self) -> Progress:
        """A bar that goes away when it is done; on a terminal only."""
        return Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed:.0f} of {task.total:.0f}"),
            TimeElapsedColumn(),
            console=self._console,
            transient=True,
            disable=not self.live,
        )

    def _print(self, what: RenderableType, *, wrap: bool = True) -> None:
        with self._console.capture() as captured:
            self._console.print(what, soft_wrap=not wrap)
        # Tables are padded to the right; a log has no use for it.
        lines = [line.rstrip() for line in captured.get().split("\n")]
        self._console.file.write("\n".join(lines))
        self._console.file.flush()


def shown(text: object, width: int) -> str:
    """Any text on one line of at most `width` columns, without what could steer a terminal."""
    plain = " ".join(str(text).split())
    plain = "".join(c for c in plain if not unicodedata.category(c).startswith("C"))
    if cell_len(plain) <= width:
        return plain
    while cell_len(plain) >= width:
        plain = plain[: max(0, min(len(plain) - 1, width))]
    return plain.rstrip() + "…"


def day(moment: str | None) -> str:
    return f"{datetime.fromisoformat(moment):%d %b %Y}".lstrip("0") if moment else "undated"


def fact(memory: Json, width: int) -> str:
    """What a memory says as entity, attribute and value."""
    if not memory["entity"]:
        return "-"
    value = f"{'not ' if memory['negated'] else ''}{memory['value']}"
    return shown(f"{memory['entity']} · {memory['attribute']} · {value}", width)


def cited(source: Json, width: int) -> str:
    """Who said it, when, and the very words."""
    lead = f"{shown(source['speaker'] or 'said', 20)}, {day(source['said_at'])}: "
    return f'{lead}"{shown(source["quote"], max(20, width - len(lead) - 2))}"'
