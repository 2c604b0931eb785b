"""The audit log as evidence: verification finds every change in the database."""

import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from recall_server.application import Application
from tests.support.audit import (
    ALICE,
    BOB,
    Database,
    as_owner,
    export,
    exported,
    fill,
    inside,
    more,
    moved,
    named,
    public,
    rebuild,
    recall,
    stolen,
    truncate,
    vouch,
)
from tests.support.databases import Filled
from tests.support.engines import Postgres

pytestmark = pytest.mark.usefixtures("nothing_set")

RECORDS = 10


@dataclass(frozen=True)
class Tamper:
    """A change by an owner of the database, and the first record that it spoils."""

    do: Callable[[Database], None]
    first: int
    # Without a checkpoint the change cannot be seen, which is tested too.
    needs_checkpoint: bool = False
    # The check can only say that no record up to the checkpoint can be trusted.
    named: int = 0
    # Making an export leaves a record of its own, which nobody can distinguish from a real one.
    exported: int = 0

    @property
    def told(self) -> int:
        return self.named or self.first


def _set(what: str, seq: int) -> Callable[[Database], None]:
    return lambda database: as_owner(
        database,
        f"UPDATE tool_call_records SET {what} WHERE namespace = 'alice' AND seq = {seq}",
    )


def _delete(database: Database) -> None:
    as_owner(
        database,
        "DELETE FROM audit_details WHERE namespace = 'alice' AND record_id = "
        "(SELECT id FROM tool_call_records WHERE namespace = 'alice' AND seq = 4)",
        "DELETE FROM tool_call_records WHERE namespace = 'alice' AND seq = 4",
    )


def _reorder(database: Database) -> None:
    place = "UPDATE tool_call_records SET seq = {} WHERE namespace = 'alice' AND seq = {}"
    as_owner(database, *(place.format(*pair) for pair in ((-1, 3), (3, 6), (6, -1))))


def _hide(database: Database) -> None:
    as_owner(
        database,
        "UPDATE tool_call_records SET seq = NULL WHERE namespace = 'alice' AND seq = 5"
        if isinstance(database, Path)
        else "ALTER TABLE tool_call_records DROP CONSTRAINT tool_call_records_are_chained",
        "UPDATE tool_call_records SET seq = NULL WHERE namespace = 'alice' AND seq = 5",
    )


def _swap(database: Database) -> None:
    """Swap row 3 of alice with that of bob."""
    change = (
        "UPDATE tool_call_records SET namespace = '{}', seq = {} "
        "WHERE namespace = '{}' AND seq = {}"
    )
    as_owner(
        database,
        "DELETE FROM audit_details",
        *(
            change.format(*to)
            for to in (("alice", -1, "alice", 3), ("alice", 3, "bob", 3), ("bob", 3, "alice", -1))
        ),
    )


TAMPERS = {
    "edit a code": Tamper(_set("code = 'INNOCENT'", 3), 3),
    "edit a time": Tamper(_set("at = '2020-01-01T00:00:00.000000+00:00'", 3), 3),
    "edit what was touched": Tamper(_set("""ids = '["ep_2"]'""", 3), 3),
    "edit a duration": Tamper(_set("milliseconds = milliseconds + 0.001", 3), 3),
    "edit the digest of its arguments": Tamper(_set("inputs_hash = digest", 3), 3),
    "edit a digest": Tamper(_set("digest = prev", 3), 3),
    "edit a code of the key": Tamper(_set("mac = digest", 3), 3),
    "an outcome that there is not": Tamper(_set("outcome = 'fine'", 3), 3),
    "delete": Tamper(_delete, 4),
    "reorder": Tamper(_reorder, 3),
    "hide as one from before": Tamper(_hide, 5),
    "move the head on": Tamper(lambda db: as_owner(db, moved(12, "f" * 64)), 11),
    "change the head": Tamper(lambda db: as_owner(db, moved(RECORDS, "f" * 64)), RECORDS),
    "truncate": Tamper(lambda db: truncate(db, 7), 8, needs_checkpoint=True, exported=9),
    "rebuild": Tamper(lambda db: rebuild(db, 3, b"x" * 32), 3),
    "rebuild with the key": Tamper(
        lambda db: rebuild(db, 8, stolen(db)), 8, needs_checkpoint=True, named=7
    ),
    "swap with another's": Tamper(_swap, 3),
}


def book(database: Database, folder: Path) -> None:
    """Two audit logs, an export of one, and a file of checkpoints: what is changed is sound."""
    fill(database, 6, ALICE, BOB)
    kept = vouch(database, folder / "kept.jws")
    inside(database, lambda built: more(built, RECORDS - 6))
    vouch(database, kept)
    sound = recall(database, "audit", "verify", "--checkpoints", kept)
    before = export(database, folder / "before.jsonl")
    intact = recall(None, "audit", "verify", before, "--checkpoints", kept)
    # The reads above are in the audit log too, which goes on from its restored state.
    truncate(database, RECORDS)

    assert sound.code == 0, sound.err
    assert intact.code == 0, intact.err


@pytest.mark.parametrize("name", TAMPERS)
def test_whatever_is_done_to_the_book_is_named(filled: Filled, tmp_path: Path, name: str) -> None:
    """In the database, and in an export that is made of it afterwards."""
    tamper, database, kept = TAMPERS[name], filled(book), tmp_path / "kept.jws"

    tamper.do(database)
    live = recall(database, "audit", "verify", "--namespace", "alice", "--checkpoints", kept)
    unaided = recall(database, "audit", "verify", "--namespace", "alice")

    assert named(live, tamper.told), live
    assert unaided.code == (0 if tamper.needs_checkpoint else 1), unaided


@pytest.mark.parametrize("name", TAMPERS)
def test_an_export_of_a_book_that_was_tampered_with_does_not_verify(
    filled: Filled, tmp_path: Path, name: str
) -> None:
    """Offline, with only the export, the checkpoints and the key."""
    tamper, database, kept = TAMPERS[name], filled(book), tmp_path / "kept.jws"
    key = public(tmp_path / "before.jsonl")

    tamper.do(database)
    path = export(database, tmp_path / "after.jsonl")
    offline = recall(None, "audit", "verify", path, "--checkpoints", kept, "--key", key)

    assert named(offline, tamper.exported or tamper.told), offline


def test_yesterdays_database_is_known_by_todays_checkpoint(
    database: Database, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """It was restored from a backup, with every record and code in order."""
    fill(database, 6)
    with _backup(database, tmp_path, request) as before:
        inside(database, lambda built: more(built, 4))
        kept = vouch(database, tmp_path / "kept.jws")
        today = recall(database, "audit", "verify", "--checkpoints", kept)
        said = recall(before, "audit", "verify", "--checkpoints", kept)
        path = export(before, tmp_path / "old.jsonl")
    offline = recall(None, "audit", "verify", path, "--checkpoints", kept)
    unaided = recall(None, "audit", "verify", path)

    assert today.code == 0, today.err
    assert named(said, 7), said
    # Reading it left two records, which no checkpoint confirms.
    assert named(offline, 9), offline
    assert unaided.code == 0


def test_where_the_head_was_put_back_nothing_more_is_done(
    database: Database, tmp_path: Path
) -> None:
    """Two records may not have one place, so that no second chain can begin."""
    fill(database)
    digest = exported(database)[6]["digest"]
    as_owner(database, moved(7, digest))

    async def write(built: Application) -> None:
        with pytest.raises((sqlite3.IntegrityError, psycopg.errors.UniqueViolation)):
            await more(built, 1)

    inside(database, write)
    assert named(recall(database, "audit", "verify"), 8)
    assert len(exported(database)) == RECORDS


@contextmanager
def _backup(database: Database, folder: Path, request: pytest.FixtureRequest) -> Iterator[Database]:
    if isinstance(database, Path):
        copy = folder / "yesterday.db"
        shutil.copy(database, copy)
        shutil.copy(f"{database}.key", f"{copy}.key")
        yield copy
        return
    server: Postgres = request.getfixturevalue("postgres")
    name = str(psycopg.conninfo.conninfo_to_dict(database)["dbname"])
    with server.database(name) as url:
        yield url
