"""All commands by name."""

import asyncio
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from difflib import get_close_matches
from functools import partial
from pathlib import Path
from socket import socket
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from recall_server import __version__, doctor, telemetry
from recall_server.api import operations
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.cli import access, audit, erase, importing, light, maintenance, memory, review
from recall_server.cli.shared import (
    Answer,
    Create,
    Db,
    answering,
    as_given,
    echo,
    existing_settings,
    fail,
    in_application,
    listed,
    new_settings,
    print_table,
    run,
    settings,
    waiting,
)
from recall_server.cli.target import NamespaceFirst, Target, TokenFile, Url, named_server, on_target
from recall_server.config import Settings
from recall_server.domain.errors import RecallError
from recall_server.domain.text.cleaning import validator_message
from recall_server.integrations.redaction import SecretRedactor
from recall_server.local import PROGRAM, clients
from recall_server.local.clients import CLIENTS, Client
from recall_server.services.metrics import server_stats
from recall_server.storage.inspection import Finding, Level


@answering
def doctor_(db: Db = None) -> Answer:
    """List every unsafe setting, file mode and privilege; exit with 1 if a server would
    not start.
    """
    findings = asyncio.run(_examined(existing_settings(db), db))

    def said() -> None:
        for one in findings:
            echo(f"{one.level:5} {one.check:20} {one.text}", indent=27)

    return Answer([asdict(one) for one in findings], said, int(bool(doctor.fails(findings))))


async def _examined(chosen: Settings, db: str | None) -> list[Finding]:
    try:
        async with open_application(chosen, migrating=False) as built:
            of_each = [
                await doctor.secrets(built),
                await doctor.cuts(built),
                await doctor.vectors(built),
                await doctor.growth(built),
                *await doctor.models(built),
            ]
            return [*await doctor.examine(built), *of_each]
    except RecallError as error:
        message = as_given(error.message, db)
        return [Finding("opening", Level.FAIL, f"{message} [{error.code}]")]


class Commands(TyperGroup):
    """All commands. A value that is no choice is told with the choice that is nearest to it."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            error.message = _of_choice(validator_message(error.message))
            raise


def _of_choice(message: str) -> str:
    given, listed_, choices = message.partition(" is not one of ")
    named = get_close_matches(given.strip("'"), re.findall(r"'([^']+)'", choices), 1)
    return f"{message} Did you mean {named[0]!r}?" if listed_ and named else message


app = typer.Typer(
    name="recall",
    cls=Commands,
    help="A memory server for AI agents, with an audit log, export and erasure for its operator.",
    no_args_is_help=True,
    context_settings=light.HELP,
    rich_markup_mode="markdown",  # joins the lines of a docstring
    pretty_exceptions_enable=False,
)


app.callback(invoke_without_command=True)(light.root)


@answering
def serve_(  # noqa: PLR0917  # options, each by its name
    host: Annotated[str | None, typer.Option(show_default="127.0.0.1")] = None,
    port: Annotated[int | None, typer.Option(show_default="8000")] = None,
    db: Db = None,
    allow_public: bool | None = None,
    create: Create = False,
    until_unused: bool = False,
    reload: bool = False,
) -> None:
    """Serve MCP at /mcp and A2A at /a2a until stopped.

    Args:
        port: 0 picks a free port.
        allow_public: Listen on a public address without TLS.
        until_unused: Run as `recall stdio` starts it: end when unused.
        reload: For development: start again when the code changes.
    """
    if reload:
        _serve_reloading(settings(db, host=host), until_unused=until_unused)
        return
    with importing():
        from recall_server.server import serve  # noqa: PLC0415  # loads every protocol

    if until_unused:
        host, port, create = "127.0.0.1", 0, True
    chosen = new_settings(db, create=create, host=host, port=port, allow_public=allow_public)
    if until_unused and "extractor" not in chosen.model_fields_set:
        # A key of a model in the environment belongs to the client: nobody said to use it here.
        chosen = chosen.model_copy(update={"extractor": "rules"})
    run(serve(chosen, _announce, until_unused=until_unused), db)


def _serve_reloading(chosen: Settings, *, until_unused: bool) -> None:
    if until_unused or chosen.public:
        fail(
            "--reload is for development, on this machine alone. Leave out --until-unused, and "
            "listen on 127.0.0.1."
        )
    import uvicorn  # noqa: PLC0415  # no other command needs it
    from uvicorn.supervisors import ChangeReload  # noqa: PLC0415

    # In a process of its own, and again after each change of a module. The old process has ended,
    # and so released the database, before the new one starts.
    arguments = [one for one in sys.argv[1:] if one != "--reload"]
    folder = str(Path(__file__).parents[1])
    config = uvicorn.Config("recall_server", reload=True, reload_dirs=[folder], log_config=None)
    ChangeReload(config, partial(_run_again, arguments), []).run()


def _run_again(arguments: Sequence[str], sockets: list[socket]) -> None:
    del sockets  # the server makes its own
    app(arguments)


@answering
def worker(once: Annotated[bool, typer.Option("--once/--loop")] = False, db: Db = None) -> None:
    """Run background jobs only, beside one or more servers.

    Args:
        once: Run the jobs that are due, and end.
    """
    with importing():
        from recall_server.lifecycle import work, work_once  # noqa: PLC0415

    chosen = existing_settings(db)
    if once:
        ran = run(work_once(chosen), db)
        echo("1 job was run." if ran == 1 else f"{ran} jobs were run.")
    else:
        run(work(chosen), db)


@answering
def status(
    namespaces: bool = False,
    disk: bool = False,
    db: Db = None,
    url: Url = None,
    token_file: TokenFile = None,
) -> Answer:
    """Show counts, queue, engine, models, which keys of models are rejected, and which background
    work fails; or what fills the database. Of a server at a URL: whether it is well, and the
    counts of the token's namespace.

    Args:
        namespaces: Show the quota use of each, and its name in logs.
        disk: Show bytes by kind, and growth; reads every page.
    """
    address = named_server(db, url)
    if address is None:
        return in_application(db, _namespaces if namespaces else _disk if disk else _status)
    if namespaces or disk:
        fail("A server tells nobody this over HTTP. Name its database with --db.")

    async def there(target: Target) -> Answer:
        return _of_status({"server": address, **await target.ask(operations.contents.get_status)})

    return on_target(None, None, address, token_file, there)


async def _disk(built: Application) -> Answer:
    found = {kind: asdict(size) for kind, size in (await doctor.sizes(built)).items()}
    rows = [{"kind": kind, **size} for kind, size in found.items()]
    return Answer(found, partial(print_table, rows, "There is nothing."))


async def _status(built: Application) -> Answer:
    stats = await server_stats(built.store)
    keys = await built.services.model_keys.rejected()
    row = {
        "version": __version__,
        "engine": built.store.engine,
        "extractor": built.extractor.name,
        "merger": built.services.consolidate.merging.merger.name,
        "judge": built.judge.name if built.judge else "none",
        "embedder": built.embedder.model if built.embedder else "none",
        "rejected_keys": [str(key) for key in keys],
        "failing_work": [str(one) for one in await built.supervisor.failing()],
        "namespaces": stats.namespaces,
        "findable_items": stats.findable_items,
        **asdict(stats.backlog),
    }
    return _of_status(row)


def _of_status(row: Mapping[str, Any]) -> Answer:
    lines = []
    for key, value in row.items():
        shown = ", ".join(value) or "none" if isinstance(value, list) else value
        lines.append(f"{key.replace('_', ' '):22}{shown}")
    return Answer(row, partial(typer.echo, "\n".join(lines)))


async def _namespaces(built: Application) -> Answer:
    async with built.store.transaction(None, write=False) as tx:
        usage = await tx.access.usage()
    quota = built.settings.namespace_bytes_max
    rows = [
        {
            "namespace": one.namespace,
            "in_logs": built.services.log_name(one.namespace),
            "bytes": one.kept,
            "quota": f"{100 * one.kept / quota:.1f} %" if quota else "none",
            "findable_items": one.findable_items,
            "audit_records": one.audit_records,
        }
        for one in usage
    ]
    return listed(rows, "There is no namespace.")


@answering
def demo(
    file: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
    keep: bool = False,
) -> None:
    """Start a server on a fresh file and show its features over MCP.

    Args:
        file: A file with a conversation of your own.
        keep: Leave the server running.
    """
    with importing():
        from recall_server.demo import show  # noqa: PLC0415  # loads the client side of MCP

    telemetry.configure_logs("error")
    run(show(file, keep=keep))


@answering
def install(  # noqa: PLR0917  # options, each by its name
    name: Annotated[str, typer.Argument(metavar="CLIENT", help=f"One of {', '.join(CLIENTS)}.")],
    url: light.Url = "",
    token_file: light.TokenFile = None,
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
        options = _of_server(url, token_file)
        if print_:
            typer.echo(clients.entry_text(client, _recall(), options), nl=False)
            return
        if remove:
            changes = clients.removed(client, home)
        else:
            changes = clients.added(client, home, _recall(), options)
    except RecallError as error:
        fail(error.message, error.code)
    _tell_installed(client, changes, dry_run=dry_run, remove=remove)
    if not (url or dry_run or remove):
        # A machine compiles these rules once, for seconds: the first text would wait for them.
        with waiting("Compiling the rules that find secrets, once on this machine"):
            asyncio.run(SecretRedactor().ready())


def _of_server(url: str, token_file: Path | None) -> list[str]:
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


def _tell_installed(
    client: Client, changes: list[clients.Change], *, dry_run: bool, remove: bool
) -> None:
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


# The panels of `recall --help`. Commands of `MEMORY` can be called without the namespace.
MEMORY = "Memory"
PANELS: dict[str, dict[str, typer.Typer | Callable[..., None]]] = {
    MEMORY: {
        "add": memory.add,
        "ask": memory.ask,
        "search": memory.search,
        "list": memory.list_,
        "texts": memory.texts,
        "stats": memory.stats,
        "show": memory.show,
        "edit": memory.edit,
        "forget": memory.forget,
        "restore": memory.restore,
        "changes": review.changes,
        "undo": review.undo,
        "recheck": review.recheck,
        "timeline": memory.timeline,
    },
    "Server": {
        "serve": serve_,
        "worker": worker,
        "demo": demo,
        "status": status,
        "doctor": doctor_,
        "migrate": maintenance.migrate,
    },
    "Clients": {"install": install, **light.COMMANDS},
    "Access and record": {
        "create-token": access.create_token,
        "tokens": access.tokens,
        "audit": audit.app,
        "webhooks": access.webhooks,
    },
    "Decisions and sources": {
        "reviews": review.reviews,
        "aliases": memory.aliases,
        "conflicts": review.conflicts,
        "quarantine": review.quarantine,
        "rebuild": review.rebuild,
        "purge-source": erase.purge_source,
    },
    "Erasure": {
        "erase": erase.erase,
        "erase-again": erase.erase_again,
        "erase-allow": erase.erase_allow,
        "hold": erase.app,
        "verify-erasure": erase.verify_erasure,
        "verify-receipt": erase.verify_receipt,
        "key": erase.key,
    },
    "Data": {
        "export": maintenance.export_,
        "import": maintenance.import_,
        "backup": maintenance.backup,
        "restore-backup": maintenance.restore_backup,
        "reembed": maintenance.reembed,
    },
}
for panel, named in PANELS.items():
    for name_, command_ in named.items():
        if isinstance(command_, typer.Typer):
            app.add_typer(command_, name=name_, rich_help_panel=panel)
        else:
            kind = NamespaceFirst if panel == MEMORY else None
            app.command(name_, cls=kind, rich_help_panel=panel)(command_)


def _announce(address: str, built: Application) -> None:
    where = built.settings.db_path if built.store.engine == "sqlite" else "Postgres"
    embedder = built.embedder.model if built.embedder else "none"
    telemetry.tell(
        "serving",
        f"recall {__version__} serves {address}/mcp from {where}\n"
        f"  extractor {built.extractor.name}, embedder {embedder}\n"
        "  make a token: recall create-token NAMESPACE   stop: Ctrl-C",
        address=f"{address}/mcp",
        version=__version__,
        engine=built.store.engine,
        extractor=built.extractor.name,
        embedder=embedder,
    )
