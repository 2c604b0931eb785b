"""`recall audit`: read, export, sign and verify the audit log."""

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from recall_server.api import operations
from recall_server.application import Application
from recall_server.cli.shared import (
    Answer,
    AnyName,
    AsJson,
    Db,
    answering,
    fail,
    in_application,
    jwk,
    key_in,
    listed,
    observed,
    progress,
    unused,
    waiting,
    with_application,
    written,
)
from recall_server.domain.audit import Checkpoint, excuses
from recall_server.domain.errors import AuditBroken, Invalid, RecallError
from recall_server.domain.ids import Namespace, namespace
from recall_server.integrations.keys import Jwk
from recall_server.services.audit.verification import (
    Archive,
    Digested,
    Verified,
    manifest_of,
    read_archive,
    read_checkpoints,
    verified_export,
)

BROKEN = 1

app = typer.Typer(help="The audit log: read, export, sign, verify.", no_args_is_help=True)

Name = Annotated[Namespace, typer.Argument(help="The namespace of the log.")]


@app.command()
@with_application
async def tail(
    built: Application,
    name: AnyName = None,
    tail: Annotated[int, typer.Option("--tail", "--limit", min=1, max=10_000)] = 20,
    named: Annotated[Namespace | None, typer.Option("--namespace", show_default=False)] = None,
) -> Answer:
    """Show the newest records: every operation, its caller and its outcome.

    Args:
        tail: How many of the newest records.
        named: The same as NAMESPACE.
    """
    if name and named:
        fail("Give NAMESPACE or --namespace, not both.")
    ns = name or named
    records = await built.services.audit.newest(ns, tail)
    if ns is not None:
        await observed(built, ns, operations.history.read_audit, records=len(records))
    rows = [
        {
            "at": record.at.isoformat(timespec="milliseconds"),
            "namespace": record.namespace,
            "seq": record.link and record.link.seq,
            "protocol": record.protocol,
            "door": record.protocol,  # the name in 0.1.0
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
    shown = ("at", "namespace", "seq", "protocol", "operation", "accessor", "outcome", "ms")
    return listed(rows, "The audit log is empty.", (*shown, "counts"))


@app.command()
@with_application
async def export(
    built: Application,
    name: Name,
    out: Annotated[Path | None, typer.Option(show_default="stdout")] = None,
) -> None:
    """Write the whole audit log of a namespace as JSON Lines, sealed, for `verify`.

    Args:
        out: A new file, for its owner alone.
    """
    unused(out)
    await observed(built, name, operations.history.EXPORT_AUDIT)
    broken = None
    with written(out) as file, progress("records written") as on_progress:
        try:
            number = 0
            async for line in built.services.verification.export(name):
                file.write(line.encode() + b"\n")
                number += 1
                on_progress(number)
        except AuditBroken as error:  # a broken log is still evidence
            broken = error
    if broken is not None:
        _broken(broken)


@app.command()
@with_application
async def checkpoint(built: Application, name: AnyName = None) -> None:
    """Sign the heads of the audit logs now; write them as the settings say, or to stdout."""
    services = built.services
    if name is None:
        wanted = [one async for one in services.verification.namespaces()]
    else:
        wanted = [name]
        await observed(built, name, operations.history.CHECKPOINT_AUDIT)
    if services.checkpoints.places:
        written = await services.checkpoints.write(wanted)
        typer.echo(f"Wrote {written} checkpoint{'' if written == 1 else 's'}.")
        return
    for one in wanted:
        try:
            made = await services.verification.checkpoint(one)
        except AuditBroken as error:
            _broken(error)
        if made is not None:
            typer.echo(made[1])


@app.command()
@answering
def verify(
    file: Annotated[
        Path | None, typer.Argument(metavar="[EXPORT|NAMESPACE]", show_default="all namespaces")
    ] = None,
    *,
    checkpoints: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
    key: Annotated[Path | None, typer.Option(exists=True, dir_okay=False)] = None,
    archive: Annotated[list[Path] | None, typer.Option(exists=True, show_default=False)] = None,
    name: Annotated[str | None, typer.Option("--namespace", show_default="all namespaces")] = None,
    db: Db = None,
    as_json: AsJson = False,
) -> Answer:
    """Verify that no record was changed, dropped or moved; else exit with 1 and name the first one.

    An export needs no database and no network. Without --checkpoints a cut-off end cannot be
    detected, nor a log that was rewritten with the server's own key.

    Args:
        file: A file, or a namespace of the database.
        checkpoints: The checkpoints, as the server wrote them.
        key: The public key that is trusted (JWK).
        archive: A file with records that were cut, or a folder of such files; repeatable.
    """
    if file is not None and name is None and not file.exists():
        typer.echo(f"There is no export {file}: this is taken for a namespace.", err=True)
        file, name = None, str(file)
    if file is not None:
        if db is not None or name is not None:
            fail("Give an export, or a database with --db and --namespace.")
        return _verify_export(file, checkpoints, key, archive or [], as_json=as_json)

    async def act(built: Application) -> Answer:
        public = key_in(key) if key else built.key.public
        if not as_json:
            _print_key(public, "the operator" if key else "this server")
        given = _read(checkpoints, public)
        if name is not None:
            wanted = [namespace(name)]
        else:
            wanted = [one async for one in built.services.verification.namespaces()]
        try:
            with waiting("Verifying the records"):
                archives = _archives(archive or [], public)
                verified = [await _verified(built, one, given, archives) for one in wanted]
            if name is None:
                _check_all_present(verified, given)
        except AuditBroken as error:
            _broken(error)
        return _of_verified(verified, checkpoints)

    return in_application(db, act)


def _verify_export(
    file: Path, checkpoints: Path | None, key: Path | None, archive: list[Path], *, as_json: bool
) -> Answer:
    try:
        with file.open(encoding="utf-8", newline="\n") as opened:
            lines = Digested(opened)
            manifest = manifest_of(lines)
            public = key_in(key) if key else jwk(manifest.get("key"), "The key in the export")
            if not as_json:
                _print_key(public, "the operator" if key else "the export itself: give --key")
            given, archives = _read(checkpoints, public), _archives(archive, public)
            found = verified_export(manifest, lines, given, public, archives)
    except (OSError, UnicodeDecodeError):
        fail(f"{file} cannot be read as an export of an audit log.")
    except AuditBroken as error:
        _broken(error)
    except RecallError as error:
        fail(error.message, error.code)
    return _of_verified([found], checkpoints)


async def _verified(
    built: Application, ns: Namespace, given: list[Checkpoint], archives: list[Archive]
) -> Verified:
    services = built.services
    try:
        found = await services.verification.verify(ns, given, archives)
    except AuditBroken as error:
        try:
            await observed(built, ns, operations.history.VERIFY_AUDIT, broken_at=error.seq)
        except Exception:  # noqa: BLE001  # a broken log may accept no more records
            typer.echo(
                "recall: this verification could not be recorded in the audit log.", err=True
            )
        raise
    await observed(built, ns, operations.history.VERIFY_AUDIT, records=found.seq)
    return found


def _check_all_present(verified: Sequence[Verified], given: list[Checkpoint]) -> None:
    """Check that every log with a checkpoint exists, unless a restore took it away."""
    present = {one.namespace for one in verified}
    restored = [restore for one in verified for restore in one.restored]
    for one in given:
        if one.namespace not in present and not excuses(restored, one, whole=True):
            raise AuditBroken(one.namespace, 1, "the whole audit log is missing")


def _archives(paths: list[Path], public: Jwk) -> list[Archive]:
    """Return archives that are intact. Raises `AuditBroken`."""
    found = []
    for path in paths:
        for file in sorted(path.glob("*.jsonl")) if path.is_dir() else [path]:
            try:
                found.append(read_archive(file, public))
            except AuditBroken:
                typer.echo(f"recall: {file} is not as it was written.", err=True)
                raise
            except (OSError, UnicodeDecodeError):
                raise Invalid(f"{file} cannot be read as an archive.") from None
    return found


def _read(path: Path | None, public: Jwk) -> list[Checkpoint]:
    if path is None:
        return []
    try:
        with path.open(encoding="utf-8") as lines:
            return list(read_checkpoints(lines, public))
    except (OSError, UnicodeDecodeError):
        raise Invalid(f"{path} cannot be read as a file of checkpoints.") from None


def _print_key(public: Jwk, whose: str) -> None:
    typer.echo(f"key {public['x']} of {whose}", err=True)


def _broken(error: AuditBroken) -> NoReturn:
    typer.echo(f"recall: {error.message} [{error.code}]", err=True)
    raise typer.Exit(BROKEN)


def _of_verified(found: list[Verified], checkpoints: Path | None) -> Answer:
    # `vouched_for` is the name in 0.1.0.
    data = [{**asdict(one), "vouched_for": one.confirmed_up_to} for one in found]
    return Answer(data, partial(_print_verified, found, checkpoints))


def _print_verified(found: list[Verified], checkpoints: Path | None) -> None:
    for one in found:
        parts = [f"records {one.first} to {one.seq} are intact" if one.seq else "no records"]
        if one.first > 1:
            parts.append("those before were cut: give --archive to verify them")
        if one.confirmed_up_to >= one.first:
            parts.append(f"checkpoints confirm those up to {one.confirmed_up_to}")
        elif checkpoints is not None and one.seq:
            parts.append("no checkpoint confirms any of them")
        parts += [
            f"a backup was put back at {back.at}, before record {back.seq}" for back in one.restored
        ]
        if one.details_erased:
            parts.append(f"details of {one.details_erased} erased")
        if one.unchained:
            parts.append(f"{one.unchained} older than the chain are not verified")
        typer.echo(f"{one.namespace}: {'; '.join(parts)}")
    if checkpoints is None:
        typer.echo("Without --checkpoints a cut-off end cannot be detected.", err=True)
