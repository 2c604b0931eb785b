"""`recall erase` and its relatives: allow again, holds, purge a source, verify receipts."""

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from recall_server.api import operations, presenters
from recall_server.api.operations.operation import Operation
from recall_server.application import Application
from recall_server.cli.shared import (
    AsJson,
    Db,
    Name,
    begin,
    echo,
    existing,
    fail,
    in_application,
    key_in,
    namespace_or_fail,
    print_done,
    print_json,
    print_rows,
    progress,
    unused,
    waiting,
    with_application,
    written,
)
from recall_server.domain.audit import Outcome
from recall_server.domain.context import Context
from recall_server.domain.erasure import CONFIRMATION
from recall_server.domain.errors import Invalid, OnHold, Unavailable
from recall_server.domain.ids import Namespace, namespace
from recall_server.domain.memory import Memory
from recall_server.integrations.keys import Jwk, verified
from recall_server.services.erasure import Erased
from recall_server.services.erasure.leak_scan import Scan, scan
from recall_server.services.erasure.purge import RECEIPT_TYP
from recall_server.services.erasure.purge_source import BadSource, Purged

OPERATIONS = {
    "memory": operations.erasure.ERASE_MEMORY,
    "subject": operations.erasure.ERASE_SUBJECT,
    "container": operations.erasure.ERASE_CONTAINER,
    "": operations.erasure.DELETE_NAMESPACE_DATA,
}


def erase(  # noqa: PLR0917  # typer reads them as options
    name: Name,
    memory: Annotated[str | None, typer.Option(help="Only this memory, by its id.")] = None,
    subject: Annotated[str | None, typer.Option(help="Only what names this subject.")] = None,
    container: Annotated[
        str | None, typer.Option(help="Only the contents of this container.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what would be erased; with one of these three.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    receipt: Annotated[
        Path | None, typer.Option(help="Write the receipt to this file.", dir_okay=False)
    ] = None,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Erase a namespace, container, subject or memory for good, and give a receipt for it."""
    ns = namespace_or_fail(name)
    # An empty value counts as given: a missing name must not erase everything.
    given = {"memory": memory, "subject": subject, "container": container}
    asked = [(kind, what) for kind, what in given.items() if what is not None]
    if len(asked) > 1:
        fail("Give one of --memory, --subject and --container.")
    if dry_run and not asked:
        fail("--dry-run goes with --memory, --subject or --container.")
    kind, named = asked[0] if asked else ("", "")
    if not (yes or dry_run):
        what = f"the {kind} {named}" if asked else "everything, and every token"
        _confirm(ns, f"This erases {what} in {ns}, for good.", "erased")

    async def act(built: Application) -> None:
        await existing(built, ns)
        # Check the receipt's file before anything is erased.
        unused(receipt)
        place = receipt if receipt is not None and not dry_run else None
        with written(place) if place else nullcontext() as file:
            erased = await _erase(built, ns, kind, named, dry_run=dry_run)
            shown = presenters.erased(erased)
            if not erased.dry_run:
                shown["receipt"], shown["physical"] = await _purged(built, ns, erased)
            if file is not None:
                file.write(f"{shown['receipt']}\n".encode())
        if as_json:
            print_json(shown)
        else:
            print_erased(shown, receipt)

    in_application(db, act)


def _confirm(ns: Namespace, question: str, done: str) -> None:
    if typer.prompt(f"{question} Type the namespace", err=True) != ns:
        fail(f"That is not the namespace; nothing was {done}.", "CONFIRM_REQUIRED")


async def _erase(
    built: Application, ns: Namespace, kind: str, named: str, *, dry_run: bool
) -> Erased:
    erase = built.services.erase
    part = {"memory": erase.memory, "subject": erase.subject, "container": erase.container}
    async with _recorded(built, ns, OPERATIONS[kind], dry_run=dry_run) as context:
        if not kind:
            return await erase.namespace(context, CONFIRMATION)
        return await part[kind](context, named, dry_run=dry_run)


@asynccontextmanager
async def _recorded(
    built: Application, ns: Namespace, operation: Operation, *, dry_run: bool
) -> AsyncIterator[Context]:
    """Yield the context of an erasure. The audit log has a record if a hold refuses it, and of a
    dry run, which has no transaction that its record could be in.
    """
    context = begin(built, ns, operation)
    try:
        yield context
        if dry_run:
            await built.services.audit.write(context.entry)
    except OnHold as error:
        refused = begin(built, ns, operation).entry
        refused.outcome, refused.code = Outcome.ERROR, error.code
        await built.services.audit.write(refused)
        raise


def erase_again(db: Db = None, as_json: AsJson = False) -> None:
    """Erase again what a database restored from a backup contains, and give new receipts."""

    async def act(built: Application) -> None:
        shown = await erased_again(built)
        if as_json:
            print_json(shown)
            return
        for one in shown:
            print_erased(one, None)
        typer.echo(f"Erasures done again: {len(shown)}.", err=True)

    in_application(db, act, restored=True)


async def erased_again(built: Application) -> list[dict[str, Any]]:
    """Do every erasure of the ledger that the database does not know."""
    services, done = built.services, []
    for noted in await services.ledger.unknown(built.store):
        context = begin(built, noted.namespace, operations.erasure.ERASE_AGAIN)
        done.append((noted.namespace, await services.erase.again(context, noted)))
    shown = []
    for ns, erased in done:
        one = presenters.erased(erased)
        one["receipt"], one["physical"] = await _purged(built, ns, erased)
        shown.append(one)
    return shown


async def _purged(built: Application, ns: Namespace, erased: Erased) -> tuple[str, str]:
    """Return the newest receipt and the state of the purge. Runs the purge, as there may be no
    worker.
    """
    try:
        with progress("rows erased") as on_progress:
            done = await built.services.purge.at_once(ns, erased.id, on_progress)
    except Unavailable as error:
        return erased.receipt, f"pending: {error.message}"
    return done.receipt, f"done{f', but for: {done.left_behind}' if done.left_behind else ''}"


def print_erased(shown: dict[str, Any], file: Path | None) -> None:
    done = "Would erase" if shown["dry_run"] else "Erased"
    counts = ", ".join(f"{number} {table}" for table, number in shown["counts"].items() if number)
    typer.echo(f"{done}: {counts or 'nothing'}.", err=not shown["dry_run"])
    for title in ("memory_ids", "episode_ids", "task_ids"):
        for one in shown[title]:
            typer.echo(f"  {title.removesuffix('_ids')} {one}", err=not shown["dry_run"])
    if shown["dry_run"]:
        return
    typer.echo(
        f"In files: {shown['physical']}.\n"
        f"Receipt {shown['receipt_id']}, opened over HTTP by {shown['receipt_secret']}.",
        err=True,
    )
    if file is None:
        typer.echo(shown["receipt"])


@with_application
async def erase_allow(
    built: Application,
    name: Name,
    text_file: Annotated[
        typer.FileText,
        typer.Option(help="The text that may be stored again; - reads standard input."),
    ],
    as_json: AsJson = False,
) -> None:
    """Allow an erased text, and each of its turns, to be stored again."""
    ns = namespace(name)
    try:
        text = text_file.read()
    except UnicodeDecodeError:
        fail("The text is not UTF-8. Give it as it was stored.")
    context = begin(built, ns, operations.erasure.ALLOW_ERASED)
    freed = await built.services.erase.allow(context, text)
    print_done(
        {"namespace": ns, "allowed": freed},
        f"{freed} of its texts were refused, and are taken again from now on."
        if freed
        else "Nothing of this text is refused: give the whole text, as it was handed in.",
        as_json=as_json,
    )


def verify_receipt(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The receipt.", exists=True, dir_okay=False)
    ],
    key: Annotated[
        Path | None,
        typer.Option(
            help="The server's public key, as `recall key` prints it.", exists=True, dir_okay=False
        ),
    ] = None,
    db: Db = None,
) -> None:
    """Verify the signature of a receipt, offline with --key, and show its content."""
    signed = file.read_text(encoding="utf-8", errors="replace").strip()
    if key is not None:
        try:
            _show(signed, key_in(key), f"in {key}")
        except Invalid as error:
            fail(error.message, error.code)
        return

    async def act(built: Application) -> None:
        _show(signed, built.key.public, "of this server")

    in_application(db, act)


def _show(signed: str, public: Jwk, whose: str) -> None:
    print_json(verified(signed, public, RECEIPT_TYP))
    echo(f"The receipt is valid: the key {whose} has signed it.", err=True)


@with_application
async def key(built: Application) -> None:
    """Print the public key of this server, which verifies its receipts."""
    print_json({**built.key.public})


@with_application
async def verify_erasure(
    built: Application,
    canary: Annotated[
        list[str], typer.Option(help="A word of 8 bytes or more that must be gone; repeatable.")
    ],
    path: Annotated[
        list[Path] | None, typer.Option(help="A log, export or backup to search too.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Search all files of the database for any trace of a word; exits with 1 if one is found."""
    with waiting("Searching all files"):
        found = await scan(built.store, canary, path or [])
    if as_json:
        print_json(asdict(found))
    else:
        _print_scan(found)
    if found.places or found.unreadable:
        raise typer.Exit(1)


def _print_scan(found: Scan) -> None:
    for place in found.places:
        typer.echo(f"{place.where}: canary {place.word + 1}, {place.form}, at byte {place.at}")
    for name in found.unreadable:
        typer.echo(f"{name}: not read", err=True)
    said = "found" if found.places else "nothing found"
    typer.echo(f"{found.files} files, {found.rows} rows, {found.bytes} bytes read: {said}.")


app = typer.Typer(help="Namespaces of which nothing may be erased.", no_args_is_help=True)


@app.command("set")
@with_application
async def set_(
    built: Application,
    name: Name,
    reason: Annotated[
        str, typer.Option(help="The reason, shown to callers who ask for an erasure.")
    ],
    as_json: AsJson = False,
) -> None:
    """Refuse every erasure of a namespace until the hold is lifted."""
    ns = namespace(name)
    context = begin(built, ns, operations.erasure.SET_HOLD)
    await built.services.holds.place(context, reason)
    data = {"namespace": ns, "on_hold": True}
    print_done(data, f"{ns} is on hold: nothing of it is erased.", as_json=as_json)


@app.command()
@with_application
async def lift(built: Application, name: Name, as_json: AsJson = False) -> None:
    """Lift the hold of a namespace."""
    ns = await existing(built, name)
    context = begin(built, ns, operations.erasure.LIFT_HOLD)
    await built.services.holds.lift(context)
    data = {"namespace": ns, "on_hold": False}
    print_done(data, f"{ns} is not on hold any more.", as_json=as_json)


@app.command("list")
@with_application
async def list_(built: Application, as_json: AsJson = False) -> None:
    """List the namespaces on hold, since when and why."""
    rows = [
        {"namespace": one.namespace, "since": presenters.moment(one.at), "reason": one.because}
        for one in await built.services.holds.all()
    ]
    print_rows(rows, "No namespace is on hold.", as_json=as_json)


def purge_source(  # noqa: PLR0917  # typer reads them as options
    name: Name,
    agent: Annotated[str, typer.Option(help="Texts of this agent.")] = "",
    session: Annotated[str, typer.Option(help="Texts of this session.")] = "",
    episode: Annotated[str, typer.Option(help="One text.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what would change.")] = (False),
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Take out what a bad source caused, and restore what it had replaced."""
    ns = namespace_or_fail(name)
    try:
        source = BadSource(agent, session, episode)
    except Invalid as error:
        fail(error.message, error.code)
    if not (yes or dry_run):
        _confirm(ns, f"This removes what came of it from {ns}; --dry-run shows what.", "removed")

    async def act(built: Application) -> None:
        operation = operations.erasure.PURGE_SOURCE
        async with _recorded(built, ns, operation, dry_run=dry_run) as context:
            found = await built.services.sources.purge(context, source, dry_run=dry_run)
        if as_json:
            change_id = None if dry_run else context.entry.change
            print_json({**_as_json(found, dry_run=dry_run), "change_id": change_id})
            return
        for title, ones in (
            ("removed", found.removed),
            ("kept, without it", found.kept),
            ("restored", found.restored),
        ):
            for one in ones.values():
                echo(f"{title}  {one.id}  {one.text}")
        counts = found.counts().items()
        summary = ", ".join(
            f"{number} {what.replace('_', ' ')}" for what, number in counts if number
        )
        typer.echo(
            f"{'Would be' if dry_run else 'Done'}: {summary}." if summary else "Nothing came of it."
        )
        if summary and not dry_run:
            echo(f"To take it back, but for tasks: recall undo {ns} {context.entry.change}")

    in_application(db, act)


def _as_json(found: Purged, *, dry_run: bool) -> dict[str, Any]:
    return {
        "dry_run": dry_run,
        "counts": found.counts(),
        "episode_ids": found.episodes,
        "removed": _memories(found.removed.values()),
        "kept": _memories(found.kept.values()),
        "restored": _memories(found.restored.values()),
        "task_ids": found.tasks,
        "requeued": found.requeued,
        "asked_again": found.requeued,  # the name in 0.1.0
    }


def _memories(ones: Iterable[Memory]) -> list[dict[str, str]]:
    return [{"id": one.id, "text": one.text, "status": str(one.status)} for one in ones]
