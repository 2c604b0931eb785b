"""`recall hold`: protect namespaces from erasure, for a court or an authority."""

from typing import Annotated

import typer

from recall_server.api import operations, presenters
from recall_server.application import Application
from recall_server.cli.shared import (
    PROTOCOL,
    AsJson,
    Db,
    echo,
    existing,
    in_application,
    print_json,
    print_table,
)
from recall_server.domain.context import Context
from recall_server.domain.namespace import namespace

app = typer.Typer(help="Namespaces of which nothing may be erased.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace.")]


@app.command("set")
def set_(
    name: Name,
    reason: Annotated[
        str, typer.Option(help="The reason, shown to callers who ask for an erasure.")
    ],
    db: Db = None,
) -> None:
    """Refuse every erasure of a namespace until the hold is lifted."""

    async def act(built: Application) -> None:
        ns = namespace(name)
        entry = built.services.audit.begin(ns, operations.erasure.SET_HOLD.name, PROTOCOL, None)
        await built.services.holds.place(Context(entry), reason)
        echo(f"{ns} is on hold: nothing of it is erased.")

    in_application(db, act)


@app.command()
def lift(name: Name, db: Db = None) -> None:
    """Lift the hold of a namespace."""

    async def act(built: Application) -> None:
        ns = await existing(built, name)
        entry = built.services.audit.begin(ns, operations.erasure.LIFT_HOLD.name, PROTOCOL, None)
        await built.services.holds.lift(Context(entry))
        echo(f"{ns} is not on hold any more.")

    in_application(db, act)


@app.command("list")
def list_(db: Db = None, as_json: AsJson = False) -> None:
    """List the namespaces on hold, since when and why."""

    async def act(built: Application) -> None:
        rows = [
            {"namespace": one.namespace, "since": presenters.moment(one.at), "reason": one.because}
            for one in await built.services.holds.all()
        ]
        if as_json:
            print_json(rows)
        else:
            print_table(rows, "No namespace is on hold.")

    in_application(db, act)
