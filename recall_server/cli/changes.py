"""`recall changes` and `recall undo`: what changed in a namespace, and taking it back."""

from typing import Annotated

import typer

from recall_server.api import operations
from recall_server.application import Application
from recall_server.cli.shared import (
    AsJson,
    Name,
    begin,
    echo,
    existing,
    print_json,
    print_table,
    reading,
    with_application,
)


@with_application
async def changes(
    built: Application,
    name: Name,
    before: Annotated[
        int | None, typer.Option(help="Where to go on, as the page before says.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """List what jobs, tasks, imports and calls changed, newest first."""
    ns = await existing(built, name)
    async with reading(built, ns, operations.changes.LIST_CHANGES) as context:
        found = await built.services.changes.page(context, before)
    shown = operations.changes.page(found)
    if as_json:
        print_json(shown)
        return
    rows = [
        {
            "id": one["id"],
            "at": one["at"],
            "operation": one["operation"],
            "what": ", ".join(f"{count} {kind}" for kind, count in one["counts"].items()),
            "": "undone" if one["undone"] else "",
        }
        for one in shown["changes"]
    ]
    print_table(rows, "Nothing has changed.")
    if found.next_before is not None:
        echo(f"There are more: --before {found.next_before}")


@with_application
async def undo(  # noqa: PLR0917  # options, each by its name
    built: Application,
    name: Name,
    change_id: Annotated[
        str, typer.Argument(metavar="CHANGE", help="A task, a job, or what `changes` lists.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what it would do.")] = False,
    with_dependents: Annotated[
        bool, typer.Option("--with-dependents", help="Also undo what rests on it.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Take back what a task, job, import or call changed; an undo can be undone."""
    ns = await existing(built, name)
    context = begin(built, ns, operations.changes.UNDO_CHANGE)
    done = await built.services.changes.undo(
        context, change_id, dry_run=dry_run, with_dependents=with_dependents
    )
    if as_json:
        given = operations.changes.UndoChange(change_id=change_id, dry_run=dry_run)
        print_json(operations.changes.undone(done, given))
        return
    verb = "would be" if dry_run else "are"
    for one in done.changes:
        echo(f"undone {one}")
    echo(f"{len(done.memories)} memories {verb} as before, {len(done.forgotten)} forgotten again.")
    echo(f"The words of {len(done.texts)} texts {verb} shown or hidden as before.")
    if done.change_id is not None:
        echo(f"To have it again: recall undo {ns} {done.change_id}")
