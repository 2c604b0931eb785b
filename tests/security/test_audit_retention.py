"""Audit records that are older than their days are archived, vouched for and cut; and whatever is
done to the cut or to an archive comes out.
"""

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from recall_server.application import Application
from recall_server.domain.audit import Cut
from recall_server.domain.context import Context
from recall_server.domain.errors import DatabaseUnusable, Invalid, Unavailable
from recall_server.integrations import audit_files
from recall_server.integrations.audit_files import ArchiveFolder, signed, verified_cut
from recall_server.integrations.keys import ServerKey
from tests.support.audit import (
    ALICE,
    BOB,
    Database,
    as_owner,
    enter,
    export,
    exported,
    fill,
    inside,
    more,
    named,
    parsed,
    public,
    recall,
    vouch,
)
from tests.support.cli import Said
from tests.support.databases import Filled
from tests.support.engines import on_sqlite

pytestmark = pytest.mark.usefixtures("nothing_set")

OLD = datetime(2026, 1, 1, tzinfo=UTC)
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
RECORDS = 10


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "archive"
    path.mkdir()
    return path


def cut(
    database: Database, folder: Path, now: datetime = NOON, act: Any = None, **given: object
) -> None:
    """What a server does once in `RECALL_RETENTION_S`, with records of 30 days kept."""

    async def once(built: Application) -> None:
        if act is not None:
            await act(built)
        await built.services.retention.once()

    inside(database, once, now=lambda: now, audit_days=30, audit_archive=folder, **given)


def grown(database: Database, records: int, at: datetime) -> None:
    inside(database, lambda built: more(built, records), now=lambda: at)


def archives(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.jsonl"))


def places(database: Database) -> list[int]:
    """The records that the database still has."""
    return [one["seq"] for one in exported(database)]


def verify(database: Database, *more: object) -> Said:
    return recall(database, "audit", "verify", "--namespace", "alice", *more)


def test_what_is_older_than_its_days_is_archived_and_cut(database: Database, folder: Path) -> None:
    fill(database, RECORDS, ALICE, BOB, now=lambda: OLD)
    grown(database, 3, NOON - timedelta(days=1))
    before = exported(database)
    cut(database, folder)
    first = archives(folder)
    cut(database, folder)  # nothing is left to do

    assert places(database) == [11, 12, 13, 14]
    assert archives(folder) == first
    assert [path.name.split(".")[:2] for path in first] == [
        [name, "000000000001-000000000010"] for name in ("alice", "bob")
    ]
    assert {path.stat().st_mode & 0o777 for path in first} == {0o600}
    lines = parsed(first[0])
    assert [one["digest"] for one in lines[1:-1]] == [one["digest"] for one in before[:RECORDS]]
    tail = json.loads(recall(database, "audit", "tail", "--namespace", "alice", "--json").out)
    (done,) = [one for one in tail if one["operation"] == "cut_audit"]
    assert done["counts"] == {"records": RECORDS, "up_to": RECORDS}


def test_the_chain_verifies_from_the_cut_on_and_with_archives_from_the_beginning(
    database: Database, folder: Path, tmp_path: Path
) -> None:
    fill(database, RECORDS, now=lambda: OLD)
    kept = vouch(database, tmp_path / "kept.jws")  # one of what will be cut
    grown(database, 5, OLD + timedelta(days=20))
    cut(database, folder)
    grown(database, 5, NOON)
    vouch(database, kept)
    cut(database, folder, NOON + timedelta(days=40))

    alone = verify(database, "--checkpoints", kept)
    whole = verify(database, "--checkpoints", kept, "--archive", folder)
    part = verify(database, "--archive", archives(folder)[-1])
    path = export(database, tmp_path / "alice.jsonl")
    key = public(archives(folder)[0])
    offline = recall(None, "audit", "verify", path, "--archive", folder, "--key", key)
    by_itself = recall(None, "audit", "verify", archives(folder)[1], "--key", key)

    assert len(archives(folder)) == 2
    for said in (alone, whole, part, offline, by_itself):
        assert said.code == 0, said.err
    ends = [parsed(one)[-2]["seq"] for one in archives(folder)]
    assert f"records {ends[1] + 1} to" in alone.out
    assert "those before were cut" in alone.out
    assert "records 1 to" in whole.out
    assert "checkpoints confirm those up to" in whole.out
    assert f"records {ends[0] + 1} to" in part.out
    assert "records 1 to" in offline.out
    assert f"records {ends[0] + 1} to {ends[1]} are intact" in by_itself.out
    assert "erased" not in by_itself.out


def test_an_archive_holds_no_details_so_that_no_erasure_has_to_reach_it(
    database: Database, folder: Path
) -> None:
    fill(database, RECORDS, now=lambda: OLD)
    control = json.dumps(exported(database))
    cut(database, folder)

    assert "laptop of alice" in control
    (path,) = archives(folder)
    assert "laptop of alice" not in path.read_text()
    assert "laptop of alice" not in json.dumps(exported(database))
    assert '"details"' not in path.read_text()


def test_nothing_is_cut_of_a_namespace_on_hold(database: Database, folder: Path) -> None:
    async def hold(built: Application) -> None:
        entry = built.services.audit.begin(ALICE, "hold", "test", None)
        await built.services.holds.place(Context(entry), "a court has asked")

    async def lift(built: Application) -> None:
        entry = built.services.audit.begin(ALICE, "lift", "test", None)
        await built.services.holds.lift(Context(entry))

    fill(database, RECORDS, ALICE, BOB, now=lambda: OLD)
    cut(database, folder, act=hold)
    held, others = places(database), len(archives(folder))
    cut(database, folder, act=lift)

    assert held == [*range(1, RECORDS + 2)]
    assert [path.name.split(".")[0] for path in archives(folder)] == ["alice", "bob"]
    assert others == 1
    assert min(places(database)) == RECORDS + 1


def test_a_folder_that_has_gone_is_not_made_and_nothing_is_cut(
    database: Database, folder: Path
) -> None:
    """It may be a mount; the control is the same folder once it is back."""
    fill(database, RECORDS, now=lambda: OLD)
    folder.rmdir()
    with pytest.raises(Unavailable, match="RECALL_AUDIT_ARCHIVE"):
        cut(database, folder)
    there, kept = folder.exists(), len(places(database))
    folder.mkdir()
    cut(database, folder)

    assert (there, kept) == (False, RECORDS)
    assert places(database) == [RECORDS + 1]


def test_another_process_at_the_same_folder_is_not_disturbed(
    database: Database, folder: Path
) -> None:
    fill(database, RECORDS, now=lambda: OLD)
    with ArchiveFolder(folder).locked() as alone:
        cut(database, folder)
        kept = len(places(database))
    cut(database, folder)

    assert (alone, kept) == (True, RECORDS)
    assert places(database) == [RECORDS + 1]


def test_of_two_that_cut_at_once_with_folders_of_their_own_one_wins(
    database: Database, folder: Path, tmp_path: Path
) -> None:
    """Both have written an archive; the log was cut once, and verifies with the two of them."""
    fill(database, RECORDS, now=lambda: OLD)
    other = tmp_path / "other"
    other.mkdir()

    async def both(built: Application) -> None:
        mine = built.services.retention
        theirs = replace(mine, archive=ArchiveFolder(other))
        await asyncio.gather(mine.once(), theirs.once())

    cut(database, folder, act=both)
    said = verify(database, "--archive", folder, "--archive", other)
    tail = json.loads(recall(database, "audit", "tail", "--namespace", "alice", "--json").out)

    assert said.code == 0, said.err
    assert "records 1 to" in said.out
    assert [one["operation"] for one in tail].count("cut_audit") == 1


def test_an_idle_log_is_not_cut_for_the_record_of_its_cut_alone(
    database: Database, folder: Path
) -> None:
    fill(database, RECORDS, now=lambda: OLD)
    cut(database, folder)
    before = places(database)
    for days in (40, 80, 120):
        cut(database, folder, NOON + timedelta(days=days))

    assert before == places(database) == [RECORDS + 1]
    assert len(archives(folder)) == 1


def test_a_long_past_takes_several_archives_in_which_no_record_is_missing(
    database: Database, folder: Path
) -> None:
    fill(database, RECORDS, now=lambda: OLD)

    async def small(built: Application) -> None:
        await replace(built.services.retention, records_max=4).once()

    cut(database, folder, act=small)
    said = verify(database, "--archive", folder)

    spans = [[one["seq"] for one in parsed(path)[1:-1]] for path in archives(folder)]
    assert spans == [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10]]
    assert said.code == 0, said.err
    assert "records 1 to" in said.out


def test_a_log_that_is_broken_is_kept_whole(database: Database, folder: Path) -> None:
    fill(database, RECORDS, ALICE, BOB, now=lambda: OLD)
    as_owner(
        database,
        "UPDATE tool_call_records SET code = 'INNOCENT' WHERE namespace = 'alice' AND seq = 3",
    )
    cut(database, folder)

    assert places(database) == [*range(1, RECORDS + 1)]
    assert [path.name.split(".")[0] for path in archives(folder)] == ["bob"]
    assert sorted(path.name for path in folder.iterdir() if path.suffix == ".part") == []


def test_a_restore_before_the_cut_still_excuses_what_it_took_away(
    database: Database, folder: Path, tmp_path: Path
) -> None:
    """A checkpoint of what a restore took away, and the record of the restore is in an archive."""
    fill(database, 6, now=lambda: OLD)
    before = exported(database)[-1]
    grown(database, 4, OLD)
    kept = vouch(database, tmp_path / "kept.jws")
    as_owner(
        database,
        "DELETE FROM audit_details WHERE namespace = 'alice'",
        f"DELETE FROM tool_call_records WHERE namespace = 'alice' AND seq > {before['seq']}",
        f"UPDATE audit_heads SET seq = {before['seq']}, digest = '{before['digest']}' "
        "WHERE namespace = 'alice'",
    )
    cut_off = verify(database, "--checkpoints", kept)
    # Cut between the backup and the place that the checkpoint names.
    restored_at = datetime.now(UTC) + timedelta(minutes=1)

    async def restore(built: Application) -> None:
        for operation in ("restore_backup", "store_memory"):
            await built.services.audit.write(
                built.services.audit.begin(ALICE, operation, "cli", None)
            )

    inside(database, restore, now=lambda: restored_at)
    cut(database, folder, restored_at + timedelta(days=31))
    grown(database, 5, restored_at + timedelta(days=32))
    said = verify(database, "--checkpoints", kept)
    whole = verify(database, "--checkpoints", kept, "--archive", folder)

    assert named(cut_off, 7), cut_off
    assert said.code == 0, said.err
    assert whole.code == 0, whole.err


@dataclass(frozen=True)
class Tamper:
    """What somebody does who owns the database, and the first record that is bad by it."""

    do: Callable[[Database], None]
    first: int


def _statement(database: Database) -> str:
    async def read(built: Application) -> str:
        async with built.store.transaction(ALICE, write=False) as tx:
            return (await tx.audit.cut())[1]

    return str(inside(database, read))


def _forged(database: Database) -> None:
    """All of it moved on, with a statement by another key."""
    last = exported(database)[0]
    other = ServerKey.from_private(Ed25519PrivateKey.generate())
    forged = Cut(ALICE, 1, "0" * 64, last["seq"], last["digest"], "f" * 64)
    _set(f"cut_seq = {last['seq']}, cut_statement = '{signed(other, forged)}'")(database)
    _without(last["seq"])(database)


def _of_bob(database: Database) -> None:
    """Bob's log was cut at the same place."""

    async def read(built: Application) -> str:
        async with built.store.transaction(BOB, write=False) as tx:
            return (await tx.audit.cut())[1]

    _set(f"cut_statement = '{inside(database, read)}'")(database)


def _set(what: str) -> Callable[[Database], None]:
    return lambda database: as_owner(
        database, f"UPDATE audit_heads SET {what} WHERE namespace = 'alice'"
    )


def _without(seq: int) -> Callable[[Database], None]:
    return lambda database: as_owner(
        database,
        "DELETE FROM audit_details WHERE namespace = 'alice' AND record_id = "
        f"(SELECT id FROM tool_call_records WHERE namespace = 'alice' AND seq = {seq})",
        f"DELETE FROM tool_call_records WHERE namespace = 'alice' AND seq = {seq}",
    )


TAMPERS = {
    "move the cut on": Tamper(_set("cut_seq = 12"), 11),
    "move the cut back": Tamper(_set("cut_seq = 3"), 4),
    "no statement": Tamper(_set("cut_statement = ''"), 1),
    "as if nothing had been cut": Tamper(_set("cut_seq = 0, cut_statement = ''"), 1),
    "a statement of another key": Tamper(_forged, 1),
    "a statement of another's log": Tamper(_of_bob, 1),
    "junk for a statement": Tamper(_set("cut_statement = 'junk'"), 1),
    "remove the record behind the cut": Tamper(_without(11), 11),
    "remove one further on": Tamper(_without(12), 12),
}


def cut_book(database: Database, folder: Path) -> None:
    """Two audit logs that were cut, with their archives: what is changed is sound."""
    archive = folder / "archive"
    archive.mkdir()
    fill(database, RECORDS, ALICE, BOB, now=lambda: OLD)
    grown(database, 3, NOON)
    cut(database, archive)
    whole = verify(database, "--archive", archive)
    alone = recall(None, "audit", "verify", archives(archive)[0], "--key", _key(archive))
    sound = recall(database, "doctor").out

    assert whole.code == 0, whole.err
    assert alone.code == 0, alone.err
    assert "ok    audit_cuts" in sound


def _key(archive: Path) -> Path:
    return public(archives(archive)[0])


@pytest.mark.parametrize("name", TAMPERS)
def test_whatever_is_done_to_the_cut_is_named(filled: Filled, tmp_path: Path, name: str) -> None:
    """In the database, with archives and without, and in an export that is made of it."""
    database, folder = filled(cut_book), tmp_path / "archive"
    key = _key(folder)

    TAMPERS[name].do(database)
    live = verify(database)
    with_archives = verify(database, "--archive", folder)
    path = export(database, tmp_path / "after.jsonl")
    offline = recall(None, "audit", "verify", path, "--key", key)
    examined = recall(database, "doctor").out

    assert named(live, TAMPERS[name].first), live
    assert with_archives.code == 1, with_archives
    assert offline.code == 1, offline
    if name != "remove one further on":
        assert "warn  audit_cuts" in examined


FILE_TAMPERS: dict[str, tuple[Callable[[list[Any]], list[Any]], int]] = {
    "edit a record": (
        lambda lines: [{**one, "counts": {}} if one.get("seq") == 4 else one for one in lines],
        4,
    ),
    "edit a code of the key": (
        lambda lines: [{**one, "mac": "x"} if one.get("seq") == 4 else one for one in lines],
        1,
    ),
    "remove a record": (lambda lines: [one for one in lines if one.get("seq") != 4], 4),
    "cut off its end": (lambda lines: lines[:-2], RECORDS),
    "cut off its end, before the statement": (lambda lines: [*lines[:-2], lines[-1]], RECORDS),
    "cut off its beginning": (lambda lines: [lines[0], *lines[2:]], 1),
    "another manifest": (lambda lines: [{**lines[0], "unchained": 7}, *lines[1:]], 1),
    "no statement": (lambda lines: lines[:-1], RECORDS + 1),
    "a checkpoint for a statement": (lambda lines: [*lines[:-1], {"seal": "x.y.z"}], 1),
    "a record more": (lambda lines: [*lines, lines[-2]], RECORDS + 1),
}


@pytest.mark.parametrize("filled", ["sqlite"], indirect=True)
@pytest.mark.parametrize("name", FILE_TAMPERS)
def test_an_archive_that_was_changed_does_not_verify(
    filled: Filled, tmp_path: Path, name: str
) -> None:
    tamper, first = FILE_TAMPERS[name]
    database, path = filled(cut_book), archives(tmp_path / "archive")[0]
    key = public(path)
    # Spelled as the server spells it: else every change would be one of spelling.
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    path.write_text(
        "".join(
            json.dumps(one, ensure_ascii=False, separators=(",", ":")) + "\n"
            for one in tamper(lines)
        )
    )
    alone = recall(None, "audit", "verify", path, "--key", key)
    said = verify(database, "--archive", path)

    assert named(alone, first), alone
    assert named(said, first), said
    assert path.name in said.err


@on_sqlite
def test_an_archive_of_another_key_or_another_log_is_no_help(
    database: Database, folder: Path, tmp_path: Path
) -> None:
    fill(database, RECORDS, ALICE, BOB, now=lambda: OLD)
    cut(database, folder)
    of_bob = verify(database, "--archive", archives(folder)[1])
    other = tmp_path / "other.db"
    fill(other, RECORDS, now=lambda: OLD)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    cut(other, elsewhere)
    foreign = verify(database, "--archive", elsewhere)
    no_archive = verify(database, "--archive", export(database, tmp_path / "alice.jsonl"))

    assert (of_bob.code, "those before were cut" in of_bob.out) == (0, True)
    assert named(foreign, 1), foreign
    assert no_archive.code == 2


async def test_the_application_itself_can_delete_no_record_that_is_not_cut(
    open_app: Any, database: Database
) -> None:
    """Not even in a transaction that may erase; the control is one that was cut."""
    async with open_app() as built:
        await enter(built, ALICE)
        await more(built, 3)
        for erasing in (True, False):
            async with built.store.driver.transaction(
                namespace=ALICE, write=True, erasing=True
            ) as raw:
                await raw.fetch("DELETE FROM audit_details", {})
            try:
                async with built.store.driver.transaction(
                    namespace=ALICE, write=True, erasing=erasing
                ) as raw:
                    await raw.fetch("DELETE FROM tool_call_records", {})
            except (DatabaseUnusable, sqlite3.IntegrityError, psycopg.errors.Error):
                pass
            else:
                assert erasing
                assert built.store.engine == "postgres"  # it sees none that it may delete
        intact = await built.services.verification.verify(ALICE)
        async with built.store.transaction(ALICE, erasing=True) as tx:
            assert await tx.audit.move_cut(0, 2, "of this test")
            removed = await tx.audit.remove_cut(10)
            left = await tx.audit.chained(0, 10)

    assert intact.seq == 4
    assert removed == 2
    assert [one["seq"] for one in left] == [3, 4]


@on_sqlite
def test_days_without_a_folder_and_a_folder_that_is_not_there_are_told(
    database: Database, folder: Path
) -> None:
    fill(database, 3, now=lambda: OLD)
    none = recall(database, "doctor", recall_audit_days=30)
    shutil.rmtree(folder)
    gone = recall(database, "doctor", recall_audit_days=30, recall_audit_archive=folder)
    folder.mkdir(mode=0o700)
    good = recall(database, "doctor", recall_audit_days=30, recall_audit_archive=folder)

    assert (none.code, "RECALL_AUDIT_ARCHIVE" in none.err) == (2, True)
    assert (gone.code, "fail  audit_archive" in gone.out) == (1, True)
    assert "ok    audit_archive" in good.out


@on_sqlite
def test_a_statement_is_not_taken_for_something_else(database: Database, tmp_path: Path) -> None:
    fill(database, 2)
    (checkpoint,) = vouch(database, tmp_path / "kept.jws").read_text().split()
    key = ServerKey.read(Path(f"{database}.key"))
    one = Cut(ALICE, 1, "0" * 64, 2, "f" * 64, "e" * 64)

    assert verified_cut(signed(key, one), key.public) == one
    for token in (checkpoint, key.sign(asdict(one), audit_files.CHECKPOINT_TYP), "junk"):
        with pytest.raises(Invalid, match="not a statement of a cut"):
            verified_cut(token, key.public)
