"""`recall bench`."""

import asyncio
import json
from collections.abc import Callable, Coroutine
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Protocol

import click
import typer
from rich.console import Console

from recall_server import logs
from recall_server.domain.errors import RecallError
from recall_server.domain.query import SearchMode
from recall_server.domain.search.signals import PARTS

app = typer.Typer(help="Measure this machine.", no_args_is_help=True)
USAGE_ERROR = 2


class Engines(StrEnum):
    """What to measure on."""

    SQLITE = "sqlite"
    POSTGRES = "postgres"
    BOTH = "both"

    @property
    def names(self) -> tuple[str, ...]:
        return ("sqlite", "postgres") if self is Engines.BOTH else (self.value,)


Engine = Annotated[Engines, typer.Option(help="What to measure on.")]
DbUrl = Annotated[
    str | None,
    typer.Option(
        help="A Postgres server; a database is made on it and dropped.",
        show_default="one of our own",
    ),
]
File = Annotated[Path | None, typer.Option("--json", help="Write the numbers here.")]

Run = Callable[[str, Callable[[str], None]], Coroutine[Any, Any, Any]]


class Report(Protocol):
    """How the runs of a measurement are shown: a module of the scales."""

    def show(self, run: Any, console: Console) -> None: ...

    def explain(self, console: Console) -> None: ...

    def as_json(self, runs: list[Any]) -> list[dict[str, Any]]: ...


@app.command()
def load(
    *,
    engine: Engine = Engines.BOTH,
    db_url: DbUrl = None,
    memories: Annotated[int, typer.Option(min=2_000, help="What the large search has.")] = 10_000,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="For each operation at each concurrency.")
    ] = 2.5,
    worker_jobs: Annotated[
        int, typer.Option(min=0, help="Jobs that the server runs at once meanwhile.")
    ] = 0,
    sizes: Annotated[
        str,
        typer.Option(help="Namespaces to search in turn, by their memories; '' for none."),
    ] = "1000,10000,100000",
    neighbours: Annotated[
        int, typer.Option(min=0, help="Other namespaces of 1,000 memories beside one.")
    ] = 100,
    file: File = None,
) -> None:
    """Speed of store, search and inspect over HTTP, as ratios to a tool that does nothing; what
    grows with the number of memories; and what neighbours cost.
    """
    # Loads the client side of MCP.
    from recall_server.bench import report  # noqa: PLC0415
    from recall_server.bench.run import Wishes, run  # noqa: PLC0415
    from recall_server.bench.scale import ScaleWishes  # noqa: PLC0415

    scale = ScaleWishes(_numbers(sizes), neighbours, seconds) if sizes else None
    wishes = Wishes(memories, seconds, worker_jobs, db_url, scale)
    _measure(engine, lambda name, say: run(name, wishes, say), report, file)


@app.command()
def peer(
    *,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="For each operation at each concurrency.")
    ] = 5.0,
    file: File = None,
) -> None:
    """The same load on this server and on szl-recall, which is installed from PyPI for it."""
    from recall_server.bench import peer_report  # noqa: PLC0415
    from recall_server.bench.peer import Wishes, run  # noqa: PLC0415

    wishes = Wishes(seconds)
    _measure(Engines.SQLITE, lambda _, say: run(wishes, say), peer_report, file)


@app.command()
def tasks(
    *,
    engine: Engine = Engines.BOTH,
    db_url: DbUrl = None,
    seconds: Annotated[
        float, typer.Option(min=0.1, help="For each server at each concurrency.")
    ] = 10.0,
    worker_jobs: Annotated[int, typer.Option(min=1, help="Jobs that the server runs at once.")] = 4,
    file: File = None,
) -> None:
    """A2A tasks in a second, as a ratio to the SDK's own server with an agent that does nothing."""
    from recall_server.bench import tasks_report  # noqa: PLC0415
    from recall_server.bench.tasks import Wishes, run  # noqa: PLC0415

    wishes = Wishes(seconds, worker_jobs, db_url)
    _measure(engine, lambda name, say: run(name, wishes, say), tasks_report, file)


@app.command()
def fairness(
    *,
    engine: Engine = Engines.BOTH,
    db_url: DbUrl = None,
    seconds: Annotated[float, typer.Option(min=0.1, help="For each operation.")] = 5.0,
    callers: Annotated[int, typer.Option(min=1, help="Of the tenant that floods.")] = 32,
    file: File = None,
) -> None:
    """A quiet tenant beside a flooding one, and what authentication, audit and limits cost."""
    from recall_server.bench import fairness_report  # noqa: PLC0415
    from recall_server.bench.fairness import Wishes, run  # noqa: PLC0415

    wishes = Wishes(seconds, callers, db_url)
    _measure(engine, lambda name, say: run(name, wishes, say), fairness_report, file)


@app.command()
def timing(
    *,
    engine: Engine = Engines.BOTH,
    db_url: DbUrl = None,
    calls: Annotated[int, typer.Option(min=20, help="With each kind of token.")] = 2_000,
    texts: Annotated[int, typer.Option(min=20, help="Stored that another has, and fresh.")] = 200,
    file: File = None,
) -> None:
    """What time tells: of a token that is refused, and of a text that another tenant has."""
    from recall_server.bench import timing_report  # noqa: PLC0415
    from recall_server.bench.timing import Wishes, run  # noqa: PLC0415

    wishes = Wishes(calls, texts, db_url)
    _measure(engine, lambda name, say: run(name, wishes, say), timing_report, file)


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
        typer.Option(
            help="Leave this part of the ranking out; repeatable.", click_type=click.Choice(PARTS)
        ),
    ] = None,
    neighbours: Annotated[
        int, typer.Option(min=0, max=5, help="Turns around a hit that count as delivered.")
    ] = 0,
    rankings: Annotated[
        Path | None, typer.Option(help="Write what each question found here, as JSON Lines.")
    ] = None,
    file: File = None,
) -> None:
    """How much of the evidence for questions about conversations a search finds."""
    from recall_server.bench import retrieval_report  # noqa: PLC0415
    from recall_server.bench.retrieval import RetrievalRun, Wishes, run  # noqa: PLC0415

    without = frozenset(ablate or ())
    wishes = Wishes(data, db_url, embedder, reranker, profile, without, limit, neighbours)
    done: list[RetrievalRun] = []

    async def found(name: str, say: Callable[[str], None]) -> RetrievalRun:
        done.append(await run(name, wishes, say))
        return done[-1]

    _measure(engine, found, retrieval_report, file)
    if rankings is not None:
        rankings.write_text("".join(retrieval_report.rankings(done)), encoding="utf-8")
    if len(done) > 1 and not retrieval_report.show_agreement(done, Console(soft_wrap=True)):
        raise typer.Exit(1)


def _numbers(text: str) -> tuple[int, ...]:
    try:
        numbers = tuple(sorted({int(part) for part in text.split(",")}))
    except ValueError:
        numbers = ()
    if not numbers or numbers[0] < 1:
        raise typer.BadParameter("Write numbers of memories, such as 1000,10000.")
    return numbers


def _measure(engine: Engines, run: Run, report: Report, file: Path | None) -> None:
    """Run on each engine that there is, and show what it did."""
    logs.configure("warning")
    runs: list[Any] = []
    console = Console(soft_wrap=True)
    with Console(stderr=True).status("") as status:
        for name in engine.names:
            try:
                done = asyncio.run(run(name, status.update))
            except RecallError as error:
                typer.echo(f"recall: {error.message} [{error.code}]", err=True)
                continue
            runs.append(done)
            report.show(done, console)
    if runs:
        report.explain(console)
    if file is not None:
        file.write_text(json.dumps(report.as_json(runs), indent=1) + "\n", encoding="utf-8")
    if len(runs) < len(engine.names):
        raise typer.Exit(USAGE_ERROR)
