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

from benchmarks import answers as answers_
from benchmarks import fairness as fairness_
from benchmarks import history as history_
from benchmarks import load as load_
from benchmarks import observation as observation_
from benchmarks import past as past_
from benchmarks import peer as peer_
from benchmarks import replicas as replicas_
from benchmarks import request_path
from benchmarks import retrieval as retrieval_
from benchmarks import tasks as tasks_
from benchmarks import timing as timing_
from benchmarks.fill import Say
from benchmarks.report import Report, show, show_notes, write_json
from recall_server import logs
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
Seconds = Annotated[float, typer.Option(min=0.1, help="For each operation at each concurrency.")]
File = Annotated[Path | None, typer.Option("--json", help="Write the figures to this file.")]
Strict = Annotated[bool, typer.Option("--strict", help="Exit with 1 where a bound is missed.")]
# Measures on the engine of this name, with a database on `db_url`.
Run = Callable[..., Awaitable[Report]]


def measured(
    default: Engines, *, fixed: bool = False
) -> Callable[[Callable[..., Run]], Callable[..., Run]]:
    """Make a command of a function from its options to what measures. The command has the options
    of all benchmarks too; without that of the engine if it is `fixed`.
    """

    def register(act: Callable[..., Run]) -> Callable[..., Run]:
        def command(
            *,
            engine: Engine = default,
            db_url: DbUrl = None,
            file: File = None,
            strict: Strict = False,
            **given: Any,
        ) -> None:
            run = partial(act(**given), db_url=db_url)
            _print(_on_each(engine, run), engine, file, strict)

        *of_all, _ = inspect.signature(command).parameters.values()
        shown = [one for one in of_all if not (fixed and one.name == "engine")]
        own = inspect.signature(act).parameters.values()
        vars(command)["__signature__"] = inspect.Signature([*own, *shown])
        command.__annotations__ = {}
        command.__doc__ = act.__doc__
        app.command(act.__name__)(command)
        return act

    return register


@measured(Engines.BOTH)
def load(
    *,
    memories: Annotated[int, typer.Option(min=1, help="Of the larger search.")] = 10_000,
    seconds: Seconds = 2.5,
    worker_jobs: Annotated[
        int, typer.Option(min=0, help="Jobs that the server runs at once meanwhile.")
    ] = 0,
    sizes: Annotated[
        str, typer.Option(help="Namespaces to search in turn, by their memories; '' for none.")
    ] = "1000,10000,100000",
    neighbours: Annotated[
        int, typer.Option(min=0, help="Other namespaces of 1,000 memories beside one.")
    ] = 100,
) -> Run:
    """Store, search and inspect over HTTP beside a no-op; growth with memories and neighbours."""
    wanted = _numbers(sizes) if sizes else ()
    return partial(
        load_.load,
        memories=memories,
        seconds=seconds,
        worker_jobs=worker_jobs,
        sizes=wanted,
        neighbours=neighbours,
    )


@app.command()
def peer(*, seconds: Seconds = 5.0, file: File = None, strict: Strict = False) -> None:
    """The same load on this server and on szl-recall, which is installed from PyPI for it."""
    found = _on_each(Engines.SQLITE, lambda _, say: peer_.peer(say, seconds=seconds))
    _print(found, Engines.SQLITE, file, strict)


@measured(Engines.BOTH)
def tasks(
    *,
    seconds: Seconds = 10.0,
    worker_jobs: Annotated[int, typer.Option(min=1, help="Jobs that the server runs at once.")] = 4,
) -> Run:
    """A2A tasks per second beside the SDK's own server with an agent that does nothing."""
    return partial(tasks_.tasks, seconds=seconds, worker_jobs=worker_jobs)


@measured(Engines.BOTH)
def fairness(
    *,
    seconds: Seconds = 2.0,
    callers: Annotated[int, typer.Option(min=1, help="Of the tenant that floods.")] = 32,
) -> Run:
    """A quiet tenant beside a flooding one; the cost of authentication, audit and limits."""
    return partial(fairness_.fairness, seconds=seconds, callers=callers)


@measured(Engines.POSTGRES, fixed=True)
def replicas(
    *,
    memories: Annotated[int, typer.Option(min=1, help="That are searched.")] = 1_000,
    texts: Annotated[int, typer.Option(min=10, help="That the workers make memories of.")] = 300,
    callers: Annotated[int, typer.Option(min=2, help="That search at once.")] = 16,
    seconds: Seconds = 10.0,
) -> Run:
    """Two servers and two workers beside one Postgres, to one of each."""
    return partial(
        replicas_.replicas,
        memories=memories,
        texts=texts,
        callers=callers,
        seconds=seconds,
    )


@measured(Engines.BOTH)
def timing(
    *,
    calls: Annotated[int, typer.Option(min=20, help="With each kind of token.")] = 2_000,
    texts: Annotated[int, typer.Option(min=20, help="Of each kind that are stored.")] = 200,
) -> Run:
    """Check that response times show no revoked token, and no text that another tenant has."""
    return partial(timing_.timing, calls=calls, texts=texts)


@measured(Engines.SQLITE)
def observation(
    *, rounds: Annotated[int, typer.Option(min=1, help="Of 30 calls to each server.")] = 200
) -> Run:
    """Processor time of a call with metrics and traces on, beside the same call without."""
    return partial(observation_.observation, rounds=rounds)


@measured(Engines.BOTH)
def past(
    *,
    memories: Annotated[
        int, typer.Option(min=10, help="Statements, each in its versions.")
    ] = 10_000,
    versions: Annotated[int, typer.Option(min=2, help="Of each statement.")] = 5,
    searches: Annotated[int, typer.Option(min=10, help="Of each kind.")] = 100,
) -> Run:
    """Searches of what was known, and was true, at a moment beside the same searches of now."""
    return partial(past_.past, memories=memories, versions=versions, searches=searches)


@measured(Engines.BOTH)
def history(
    *,
    memories: Annotated[
        int, typer.Option(min=10, help="Statements, each in its versions.")
    ] = 2_000,
    versions: Annotated[int, typer.Option(min=2, help="Of each statement.")] = 5,
) -> Run:
    """Rebuild and undo: events a second, and how long others wait."""
    return partial(history_.history, memories=memories, versions=versions)


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


@measured(Engines.SQLITE)
def answers(
    *,
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with texts/*.txt and questions.jsonl (text, question, pattern).",
            file_okay=False,
        ),
    ],
) -> Run:
    """Answers that a default search shows of texts handed in, beside the plain lines of them."""
    return partial(answers_.answers, data=data)


@measured(Engines.SQLITE)
def currency(
    *,
    data: Annotated[
        Path,
        typer.Option(
            help="Folder with facts-SIZE.jsonl (text) and questions-SIZE.jsonl (question, "
            "answers).",
            file_okay=False,
        ),
    ],
) -> Run:
    """Count how often the newest of statements that overwrite each other is found first."""
    return partial(answers_.currency, data=data)


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


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1:
        raise typer.BadParameter("Write numbers of memories, such as 1000,10000.")
    return numbers


def _on_each(engine: Engines, run: Callable[[str, Say], Awaitable[_T]]) -> list[_T]:
    """The results of a benchmark on each engine that is there; an error is printed."""
    logs.configure("warning")
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
