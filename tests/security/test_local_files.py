"""Files of the local server and of `recall install`: their modes, and which of them are trusted."""

import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from recall_server import local as local_server
from recall_server.domain.errors import Invalid, ServerUnreachable
from recall_server.local import PROGRAM, Local, private_file
from recall_server.local.clients import BACKUP, CLIENTS, added
from tests.support.stdio import Home

pytest_plugins = ("tests.support.stdio",)

ADDRESS = "http://127.0.0.1:9"


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "recall.db"


@contextmanager
def planted(path: Path, mode: int = 0o600) -> Iterator[None]:
    """Write a file with an address, and lock it as a running server would."""
    path.write_text(ADDRESS)
    path.chmod(mode)
    with path.open("r+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@pytest.mark.parametrize(
    ("mode", "believed"), [(0o600, True), (0o644, True), (0o660, False), (0o666, False)]
)
def test_an_address_that_others_can_write_is_not_believed(
    database: Path, mode: int, believed: bool
) -> None:
    """The client would send its token to whoever wrote the file."""
    with planted(database.with_name("recall.db.address"), mode):
        assert local_server.address_of(database) == (ADDRESS if believed else None)


def test_an_address_behind_a_link_is_not_believed(database: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    with planted(elsewhere):
        database.with_name("recall.db.address").symlink_to(elsewhere)
        assert local_server.address_of(database) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_an_address_of_another_user_is_not_believed(database: Path) -> None:
    path = database.with_name("recall.db.address")
    with planted(path):
        os.chown(path, 12_345, 12_345)
        assert local_server.address_of(database) is None


def test_no_file_is_written_through_a_link(database: Path, tmp_path: Path) -> None:
    """Control: without the link, the file is written."""
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    part = database.with_name(f"recall.db.address.{os.getpid()}")
    part.symlink_to(theirs)
    with pytest.raises(OSError, match="symbolic"), local_server.published(database, ADDRESS):
        pass
    assert theirs.read_text() == "theirs"
    part.unlink()
    with local_server.published(database, ADDRESS):
        assert local_server.address_of(database) == ADDRESS


def started(command: Sequence[str], folder: Path, home: Home) -> str:
    """Run a program in a folder, and return what it says on standard error."""
    return subprocess.run(
        command,
        cwd=folder,
        env=home.environment,
        input="{}",
        capture_output=True,
        text=True,
        check=False,
    ).stderr


async def test_no_code_is_run_that_lies_beside_the_database_or_in_the_folder_of_a_client(
    home: Home, tmp_path: Path
) -> None:
    """A database may be in a project that others have written, and agents start programs in theirs.
    The control: Python itself runs such code.
    """
    folder = tmp_path / "project"
    folder.mkdir()
    run = folder / "was run"
    planted = f"import pathlib; pathlib.Path({str(run)!r}).touch(); raise SystemExit"
    for name in ("recall_server", "typer", "structlog"):
        (folder / f"{name}.py").write_text(planted)
    started([sys.executable, "-m", "recall_server"], folder, home)
    assert run.exists()
    run.unlink()

    database = folder / "recall.db"
    said = started([*PROGRAM, "hook", "session-start", "--db", str(database)], folder, home)
    async with home.client("--db", str(database)) as client:
        found = await client.call_tool("whoami", {})

    assert not found.is_error
    assert not said
    assert not run.exists()


async def test_the_local_server_takes_no_settings_from_beside_the_database(
    home: Home, tmp_path: Path
) -> None:
    """The control: a server that is started in that folder reads them, and refuses these."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / ".env").write_text("RECALL_PORT=nobody's\n")
    database = folder / "recall.db"
    said = started([*PROGRAM, "serve", "--create", "--db", str(database)], folder, home)
    assert "RECALL_PORT" in said

    async with home.client("--db", str(database)) as client:
        found = await client.call_tool("whoami", {})

    assert not found.is_error


def test_the_log_of_the_local_server_goes_through_no_link(tmp_path: Path) -> None:
    """Control: without the link, it is written."""
    theirs = tmp_path / "theirs"
    theirs.write_text("theirs")
    log = tmp_path / "server.log"
    log.symlink_to(theirs)
    with pytest.raises(OSError, match="symbolic"), open(log, "a", opener=private_file) as file:
        file.write("x")
    log.unlink()
    with open(log, "a", opener=private_file) as file:
        file.write("x")

    assert theirs.read_text() == "theirs"
    assert stat.S_IMODE(log.stat().st_mode) == 0o600


@pytest.mark.parametrize(("mode", "taken"), [(0o600, True), (0o640, False), (0o604, False)])
def test_a_token_of_the_local_server_that_others_can_read_is_refused(
    database: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, mode: int, taken: bool
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    path = local_server.token_file(database)
    local_server.write_private(path, "rcl_secret")
    path.chmod(mode)
    if taken:
        assert Local(database).token() == "rcl_secret"
    else:
        with pytest.raises(ServerUnreachable, match="chmod 600"):
            Local(database).token()


def test_the_token_does_not_go_into_a_file_that_was_planted(tmp_path: Path) -> None:
    """A link at the path, or at the path of the temporary file, is not followed."""
    theirs, path = tmp_path / "theirs", tmp_path / "token"
    theirs.write_text("theirs")
    path.symlink_to(theirs)
    local_server.write_private(path, "rcl_secret")
    assert (theirs.read_text(), path.read_text(), path.is_symlink()) == (
        "theirs",
        "rcl_secret",
        False,
    )
    path.with_name(f"token.{os.getpid()}.part").symlink_to(theirs)
    with pytest.raises(FileExistsError):
        local_server.write_private(path, "rcl_secret")
    assert theirs.read_text() == "theirs"


@pytest.mark.parametrize("name", CLIENTS)
def test_a_configuration_that_is_made_is_its_owners_alone_and_one_that_was_there_keeps_its_mode(
    tmp_path: Path, name: str
) -> None:
    """The file and its backup may hold a token, if somebody adds one."""
    client = CLIENTS[name]
    for change in added(client, tmp_path, ["recall"]):
        change.write()
        assert mode_of(change.path) == 0o600
        change.path.chmod(0o640)
    for change in added(client, tmp_path, ["elsewhere"]):
        backup = change.write()
        assert (backup is None) == change.ours
        assert {mode_of(one) for one in (change.path, backup) if one} == {0o640}


HOSTILE = {
    "a name that stands twice": '{"mcpServers": {"a": {}}, "mcpServers": {"b": {}}}',
    "a number that is too large": '{"a": 1e400}',
    "no number": '{"a": NaN}',
    "half of a character": '{"a": "\\ud800"}',
    "levels without end": '{"a": ' + "[" * 100_000 + "]" * 100_000 + "}",
}


@pytest.mark.parametrize("said", HOSTILE.values(), ids=HOSTILE)
def test_a_configuration_that_would_be_written_otherwise_is_left_alone(
    tmp_path: Path, said: str
) -> None:
    """Control: a plain file is changed."""
    client = CLIENTS["cursor"]
    path = client.file(tmp_path)
    path.parent.mkdir(parents=True)
    path.write_text(said)
    with pytest.raises(Invalid, match="Nothing was written"):
        added(client, tmp_path, ["recall"])
    assert path.read_text() == said
    path.write_text('{"a": 1.5, "mcpServers": {"a": {}}}')
    change, _ = added(client, tmp_path, ["recall"])
    assert change.after is not None
    assert change.after != change.before


def test_a_backup_goes_through_no_link(tmp_path: Path) -> None:
    client = CLIENTS["cursor"]
    path, theirs = client.file(tmp_path), tmp_path / "theirs"
    path.parent.mkdir(parents=True)
    path.write_text('{"a": 1}')
    theirs.write_text("theirs")
    path.with_name(path.name + BACKUP).symlink_to(theirs)
    change, _ = added(client, tmp_path, ["recall"])
    backup = change.write()

    assert backup is not None
    assert backup.read_text() == '{"a": 1}'
    assert theirs.read_text() == "theirs"


async def test_all_that_the_local_server_makes_is_its_users_alone(home: Home) -> None:
    async with home.client() as client:
        await client.list_tools()
        made = [path for path in home.folder.rglob("*") if path.is_file() or path.is_dir()]
        ours = [path for path in made if "recall-server" in path.parts]
        open_ = {path for path in ours if mode_of(path) & 0o077}

    assert home.database in ours
    assert home.token_file in ours
    assert open_ == set()


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
