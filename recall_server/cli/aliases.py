"""`recall aliases`: names that stand for one person or thing."""

from typing import Annotated

import typer

from recall_server.api import operations
from recall_server.api.operations.operation import Json
from recall_server.cli.shared import print_table
from recall_server.cli.target import NamespaceFirst, asks

app = typer.Typer(
    help="Names that stand for one person or thing in a namespace.", no_args_is_help=True
)


@app.command("list", cls=NamespaceFirst)
@asks(operations.subject_aliases.LIST_ALIASES, part="aliases")
def list_(found: Json) -> None:
    """List the aliases of a namespace, and the subject of each."""
    print_table(found["aliases"], "No aliases yet.")


@app.command("set", cls=NamespaceFirst)
@asks(operations.subject_aliases.SET_ALIASES, part="aliases")
def set_(
    found: Json,
    *,
    subject: Annotated[str, typer.Argument(metavar="SUBJECT", help="The name to go by.")],
    aliases: Annotated[list[str], typer.Option("--alias", help="Another name; repeatable.")],
) -> None:
    """Set the aliases of a subject, in place of those that it had: facts about them are facts about
    it from now on.
    """
    print_table(found["aliases"], "No aliases.")


@app.command(cls=NamespaceFirst)
@asks(operations.subject_aliases.REMOVE_ALIAS)
def remove(
    _: Json,
    *,
    alias: Annotated[str, typer.Argument(metavar="ALIAS", help="The name, as `list` shows it.")],
) -> str:
    """Remove an alias: it is a subject of its own again."""
    return f"{alias} is a subject of its own again."
