"""`recall quarantine`: decide about turns in quarantine."""

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
)
from recall_server.domain.context import Context
from recall_server.domain.security.quarantine import Held
from recall_server.services.memory.quarantine import LISTED_MAX

app = typer.Typer(help="Turns that were held back when they came in.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace.")]
ItemId = Annotated[str, typer.Argument(metavar="ID", help="As `list` shows it.")]


@app.command("list")
def list_(  # noqa: PLR0917  # each is an option
    name: Name,
    state: Annotated[Held, typer.Option(help="Those that wait, or those with a decision.")] = (
        Held.HELD
    ),
    limit: Annotated[int, typer.Option(min=1, max=LISTED_MAX)] = 50,
    offset: Annotated[int, typer.Option(min=0)] = 0,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """List suspects with their words and the reasons, newest first."""

    async def act(built: Application) -> None:
        ns = await existing(built, name)
        entry = built.services.audit.begin(
            ns, operations.quarantine.LIST_QUARANTINE.name, PROTOCOL, None
        )
        found = await built.services.quarantine.list(
            Context(entry), state=state, limit=limit, offset=offset
        )
        await built.services.audit.write(entry)
        if as_json:
            print_json([presenters.suspect(one) for one in found.found])
            return
        for one in found.found:
            echo(f"{one.item_id}  {one.held_at:%Y-%m-%d %H:%M}  {one.topic}")
            for reason in one.reasons:
                echo(f"  {reason}")
            speaker = f"{one.citation.speaker}: " if one.citation.speaker else ""
            echo("\n".join(f"  | {line}" for line in f"{speaker}{one.citation.quote}".splitlines()))
        shown = f"{offset + 1}-{offset + len(found.found)} of {found.total}"
        echo(f"{shown} {state}." if found.found else f"Nothing is {state}.")

    in_application(db, act)


@app.command()
def release(name: Name, item_id: ItemId, db: Db = None) -> None:
    """Index the turn, and extract memories from it."""

    async def act(built: Application) -> None:
        ns = await existing(built, name)
        entry = built.services.audit.begin(
            ns, operations.quarantine.RELEASE_QUARANTINED.name, PROTOCOL, None
        )
        await built.services.quarantine.release(Context(entry), item_id)
        echo(f"Released {item_id}.")

    in_application(db, act)


@app.command()
def reject(name: Name, item_id: ItemId, db: Db = None) -> None:
    """Keep the turn hidden for good."""

    async def act(built: Application) -> None:
        ns = await existing(built, name)
        entry = built.services.audit.begin(
            ns, operations.quarantine.REJECT_QUARANTINED.name, PROTOCOL, None
        )
        await built.services.quarantine.reject(Context(entry), item_id)
        echo(f"Rejected {item_id}.")

    in_application(db, act)
