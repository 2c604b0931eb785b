"""`python -m benchmarks`."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Annotated, Any, TypeVar

import typer
from rich.console import Console

from benchmarks import peer as peer_
from benchmarks import request_path
from benchmarks import retrieval as retrieval_
from benchmarks.answers import answers, currency
from benchmarks.fairness import fairness
from benchmarks.fill import Say
from benchmarks.history import history
from benchmarks.load import load
from benchmarks.measure import Seconds
from benchmarks.observation import observation
from benchmarks.past import past
from benchmarks.replicas import replicas
from benchmarks.report import Report, show, show_notes, write_json
from benchmarks.tasks import tasks
from benchmarks.timing import timing
from recall_server import telemetry
from recall_server.domain.errors import RecallError
from recall_server.domain.query import SearchMode
from recall_server.domain.search.signals import PARTS

app = typer.Typer(
    help="Benchmarks of the real server. Figures are ratios where they can be: to a tool that does "
    "nothing, to a smaller namespace, to another server.",
    no_args_is_help=True,
    add_completion=False,
)
MISSED, NOT_RUN = 1, 2
# The seconds between lines of progress if standard error is no terminal.
PROGRESS_S = 5.0
WIDTH = 120

_T = TypeVar("_T")


def _known_parts(names: list[str] | None) -> list[str] | None:
    unknown = sorted(set(names or ()) - set(PARTS))
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)} is none of {', '.join(PARTS)}.")
    return names


class Engines(StrEnum):
    SQLITE = "sqlite"
    POSTGRES = "postgres"
    BOTH = "both"

    @property
    def names(self) -> tuple[str, ...]:
        return ("sqlite", "postgres") if self is Engines.BOTH else (self.value,)


Engine = Annotated[Engines, typer.Option(help="The engine to measure on.")]
DbUrl = Annotated[
    str | None,
    typer.Option(
        help="A Postgres server; a database is created on it and dropped.",
        show_default="a server started for the run",
    ),
]
File = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 where a bound is missed.")]
Run = Callable[..., Awaitable[Report]]


def _add(run: Run, default: Engines, *, fixed: bool = False) -> None:
    """Make a command of a benchmark: it has the options of the benchmark and those of all, without
    that of the engine if it is `fixed`.
    """

    def command(
        *,
        engine: Engine = default,
        db_url: DbUrl = None,
        file: File = None,
        strict: Strict = False,
        **given: Any,
    ) -> None:
        found = _on_each(engine, partial(run, db_url=db_url, **given))
        _print(found, engine, file, strict)

    *of_all, _ = inspect.signature(command).parameters.values()
    shown = [one for one in of_all if not (fixed and one.name == "engine")]
    _engine, _say, *own, _db_url = inspect.signature(run).parameters.values()
    vars(command)["__signature__"] = inspect.Signature([*own, *shown])
    command.__annotations__ = {}
    command.__doc__ = run.__doc__
    app.command(run.__name__)(command)


_add(load, Engines.BOTH)
_add(tasks, Engines.BOTH)
_add(fairness, Engines.BOTH)
_add(replicas, Engines.POSTGRES, fixed=True)
_add(timing, Engines.BOTH)
_add(observation, Engines.SQLITE)
_add(past, Engines.BOTH)
_add(history, Engines.BOTH)
_add(answers, Engines.SQLITE)
_add(currency, Engines.SQLITE)


@app.command()
def peer(*, seconds: Seconds = 5.0, file: File = None, strict: Strict = False) -> None:
    """The same load on this server and on szl-recall, which is installed from PyPI for it."""
    found = _on_each(Engines.SQLITE, lambda _, say: peer_.peer(say, seconds=seconds))
    _print(found, Engines.SQLITE, file, strict)


@app.command()
def retrieval(
    *,
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with docs.jsonl (corpus, id, text, timestamp, speaker, session, caption) "
            "and queries.jsonl (id, corpus, text, gold, category), a JSON object a line.",
            file_okay=False,
        ),
    ],
    engine: Engine = Engines.BOTH,
    db_url: DbUrl = None,
    embedder: Annotated[
        str | None, typer.Option(help="As RECALL_EMBEDDER.", show_default="the product's")
    ] = None,
    reranker: Annotated[
        str | None, typer.Option(help="As RECALL_RERANKER.", show_default="the product's")
    ] = None,
    profile: Annotated[
        SearchMode | None, typer.Option(help="The search mode.", show_default="the product's")
    ] = None,
    limit: Annotated[int, typer.Option(min=20, max=50, help="Hits of a search.")] = 20,
    ablate: Annotated[
        list[str] | None,
        typer.Option(help="Leave this part of the ranking out; repeatable.", callback=_known_parts),
    ] = None,
    neighbours: Annotated[
        int, typer.Option(min=0, max=5, help="Turns around a hit that count as delivered.")
    ] = 0,
    rankings: Annotated[
        Path | None, typer.Option(help="Write the hits of each question here, as JSON Lines.")
    ] = None,
    file: File = None,
    strict: Strict = False,
) -> None:
    """Evidence found for questions about conversations; both engines must answer alike."""
    options = retrieval_.Options(
        *(data, db_url, embedder, reranker, profile, frozenset(ablate or ()), limit, neighbours)
    )
    found = _on_each(engine, lambda name, say: retrieval_.retrieval(name, options, say))
    if rankings is not None:
        rankings.write_text("".join(retrieval_.rankings(found)), encoding="utf-8")
    reports = [one.report() for one in found]
    if len(found) > 1:
        reports.append(retrieval_.agreement(*found))
        strict = strict or bool(reports[-1].missed)
    _print(reports, engine, file, strict)


@app.command()
def path(
    *,
    every: Annotated[bool, typer.Option("--list", help="List the files and functions.")] = False,
    file: File = None,
    strict: Strict = False,
) -> None:
    """Files and functions of the product that one store and one search execute."""
    found = _on_each(Engines.SQLITE, lambda _, say: request_path.request_path(say, every=every))
    _print(found, Engines.SQLITE, file, strict)


def _on_each(engine: Engines, run: Callable[[str, Say], Awaitable[_T]]) -> list[_T]:
    """The results of a benchmark on each engine that is there; an error is printed."""
    telemetry.configure_logs("warning")
    done: list[_T] = []
    for name in engine.names:
        try:
            done.append(asyncio.run(_with_progress(name, run)))
        except RecallError as error:
            typer.echo(f"benchmarks: {error.message} [{error.code}]", err=True)
    return done


async def _with_progress(name: str, run: Callable[[str, Say], Awaitable[_T]]) -> _T:
    """A line that changes on a terminal; anywhere else a line every few seconds."""
    console = Console(stderr=True, soft_wrap=True)
    if console.is_terminal:
        with console.status("") as status:
            return await run(name, status.update)
    written = 0.0

    def write(text: str) -> None:
        nonlocal written
        if monotonic() - written >= PROGRESS_S:
            written = monotonic()
            console.print(text, markup=False, highlight=False)

    return await run(name, write)


def _print(reports: list[Report], engine: Engines, file: Path | None, strict: bool) -> None:
    # A file has no width; the tables need this much.
    console = Console(soft_wrap=True, highlight=False, width=max(Console().width, WIDTH))
    for report in reports:
        show(report, console)
    show_notes(reports, console)
    if file is not None:
        write_json(reports, file)
    if len(reports) < len(engine.names):
        raise typer.Exit(NOT_RUN)
    if strict and any(report.missed for report in reports):
        raise typer.Exit(MISSED)


if __name__ == "__main__":
    app()
