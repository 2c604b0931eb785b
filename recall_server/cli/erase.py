"""`recall erase` and its relatives: erase, allow again, verify receipts, print the key."""

from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from recall_server.api import operations, presenters
from recall_server.application import Application
from recall_server.cli.outfile import unused, written
from recall_server.cli.shared import (
    PROTOCOL,
    AsJson,
    Db,
    existing,
    fail,
    in_application,
    key_in,
    print_json,
    progress,
)
from recall_server.domain.audit import Outcome
from recall_server.domain.context import Context
from recall_server.domain.erasure import CONFIRMATION
from recall_server.domain.errors import Invalid, OnHold, RecallError, Unavailable
from recall_server.domain.namespace import Namespace, namespace
from recall_server.integrations.crypto.keys import verified
from recall_server.services.erasure.erase import Erased
from recall_server.services.erasure.leak_scan import Scan, scan
from recall_server.services.erasure.purge import RECEIPT_TYP

OPERATIONS = {
    "memory": operations.erasure.ERASE_MEMORY,
    "subject": operations.erasure.ERASE_SUBJECT,
    "container": operations.erasure.ERASE_CONTAINER,
    "": operations.erasure.DELETE_NAMESPACE_DATA,
}
Name = Annotated[str, typer.Argument(metavar="NAMESPACE", help="The namespace.")]


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
        typed = typer.prompt(f"This erases {what} in {ns}, for good. Type the namespace", err=True)
        if typed != ns:
            fail("That is not the namespace; nothing was erased.", "CONFIRM_REQUIRED")

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
            _print(shown, receipt)

    in_application(db, act)


async def _erase(
    built: Application, ns: Namespace, kind: str, named: str, *, dry_run: bool
) -> Erased:
    services = built.services
    operation = OPERATIONS[kind].name
    entry = services.audit.begin(ns, operation, PROTOCOL, None)
    try:
        if kind == "memory":
            return await services.erase.memory(Context(entry), named, dry_run=dry_run)
        if kind == "subject":
            return await services.erase.subject(Context(entry), named, dry_run=dry_run)
        if kind == "container":
            return await services.erase.container(Context(entry), named, dry_run=dry_run)
        return await services.erase.namespace(Context(entry), CONFIRMATION)
    except OnHold as error:
        # A refused erasure is recorded in the audit log.
        refused = services.audit.begin(ns, operation, PROTOCOL, None)
        refused.outcome, refused.code = Outcome.ERROR, error.code
        await services.audit.write(refused)
        raise


def erase_again(db: Db = None, as_json: AsJson = False) -> None:
    """Erase again what a database restored from a backup contains, and give new receipts."""

    async def act(built: Application) -> None:
        services, done = built.services, []
        for noted in await services.ledger.unknown(built.store):
            entry = services.audit.begin(
                noted.namespace, operations.erasure.ERASE_AGAIN.name, PROTOCOL, None
            )
            erased = await services.erase.again(Context(entry), noted)
            done.append((noted.namespace, erased))
        shown = []
        for ns, erased in done:
            one = presenters.erased(erased)
            one["receipt"], one["physical"] = await _purged(built, ns, erased)
            shown.append(one)
        if as_json:
            print_json(shown)
            return
        for one in shown:
            _print(one, None)
        typer.echo(f"{len(shown)} erasures were done again.", err=True)

    in_application(db, act, restored=True)


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


def _print(shown: dict[str, Any], file: Path | None) -> None:
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
        f"Receipt {shown['receipt_id']}, opened once over HTTP by {shown['receipt_secret']}.",
        err=True,
    )
    if file is None:
        typer.echo(shown["receipt"])


def restore(
    name: Name,
    memory_id: Annotated[str, typer.Argument(metavar="MEMORY_ID", help="The forgotten memory.")],
    db: Db = None,
) -> None:
    """Restore a forgotten memory within RECALL_FORGET_DAYS."""
    ns = namespace_or_fail(name)

    async def act(built: Application) -> None:
        await existing(built, ns)
        entry = built.services.audit.begin(
            ns, operations.memories.RESTORE_MEMORY.name, PROTOCOL, None
        )
        await built.services.recall.restore(Context(entry), memory_id)
        typer.echo(f"{memory_id} is remembered again.")

    in_application(db, act)


def erase_allow(
    name: Name,
    text_file: Annotated[
        typer.FileText, typer.Option(help="The text that may be stored again; -: standard input.")
    ],
    db: Db = None,
) -> None:
    """Allow an erased text, and each of its turns, to be stored again."""
    ns = namespace_or_fail(name)
    try:
        text = text_file.read()
    except UnicodeDecodeError:
        fail("The text is not UTF-8. Give it as it was stored.")

    async def act(built: Application) -> None:
        entry = built.services.audit.begin(ns, operations.erasure.ALLOW_ERASED.name, PROTOCOL, None)
        freed = await built.services.erase.allow(Context(entry), text)
        typer.echo(
            f"{freed} of its texts were refused, and are taken again from now on."
            if freed
            else "Nothing of this text is refused: give the whole text, as it was handed in."
        )

    in_application(db, act)


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
        _show(signed, key)
        return

    async def act(built: Application) -> None:
        print_json(verified(signed, built.key.public, RECEIPT_TYP))

    in_application(db, act)


def _show(signed: str, key: Path) -> None:
    try:
        print_json(verified(signed, key_in(key), RECEIPT_TYP))
    except Invalid as error:
        fail(error.message, error.code)


def key(db: Db = None) -> None:
    """Print the public key of this server, which verifies its receipts."""

    async def act(built: Application) -> None:
        print_json({**built.key.public})

    in_application(db, act)


def namespace_or_fail(name: str) -> Namespace:
    try:
        return namespace(name)
    except RecallError as error:
        fail(error.message, error.code)


def verify_erasure(
    canary: Annotated[
        list[str], typer.Option(help="A word of 8 bytes or more that must be gone; repeatable.")
    ],
    path: Annotated[
        list[Path] | None, typer.Option(help="A log, export or backup to search too.")
    ] = None,
    db: Db = None,
    as_json: AsJson = False,
) -> None:
    """Search all files of the database for any trace of a word; exits with 1 if one is found."""

    async def act(built: Application) -> None:
        found = await scan(built.store, canary, path or [])
        if as_json:
            print_json(asdict(found))
        else:
            _print_scan(found)
        if found.places or found.unreadable:
            raise typer.Exit(1)

    in_application(db, act)


def _print_scan(found: Scan) -> None:
    for place in found.places:
        typer.echo(f"{place.where}: canary {place.word + 1}, {place.form}, at byte {place.at}")
    for name in found.unreadable:
        typer.echo(f"{name}: not read", err=True)
    said = "found" if found.places else "nothing found"
    typer.echo(f"{found.files} files, {found.rows} rows, {found.bytes} bytes read: {said}.")
