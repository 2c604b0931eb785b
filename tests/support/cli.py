"""The command line, in this process and in one of its own."""

import ctypes
import json
import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlencode

import psycopg
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from recall_server.cli.commands import app
from tests.support.forked import completed
from tests.support.logs import real_logs

WITHIN_S = 60
# Built once: it takes longer than most commands.
_COMMAND = get_command(app)


@dataclass(frozen=True)
class Said:
    """The exit of a command."""

    code: int
    out: str
    err: str

    def json(self) -> object:
        assert self.code == 0, self.err
        return json.loads(self.out)


@pytest.fixture
def clean_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Give the test a folder of its own and no settings in the environment; restore the log."""
    for name in [
        name for name in os.environ if name.startswith(("RECALL_", "ANTHROPIC_", "OPENAI_"))
    ]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RECALL_EMBEDDER", "none")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    here = tmp_path / "here"
    here.mkdir()
    monkeypatch.chdir(here)
    with real_logs():
        yield


def recall(*command: object, **settings: object) -> Said:
    """Run `recall COMMAND`, with these settings in the environment."""
    return invoked(command, {name.upper(): str(value) for name, value in settings.items()})


def invoked(command: Sequence[object], env: Mapping[str, str], given: str = "") -> Said:
    """Run `recall COMMAND` with this environment besides, and `given` as its input."""
    with CliRunner().isolation(input=given, env=env) as (out, errors, _):
        code: object = 0
        try:
            _COMMAND.main(args=[str(part) for part in command], prog_name="recall")
        except SystemExit as ended:
            code = ended.code or 0
        sys.stdout.flush()
        sys.stderr.flush()
        assert isinstance(code, int), code
        return Said(code, out.getvalue().decode(), errors.getvalue().decode())


def spawned(*command: str, may_override: bool = True, **settings: object) -> Said:
    """Run it in a process of its own; with `may_override=False`, file modes hold for root too."""
    environment = {**os.environ, **{name.upper(): str(value) for name, value in settings.items()}}
    first = None if may_override else _obey_modes
    done = completed(command, environment, WITHIN_S, first=first)
    return Said(done.returncode, done.stdout.decode(), done.stderr.decode())


def _obey_modes() -> None:
    # Version 3 of the header, of this thread and those that it starts; no capability is left.
    header, none = (ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)()
    assert ctypes.CDLL(None).capset(header, none) == 0


def refused(said: Said, code: str, *named: str) -> None:
    """Check for one clear line on standard error, exit code 2, and nothing else."""
    assert (said.code, said.out) == (2, ""), said
    assert re.fullmatch(rf"recall: [^\n]+\. \[(?:{code})\]\n", said.err), said.err
    assert "Traceback" not in said.err
    for name in named:
        assert name in said.err


@pytest.fixture
def url(database: Path | str) -> str:
    """Return the database of the test as a person writes it after --db."""
    if isinstance(database, Path):
        return str(database)
    return f"postgresql:///?{urlencode(psycopg.conninfo.conninfo_to_dict(database))}"
