"""`recall migrate`, `reembed`, `backup`, `restore-backup`, `export` and `import`."""

import asyncio
import json
import shlex
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import typer

from recall_server import shipped
from recall_server.api import operations
from recall_server.application import Application
from recall_server.bootstrap import open_application
from recall_server.cli.erase import erased_again, print_erased
from recall_server.cli.shared import (
    PROTOCOL,
    STDOUT,
    Answer,
    Create,
    Db,
    answering,
    begin,
    echo,
    existing,
    existing_settings,
    fail,
    in_application,
    print_table,
    progress,
    run,
    settings,
    unused,
    with_application,
    written,
)
from recall_server.config import Settings
from recall_server.domain import export_format
from recall_server.domain.errors import (
    DatabaseUnusable,
    Invalid,
    NotDistributable,
    RecallError,
)
from recall_server.domain.ids import Namespace
from recall_server.domain.moments import utc_now
from recall_server.lifecycle import only_server
from recall_server.services.transfer import importing
from recall_server.storage import driver_for, inspection, migrations
from recall_server.storage import sqlite as files
from recall_server.storage.driver import Driver
from recall_server.storage.migrations import Pending

PENDING = 1


@answering
def migrate(
    *,
    check: bool = False,
    dry_run: bool = False,
    no_backup: bool = False,
    distribute: bool = False,
    db: Db = None,
) -> Answer:
    """Bring the tables of a database up to date with this release; there is no way back.

    Args:
        check: Show what would be done; exit with 1 if there is anything.
        dry_run: Migrate in a transaction, and roll it back.
        no_backup: Do not copy the SQLite file first.
        distribute: Then spread the database over the nodes of Citus.
    """
    if distribute and (check or dry_run):
        fail("--distribute is neither checked nor tried: it goes on where it broke off.")
    chosen = existing_settings(db)
    copy = None
    if check or dry_run:
        found = run(_tried(chosen, dry_run=dry_run), db)
    else:
        found, copy = run(_migrated(chosen, backup=not no_backup), db)
    steps, breaking = found.names, found.breaking
    spread = run(_distributed(chosen), db) if distribute else []

    def said() -> None:
        done = "Would be applied" if check else "Can be applied" if dry_run else "Applied"
        typer.echo(f"{done}: {', '.join(steps)}." if steps else "The database is up to date.")
        if distribute:
            typer.echo(f"Spread: {', '.join(spread)}." if spread else "All tables are spread.")
        if breaking and (check or dry_run):
            first, *more = breaking
            besides = f" and {len(more)} of those behind it" if more else ""
            typer.echo(
                "Stop all servers and workers first: an older release cannot go on after "
                f"{first}{besides}."
            )
        if steps and (check or dry_run) and not isinstance(chosen.database, Path):
            typer.echo("Make a backup first, there is no way back: `recall backup FILE` says how.")
        if copy is not None:
            echo(f"As it was before: {copy}. Remove it when all is well.", err=True)

    data = {
        "migrations": steps,
        "breaking": breaking,
        "backup": copy and str(copy),
        "distributed": spread,
    }
    return Answer(data, said, PENDING if check and steps else 0)


async def _distributed(chosen: Settings) -> list[str]:
    if isinstance(chosen.database, Path):
        raise NotDistributable(
            "A SQLite file cannot be spread over several nodes. Move its namespaces to PostgreSQL "
            "with `recall export` and `recall import`."
        )
    from recall_server.storage.postgres import MIGRATION_LOCK  # noqa: PLC0415
    from recall_server.storage.postgres.distribution import distribute  # noqa: PLC0415

    return await distribute(chosen.database, MIGRATION_LOCK)


async def _tried(chosen: Settings, *, dry_run: bool) -> Pending:
    folder = shipped("migrations")
    async with _driver(chosen) as driver:
        if dry_run:
            await migrations.try_out(driver, folder, utc_now())
        return await migrations.pending(driver, folder)


async def _migrated(chosen: Settings, *, backup: bool) -> tuple[Pending, Path | None]:
    path, folder, copy = chosen.database, shipped("migrations"), None
    with only_server(chosen):
        async with _driver(chosen) as driver:
            steps = await migrations.pending(driver, folder)
            if backup and steps.names and isinstance(path, Path):
                copy = path.with_name(f"{path.name}.before-{steps.names[0]}")
                await _copied(path, copy)
            names = await migrations.migrate(driver, folder, utc_now())
            return Pending(names, steps.breaking), copy


@asynccontextmanager
async def _driver(chosen: Settings) -> AsyncIterator[Driver]:
    """Yield the open driver of the database, without its key and its tables being looked at."""
    driver = driver_for(chosen.database)
    try:
        await driver.open()
        yield driver
    finally:
        await driver.close()


@answering
def backup(target: Annotated[Path, typer.Argument(metavar="FILE")], db: Db = None) -> Answer:
    """Copy a SQLite database while it is in use; for PostgreSQL, show what to run and as whom.

    Args:
        target: A new file.
    """
    chosen = existing_settings(db)
    if target == STDOUT:
        fail("A backup is a file of its own. Name one.")
    unused(target)
    if isinstance(chosen.database, str):
        command = run(_dump(chosen, target), db)
        data: dict[str, Any] = {"command": command}
        print_it = partial(typer.echo, shlex.join(command))
    else:
        run(_copied(chosen.database, target))
        size = target.stat().st_size
        data = {"backup": str(target), "bytes": size}
        print_it = partial(echo, f"{target} has {chosen.database} as it was, {size:,} bytes.")

    def said() -> None:
        print_it()
        echo(
            f"The key {chosen.key_path.resolve()} is not in it, and is needed to restore it: keep "
            "a copy elsewhere.",
            err=True,
        )

    return Answer(data, said)


async def _copied(path: Path, target: Path) -> None:
    with progress("% copied") as on_progress:
        files.copy_to(path, target, on_progress)


async def _dump(chosen: Settings, target: Path) -> list[str]:
    async with _driver(chosen) as driver, driver.migration() as connection:
        user = await inspection.dumper(connection)
    if user is None:
        raise DatabaseUnusable(
            "Nobody can dump the database, as row-level security is forced on its owner. Have a "
            f"superuser make a user for it: {inspection.BACKUP_ROLE}"
        )
    return dump_command(str(chosen.database), user, target)


def dump_command(url: str, user: str, target: Path) -> list[str]:
    """`pg_dump` of the database of `url`; it asks for the password of `user`, or finds it in
    PGPASSWORD or ~/.pgpass.
    """
    from psycopg.conninfo import conninfo_to_dict  # noqa: PLC0415  # belongs to an extra

    given = conninfo_to_dict(url)
    where = [
        part
        for option, name in (("--host", "host"), ("--port", "port"), ("--dbname", "dbname"))
        if given.get(name)
        for part in (option, str(given[name]))
    ]
    return ["pg_dump", "--format=custom", "--file", str(target), *where, "--username", user]


@answering
def restore_backup(
    file: Annotated[
        Path | None, typer.Argument(exists=True, dir_okay=False, show_default=False)
    ] = None,
    db: Db = None,
) -> Answer:
    """Put a backup back, erase again what was erased since, and record in each audit log that it
    was meant. The server must be stopped.

    Args:
        file: A file that `recall backup` wrote; leave it out if it is in place already.
    """
    chosen = settings(db) if file else existing_settings(db)
    path = chosen.database
    if file is not None and isinstance(path, str):
        fail("Restore PostgreSQL with pg_restore, and then run this without FILE.")
    old, again = run(_restored(chosen, file), db)

    def said() -> None:
        for one in again:
            print_erased(one, None)
        echo(f"Restored. Erasures done again: {len(again)}.")
        if old is not None:
            echo(f"What was there before is {old}. Remove it when all is well.", err=True)

    return Answer({"erased_again": again, "replaced": old and str(old)}, said)


async def _restored(
    chosen: Settings, file: Path | None
) -> tuple[Path | None, list[dict[str, Any]]]:
    path = chosen.database
    if file is None or isinstance(path, str):
        with only_server(chosen):
            return None, await _taken_back(chosen)
    files.check_copy(file)
    with only_server(chosen):
        new, old = (path.with_name(path.name + ending) for ending in (".restoring", ".replaced"))
        existed = path.exists()
        await _copied(file, new)
        # All work is done on the copy; the file that is served changes in one step.
        beside = {"key_file": chosen.key_path, "erasure_file": chosen.erasure_path}
        try:
            again = await _taken_back(chosen.model_copy(update={"db_path": new, **beside}))
        except RecallError:
            files.remove(new)  # no erasure would reach it
            raise
        files.put_in_place(new, path, old)
    return (old if existed else None), again


async def _taken_back(chosen: Settings) -> list[dict[str, Any]]:
    async with open_application(chosen, restored=True) as built:
        services = built.services
        lacks = Counter(one.namespace for one in await services.ledger.unknown(built.store))
        kept = [one async for one in services.verification.namespaces()]
        # Begin at the first record since the backup: the records that a checkpoint confirms from
        # there on are gone.
        for ns in dict.fromkeys((*kept, *lacks)):
            entry = begin(built, ns, operations.history.RESTORE_BACKUP).entry
            entry.counts["to_erase_again"] = lacks[ns]
            async with built.store.transaction(ns, entry=entry) as tx:
                # A namespace that was made after the backup, and is erased again, has a log too.
                await tx.access.add_namespace(built.runtime.now())
        return await erased_again(built)


@dataclass(frozen=True)
class Done:
    namespace: Namespace
    embedded: int
    dropped: int


@with_application
async def reembed(
    built: Application,
    name: Annotated[
        Namespace | None, typer.Option("--namespace", metavar="NAMESPACE", show_default="all")
    ] = None,
    drop_old: bool = False,
) -> Answer:
    """After a change of RECALL_EMBEDDER: create the missing vectors, beside a running server. After
    an interruption, run it again to continue.

    Args:
        name: Only this namespace.
        drop_old: Then delete the vectors of all other models.
    """
    if built.embedder is None:
        raise Invalid("There is no embedder. Choose one with RECALL_EMBEDDER.")
    await built.embedder.load()
    if name is None:
        chosen = await built.store.autocommit(None).erasures.namespaces()
    else:
        chosen = [await existing(built, name)]
    done = [await _renewed(built, one, drop=drop_old) for one in chosen]
    data = {"model": built.embedder.model, "namespaces": [asdict(one) for one in done]}
    lines = [
        f"{one.namespace}: {_summary(one.embedded, one.dropped)}"
        for one in done
        if one.embedded or one.dropped
    ]
    embedded, dropped = (sum(one.embedded for one in done), sum(one.dropped for one in done))
    lines.append(f"In all, of {built.embedder.model}: {_summary(embedded, dropped)}")
    return Answer(data, partial(typer.echo, "\n".join(lines)))


async def _renewed(built: Application, one: Namespace, *, drop: bool) -> Done:
    embedding, begin = built.services.embedding, built.services.audit.begin
    entry = partial(begin, one, protocol=PROTOCOL, accessor=None)
    lacking = await embedding.lacking(one)
    shown = progress(f"of {lacking} vectors in {one}") if lacking else nullcontext(lambda _: None)
    with shown as on_progress:
        embedded = await embedding.reembed(one, entry=entry, on_progress=on_progress)
    dropped = await embedding.drop_others(one, entry=entry) if drop else 0
    return Done(one, embedded, dropped)


def _summary(embedded: int, dropped: int) -> str:
    return f"{embedded} vectors made" + (f", {dropped} of other models deleted" if dropped else "")


@answering
def export_(  # noqa: PLR0917  # options, each by its name
    name: Annotated[Namespace | None, typer.Argument()] = None,
    out: Annotated[
        Path | None, typer.Option(dir_okay=False, show_default="standard output")
    ] = None,
    force: bool = False,
    subject: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    schema: bool = False,
    db: Db = None,
) -> None:
    """Write all data of a namespace as JSON Lines.

    Args:
        name: The namespace.
        out: A new file, for its owner alone.
        force: Replace the file of --out, once the new one is complete.
        subject: Only what concerns this person.
        schema: Print the JSON Schema of the lines.
    """
    if schema:
        typer.echo(json.dumps(export_format.schema(), indent=1))
        return
    if name is None:
        fail("Name the namespace: recall export NAMESPACE.")
    if not force:
        unused(out, " --force replaces it.")

    async def act(built: Application) -> None:
        context = begin(built, name, operations.contents.export_namespace)
        pieces = built.services.export.stream(context, subject=subject)
        # Not if the lines themselves are on the screen.
        on_screen = out in (None, STDOUT) and sys.stdout.isatty()
        shown = progress("lines written", shown=not on_screen)
        with written(out) as file, shown as on_progress:
            lines = 0
            async with aclosing(pieces):
                async for piece in pieces:
                    # A slow reader of the pipe must not block the event loop, which watches the
                    # time limit.
                    await asyncio.to_thread(file.write, piece)
                    lines += piece.count(b"\n")
                    on_progress(lines)
        if out not in (None, STDOUT):
            echo(f"{out} is complete: {lines} lines.", err=True)
        if subject is not None and lines == len(("manifest", "end")):
            echo(
                f"Nothing concerns {subject}. Check how the name is written, and the names that "
                "`recall aliases list` shows.",
                err=True,
            )

    in_application(db, act)


@answering
def import_(
    file: Path,
    into: Annotated[Namespace, typer.Option(metavar="NAMESPACE")],
    create: Create = False,
    db: Db = None,
) -> Answer:
    """Import an export into a namespace; after an interruption, run it again to continue.

    Args:
        file: A file that `recall export` wrote; - reads standard input.
        into: The target namespace.
    """

    async def act(built: Application) -> Answer:
        services = built.services
        with _opened(file) as source:
            if source.seekable():
                # Check the whole file first, if possible: nothing of a damaged one is imported.
                services.importing.check(source)
                source.seek(0)
            with progress("lines read") as on_progress:
                report = await services.importing.take(
                    into,
                    source,
                    entry=lambda: begin(built, into, operations.contents.IMPORT_NAMESPACE).entry,
                    on_progress=on_progress,
                )
        return _reported(report)

    return in_application(db, act, create=create)


def _reported(report: importing.Report) -> Answer:
    left_out = [{"line": line, "id": i, "reason": reason} for line, i, reason in report.left_out]
    counts = report.counts()

    def said() -> None:
        typer.echo(
            f"{counts['new']} new ({report.new['episode']} episodes, {report.new['memory']} "
            f"memories), {counts['known']} known before\n"
            f"left out: {counts['conflicts']} conflicts, {counts['refused']} erased, "
            f"{counts['orphans']} whose source is not here, {counts['unfit']} that no protocol "
            f"would take; {counts['quarantined']} turns in quarantine"
        )
        if left_out:
            print_table(left_out, "")

    data = {
        **counts,
        "new_by_kind": dict(report.new),
        "skipped": dict(report.skipped),
        "told_only": dict(report.skipped),  # the name in 0.1.0
        "left_out": left_out,
    }
    return Answer(data, said, int(bool(report.conflicts)))


@contextmanager
def _opened(file: Path) -> Iterator[BinaryIO]:
    if file == STDOUT:
        yield sys.stdin.buffer
        return
    try:
        opened = file.open("rb")
    except OSError as error:
        fail(f"{file} cannot be read ({error.strerror}).")
    with opened:
        yield opened
