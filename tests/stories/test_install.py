"""`recall install` on files as clients write them: it merges, can run twice, and can be undone."""

import json
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import tomlkit
from platformdirs import user_cache_path

from recall_server.local.clients import CLIENTS, Client
from tests.support.cli import Said, recall, refused

pytest_plugins = ("tests.support.cli",)
pytestmark = pytest.mark.usefixtures("clean_environment")

THERE: dict[str, str] = {
    name: json.dumps(
        {"theme": "dark", client.keys[0]: {"other": {"command": "x", "args": ["é"]}}},
        indent=4,
        ensure_ascii=False,
    )
    for name, client in CLIENTS.items()
} | {"codex": '# mine\nmodel = "o9"\n\n[mcp_servers.other]\ncommand = "x" # stays\n'}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    # This code is compiled once on a machine, which takes seconds.
    monkeypatch.setenv("XDG_CACHE_HOME", str(user_cache_path()))
    monkeypatch.setenv("HOME", str(folder))
    return folder


@pytest.fixture(params=[*CLIENTS.values()], ids=[*CLIENTS])
def client(request: pytest.FixtureRequest) -> Client:
    chosen: Client = request.param
    return chosen


def install(client: Client, *options: object) -> Said:
    said = recall("install", client.name, *options)
    assert said.code == 0, said.err
    return said


def read(path: Path) -> Any:
    text = path.read_text()
    return tomlkit.parse(text).unwrap() if path.suffix == ".toml" else json.loads(text)


def entry(client: Client, home: Path) -> Any:
    found = read(client.file(home))
    for key in (*client.keys, "recall"):
        found = found[key]
    return found


def words(one: Any) -> list[str]:
    command = one["command"]
    return command if isinstance(command, list) else [command, *one["args"]]


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_new_file_is_for_its_owner_and_goes_again(client: Client, home: Path) -> None:
    said = install(client)
    path = client.file(home)

    assert re.search(
        rf"Wrote {re.escape('.'.join((*client.keys, 'recall')))}.* in {path}\.", said.out
    )
    assert words(entry(client, home))[-1] == "stdio"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    install(client, "--remove")
    assert [one for one in home.rglob("*") if one.is_file() and "before" not in one.name] == []


def test_what_is_there_stays_and_comes_back_as_it_was(client: Client, home: Path) -> None:
    path = write(client.file(home), THERE[client.name])
    path.chmod(0o640)
    before = read(path)

    said = install(client)
    backup = path.with_name(f"{path.name}.before-recall")
    merged = read(path)

    assert str(backup) in said.out
    assert backup.read_text() == THERE[client.name]
    assert merged[client.keys[0]].pop("recall")
    if client.hooks is not None and home / client.hooks.path == path:
        assert merged.pop("hooks")
    assert merged == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    install(client, "--remove")
    assert path.read_text() == THERE[client.name]


def test_a_second_run_changes_nothing(client: Client, home: Path) -> None:
    write(client.file(home), THERE[client.name])
    install(client)
    text, backup = client.file(home).read_text(), next(home.rglob("*.before-recall"))
    backup.unlink()

    said = install(client)

    assert "already in" in said.out
    assert client.file(home).read_text() == text
    assert not backup.exists()


def test_a_dry_run_writes_nothing(client: Client, home: Path) -> None:
    said = install(client, "--dry-run")

    assert f"in {client.file(home)}." in said.out
    assert list(home.rglob("*")) == []
    assert "stdio" in install(client, "--print").out


@pytest.mark.parametrize(
    ("hold", "why"),
    [
        (lambda path: path.mkdir(), "cannot be read (Is a directory)"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "is not UTF-8"),
        (lambda path: path.write_text('{"mcpServers": []}'), "mcpServers is no object in"),
        (lambda path: path.write_text("[]"), "holds no object"),
    ],
    ids=["folder", "bytes", "list", "whole"],
)
@pytest.mark.parametrize("options", [(), ("--remove",)], ids=["added", "removed"])
def test_what_is_wrong_with_a_file_is_said(
    home: Path, hold: Callable[[Path], object], why: str, options: tuple[str, ...]
) -> None:
    path = CLIENTS["cursor"].file(home)
    path.parent.mkdir()
    hold(path)
    if options and "no object in" in why:
        assert "is not in" in recall("install", "cursor", *options).out
        return

    refused(recall("install", "cursor", *options), "INVALID_ARGUMENT", why, str(path))


@pytest.mark.parametrize(
    "broken", ['{"a": 1,}', '// mine\n{"a": 1}', "[1]", "\x00", "[a\nb = 1", '{"a":'], ids=repr
)
def test_a_file_that_cannot_be_kept_as_it_is_is_left_alone(
    client: Client, home: Path, broken: str
) -> None:
    path = write(client.file(home), broken)
    if client.toml and broken == "[1]":
        pytest.skip("that is TOML")

    refused(recall("install", client.name), "INVALID_ARGUMENT", str(path))

    assert path.read_text() == broken
    assert len([one for one in home.rglob("*") if one.is_file()]) == 1


def test_an_entry_of_that_name_that_is_another_one_is_left_alone(
    client: Client, home: Path
) -> None:
    other = {client.keys[0]: {"recall": {"url": "https://example.com"}}}
    text = tomlkit.dumps(other) if client.toml else json.dumps(other)
    path = write(client.file(home), text)

    refused(recall("install", client.name), "INVALID_ARGUMENT", str(path))
    install(client, "--remove")

    assert path.read_text() == text


def test_a_server_elsewhere_is_named_and_its_token_stays_in_its_file(
    client: Client, home: Path
) -> None:
    token = write(home / "token", "rcl_secret")

    install(client, "--url", "https://memory.example.com", "--token-file", token)

    options = ["--url", "https://memory.example.com/mcp", "--token-file", str(token)]
    assert words(entry(client, home))[-4:] == options
    assert not [
        p for p in home.rglob("*") if p != token and p.is_file() and "rcl_" in p.read_text()
    ]


def test_a_link_to_the_file_stays_a_link(home: Path) -> None:
    client = CLIENTS["cursor"]
    real = write(home / "dotfiles" / "mcp.json", THERE["cursor"])
    client.file(home).parent.mkdir()
    client.file(home).symlink_to(real)

    install(client)

    assert client.file(home).is_symlink()
    assert "recall" in read(real)["mcpServers"]


# The name of the end of a turn in each host, and its timeout, from its documentation.
ENDS = {
    "claude-code": (".claude/settings.json", "Stop", 10),
    "codex": (".codex/hooks.json", "Stop", 10),
    "gemini": (".gemini/settings.json", "AfterAgent", 10_000),
    "cursor": (".cursor/hooks.json", "stop", 10),
}


def hooks_there(event: str) -> str:
    theirs: Any = {"hooks": [{"type": "command", "command": "say done"}]}
    if event == "stop":  # of Cursor, which has no groups of hooks, and counts the form of its file
        return json.dumps({"version": 1, "hooks": {event: [{"command": "say done"}]}})
    return json.dumps({"model": "opus", "hooks": {event: [theirs]}})


@pytest.mark.parametrize("name", [name for name, one in CLIENTS.items() if one.hooks])
def test_a_client_gets_hooks_beside_those_there(home: Path, name: str) -> None:
    client, (path, event, timeout) = CLIENTS[name], ENDS[name]
    settings = write(home / path, hooks_there(event))
    assert client.hooks is not None

    dry = install(client, "--dry-run")
    assert settings.read_text() == hooks_there(event)
    install(client)
    hooks = read(settings)["hooks"]
    again = install(client)

    assert str(settings) in dry.out
    assert set(hooks) == set(client.hooks.events)
    theirs, ours = (one.get("hooks", [one])[0] for one in hooks[event])
    assert theirs["command"] == "say done"
    assert ours["command"].endswith(" hook stop")
    assert ours["timeout"] == timeout
    assert ours.keys() == {"command", "timeout", *(() if name == "cursor" else ("type",))}
    assert re.search("hooks (are|is) already in", again.out)
    install(client, "--remove")
    assert read(settings) == json.loads(hooks_there(event))


def test_cursor_gets_a_file_of_hooks_that_states_its_form(home: Path) -> None:
    path = home / ".cursor/hooks.json"
    install(CLIENTS["cursor"])

    assert read(path)["version"] == 1
    assert list(read(path)["hooks"]) == [
        *("sessionStart", "beforeSubmitPrompt", "preCompact", "stop", "sessionEnd")
    ]
    install(CLIENTS["cursor"], "--remove")
    assert not path.exists()


def test_opencode_gets_a_plugin_that_runs_the_hooks_and_goes_without_a_trace(home: Path) -> None:
    path, client = home / ".config/opencode/plugins/recall.js", CLIENTS["opencode"]
    token = write(home / "token", "rcl_secret")

    dry = install(client, "--dry-run")
    assert not path.exists()
    install(client)
    local = path.read_text()
    again = install(client)
    install(client, "--url", "https://memory.example.com", "--token-file", token)
    elsewhere = path.read_text()

    hook = re.search(r"^const HOOK = (.*)$", local, re.MULTILINE)
    options = re.search(r"^const OPTIONS = (.*)$", elsewhere, re.MULTILINE)
    assert hook
    assert options
    assert json.loads(hook[1])[-1] == "hook"
    assert "const OPTIONS = []" in local
    assert json.loads(options[1]) == [
        *("--url", "https://memory.example.com/mcp", "--token-file", str(token))
    ]
    assert str(path) in dry.out
    assert f"hooks are already in {path}" in again.out
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    install(client, "--remove")
    assert list(path.parent.iterdir()) == []


def test_a_plugin_of_that_name_that_is_another_one_is_left_alone(home: Path) -> None:
    path = write(home / ".config/opencode/plugins/recall.js", "export default {}\n")

    refused(recall("install", "opencode"), "INVALID_ARGUMENT", str(path))
    assert not CLIENTS["opencode"].file(home).exists()
    install(CLIENTS["opencode"], "--remove")

    assert path.read_text() == "export default {}\n"


LOADED_AFTER = """
from recall_server.cli.commands import install
from recall_server.integrations.redaction import loaded
install(name="cursor", {options})
print(loaded())
"""


@pytest.mark.parametrize(("options", "prepared"), [("", True), ("dry_run=True", False)])
def test_installing_prepares_the_rules_that_the_first_text_needs(
    options: str, *, prepared: bool
) -> None:
    program = [sys.executable, "-c", LOADED_AFTER.format(options=options)]
    said = subprocess.run(program, check=True, capture_output=True, text=True)

    assert said.stdout.splitlines()[-1] == str(prepared)


def test_an_unknown_client_is_refused_with_the_names_of_those_there_are() -> None:
    refused(recall("install", "emacs"), "INVALID_ARGUMENT", *CLIENTS)
    refused(recall("install", "cursor", "--url", "https://m.example.com"), "INVALID_ARGUMENT")
    refused(recall("install", "cursor", "--token-file", "x"), "INVALID_ARGUMENT")
