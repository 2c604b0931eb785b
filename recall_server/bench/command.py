"""`recall bench`."""

import asyncio
import json
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from recall_server import observe
from recall_server.domain.errors import RecallError

app = typer.Typer(help="Measure this machine.", no_args_is_help=True)
USAGE_ERROR = 2


class Engines(StrEnum):
    """What to measure on."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"
    BOTH = "both"


@app.callback()
def _root() -> None:
    """Keeps `load` a command of its own."""


@app.command()
def load(
    *,
    engine: Annotated[Engines, typer.Option(help="What to measure on.")] = Engines.BOTH,
    db_url: Annotated[
        str | None,
        typer.Option(
            help="A Postgres server; a database is made on it and dropped.",
            show_default="one of our own",
        ),
    ] = None,
    memories: Annotated[int, typer.Option(min=2_000, help="What the large search has.")] = 10_000,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="For each operation at each concurrency.")
    ] = 2.5,
    worker_jobs: Annotated[
        int, typer.Option(min=0, help="Jobs that the server runs at once meanwhile.")
    ] = 0,
    file: Annotated[Path | None, typer.Option("--json", help="Write the numbers here.")] = None,
) -> None:
    """Speed of store, search and inspect over HTTP, as ratios to a tool that does nothing."""
    # Loads the client side of MCP.
    from recall_server.bench.report import as_json, explain, show  # noqa: PLC0415
    from recall_server.bench.run import Run, Wishes, run  # noqa: PLC0415

    observe.configure("warning")
    wishes = Wishes(memories, seconds, worker_jobs, db_url)
    names = ("sqlite", "postgres") if engine is Engines.BOTH else (engine.value,)
    runs: list[Run] = []
    console = Console(soft_wrap=True)
    with Console(stderr=True).status("") as status:
        for name in names:
            try:
                done = asyncio.run(run(name, wishes, status.update))
            except RecallError as error:
                typer.echo(f"recall: {error.message} [{error.code}]", err=True)
                continue
            runs.append(done)
            show(done, console)
    if runs:
        explain(console)
    if file is not None:
        file.write_text(json.dumps(as_json(runs), indent=1) + "\n", encoding="utf-8")
    if len(runs) < len(names):
        raise typer.Exit(USAGE_ERROR)
