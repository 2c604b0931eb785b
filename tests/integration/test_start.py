"""What a command has to load before it does anything: the rest is paid for by whoever waits."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

HEAVY = ("mcp", "a2a", "google.protobuf", "anthropic", "uvicorn", "starlette.applications")
# And what only some settings, or some texts, have need of.
ON_USE = (
    "psycopg",
    "kingfisher_sdk",
    "wordllama",
    "recall_server.integrations.extraction.rules.passages",
)

RUN = """
import json, sys
from recall_server.cli.commands import app
app(sys.argv[1:], standalone_mode=False)
print(json.dumps(sorted(sys.modules)))
"""


# What `recall worker` goes on in.
WORK = """
import json, sys
import recall_server.lifecycle
print(json.dumps(sorted(sys.modules)))
"""


def loaded(folder: Path, *command: str, run: str = RUN) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", run, *command],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("start")
    made.chmod(0o700)
    loaded(made, "create-token", "acme")
    return made


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["create-token", "acme"],
        ["status"],
        ["tokens", "list"],
        ["audit", "tail"],
        ["conflicts", "list", "acme"],
        ["quarantine", "list", "acme"],
        ["doctor"],
        ["export", "acme", "--out", "acme.jsonl"],
    ],
    ids=" ".join,
)
def test_a_command_that_serves_nobody_loads_no_door(folder: Path, command: list[str]) -> None:
    found = loaded(folder, *command)

    assert "recall_server.bootstrap" in found
    assert not found.intersection(HEAVY)
    assert not found.intersection(ON_USE)


def test_a_worker_loads_no_door(folder: Path) -> None:
    found = loaded(folder, run=WORK)

    assert "recall_server.worker" in found
    assert not found.intersection(HEAVY)
    assert not found.intersection(ON_USE)


@pytest.mark.parametrize(
    ("package", "settings", "extra"),
    [
        ("psycopg", {"RECALL_DB_URL": "postgresql://127.0.0.1/none"}, "recall-server[postgres]"),
        ("anthropic", {"ANTHROPIC_API_KEY": "sk-none"}, "recall-server[anthropic]"),
    ],
)
def test_a_setting_that_needs_an_extra_names_it_in_one_line(
    tmp_path: Path, package: str, settings: dict[str, str], extra: str
) -> None:
    tmp_path.chmod(0o700)
    absent = f"import sys; sys.modules[{package!r}] = None\n"
    start = "from recall_server.cli import main\nmain()"
    done = subprocess.run(
        [sys.executable, "-c", absent + start, "create-token", "acme"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **settings},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert extra in done.stderr
