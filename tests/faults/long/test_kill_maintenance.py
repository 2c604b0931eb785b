"""`recall migrate`, `migrate --distribute`, `backup`, `restore-backup` and `rebuild` are killed at
each of their writes. Nothing is lost, the audit logs verify, and the same command finishes when it
runs again. A stand-in for Citus distributes.

Needs `strace`, which kills a process at the n-th system call: `make faults`.
"""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from recall_server.storage.postgres.distribution import placed
from tests.support.citus import show_stand_in, with_stand_in
from tests.support.cli import clean_environment
from tests.support.engines import ENGINES, Postgres
from tests.support.kill_points import POINTS, writes
from tests.support.maintenance import Place, Template, as_url, name_of, run
from tests.support.releases import released

__all__ = ["clean_environment"]

pytestmark = pytest.mark.usefixtures("clean_environment")

WRITES = {
    "sqlite": "pwrite64,fdatasync,fsync,ftruncate,rename,link,unlink",
    "postgres": "sendto",
}
COPY = "copy.db"


@dataclass(frozen=True)
class Maintenance:
    """A command with two checks: `left` after it was killed, and `done` after it has run again to
    its end.
    """

    command: tuple[str, ...]
    left: Callable[[Place], None]
    done: Callable[[Place], None]


def _verifies(place: Place) -> None:
    said = place.verified()
    assert said.code == 0, said.err


def _is_migrated(place: Place) -> None:
    assert place.recall("migrate", "--check").code == 0
    _verifies(place)
    # The copy that it made first is whole and unchanged.
    for copy in place.folder.glob("recall.db.before-*"):
        assert copy.suffix != ".part"
        _is_intact(copy)


def _is_migrated_in_part(place: Place) -> None:
    """Each migration is applied completely or not at all: a dry run of the rest succeeds."""
    said = place.recall("migrate", "--dry-run")
    assert said.code == 0, said.err


def _is_copied(place: Place) -> None:
    """The copy needs no other file: with the key it is a database that verifies."""
    copy = place.folder / COPY
    _is_intact(copy)
    copied = Place(place.folder / "alone")
    copied.folder.mkdir(mode=0o700)
    shutil.copy(copy, copied.file)
    for name in ("recall.key", "checkpoints.jws"):
        shutil.copy(place.folder / name, copied.folder / name)
    assert copied.state() == place.state()
    _verifies(copied)


def _is_copied_or_not(place: Place) -> None:
    """A file of that name is whole."""
    _verifies(place)
    if (place.folder / COPY).exists():
        _is_copied(place)
        shutil.rmtree(place.folder / "alone")
        # The command never overwrites it.
        assert place.recall("backup", place.folder / COPY).code == 2
        (place.folder / COPY).unlink()


def _is_restored(place: Place) -> None:
    """The log says that the restore was intended, and what was erased since is erased again."""
    _verifies(place)
    said = place.verified().out
    assert "a backup was put back" in said
    found = place.recall("list", "bob", "--json").json()
    assert isinstance(found, dict)
    assert found["memories"] == []


def _is_restored_or_not(place: Place) -> None:
    """The served file is the old one or the new one, and verifies."""
    if place.url:
        return  # pg_restore has restored it before. Nothing opens it until the command has run.
    _verifies(place)


def _is_rebuilt(place: Place) -> None:
    said = place.recall("rebuild", "alice", "--diff")
    assert said.code == 0, said.out
    assert _believed(place) == ["The user lives in Lisbon."]
    _verifies(place)


def _is_rebuilt_or_not(place: Place) -> None:
    """Reads show the old state or the new one."""
    assert _believed(place) in ([], ["The user lives in Lisbon."])
    _verifies(place)


def _believed(place: Place) -> list[str]:
    found = place.recall("list", "alice", "--json").json()
    assert isinstance(found, dict)
    return [one["text"] for one in found["memories"]]


def _is_intact(path: Path) -> None:
    with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as raw:
        assert raw.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def _is_distributed_in_part(place: Place) -> None:
    """Each table is distributed or not, and protected in either case. All of its rows are there."""
    with psycopg.connect(place.url) as raw:
        found = raw.execute(
            "SELECT relname FROM pg_class WHERE relrowsecurity AND NOT relforcerowsecurity"
        ).fetchall()
    assert found == []
    _verifies(place)


def _is_distributed(place: Place) -> None:
    """Every table is distributed, and no row is left in the local one."""
    _is_distributed_in_part(place)
    wanted = {table.name for table in placed()}
    with psycopg.connect(place.url) as raw:
        spread = raw.execute("SELECT logicalrelid::text FROM pg_dist_partition").fetchall()
        cut = raw.execute("SELECT relation::text FROM citus_stand_in.truncated").fetchall()
    assert {name for (name,) in spread} == {name for (name,) in cut} == wanted


MAINTENANCE = {
    "migrate": Maintenance(("migrate",), _is_migrated_in_part, _is_migrated),
    "backup": Maintenance(("backup", COPY), _is_copied_or_not, _is_copied),
    "restore-backup": Maintenance(("restore-backup", COPY), _is_restored_or_not, _is_restored),
    # On PostgreSQL, pg_restore has restored the tables before.
    "restored": Maintenance(("restore-backup",), _is_restored_or_not, _is_restored),
    "rebuild": Maintenance(("rebuild", "alice"), _is_rebuilt_or_not, _is_rebuilt),
    "distribute": Maintenance(
        ("migrate", "--distribute"), _is_distributed_in_part, _is_distributed
    ),
}
CASES = [
    ("sqlite", "migrate"),
    ("postgres", "migrate"),
    ("sqlite", "backup"),
    ("sqlite", "restore-backup"),
    ("postgres", "restored"),
    ("sqlite", "rebuild"),
    ("postgres", "rebuild"),
    ("postgres", "distribute"),
]


def _used(place: Place) -> None:
    """Make two namespaces, and a checkpoint of both."""
    for name in ("alice", "bob"):
        assert place.recall("create-token", name).code == 0
        assert place.recall("add", name, "I live in Lisbon.").code == 0
    _checkpointed(place)


def _checkpointed(place: Place) -> None:
    said = place.recall("audit", "checkpoint", checkpoint_file=place.checkpoints)
    assert said.code == 0, said.err


def _spoiled(place: Place) -> None:
    """Give the memory of Alice another state than its last event has, past the server."""
    assert _believed(place)
    spoil = "UPDATE memories SET status = 'forgotten', retired_at = recorded_at"
    if place.url:
        with psycopg.connect(place.url) as raw:
            raw.execute("ALTER TABLE memories NO FORCE ROW LEVEL SECURITY")
            raw.execute(f"{spoil} WHERE namespace = 'alice'")
            raw.execute("ALTER TABLE memories FORCE ROW LEVEL SECURITY")
        return
    with closing(sqlite3.connect(place.file)) as file, file:
        file.execute(f"{spoil} WHERE namespace = 'alice'")


def _used_on(place: Place) -> None:
    """Change the database after the backup: erase Bob, and add a token for Alice."""
    assert place.recall("erase", "bob", "--yes").code == 0
    assert place.recall("create-token", "alice").code == 0
    _checkpointed(place)


@pytest.fixture
def template(
    request: pytest.FixtureRequest, tmp_path: Path, postgres: Postgres, migrated: str
) -> Iterator[Template]:
    """`migrated` has made the roles."""
    engine, name = request.param
    folder = tmp_path / "template"
    folder.mkdir(mode=0o700)
    if name == "migrate":
        with released(engine, folder, postgres) as found:
            found.key.rename(folder / "recall.key")
            shutil.copy(found.checkpoints, folder / "checkpoints.jws")
            url = "" if isinstance(found.database, Path) else as_url(found.database)
            yield Template(Place(folder, url), postgres if url else None)
        return
    if name == "distribute":
        with with_stand_in(postgres, migrated) as url:
            place = Place(folder, as_url(url))
            _used(place)
            yield Template(place, postgres, show_stand_in)
        return
    if engine == "sqlite":
        place = Place(folder)
        _used(place)
        if name == "rebuild":
            _spoiled(place)
        if name == "restore-backup":
            assert place.recall("backup", folder / COPY).code == 0
            _used_on(place)
        yield Template(place)
        return
    with postgres.database(migrated) as url:
        place = Place(folder, as_url(url))
        _used(place)
        if name == "rebuild":
            _spoiled(place)
            yield Template(place, postgres)
            return
        with postgres.database(name_of(url)) as backup:
            _used_on(place)
            yield Template(Place(folder, as_url(backup)), postgres)


@pytest.mark.parametrize(
    ("template", "case"), [(case, case) for case in CASES], indirect=["template"], ids=str
)
def test_killed_at_any_write_nothing_is_lost_and_the_command_again_finishes(
    template: Template, case: tuple[str, str], tmp_path: Path
) -> None:
    engine, name = case
    work, calls = MAINTENANCE[name], WRITES[engine]
    trace = f"trace={calls}"
    with template.copied() as place:
        asyncio.run(run(place, work.command, tmp_path / "trace", "-e", trace))
        count = writes(tmp_path / "trace")
        work.done(place)
        expected = place.state()
    cut, tried = 0, range(1, count + 1)[:: max(1, count // POINTS) if POINTS else 1]
    for number in tried:
        inject = f"inject={calls}:signal=SIGKILL:when={number}"
        with template.copied() as place:
            log = tmp_path / "log"
            code = asyncio.run(run(place, work.command, log, "-e", trace, "-e", inject))
            cut += code != 0
            work.left(place)
            again = asyncio.run(run(place, work.command, log, "-e", trace))
            assert again == 0
            work.done(place)
            assert place.state() == expected, f"killed at write {number}"
    print(f"{engine} {name}: killed at {len(tried)} of {count} points, {cut} before its end")
    assert cut > len(tried) / 2, "it was hardly ever cut off: the points are not where it writes"


def test_every_engine_has_its_cases() -> None:
    assert {engine for engine, _ in CASES} == set(ENGINES)
