"""`recall stdio`: MCP on standard input and output, for clients that start their servers."""

import asyncio
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from recall_server.cli import importing
from recall_server.domain.errors import Invalid, RecallError
from recall_server.local import folders
from recall_server.local.presence import client_of
from recall_server.local.starting import Local

Url = Annotated[
    str,
    typer.Option(
        envvar="RECALL_URL",
        help="A server elsewhere, such as https://memory.example.com/mcp.",
        show_default="the local server",
    ),
]
TokenFile = Annotated[
    Path | None,
    typer.Option(help="A file with the token of that server.", show_default="RECALL_TOKEN"),
]
Token = Annotated[str, typer.Option(envvar="RECALL_TOKEN", hidden=True)]
LocalDb = Annotated[
    Path | None,
    typer.Option(
        "--db",
        envvar="RECALL_DB_PATH",
        help="The SQLite file of the local server.",
        show_default="recall.db in the user's data folder",
    ),
]


def stdio(
    url: Url = "", token_file: TokenFile = None, token: Token = "", db: LocalDb = None
) -> None:
    """Speak MCP on standard input and output, for a client that starts its servers: to the local
    server, which is started where none runs, or to the one at --url.
    """
    with importing():
        from recall_server.local.proxy import (  # noqa: PLC0415  # loads the MCP SDK
            LocalServer,
            RemoteServer,
            serve_stdio,
        )

    if url:
        try:
            server = RemoteServer.checked(url, token_file, token)
        except RecallError as error:
            _refuse(error)
        asyncio.run(serve_stdio(server))
        return
    if token_file is not None:
        _refuse(Invalid("--token-file is of a server elsewhere. Name it with --url."))
    database = (db or folders.database()).absolute()
    try:
        folders.private(database.parent)
    except RecallError as error:
        _refuse(error)
    with client_of(database):
        asyncio.run(serve_stdio(LocalServer(Local(database))))


def _refuse(error: RecallError) -> NoReturn:
    typer.echo(f"recall: {error.message} [{error.code}]", err=True)
    raise typer.Exit(2)
