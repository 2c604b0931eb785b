"""Shared parts of commands: settings, an open application, and output."""

import asyncio
import inspect
import json
import os
import re
import shlex
import stat
import sys
import textwrap
from collections.abc import (
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
    Iterator,
    Sequence,
)
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO, NoReturn, TypeVar, get_args, get_origin

import typer
from pydantic import ValidationError
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from typer.models import ArgumentInfo

from recall_server import local as local_server
from recall_server import telemetry
from recall_server.api.operations.operation import Operation
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.config import ENV_FILE, Settings, variable_of
from recall_server.doctor import given_variable
from recall_server.domain.context import Context
from recall_server.domain.errors import Invalid, NamespaceNotFound, RecallError
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.text.cleaning import validator_message, visible
from recall_server.integrations.keys import Jwk
from recall_server.storage.sqlite import sync_path

T = TypeVar("T")
STDOUT = Path("-")


@contextmanager
def written(out: Path | None) -> Iterator[BinaryIO]:
    """Yield a file that only its owner can read and that gets its name when it is complete and
    synced; standard output if the name is None or `-`.
    """
    if out is None or out == STDOUT:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()
        return
    part = out.with_name(out.name + ".part")
    try:
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        fail(
            f"{part} exists: another command is writing it, or one was stopped. Remove it if "
            "nobody is."
        )
    except OSError as error:
        fail(f"{part} cannot be written ({error.strerror}).")
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
            file.flush()
            os.fsync(descriptor)
        part.replace(out)
        sync_path(out.parent)
    except OSError as error:
        fail(f"{out} cannot be written ({error.strerror}). Free space, then try again.")
    finally:
        part.unlink(missing_ok=True)


def unused(out: Path | None, instead: str = "") -> None:
    """Fail if the file exists: evidence is not overwritten. `instead`: what else would do."""
    if out is not None and out != STDOUT and out.exists():
        fail(f"{out} exists and is not overwritten. Name another file.{instead}")


Db = Annotated[
    str | None,
    typer.Option("--db", help="SQLite file, or a postgresql:// URL.", show_default="recall.db"),
]
Create = Annotated[
    bool,
    typer.Option("--create", help="Make the SQLite file of --db if it is missing; not its folder."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON for scripts.")]
PROTOCOL = "cli"
INDENT = 4
USAGE_ERROR = 2


def settings(db: str | None, **given: Any) -> Settings:
    """Return the settings with the options of the command line; exits on an invalid one."""
    if db is not None:
        given["db_url" if "://" in db else "db_path"] = db
    try:
        chosen = Settings(_env_file=ENV_FILE, **given)
    except Invalid as error:
        fail(error.message, error.code)
    except (OSError, UnicodeDecodeError):
        fail(f"{ENV_FILE} cannot be read as UTF-8. Correct it, or its mode.")
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        named = _named(str(fault["loc"][0]), given)
        fail(f"{named}: {validator_message(fault['msg'])}.")
    if db is not None and "://" not in db and chosen.db_url is not None:
        # An option takes precedence over the environment, RECALL_DB_URL included.
        chosen = chosen.model_copy(update={"db_url": None})
    telemetry.configure_logs(chosen.log_level)
    return chosen


def _named(setting: str, given: dict[str, Any]) -> str:
    """Return the name of a setting as it was given: the option, or the environment variable."""
    for name, field in Settings.model_fields.items():
        if setting in (name, variable_of(name, field)):
            if given.get(name) is None:
                return given_variable(name, field)
            return "--db" if name.startswith("db_") else f"--{name.replace('_', '-')}"
    return setting


def existing_settings(db: str | None) -> Settings:
    """Return the settings of an existing database; exits if there is none."""
    chosen = settings(db)
    if isinstance(chosen.database, Path) and not chosen.database.exists():
        local = local_server.database()
        of_clients = f" That of the clients on this machine is {local}." if local.exists() else ""
        advice = (
            "Name it with --db, or make one with `recall serve` or `recall create-token NAMESPACE`."
        )
        if db is not None:
            made = f"recall create-token NAMESPACE --db {shlex.quote(db)} --create"
            advice = f"Correct the path, or make one with `{made}`."
        fail(
            f"There is no database at {chosen.database}.{of_clients} {advice}",
            "DATABASE_UNUSABLE",
        )
    return chosen


def new_settings(db: str | None, *, create: bool, **given: Any) -> Settings:
    """Return the settings of a command that may make its database: if `create` says so or nobody
    has named it with --db, and its folder exists. Exits otherwise: a folder that is missing is
    often a wrong path, or a disk that is not mounted.
    """
    chosen = settings(db, **given)
    path = chosen.database
    if not isinstance(path, Path) or path.exists():
        return chosen
    if not create and db is not None:
        fail(f"There is no database at {path}. --create makes one there.", "DATABASE_UNUSABLE")
    if not path.parent.is_dir():
        fail(
            f"There is no folder {path.parent} for a database. Make it, or name another file with "
            f"{'RECALL_DB_PATH' if db is None else '--db'}.",
            "DATABASE_UNUSABLE",
        )
    return chosen


def in_application(
    db: str | None,
    act: Callable[[Application], Awaitable[T]],
    *,
    create: bool | None = None,
    restored: bool = False,
) -> T:
    """Run `act` in an application without a server. There must be a database, unless `create` says
    whether one may be made, as `new_settings` does. The database must know all recorded erasures,
    unless it is known to be `restored`.
    """
    chosen = existing_settings(db) if create is None else new_settings(db, create=create)
    if "log_level" not in chosen.model_fields_set:
        telemetry.configure_logs("warning")  # people do not need the log lines of jobs

    async def inside() -> T:
        async with open_application(chosen, restored=restored, migrating=False) as built:
            return await act(built)

    return run(inside(), db)


@dataclass(frozen=True)
class Answer:
    """What a command prints: `data` with --json, else what is `said`, as a sentence or by a
    function; its exit code; and whether there is a `secret` in it.
    """

    data: Any
    said: str | Callable[[], str | None]
    code: int = 0
    secret: bool = False


def answering(act: Callable[..., Answer | None]) -> Callable[..., None]:
    """Make a command of `act`, which returns its answer, if it has one."""
    return signed(act, act, provided=0)


def with_application(act: Callable[..., Awaitable[Answer | None]]) -> Callable[..., None]:
    """Make a command of `act`, which takes an open application: the other parameters of `act` are
    its options, with --db.
    """

    def run_it(db: str | None, **given: Any) -> Answer | None:
        return in_application(db, partial(act, **given))

    return signed(run_it, act, option("db", Db))


def option(name: str, annotation: Any, *, default: Any = None) -> inspect.Parameter:
    """Return an option that may be left out."""
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation
    )


def signed(
    run_it: Callable[..., Answer | None],
    act: Callable[..., Any],
    *added: inspect.Parameter,
    first: Sequence[inspect.Parameter] = (),
    provided: int = 1,
) -> Callable[..., None]:
    """Return a command that prints the answer of `run_it`. It has the name, the docstring and the
    parameters of `act`, except the first ones, which `run_it` provides: those of `first` come
    before them, those `added` after, and --json last, if `act` answers. `Args:` in the docstring
    lists the help of parameters.
    """
    signature = inspect.signature(act)
    takes_json = "as_json" in signature.parameters
    described, helps = _help_of(inspect.getdoc(act) or "")

    def command(**given: Any) -> None:
        as_json = given["as_json"] if takes_json else given.pop("as_json", False)
        answer = run_it(**given)
        if answer is None:
            return
        if as_json:
            print_json(answer.data)
        elif (said := answer.said if isinstance(answer.said, str) else answer.said()) is not None:
            echo(said)
        if answer.secret:
            warn_of_readers()
        if answer.code:
            raise typer.Exit(answer.code)

    assert helps.keys() <= signature.parameters.keys(), f"{act.__name__} has no {helps.keys()}"
    own = [_option_of(one, helps) for one in signature.parameters.values()][provided:]
    parameters = [*first, *own, *added]
    if signature.return_annotation is Answer and not takes_json:
        parameters.append(option("as_json", AsJson, default=False))
    parameters.sort(key=lambda one: one.name == "as_json")
    vars(command)["__signature__"] = signature.replace(parameters=parameters)
    command.__annotations__ = {}
    command.__name__, command.__doc__ = act.__name__, described
    return command


def _help_of(docstring: str) -> tuple[str, dict[str, str]]:
    """Return a docstring without `Args:`, and what that says of each parameter."""
    described, _, args = docstring.partition("\n\nArgs:\n")
    entries = [one.partition(": ") for one in re.split(r"\n(?=\S)", textwrap.dedent(args))]
    return described, {name: " ".join(text.split()) for name, _, text in entries if name}


def _option_of(one: inspect.Parameter, helps: dict[str, str]) -> inspect.Parameter:
    """Return a parameter as typer reads it: without a default it is an argument, shown by its last
    word, and a flag has no opposite. A namespace is a text that is checked before the command runs.
    """
    kind, info = one.annotation, None
    if get_origin(kind) is Annotated:
        kind, info = get_args(kind)
    if info is None:
        info = typer.Argument() if one.default is one.empty else typer.Option()
    shown = copy(info)
    shown.help = helps.get(one.name, shown.help)
    name, names_one = one.name.strip("_").replace("_", "-"), kind in (Namespace, Namespace | None)
    if isinstance(shown, ArgumentInfo):
        last_word = name.rpartition("-")[2].upper()
        shown.metavar = shown.metavar or ("NAMESPACE" if names_one else last_word)
    elif shown.default is ... and not shown.param_decls:  # it names no option itself
        shown.param_decls = (f"--{name}",)
    if names_one:
        shown.parser = namespace_or_fail
        kind = str if kind is Namespace else str | None
    return one.replace(kind=inspect.Parameter.KEYWORD_ONLY, annotation=Annotated[kind, shown])


def begin(
    built: Application, ns: Namespace, operation: Operation, *, read_only: bool = False
) -> Context:
    """Begin the audit record of an operation of the operator."""
    audit = built.services.audit
    return Context(audit.begin(ns, operation.name, PROTOCOL, None, read_only=read_only))


async def observed(built: Application, ns: Namespace, operation: Operation, **counts: int) -> None:
    """Record that the operator reads. Raises `NamespaceNotFound`."""
    await built.services.audit.observed(ns, operation.name, PROTOCOL, **counts)


async def existing(built: Application, name: str) -> Namespace:
    """Return the namespace of this name. Raises `NamespaceNotFound`."""
    ns = namespace(name)
    async with built.store.transaction(ns, write=False) as tx:
        if not await tx.exports.exists():
            raise NamespaceNotFound
    return ns


def run(main_: Coroutine[Any, Any, T], db: str | None = None) -> T:
    """Run a coroutine; print an error of this server as one line. `db`: what --db names."""
    try:
        return asyncio.run(main_)
    except RecallError as error:
        fail(as_given(error.message, db), error.code)
    except KeyboardInterrupt:
        raise typer.Exit(130) from None


def as_given(message: str, db: str | None) -> str:
    """Return an error about the URL of a database, with the name of the option if that gave it."""
    return message if db is None else message.replace("RECALL_DB_URL", "--db")


def key_in(path: Path) -> Jwk:
    """Return the public key in a file, as `recall key` prints it. Raises `Invalid`."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        found = None
    return jwk(found, str(path))


def jwk(found: object, where: str) -> Jwk:
    """Return `found` if it is a public key. Raises `Invalid`."""
    if not (
        isinstance(found, dict)
        and (found.get("kty"), found.get("crv")) == ("OKP", "Ed25519")
        and isinstance(found.get("x"), str)
    ):
        raise Invalid(f"{where} is no Ed25519 public key (JWK). `recall key` prints one.")
    return found


def echo(text: str, *, err: bool = False, indent: int = 0) -> None:
    """Print text that may hold stored text, with control characters escaped: at a terminal as wide
    as that, with further lines indented, and unchanged for programs.
    """
    text = visible(text)
    if (sys.stderr if err else sys.stdout).isatty():
        space, width = " " * indent, Console(stderr=err).width
        # Paths and commands stay whole, to be copied.
        wrap = partial(
            textwrap.wrap, width=width, subsequent_indent=space, break_long_words=False,
            break_on_hyphens=False, replace_whitespace=False,
        )  # fmt: skip
        text = "\n".join(part for line in text.split("\n") for part in wrap(line) or [""])
    typer.echo(text, err=err)


def fail(message: str, code: str = "INVALID_ARGUMENT") -> NoReturn:
    echo(f"recall: {message} [{code}]", err=True)
    raise typer.Exit(USAGE_ERROR)


def namespace_or_fail(name: str) -> Namespace:
    try:
        return namespace(name)
    except RecallError as error:
        fail(error.message, error.code)


Name = Annotated[Namespace, typer.Argument(help="The namespace.")]
AnyName = Annotated[Namespace | None, typer.Argument(show_default="all namespaces")]


def print_json(value: Any) -> None:
    """Print exact data for a program; in ASCII, so that it is safe for a terminal too."""
    typer.echo(json.dumps(value, indent=None if isinstance(value, dict) else 1))


def warn_of_readers() -> None:
    """Say so if a secret was printed into a file that others can read: the shell that made the file
    gave it the mode of its umask.
    """
    try:
        mode = os.fstat(sys.stdout.fileno()).st_mode
    except OSError:
        return  # no file at all
    if stat.S_ISREG(mode) and mode & (stat.S_IRGRP | stat.S_IROTH):
        echo(
            "Others on this machine can read the file that it was written to: run `chmod 600` on "
            "it. After `umask 077` the next one is yours alone.",
            err=True,
        )


def listed(rows: list[dict[str, Any]], nothing: str, columns: Sequence[str] = ()) -> Answer:
    """Return rows as an answer: all `columns` of them as data, and these ones in the table."""
    shown = [{name: row[name] for name in columns or row} for row in rows]
    return Answer(rows, partial(print_table, shown, nothing))


def decided(one: dict[str, Any]) -> str:
    """Return a line about an answer to a question, from the data of a decision."""
    by = f"{one['decided_by']} at {one['decided_at']}"
    if "confidence" not in one:
        return f"{one['choice']} by {by}"
    why = f": {one['reason']}" if one["reason"] else ""
    return f"{one['choice']} by the judge {by} (confidence {one['confidence']:.2f}){why}"


def print_table(rows: list[dict[str, Any]], nothing: str) -> None:
    """Print each row as one whole line for programs; on a terminal that is too narrow for that, as
    a block of lines.
    """
    if not rows:
        typer.echo(nothing)
        return
    cells = [{key: cell(value) for key, value in row.items()} for row in rows]
    widths = [max(map(cell_len, (key, *(row[key] for row in cells)))) for key in rows[0]]
    if sys.stdout.isatty() and sum(widths) + 2 * len(widths) > Console().width:
        for row in cells:
            (_, title), *rest = row.items()
            echo(title)
            pairs = [f"{key} {value}" for key, value in rest if value]
            for line in _filled(pairs, Console().width - INDENT):
                echo(" " * INDENT + line)
        return
    if not sys.stdout.isatty():
        for row in ({key: key for key in rows[0]}, *cells):
            padded = (
                text + " " * (width - cell_len(text))
                for text, width in zip(row.values(), widths, strict=True)
            )
            typer.echo("  ".join(padded).rstrip())
        return
    table = Table(box=None, pad_edge=False)
    for key in rows[0]:
        table.add_column(key, no_wrap=True)
    for row in cells:
        table.add_row(*row.values())
    Console(markup=False).print(table)


def _filled(parts: Iterable[str], width: int) -> Iterator[str]:
    """Return lines that are filled with parts, and broken only between them."""
    line = ""
    for part in parts:
        if line and cell_len(line) + 2 + cell_len(part) > width:
            yield line
            line = ""
        line = f"{line}  {part}" if line else part
    if line:
        yield line


def paragraph(text: str, bullet: str = "") -> None:
    """Print stored text below its heading, or behind a bullet: as wide as the terminal, and
    unchanged for programs.
    """
    indent = " " * INDENT
    first = bullet or indent
    for line in visible(text).splitlines():
        width = Console().width if sys.stdout.isatty() else len(first) + len(line) + 1
        parts = textwrap.wrap(line, width, initial_indent=first, subsequent_indent=indent)
        for part in parts or [""]:
            typer.echo(part)
        first = indent


def cell(value: Any) -> str:
    if isinstance(value, list):
        value = ",".join(value)
    if isinstance(value, dict):
        value = " ".join(f"{key}={number}" for key, number in value.items())
    return "" if value is None else visible(str(value), lines=False)


@contextmanager
def waiting(what: str) -> Iterator[None]:
    """Show that work is going on, if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    with Console(stderr=True).status(what):
        yield


@contextmanager
def progress(what: str, *, shown: bool = True) -> Iterator[Callable[[int], Any]]:
    """Show progress, if standard error is a terminal."""
    if not (shown and sys.stderr.isatty()):
        yield lambda _: None
        return
    yield lambda count: typer.echo(f"\r{count} {what}", nl=False, err=True)
    typer.echo(err=True)
