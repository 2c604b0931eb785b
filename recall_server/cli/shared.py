"""What all commands share: settings, a house to act in, and how things are printed."""

import asyncio
import json
import sys
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.table import Table

from recall_server import observe
from recall_server.app import House, house
from recall_server.config import Settings
from recall_server.domain.errors import NotFound, RecallError
from recall_server.domain.model import Namespace, namespace
from recall_server.domain.text import visible

Db = Annotated[
    str | None,
    typer.Option("--db", help="SQLite file, or a postgresql:// URL.", show_default="recall.db"),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
DOOR = "cli"
USAGE_ERROR = 2


def settings(db: str | None, **given: Any) -> Settings:
    """The settings, with what was given on the command line; a fault ends the program."""
    if db is not None:
        given["db_url" if "://" in db else "db_path"] = db
    try:
        chosen = Settings(**given)
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        fail(f"Setting {'.'.join(map(str, fault['loc']))}: {fault['msg']}.")
    if db is not None and "://" not in db and chosen.db_url is not None:
        # A flag goes before the environment, RECALL_DB_URL included.
        chosen = chosen.model_copy(update={"db_url": None})
    observe.configure(chosen.log_level)
    return chosen


def in_house(db: str | None, act: Any, *, create: bool = False) -> None:
    """`act` in a house that serves nobody; unless it may `create` one, there must be a database."""
    chosen = settings(db)
    if not create and isinstance(chosen.database, Path) and not chosen.database.exists():
        fail(
            f"There is no database at {chosen.database}. Name it with --db, or make one with "
            "`recall create-token NAMESPACE`.",
            "DATABASE_UNUSABLE",
        )

    async def inside() -> None:
        async with house(chosen) as built:
            await act(built)

    run(inside())


async def existing(built: House, name: str) -> Namespace:
    """The namespace of this name. Raises `NotFound` where there is none."""
    ns = namespace(name)
    async with built.store.transaction(ns, write=False) as tx:
        if not await tx.portable.exists():
            raise NotFound("There is no such namespace. `recall tokens list` shows those used.")
    return ns


def run(main_: Coroutine[Any, Any, None]) -> None:
    """Run to the end; an error of ours is one line."""
    try:
        asyncio.run(main_)
    except RecallError as error:
        fail(error.message, error.code)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def echo(text: str, *, err: bool = False) -> None:
    """Print what may hold stored text: a terminal shows it, and obeys nothing of it."""
    typer.echo(visible(text), err=err)


def fail(message: str, code: str = "INVALID_ARGUMENT") -> NoReturn:
    echo(f"recall: {message} [{code}]", err=True)
    raise typer.Exit(USAGE_ERROR)


def print_json(value: Any) -> None:
    """Exact, for a program to read; in ASCII, so that a terminal is safe with it too."""
    typer.echo(json.dumps(value, indent=None if isinstance(value, dict) else 1))


def print_table(rows: list[dict[str, Any]], nothing: str) -> None:
    if not rows:
        typer.echo(nothing)
        return
    table = Table(box=None, pad_edge=False)
    for key in rows[0]:
        table.add_column(key, overflow="fold", no_wrap=not sys.stdout.isatty())
    for row in rows:
        table.add_row(*(_cell(value) for value in row.values()))
    Console(width=None if sys.stdout.isatty() else 10_000, markup=False).print(table)


def _cell(value: Any) -> str:
    if isinstance(value, dict):
        value = " ".join(f"{key}={number}" for key, number in value.items())
    return "" if value is None else visible(str(value), lines=False)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int], Any]]:
    """Says how far it has come, to a person who looks on."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    yield lambda count: typer.echo(f"\r{count} {what}", nl=False, err=True)
    typer.echo(err=True)
