"""`recall export` and `recall import`: a namespace as a file."""

import asyncio
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, aclosing, contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from recall_server.api import operations
from recall_server.application import Application
from recall_server.cli.shared import (
    STDOUT,
    AsJson,
    Create,
    Db,
    begin,
    fail,
    in_application,
    print_json,
    print_table,
    progress,
    written,
)
from recall_server.domain import export_format
from recall_server.domain.namespace import namespace
from recall_server.services.transfer import importing


def export_(
    name: Annotated[str | None, typer.Argument(metavar="NAMESPACE", help="The namespace.")] = None,
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="The file to write.", show_default="standard output"),
    ] = None,
    subject: Annotated[
        str | None, typer.Option(metavar="NAME", help="Only what concerns this person.")
    ] = None,
    schema: Annotated[
        bool, typer.Option("--schema", help="Print the JSON Schema of the lines.")
    ] = False,
    db: Db = None,
) -> None:
    """Write all data of a namespace as JSON Lines."""
    if schema:
        typer.echo(json.dumps(export_format.schema(), indent=1))
        return
    if name is None:
        fail("Name the namespace: recall export NAMESPACE.")

    async def act(built: Application) -> None:
        services, ns = built.services, namespace(name)
        context = begin(built, ns, operations.contents.EXPORT_NAMESPACE)
        pieces = services.export.stream(context, subject=subject)
        with written(out) as file, _lines_written(out) as on_progress:
            lines = 0
            async with aclosing(pieces):
                async for piece in pieces:
                    # A slow reader of the pipe must not block the event loop, which watches the
                    # time limit.
                    await asyncio.to_thread(file.write, piece)
                    lines += piece.count(b"\n")
                    on_progress(lines)

    in_application(db, act)


def _lines_written(out: Path | None) -> AbstractContextManager[Callable[[int], Any]]:
    """Show progress, unless the lines themselves are shown."""
    on_screen = out in (None, STDOUT) and sys.stdout.isatty()
    return progress("lines written", shown=not on_screen)


def import_(
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="A file that `recall export` wrote; - reads standard input."
        ),
    ],
    into: Annotated[str, typer.Option("--into", metavar="NAMESPACE", help="The target namespace.")],
    create: Create = False,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Import an export into a namespace; after an interruption, run it again to continue."""

    async def act(built: Application) -> None:
        services, ns = built.services, namespace(into)
        with _opened(file) as source:
            if source.seekable():
                # Check the whole file first, if possible: nothing of a damaged one is imported.
                services.importing.check(source)
                source.seek(0)
            with progress("lines read") as on_progress:
                report = await services.importing.take(
                    ns,
                    source,
                    entry=lambda: begin(built, ns, operations.contents.IMPORT_NAMESPACE).entry,
                    on_progress=on_progress,
                )
        _show(report, as_json=as_json)

    in_application(db, act, create=create)


def _show(report: importing.Report, *, as_json: bool) -> None:
    left_out = [{"line": line, "id": i, "reason": reason} for line, i, reason in report.left_out]
    if as_json:
        print_json(
            {
                **report.counts(),
                "new_by_kind": dict(report.new),
                "skipped": dict(report.skipped),
                "told_only": dict(report.skipped),  # the name in 0.1.0
                "left_out": left_out,
            }
        )
    else:
        counts = report.counts()
        typer.echo(
            f"{counts['new']} new ({report.new['episode']} episodes, {report.new['memory']} "
            f"memories), {counts['known']} known before"
        )
        typer.echo(
            f"left out: {counts['conflicts']} conflicts, {counts['refused']} erased, "
            f"{counts['orphans']} whose source is not here, {counts['unfit']} that no protocol "
            f"would take; {counts['quarantined']} turns in quarantine"
        )
        if left_out:
            print_table(left_out, "")
    if report.conflicts:
        raise typer.Exit(1)


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if str(file) == "-":
        yield sys.stdin.buffer
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        fail(f"{file} cannot be read ({error.strerror}).")
    with opened:
        yield opened
