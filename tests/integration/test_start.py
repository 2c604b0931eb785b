"""A command loads only what it needs, since a person waits for it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

HEAVY = (
    *("mcp", "a2a", "google.protobuf", "anthropic", "openai", "uvicorn"),
    "starlette.applications",
)
# Only some settings or some texts need these.
ON_USE = (
    "psycopg",
    "kingfisher_sdk",
    "wordllama",
    "recall_server.integrations.rules.reader",
)

# All commands run in one process. A module that is not loaded at the end was loaded by none.
RUN = """
import json, sys
from recall_server.cli.commands import app
for command in sys.argv[1:]:
    app(command.split(), standalone_mode=False)
    print(json.dumps(sorted(sys.modules)))
"""


# `recall worker` runs this.
WORK = """
import json, sys
import recall_server.lifecycle
print(json.dumps(sorted(sys.modules)))
"""


def loaded(folder: Path, run: str, *commands: str) -> list[set[str]]:
    """Return the modules that are loaded after each command."""
    folder.chmod(0o700)
    done = subprocess.run(
        [sys.executable, "-c", run, *commands],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith('["')]
    return [set(json.loads(line)) for line in lines]


COMMANDS = (
    "--help",
    "create-token acme",
    "status",
    "tokens list",
    "audit tail",
    "conflicts list acme",
    "quarantine list acme",
    "export acme --out acme.jsonl",
    # It comes last, as it loads the embedder to see whether a server can.
    "doctor",
)


# A server that has started, and its first search.
SEARCH = """
import asyncio, json, re
from pathlib import Path
from recall_server.bootstrap import open_application
from recall_server.config import Settings
from recall_server.domain.context import Context
from recall_server.domain.ids import namespace
from recall_server.domain.query import Query
from recall_server.lifecycle import checked_and_loaded

original, found = re.compile, []

def noted(pattern, flags=0):
    if len(str(pattern)) > 500:  # those of all scripts
        found.append("pattern: " + str(pattern)[:80])
    return original(pattern, flags)

async def search():
    settings = Settings(db_path=Path("recall.db"), embedder="none", extractor="rules")
    async with open_application(settings) as built, checked_and_loaded(built):
        re.compile = noted
        entry = built.services.audit.begin(namespace("a"), "search_memories", "cli", None)
        await built.services.recall.search(Context(entry), Query("O\\u00f9 habite Zo\\u00eb ?"))

asyncio.run(search())
print(json.dumps(["", *found]))
"""


def test_the_first_search_in_another_script_does_not_hold_up_the_others(tmp_path: Path) -> None:
    """Finding the letters of all scripts takes 30 ms, on the event loop before this test."""
    (found,) = loaded(tmp_path, SEARCH)

    assert found == {""}


def test_a_command_that_serves_nobody_loads_no_protocol(tmp_path: Path) -> None:
    found = loaded(tmp_path, RUN, *COMMANDS)

    for command, modules in zip(COMMANDS, found, strict=True):
        assert "recall_server.bootstrap" in modules, command
        assert not modules.intersection(HEAVY), command
        assert command == "doctor" or not modules.intersection(ON_USE), command


def test_a_worker_loads_no_protocol(tmp_path: Path) -> None:
    (found,) = loaded(tmp_path, WORK)

    assert "recall_server.worker" in found
    assert not found.intersection(HEAVY)
    assert not found.intersection(ON_USE)


@pytest.mark.parametrize(
    ("package", "settings", "extra"),
    [
        ("psycopg", {"RECALL_DB_URL": "postgresql://127.0.0.1/none"}, "recall-server[postgres]"),
        ("anthropic", {"ANTHROPIC_API_KEY": "sk-none"}, "recall-server[anthropic]"),
        (
            "openai",
            {"RECALL_EXTRACTOR": "openai", "RECALL_MODEL": "m", "OPENAI_API_KEY": "sk-none"},
            "recall-server[openai]",
        ),
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
