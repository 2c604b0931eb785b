"""Each test makes one unsafe state. The self-check names it, and the server refuses to start or
warns.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import psycopg
import pytest
from cryptography.fernet import Fernet
from typer.testing import CliRunner

from recall_server.bootstrap import open_application
from recall_server.cli.commands import app
from recall_server.doctor import examine, secrets
from recall_server.domain.ids import Namespace
from recall_server.domain.moments import utc_now
from recall_server.storage import inspection
from recall_server.storage.inspection import Level, inspect
from recall_server.storage.sqlite import SqliteDriver
from tests.support.application import Open, settings_for
from tests.support.conversation import ALICE, enter
from tests.support.engines import Postgres
from tests.support.processes import (
    START_S,
    Process,
    Server,
    environment,
    free_port,
    new_token,
    until,
)
from tests.support.runtime import NOON, Clock

FAIL, WARN, OK = Level.FAIL, Level.WARN, Level.OK


@pytest.fixture
def postgres_url(postgres: Postgres, migrated: str) -> Iterator[str]:
    with postgres.database(migrated) as url:
        yield url


@contextmanager
def done(url: str, act: str, undo: str = "SELECT 1") -> Iterator[None]:
    """Apply `act` for as long as the block lasts. A change to a whole cluster must be undone."""
    with psycopg.connect(url, autocommit=True) as raw:
        raw.execute(act)
        try:
            yield
        finally:
            raw.execute(undo)


async def levels(open_app: Open, **given: object) -> dict[str, Level]:
    async with open_app(**given) as built:
        return {one.check: one.level for one in await examine(built)}


async def test_a_new_installation_has_nothing_that_fails(
    open_app: Open, clock: Clock, database: Path | str
) -> None:
    """This is the positive control of all other tests."""
    clock.time = utc_now()
    found = await levels(open_app)

    assert set(found.values()) <= {OK, WARN}
    # The tests connect to Postgres as a superuser, and without a file for erasures. Their Postgres
    # does not sync its files.
    unsafe = {check for check, level in found.items() if level is WARN}
    of_tests = {"database_user", "erasure_file", "durability"}
    assert unsafe <= (of_tests if isinstance(database, str) else set())


async def test_erasures_are_noted_outside_of_the_database(
    open_app: Open, database: Path | str, tmp_path: Path
) -> None:
    """SQLite has a file beside the database by default; Postgres needs a setting that names a
    file.
    """
    found = await levels(open_app)
    told = await levels(open_app, erasure_file=tmp_path / "erasures")

    assert found["erasure_file"] is (WARN if isinstance(database, str) else OK)
    assert told["erasure_file"] is OK


@pytest.mark.parametrize(
    ("file", "mode", "check", "level"),
    [
        ("recall.db", 0o644, "database_file", FAIL),
        ("recall.db", 0o606, "database_file", FAIL),
        ("recall.db-wal", 0o604, "database_file", FAIL),
        ("recall.db.key", 0o640, "key_file", FAIL),
        ("recall.db.key", 0o602, "key_file", FAIL),
        (".", 0o770, "database_folder", WARN),
        (".", 0o777, "database_folder", FAIL),
        (".", 0o1777, "database_folder", OK),
    ],
)
async def test_modes_that_let_others_in_are_named(
    tmp_path: Path, file: str, mode: int, check: str, level: Level
) -> None:
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    async with open_application(settings_for(folder / "recall.db", embedder="none")) as built:
        (folder / file).chmod(mode)
        found = {one.check: one for one in await examine(built)}
        folder.chmod(0o700)

    assert found[check].level is level
    if level is not OK:
        assert str(folder) in found[check].text
        assert "\n" not in found[check].text


@pytest.mark.parametrize(
    ("file", "mode", "check", "level"),
    [
        ("recall.db", 0o644, "database_file", WARN),
        ("recall.db.key", 0o440, "key_file", WARN),
        ("recall.db", 0o602, "database_file", FAIL),
        ("recall.db", 0o600, "database_file", OK),
    ],
)
async def test_files_may_be_shared_where_a_setting_says_so_but_never_written_by_everybody(
    tmp_path: Path, file: str, mode: int, check: str, level: Level
) -> None:
    settings = settings_for(tmp_path / "recall.db", embedder="none", allow_shared_files=True)
    async with open_application(settings) as built:
        (tmp_path / file).chmod(mode)
        found = {one.check: one.level for one in await examine(built)}

    assert found[check] is level


async def test_what_sqlite_was_told_is_asked_of_the_connection(tmp_path: Path) -> None:
    driver = SqliteDriver(tmp_path / "recall.db")
    await driver.open()
    async with driver.migration() as connection:
        before = await inspect(connection, "sqlite", NOON)
        await connection.fetch("PRAGMA secure_delete=OFF", {})
        after = await inspect(connection, "sqlite", NOON)
    await driver.close()

    assert {one.level for one in before} == {OK}
    assert [one.check for one in after if one.level is FAIL] == ["secure_delete"]


_LOG_ALL = """
DO $$ BEGIN
  EXECUTE format('ALTER DATABASE %I SET log_statement = ''all''', current_database());
END $$
"""
_LOSSY = _LOG_ALL.replace("log_statement", "synchronous_commit").replace("''all''", "off")
POSTGRES = {
    "row_level_security": (
        "ALTER TABLE turns NO FORCE ROW LEVEL SECURITY",
        "SELECT 1",
        FAIL,
        "turns",
    ),
    "truncate": ("GRANT TRUNCATE ON memories TO recall_app", "SELECT 1", FAIL, "memories"),
    "roles": (
        "ALTER ROLE recall_system BYPASSRLS",
        "ALTER ROLE recall_system NOBYPASSRLS",
        FAIL,
        "recall_system",
    ),
    "durability": (
        _LOSSY,
        "SELECT 1",
        WARN,
        "synchronous_commit=off",
    ),
    "database_log": (
        _LOG_ALL,
        "SELECT 1",
        WARN,
        "log_statement=all",
    ),
}


@pytest.mark.parametrize("check", POSTGRES)
async def test_what_takes_a_wall_of_postgres_down_is_named(postgres_url: str, check: str) -> None:
    act, undo, level, named = POSTGRES[check]
    settings = settings_for(postgres_url, embedder="none")
    with done(postgres_url, act, undo):
        async with open_application(settings) as built:
            found = {one.check: one for one in await examine(built)}

    assert found[check].level is level
    assert named in found[check].text
    assert {one.check for one in found.values() if one.level is FAIL} == (
        {check} if level is FAIL else set()
    )


def _late(by: timedelta) -> datetime:
    return utc_now() - by


async def test_a_clock_that_is_off_is_named(postgres_url: str) -> None:
    found = []
    for seconds in (0, 20, 120):
        settings = settings_for(postgres_url, embedder="none")
        late = timedelta(seconds=seconds)
        async with open_application(settings, now=partial(_late, late)) as built:
            found += [one.level for one in await examine(built) if one.check == "clock"]

    assert found == [OK, WARN, FAIL]


@pytest.mark.parametrize(
    ("given", "check"),
    [
        ({"host": "0.0.0.0", "allow_public": True}, "address"),
        ({"allowed_origins": "http://app.example.com"}, "allowed_origins"),
        ({"allowed_hosts": "*"}, "allowed_hosts"),
        ({"allowed_hosts": "https://memory.example.com"}, "allowed_hosts"),
        ({"allowed_hosts": "memory.example.com:443"}, "allowed_hosts"),
        ({"public_url": "https://memory.example.com"}, "allowed_hosts"),
        ({"host": "0.0.0.0", "allow_public": True}, "allowed_hosts"),
    ],
)
async def test_settings_that_let_others_listen_are_named(
    open_app: Open, given: dict[str, object], check: str
) -> None:
    assert (await levels(open_app))[check] is OK
    assert (await levels(open_app, **given))[check] is WARN


async def test_hosts_as_requests_name_them_are_well(open_app: Open) -> None:
    """The control."""
    given = {
        "host": "0.0.0.0",
        "allow_public": True,
        "allowed_hosts": "memory.example.com,10.0.0.7,::1",
        "public_url": "https://memory.example.com/recall",
    }
    assert (await levels(open_app, **given))["allowed_hosts"] is OK


async def test_secrets_that_no_key_opens_are_named(open_app: Open) -> None:
    """It looks in every namespace. With the key, or without such secrets, there is no finding."""
    keep = (
        "INSERT INTO push_configs (namespace, run_id, id, url, scheme, secret, delivered_seq,"
        " created_at) VALUES ('alice', 'run', 'one', 'https://x.example.com', '', :secret, 0, :now)"
    )
    found = []
    async with open_app() as application:
        await enter(application, Namespace("bob"))
        await enter(application)
        found.append(await secrets(application))
        sql = (
            keep
            if application.store.engine == "sqlite"
            else re.sub(r":(secret|now)", r"%(\1)s", keep)
        )
        async with application.store.driver.transaction(namespace=ALICE, write=True) as raw:
            await raw.fetch(sql, {"secret": b"sealed", "now": NOON})
        found.append(await secrets(application))
    async with open_app(secret_key=Fernet.generate_key().decode()) as application:
        found.append(await secrets(application))

    assert [one.level for one in found] == [OK, WARN, OK]
    assert "RECALL_SECRET_KEY" in found[1].text


async def test_a_disk_that_is_nearly_full_is_named_before_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The self-check and `/ready` warn before the disk is full."""
    async with open_application(settings_for(tmp_path / "recall.db", embedder="none")) as built:
        before = {one.check: one.level for one in await examine(built)}, await built.warnings()
        monkeypatch.setattr(inspection, "FREE_WARN_BYTES", 2**62)
        after = {one.check: one.level for one in await examine(built)}, await built.warnings()

    assert (before[0]["disk_space"], before[1]) == (OK, [])
    assert (after[0]["disk_space"], [one.check for one in after[1]]) == (WARN, ["disk_space"])


async def test_tables_that_postgres_has_not_looked_at_are_named(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "UNSEEN_BYTES", 0)
    found = []
    async with open_application(settings_for(postgres_url, embedder="none")) as built:
        with psycopg.connect(postgres_url, autocommit=True) as owner:
            for sql in ("INSERT INTO namespaces VALUES ('alice', now(), 0, 0, 0)", "ANALYZE"):
                owner.execute(sql)
                found.append({one.check: one for one in await examine(built)}["statistics"])

    before, after = found
    assert before.level is WARN
    assert "namespaces" in before.text
    assert after.level is OK


async def test_who_reads_an_old_state_of_postgres_for_long_is_named(
    postgres_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Postgres cannot free overwritten rows during that time."""
    monkeypatch.setattr(inspection, "OLD_READER_S", 0.0)
    async with open_application(settings_for(postgres_url, embedder="none")) as built:
        with psycopg.connect(postgres_url) as other:
            other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
            other.execute("SELECT * FROM namespaces")
            found = {one.check: one for one in await examine(built)}

    assert found["old_reader"].level is WARN


async def test_a_server_and_a_worker_refuse_to_start_on_what_fails(tmp_path: Path) -> None:
    file = tmp_path / "data" / "recall.db"
    file.parent.mkdir(mode=0o700)
    await new_token(file, "alice")
    async with Server(file, embedder="none"):
        pass  # The server starts.
    file.chmod(0o644)
    for command in (("serve", "--port", "0"), ("worker",)):
        async with Process(file, *command, embedder="none") as process:

            async def over(running: Process = process) -> bool:
                return not running.alive

            await until(over, START_S, "it refuses")
            log = process.log()
            assert await process.stop() == 2
        assert "[UNSAFE]" in log
        assert "database_file" in log
        assert "Traceback" not in log


async def test_what_warns_is_logged_and_does_not_stop_it(tmp_path: Path) -> None:
    file = tmp_path / "data" / "recall.db"
    file.parent.mkdir(mode=0o700)
    await new_token(file, "alice")
    file.chmod(0o644)
    async with Server(file, embedder="none", allow_shared_files="true") as server:
        log = server.log()

    assert '"check": "database_file"' in log


def test_models_that_a_server_cannot_load_or_reach_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The control: the embedder that is installed is well."""
    file = tmp_path / "data" / "recall.db"
    file.parent.mkdir(mode=0o700)
    runner = CliRunner()
    found = {}
    nowhere = {"embedder": "http:m", "embedder_url": f"http://127.0.0.1:{free_port()}/v1"}
    for settings in (
        {"embedder": "wordllama"},
        {"embedder": "sentence-transformers:/nowhere"},
        {"embedder": "none", "reranker": "maxsim:/nowhere"},
        nowhere,
    ):
        with monkeypatch.context() as patch:
            for name, value in environment(file, settings).items():
                patch.setenv(name, value)
            runner.invoke(app, ["create-token", "alice"])
            said = runner.invoke(app, ["doctor", "--json"])
        found[settings["embedder"]] = (
            said.exit_code,
            {
                one["check"]: one["level"]
                for one in json.loads(said.stdout)
                if one["check"] in {"embedder", "reranker"}
            },
        )

    assert found == {
        "wordllama": (0, {"embedder": "ok"}),
        "sentence-transformers:/nowhere": (1, {"embedder": "fail"}),
        "none": (1, {"reranker": "fail"}),
        "http:m": (0, {"embedder": "warn"}),
    }


def test_the_command_prints_a_line_each_and_fails_where_a_server_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "data" / "recall.db"
    file.parent.mkdir(mode=0o700)
    for name, value in environment(file, {"embedder": "none"}).items():
        monkeypatch.setenv(name, value)
    runner = CliRunner()
    missing = runner.invoke(app, ["doctor"])
    runner.invoke(app, ["create-token", "alice"])
    good = runner.invoke(app, ["doctor", "--json"])
    file.chmod(0o606)
    bad = runner.invoke(app, ["doctor"])
    file.chmod(0o600)
    (file.parent / "recall.db.key").unlink()
    keyless = runner.invoke(app, ["doctor"])

    assert missing.exit_code == 2
    assert good.exit_code == 0
    assert {one["level"] for one in json.loads(good.stdout)} == {"ok"}
    assert bad.exit_code == 1
    assert [line.split()[1] for line in bad.stdout.splitlines() if line.startswith("fail")] == [
        "database_file"
    ]
    assert keyless.exit_code == 1
    assert keyless.stdout.startswith("fail  opening")
