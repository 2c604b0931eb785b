"""`recall webhooks`: have a URL told of the events of a namespace."""

from typing import Annotated, Any

import typer

from recall_server.api import operations, presenters
from recall_server.application import Application
from recall_server.cli.shared import (
    AsJson,
    begin,
    existing,
    observed,
    print_done,
    print_json,
    print_table,
    with_application,
)
from recall_server.domain.webhook import WebhookKind

NOT_TAKEN = 1

app = typer.Typer(help="Have a URL told of the events of a namespace.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="As `recall webhooks list` shows it.")]


@app.command()
@with_application
async def add(  # noqa: PLR0917  # options, each by its name
    built: Application,
    name: Name,
    url: Annotated[str, typer.Argument(metavar="URL", help="Begins with https://.")],
    kind: Annotated[
        list[WebhookKind] | None,
        typer.Option(help="A kind of event; repeatable.", show_default="all"),
    ] = None,
    include_text: Annotated[
        bool, typer.Option("--include-text", help="Send the texts of memories too.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Register a URL, and print the secret of its signatures once: alone on standard output."""
    ns = await existing(built, name)
    context = begin(built, ns, operations.webhooks.ADD_WEBHOOK)
    added, secret = await built.services.webhooks.add(
        context, url, kind or (), include_text=include_text
    )
    if as_json:
        print_json({"secret": secret, **presenters.webhook(added)})
        return
    typer.echo(
        f"Webhook {added.id} of the namespace {ns}. Its receiver verifies each delivery with this "
        "secret. Keep it: it is not shown again.",
        err=True,
    )
    typer.echo(secret)


@app.command("list")
@with_application
async def list_(built: Application, name: Name, as_json: AsJson = False) -> None:
    """List the webhooks of a namespace, whether they take what they are told, and what waits."""
    ns = await existing(built, name)
    found = await built.services.webhooks.all(ns)
    await observed(built, ns, operations.webhooks.LIST_WEBHOOKS, webhooks=len(found))
    rows = [presenters.listed_webhook(one) for one in found]
    if as_json:
        print_json(rows)
        return
    print_table([_row(row) for row in rows], "No webhooks yet.")


def _row(row: dict[str, Any]) -> dict[str, Any]:
    kinds = "all" if len(row["kinds"]) == len(WebhookKind) else ",".join(row["kinds"])
    shown = ("id", "url", "state", "code", "failures", "pending")
    return {**{name: row[name] for name in shown}, "kinds": kinds}


@app.command()
@with_application
async def remove(built: Application, name: Name, webhook_id: Id, as_json: AsJson = False) -> None:
    """Tell a webhook nothing more."""
    ns = await existing(built, name)
    context = begin(built, ns, operations.webhooks.REMOVE_WEBHOOK)
    await built.services.webhooks.remove(context, webhook_id)
    print_done({"removed": webhook_id}, f"Removed {webhook_id} of {ns}.", as_json=as_json)


@app.command("test")
@with_application
async def send_test(
    built: Application, name: Name, webhook_id: Id, as_json: AsJson = False
) -> None:
    """Send a webhook an event without data; a dead one that takes it is told again. Exits with 1
    where it does not take it.
    """
    ns = await existing(built, name)
    context = begin(built, ns, operations.webhooks.TEST_WEBHOOK)
    tested = await built.services.webhooks.test(context, webhook_id)
    answered = (
        f"it answered {tested.status}" if tested.status else f"it gave no answer [{tested.code}]"
    )
    said = (
        f"{webhook_id} took it."
        if tested.delivered
        else f"{webhook_id} did not take it: {answered}."
    )
    print_done(presenters.tested_webhook(tested), said, as_json=as_json)
    if not tested.delivered:
        raise typer.Exit(NOT_TAKEN)
