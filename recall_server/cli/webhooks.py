"""`recall webhooks`: send the events of a namespace to a URL."""

from typing import Annotated

import typer

from recall_server.api import operations
from recall_server.api.operations.operation import Json
from recall_server.cli.shared import AsJson, echo, print_done, print_table, warn_of_readers
from recall_server.cli.target import NamespaceFirst, Target, asks, with_target
from recall_server.domain.webhook import WebhookKind

NOT_TAKEN = 1

app = typer.Typer(help="Have a URL told of the events of a namespace.", no_args_is_help=True)

Id = Annotated[str, typer.Argument(metavar="ID", help="As `recall webhooks list` shows it.")]


@app.command(cls=NamespaceFirst)
@asks(operations.webhooks.ADD_WEBHOOK)
def add(
    added: Json,
    *,
    url_: Annotated[str, typer.Argument(metavar="URL", help="Begins with https://.")],
) -> None:
    """Register a URL, and print the secret of its signatures once: alone on standard output."""
    echo(
        f"Webhook {added['id']}. Its receiver verifies each delivery with this secret. Keep it: it "
        "is not shown again.",
        err=True,
    )
    typer.echo(added["secret"])
    warn_of_readers()


@app.command("list", cls=NamespaceFirst)
@asks(operations.webhooks.LIST_WEBHOOKS, part="webhooks")
def list_(found: Json) -> None:
    """List the webhooks of a namespace, whether they accept their events, and how many wait."""
    print_table([_row(row) for row in found["webhooks"]], "No webhooks yet.")


def _row(row: Json) -> Json:
    kinds = "all" if len(row["kinds"]) == len(WebhookKind) else ",".join(row["kinds"])
    shown = ("id", "url", "state", "code", "failures", "pending")
    return {**{name: row[name] for name in shown}, "kinds": kinds}


@app.command(cls=NamespaceFirst)
@asks(operations.webhooks.REMOVE_WEBHOOK)
def remove(_: Json, *, webhook_id: Id) -> str:
    """Remove a webhook: it gets no more events."""
    return f"Removed {webhook_id}."


@app.command("test", cls=NamespaceFirst)
@with_target
async def send_test(target: Target, *, webhook_id: Id, as_json: AsJson = False) -> None:
    """Send a webhook an event without data; a dead one that accepts it gets events again. Exits
    with 1 if it does not accept it.
    """
    tested = await target.ask(operations.webhooks.TEST_WEBHOOK, webhook_id=webhook_id)
    answered = (
        f"it answered {tested['status']}"
        if tested["status"]
        else f"{'it gave no answer' if tested['code'] == 'PUSH_FAILED' else 'nothing was sent'} "
        f"[{tested['code']}]"
    )
    said = (
        f"{webhook_id} took it."
        if tested["delivered"]
        else f"{webhook_id} did not take it: {answered}."
    )
    print_done(tested, said, as_json=as_json)
    if not tested["delivered"]:
        raise typer.Exit(NOT_TAKEN)
