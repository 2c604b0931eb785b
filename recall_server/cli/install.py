"""`recall install`: set up an MCP client."""

import asyncio
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from recall_server.cli.light import TokenFile, Url
from recall_server.cli.shared import answering, echo, fail, waiting
from recall_server.domain.errors import RecallError
from recall_server.integrations.redaction import SecretRedactor
from recall_server.local import PROGRAM, clients
from recall_server.local.clients import CLIENTS, Client


@answering
def install(  # noqa: PLR0917  # options, each by its name
    name: Annotated[str, typer.Argument(metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}.")],
    url: Url = "",
    token_file: TokenFile = None,
    dry_run: bool = False,
    remove: bool = False,
    print_: bool = False,
) -> None:
    """Add this memory to the configuration of an MCP client, and keep what is
    there; also its hooks, if it has any.

    Args:
        dry_run: Show what would be written; write nothing.
        remove: Remove the entry again.
        print_: Print the entry alone, to be added by hand.
    """
    client = CLIENTS.get(name)
    if client is None:
        fail(f"There is no client {name!r} here. There are {', '.join(CLIENTS)}.")
    home = Path.home()
    try:
        options = _options(url, token_file)
        if print_:
            typer.echo(clients.entry_text(client, _recall(), options), nl=False)
            return
        if remove:
            changes = clients.removed(client, home)
        else:
            changes = clients.added(client, home, _recall(), options)
    except RecallError as error:
        fail(error.message, error.code)
    _tell(client, changes, dry_run=dry_run, remove=remove)
    if not (url or dry_run or remove):
        # A machine compiles these rules once, for seconds: the first text would wait for them.
        with waiting("Compiling the rules that find secrets, once on this machine"):
            asyncio.run(SecretRedactor().ready())


def _options(url: str, token_file: Path | None) -> list[str]:
    """Return the options of `recall stdio` and `recall hook` for a server elsewhere: its token
    stays in a file, which no client shows.
    """
    if not url:
        if token_file is not None:
            fail("--token-file is of a server elsewhere. Name it with --url.")
        return []
    if token_file is None:
        fail(
            "A server elsewhere asks for a token. Write it into a file that only you can read, and "
            "name that with --token-file."
        )
    from recall_server.local.proxy import RemoteServer  # noqa: PLC0415  # loads the MCP SDK

    server = RemoteServer.checked(url, token_file, "")
    server.token()
    return ["--url", server.address(), "--token-file", str(token_file.absolute())]


def _recall() -> list[str]:
    """Return the command that starts this program, with its whole path: clients have a PATH of
    their own.
    """
    found = Path(sys.argv[0])
    if "uv" in found.parts and "archive-v0" in found.parts:  # uvx keeps this path only for a while
        return [shutil.which("uvx") or "uvx", "--from", "recall-server", "recall"]
    if found.name == "recall" and found.exists():
        return [str(found.absolute())]
    return [*PROGRAM]


def _tell(client: Client, changes: list[clients.Change], *, dry_run: bool, remove: bool) -> None:
    for change in changes:
        done, to_do = ("Removed", "Would remove") if remove else ("Wrote", "Would write")
        if change.nothing:
            verb = "are" if change.what == "hooks" else "is"
            state = f"{verb} not in" if remove else f"{verb} already in"
            echo(f"{change.what} {state} {change.path}.")
        elif dry_run:
            echo(f"{to_do} {change.what} in {change.path}.")
        else:
            try:
                backup = change.write()
            except OSError as error:
                fail(f"{change.path} cannot be written ({error.strerror}).")
            kept = f" What was there is in {backup}." if backup else ""
            echo(f"{done} {change.what} in {change.path}.{kept}")
    if not dry_run and not all(change.nothing for change in changes):
        echo(f"{client.title}: {'Restart it.' if remove else client.after}")
