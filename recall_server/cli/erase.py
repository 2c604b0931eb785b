"""`recall erase` and its relatives: allow again, holds, purge a source, verify receipts."""

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from recall_server.api import operations, presenters
from recall_server.api.operations.operation import Operation
from recall_server.application import Application
from recall_server.cli.shared import (
    Answer,
    Db,
    Name,
    answering,
    begin,
    echo,
    existing,
    fail,
    in_application,
    key_in,
    listed,
    print_json,
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
from recall_server.domain.ids import Namespace
from recall_server.domain.memory import Memory
from recall_server.integrations.keys import Jwk, verified
from recall_server.services.erasure import Erased
from recall_server.services.erasure.leak_scan import WINDOW, Scan, Trace, scan
from recall_server.services.erasure.purge import RECEIPT_TYP
from recall_server.services.erasure.purge_source import BadSource

OPERATIONS = {
    "memory": operations.erasure.ERASE_MEMORY,
    "subject": operations.erasure.ERASE_SUBJECT,
    "container": operations.erasure.ERASE_CONTAINER,
    "": operations.erasure.delete_namespace_data,
}


@answering
def erase(  # noqa: PLR0917  # typer reads them as options
    name: Name,
    memory: str | None = None,
    subject: str | None = None,
    container: str | None = None,
    dry_run: bool = False,
    yes: bool = False,
    receipt: Annotated[Path | None, typer.Option(dir_okay=False)] = None,
    db: Db = None,
) -> Answer:
    """Erase a namespace, container, subject or memory for good, and give a receipt for it.

    Args:
        memory: Only this memory, by its id.
        subject: Only what names this subject.
        container: Only the contents of this container.
        dry_run: Show what would be erased; with one of these three.
        yes: Do not ask.
        receipt: Write the receipt to this file.
    """
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
        _confirm(name, f"This erases {what} in {name}, for good.", "erased")

    async def act(built: Application) -> Answer:
        await existing(built, name)
        # Check the receipt's file before anything is erased.
        unused(receipt)
        place = receipt if receipt is not None and not dry_run else None
        with written(place) if place else nullcontext() as file:
            shown = await _with_receipt(
                built, name, await _erase(built, name, kind, named, dry_run=dry_run)
            )
            if file is not None:
                file.write(f"{shown['receipt']}\n".encode())
        return Answer(shown, partial(print_erased, shown, receipt))

    return in_application(db, act)


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


@answering
def erase_again(db: Db = None) -> Answer:
    """Erase again what a database restored from a backup contains, and give new receipts."""
    shown = in_application(db, erased_again, restored=True)

    def said() -> None:
        for one in shown:
            print_erased(one, None)
        typer.echo(f"Erasures done again: {len(shown)}.", err=True)

    return Answer(shown, said)


async def erased_again(built: Application) -> list[dict[str, Any]]:
    """Do every erasure of the ledger that the database does not know."""
    services, done = built.services, []
    for noted in await services.ledger.unknown(built.store):
        context = begin(built, noted.namespace, operations.erasure.ERASE_AGAIN)
        done.append((noted.namespace, await services.erase.again(context, noted)))
    return [await _with_receipt(built, ns, erased) for ns, erased in done]


async def _with_receipt(built: Application, ns: Namespace, erased: Erased) -> dict[str, Any]:
    """Return an erasure with its newest receipt and the state of the purge, which runs here, as
    there may be no worker.
    """
    shown = presenters.erased(erased)
    if erased.dry_run:
        return shown
    try:
        with progress("rows erased") as on_progress:
            done = await built.services.purge.at_once(ns, erased.id, on_progress)
    except Unavailable as error:
        return shown | {"physical": f"pending: {error.message}"}
    but = f", but for: {done.left_behind}" if done.left_behind else ""
    return shown | {"receipt": done.receipt, "physical": f"done{but}"}


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
        f"Receipt {shown['receipt_id']}. GET /v1/receipts/{shown['receipt_id']} needs no token, "
        f"but the header Recall-Receipt-Secret: {shown['receipt_secret']}",
        err=True,
    )
    if file is None:
        typer.echo(shown["receipt"])


@with_application
async def erase_allow(
    built: Application, name: Name, text_file: Annotated[typer.FileText, typer.Option()]
) -> Answer:
    """Allow an erased text, and each of its turns, to be stored again.

    Args:
        text_file: The text that may be stored again; - reads standard input.
    """
    try:
        text = text_file.read()
    except UnicodeDecodeError:
        fail("The text is not UTF-8. Give it as it was stored.")
    context = begin(built, name, operations.erasure.ALLOW_ERASED)
    freed = await built.services.erase.allow(context, text)
    said = f"{freed} of its texts were refused, and are taken again from now on."
    if not freed:
        said = "Nothing of this text is refused: give the whole text, as it was handed in."
    return Answer({"namespace": name, "allowed": freed}, said)


@answering
def verify_receipt(
    file: Annotated[Path, typer.Argument(exists=True, dir_okay=False)],
    key: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
    db: Db = None,
) -> None:
    """Verify the signature of a receipt, offline with --key, and show its content.

    Args:
        file: The receipt.
        key: The server's public key, as `recall key` prints it.
    """
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
    built: Application, canary: Annotated[list[str], typer.Option()], path: list[Path] | None = None
) -> Answer:
    """Search all files of the database for any trace of a word; exits with 1 if one is found.

    Args:
        canary: A word of 8 bytes or more that must be gone; repeatable.
        path: A log, export or backup to search too.
    """
    with waiting("Searching all files"):
        found = await scan(built.store, canary, path or [])
    failed = bool(found.places or found.unreadable)
    return Answer(asdict(found), partial(_print_scan, found), int(failed))


def _print_scan(found: Scan) -> None:
    for line in _places(found.places):
        typer.echo(line)
    for name in found.unreadable:
        typer.echo(f"{name}: not read", err=True)
    if any(place.form == "fragment" for place in found.places):
        echo(
            "A fragment is any 8 bytes of a canary. If they are everyday words, they may stand in "
            "files that have nothing of your texts: choose a word that is nowhere else.",
            err=True,
        )
    said = "found" if found.places else "nothing found"
    typer.echo(f"{found.files} files, {found.rows} rows, {found.bytes} bytes read: {said}.")


def _places(found: Sequence[Trace]) -> Iterator[str]:
    """Return a line for each place: matches of a form whose bytes touch are one."""
    kinds: dict[tuple[str, int, str], list[int]] = {}
    for one in found:
        kinds.setdefault((one.where, one.word, one.form), []).append(one.at)
    for (where, word, form), starts in kinds.items():
        pieces: list[list[int]] = []
        for at in sorted(starts):
            if pieces and at - pieces[-1][1] <= WINDOW:
                pieces[-1][1] = at
            else:
                pieces.append([at, at])
        for first, last in pieces:
            at_ = f"at byte {first}" if first == last else f"at bytes {first} to {last}"
            yield f"{where}: canary {word + 1}, {form}, {at_}"


app = typer.Typer(help="Namespaces of which nothing may be erased.", no_args_is_help=True)


@app.command("set")
@with_application
async def set_(built: Application, name: Name, reason: Annotated[str, typer.Option()]) -> Answer:
    """Refuse every erasure of a namespace until the hold is lifted.

    Args:
        reason: The reason, shown to callers who ask for an erasure.
    """
    await built.services.holds.place(begin(built, name, operations.erasure.SET_HOLD), reason)
    data = {"namespace": name, "on_hold": True}
    return Answer(data, f"{name} is on hold: nothing of it is erased.")


@app.command()
@with_application
async def lift(built: Application, name: Name) -> Answer:
    """Lift the hold of a namespace."""
    await existing(built, name)
    await built.services.holds.lift(begin(built, name, operations.erasure.LIFT_HOLD))
    data = {"namespace": name, "on_hold": False}
    return Answer(data, f"{name} is not on hold any more.")


@app.command("list")
@with_application
async def list_(built: Application) -> Answer:
    """List the namespaces on hold, since when and why."""
    rows = [
        {"namespace": one.namespace, "since": presenters.moment(one.at), "reason": one.because}
        for one in await built.services.holds.all()
    ]
    return listed(rows, "No namespace is on hold.")


@answering
def purge_source(  # noqa: PLR0917  # typer reads them as options
    name: Name,
    agent: str = "",
    session: str = "",
    episode: str = "",
    dry_run: bool = False,
    yes: bool = False,
    db: Db = None,
) -> Answer:
    """Take out what a bad source caused, and restore what it had replaced.

    Args:
        agent: Texts of this agent.
        session: Texts of this session.
        episode: One text.
        dry_run: Show what would change.
        yes: Do not ask.
    """
    try:
        source = BadSource(agent, session, episode)
    except Invalid as error:
        fail(error.message, error.code)
    if not (yes or dry_run):
        _confirm(
            name, f"This removes what came of it from {name}; --dry-run shows what.", "removed"
        )

    async def act(built: Application) -> Answer:
        operation = operations.erasure.PURGE_SOURCE
        async with _recorded(built, name, operation, dry_run=dry_run) as context:
            found = await built.services.sources.purge(context, source, dry_run=dry_run)
        change_id = None if dry_run else context.entry.change
        data = {
            "dry_run": dry_run,
            "counts": found.counts(),
            "episode_ids": found.episodes,
            "removed": _memories(found.removed),
            "kept": _memories(found.kept),
            "restored": _memories(found.restored),
            "task_ids": found.tasks,
            "requeued": found.requeued,
            "asked_again": found.requeued,  # the name in 0.1.0
            "change_id": change_id,
        }
        return Answer(data, partial(_print_purged, data, name))

    return in_application(db, act)


def _memories(found: Mapping[str, Memory]) -> list[dict[str, str]]:
    return [{"id": one.id, "text": one.text, "status": str(one.status)} for one in found.values()]


def _print_purged(data: dict[str, Any], ns: Namespace) -> None:
    titles = {"removed": "removed", "kept": "kept, without it", "restored": "restored"}
    for kind, title in titles.items():
        for one in data[kind]:
            echo(f"{title}  {one['id']}  {one['text']}")
    counts = data["counts"].items()
    summary = ", ".join(f"{number} {what.replace('_', ' ')}" for what, number in counts if number)
    if not summary:
        typer.echo("Nothing came of it.")
    elif data["dry_run"]:
        typer.echo(f"Would be: {summary}.")
    else:
        typer.echo(f"Done: {summary}.")
        echo(f"To take it back, but for tasks: recall undo {ns} {data['change_id']}")
