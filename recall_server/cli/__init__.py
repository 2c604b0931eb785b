"""The command line: `recall --help`."""

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from recall_server import __version__, observe
from recall_server.app import House
from recall_server.bench.command import app as bench
from recall_server.cli.conflicts import app as conflicts
from recall_server.cli.quarantine import app as quarantine
from recall_server.cli.shared import (
    DOOR,
    AsJson,
    Db,
    in_house,
    print_json,
    print_table,
    run,
    settings,
)
from recall_server.domain.model import namespace
from recall_server.serve import serve, work
from recall_server.services.overview import overview

app = typer.Typer(
    name="recall",
    help="The memory that AI agents share, and the one that an operator can answer for.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
tokens = typer.Typer(help="List and revoke tokens.", no_args_is_help=True)
app.add_typer(tokens, name="tokens")
app.add_typer(bench, name="bench")
app.add_typer(conflicts, name="conflicts")
app.add_typer(quarantine, name="quarantine")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
) -> None:
    if version:
        typer.echo(f"recall-server {__version__}")
        raise typer.Exit


@app.command("serve")
def serve_(
    host: Annotated[str | None, typer.Option(show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(show_default="8000", help="0: a free one.")] = None,
    db: Db = None,
    allow_public: Annotated[
        bool | None,
        typer.Option("--allow-public", help="Listen where others reach it, without TLS."),
    ] = None,
) -> None:
    """Serve MCP at /mcp and A2A at /a2a until told to stop."""
    chosen = settings(db, host=host, port=port, allow_public=allow_public)
    run(serve(chosen, _announce))


@app.command()
def worker(db: Db = None) -> None:
    """Run background jobs only, beside a server or several."""
    run(work(settings(db)))


@app.command("create-token")
def create_token(
    name: Annotated[str, typer.Argument(metavar="NAMESPACE", help="Whose memory it opens.")],
    label: Annotated[str, typer.Option(help="What it is for, to know it again.")] = "",
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Make a token for a namespace, and print it this once."""

    async def issue(built: House) -> None:
        services = built.services
        ns = namespace(name)
        entry = services.audit.begin(ns, "create_token", DOOR, None)
        token, info = await services.access.issue(ns, label=label, entry=entry)
        if as_json:
            print_json({"token": token, "accessor": info.accessor, "namespace": ns})
            return
        typer.echo(f"Token for the namespace {ns} (accessor {info.accessor}):\n\n  {token}\n")
        typer.echo("Keep it: it is not shown again. Clients send 'Authorization: Bearer TOKEN'.")

    in_house(db, issue, create=True)


@tokens.command("list")
def list_tokens(
    name: Annotated[
        str | None, typer.Argument(metavar="NAMESPACE", show_default="all namespaces")
    ] = None,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """List tokens by their accessors."""

    async def show(built: House) -> None:
        found = await built.services.access.tokens(namespace(name) if name is not None else None)
        rows = [
            {
                "accessor": info.accessor,
                "namespace": info.namespace,
                "label": info.label,
                "created_at": info.created_at.isoformat(timespec="seconds"),
                "revoked_at": info.revoked_at and info.revoked_at.isoformat(timespec="seconds"),
            }
            for info in found
        ]
        print_json(rows) if as_json else print_table(rows, "No tokens yet.")

    in_house(db, show)


@tokens.command()
def revoke(
    accessor: Annotated[str, typer.Argument(help="As `recall tokens list` shows it.")],
    db: Db = None,
) -> None:
    """Revoke a token, from its next call on."""

    async def end(built: House) -> None:
        services = built.services
        info = await services.access.find(accessor)
        entry = services.audit.begin(info.namespace, "revoke_token", DOOR, None)
        if await services.access.revoke(info, entry=entry):
            typer.echo(f"Revoked {accessor} of {info.namespace}.")
        else:
            typer.echo(f"{accessor} of {info.namespace} was revoked before.")

    in_house(db, end)


@app.command()
def audit(
    tail: Annotated[
        int, typer.Option(min=1, max=10_000, help="How many of the newest lines.")
    ] = 20,
    name: Annotated[str | None, typer.Option("--namespace", show_default="all namespaces")] = None,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Show the book: every operation, who asked for it and how it ended."""

    async def show(built: House) -> None:
        records = await built.services.audit.newest(
            namespace(name) if name is not None else None, tail
        )
        rows = [
            {
                "at": record.at.isoformat(timespec="milliseconds"),
                "namespace": record.namespace,
                "door": record.door,
                "operation": record.operation,
                "accessor": record.accessor,
                "outcome": record.code or record.outcome,
                "ms": round(record.milliseconds, 1),
                "counts": record.counts,
                "ids": list(record.ids),
                "model": record.usage.model,
                "input_tokens": record.usage.input_tokens,
                "output_tokens": record.usage.output_tokens,
                "cost_usd": record.usage.cost_usd,
                "request_id": record.request_id,
            }
            for record in reversed(records)
        ]
        if as_json:
            print_json(rows)
            return
        shown = ("at", "namespace", "door", "operation", "accessor", "outcome", "ms", "counts")
        print_table([{key: row[key] for key in shown} for row in rows], "The book is empty.")

    in_house(db, show)


@app.command()
def status(db: Db = None, as_json: AsJson = False) -> None:
    """Show counts, queue, engine, embedder and extractor."""

    async def show(built: House) -> None:
        found = await overview(built.store)
        row = {
            "version": __version__,
            "engine": built.store.engine,
            "extractor": built.extractor.name,
            "embedder": built.embedder.model if built.embedder else "none",
            "namespaces": found.namespaces,
            "findable_items": found.findable_items,
            **asdict(found.backlog),
        }
        if as_json:
            print_json(row)
        else:
            for key, value in row.items():
                typer.echo(f"{key.replace('_', ' '):22}{value}")

    in_house(db, show)


@app.command()
def demo(
    file: Annotated[
        Path | None, typer.Option(exists=True, dir_okay=False, help="A conversation of your own.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the server running.")] = False,
) -> None:
    """Start a server on a fresh file and show what it does, over MCP."""
    from recall_server.demo import show  # noqa: PLC0415  # loads the client side of MCP

    observe.configure("error")
    run(show(file, keep=keep))


def _announce(address: str, built: House) -> None:
    where = built.settings.db_path if built.store.engine == "sqlite" else "Postgres"
    typer.echo(
        f"recall {__version__} serves {address}/mcp from {where}\n"
        f"  extractor {built.extractor.name}, "
        f"embedder {built.embedder.model if built.embedder else 'none'}\n"
        "  make a token: recall create-token NAMESPACE   stop: Ctrl-C",
        err=True,
    )


def main() -> None:
    """The entry point of `recall`."""
    with suppress(BrokenPipeError):
        app()
