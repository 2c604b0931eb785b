"""The commands for people: the same in a database and on a server, and readable on a terminal."""

import asyncio
import json
import os
import pty
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from docs import generate
from recall_server.local import folders
from tests.support.cli import Said, clean_environment, recall, refused
from tests.support.processes import Server, new_token

pytestmark = pytest.mark.usefixtures("clean_environment")
__all__ = ["clean_environment"]

Json = dict[str, Any]
Recall = Callable[..., Said]
# They go on until they are stopped, or what they print is data already.
WITHOUT_JSON = {
    "recall serve",
    "recall worker",
    "recall demo",
    "recall stdio",
    "recall install",
    "recall hook",
    "recall key",
    "recall export",
    "recall verify-receipt",
    "recall audit export",
    "recall audit checkpoint",
}


@pytest.fixture(params=["database", "server"])
async def alice(
    request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncIterator[Callable[..., Any]]:
    """`recall COMMAND …` on Alice's memory: in a file, and on a server that is asked for it."""
    database = tmp_path / "recall.db"
    token = (await new_token(database, "alice"))["token"]
    if request.param == "database":

        async def here(*command: str) -> Said:
            return await asyncio.to_thread(recall, *command, "--db", database)

        yield here
        return
    file = tmp_path / "token"
    file.write_text(f"{token}\n")
    async with Server(database) as server:

        async def there(*command: str) -> Said:
            options = ("--url", server.address, "--token-file", file)
            return await asyncio.to_thread(recall, *command, *options)

        yield there


def only(pattern: str, text: str) -> str:
    [found] = re.findall(pattern, text)
    return str(found)


async def test_a_memory_is_added_listed_shown_asked_forgotten_and_restored(alice: Any) -> None:
    added = await alice("add", "Ana: I live in Porto.", "--said-at", "2025-03-01")
    moved = await alice("add", "alice", "Ana: I live in Lisbon.", "--tag", "home")
    listed = await alice("list", "--tag", "home")
    as_json = (await alice("list", "--json")).json()
    memory_id = only(r"(mem_\w+)  \d{4}-\d\d-\d\d  fact  general\n    Ana lives in Lis", listed.out)
    shown = await alice("show", memory_id)
    asked = await alice("ask", "Where does Ana live?")
    found = await alice("search", "alice", "Where does Ana live?", "--limit", "1")
    forgotten = await alice("forget", memory_id)
    without = await alice("list", "--tag", "home")
    restored = await alice("restore", memory_id, "--json")
    again = await alice("list", "--tag", "home")

    assert "Ana lives in Porto." in added.out
    assert memory_id in moved.out
    assert [one["id"] for one in as_json["memories"]] == [memory_id]
    assert shown.out.index("Porto") < shown.out.index("Lisbon")
    assert "superseded, true from 2025-03-01T00:00:00Z until" in shown.out
    assert asked.out.startswith("- Ana lives in Lisbon.\n    ")
    assert re.search(r'"I live in Lisbon\."  Ana, \d{4}-\d\d-\d\d, ep_', asked.out)
    assert re.match(rf"\d\.\d{{3}}  {memory_id}  ", found.out)
    assert re.match(r"evidence 0\.\d\d", found.err)
    assert forgotten.out.startswith(f"{memory_id} is forgotten.")
    assert without.out == "There are no memories here.\n"
    assert restored.json() == {"restored": memory_id}
    assert again.out == listed.out


def test_adding_finishes_what_a_search_needs_and_says_nothing_of_its_jobs(tmp_path: Path) -> None:
    database = tmp_path / "recall.db"
    recall("create-token", "alice", "--db", database, "--create")

    added = recall(
        "add", "I'm allergic to penicillin.", "--db", database, recall_embedder="wordllama"
    )
    status = recall("status", "--db", database).out

    assert "allergic to penicillin" in added.out
    assert not added.err
    assert re.search(r"pending embeddings +0\n", status)


def test_people_see_what_the_clients_of_this_machine_stored() -> None:
    local = folders.database()
    local.parent.mkdir(parents=True)
    recall("create-token", "me", "--db", local, "--create")
    recall("add", "I'm allergic to penicillin.", "--db", local)

    elsewhere = recall("list")
    recall("create-token", "alice")
    here = recall("list")

    assert "allergic to penicillin" in elsewhere.out
    assert here.out == "There are no memories here.\n"


async def test_a_memory_is_edited_by_who_may(alice: Any) -> None:
    added = (await alice("add", "Ana: I live in Porto.", "--json")).json()
    [memory_id] = added["memory_ids"]
    shown = await alice("edit", memory_id, "Ana lives in Lisbon.", "--dry-run")
    edited = await alice("edit", memory_id, "Ana lives in Lisbon.")
    listed = await alice("list")

    if edited.code:  # on a server the token must have memory:admin
        refused(edited, "INSUFFICIENT_SCOPE", "memory:admin")
    else:
        assert shown.code == 0
        assert "Ana lives in Lisbon." in listed.out


async def test_a_change_is_listed_undone_and_made_again(alice: Any) -> None:
    await alice("add", "Ana: I live in Porto.")
    [added] = (await alice("changes", "--json")).json()["changes"]
    undone = await alice("undo", "alice", added["id"])
    without = await alice("list")
    again = await alice("undo", only(r"To have it again, undo (\S+)\.", undone.out))
    listed = await alice("list")

    assert f"undone {added['id']}" in undone.out
    assert without.out == "There are no memories here.\n"
    assert again.code == 0
    assert "Ana lives in Porto." in listed.out


async def test_an_error_is_one_line_with_its_code(alice: Any) -> None:
    refused(await alice("show", "mem_unknown"), "MEMORY_NOT_FOUND")
    refused(await alice("add", " "), "EMPTY_TEXT")
    refused(await alice("search", "x", "--said-after", "noon"), "INVALID_ARGUMENT")
    other = await alice("list", "bob")
    assert other.code == 2
    assert re.search(r"\[(NAMESPACE_NOT_ALLOWED|NOT_FOUND)\]$", other.err.strip())


def test_the_namespace_may_be_left_out_where_there_is_but_one() -> None:
    recall("create-token", "alice")
    alone = recall("add", "Ana: I live in Porto.")
    recall("create-token", "bob")
    unclear = recall("list")
    named = recall("list", "alice", "--json").json()

    assert alone.code == 0
    refused(unclear, "INVALID_ARGUMENT", "2 namespaces")
    assert isinstance(named, dict)
    assert named["total"] == 1


def test_a_text_comes_from_standard_input_and_is_kept_word_for_word_if_asked_to() -> None:
    recall("create-token", "alice")
    command = [sys.executable, "-m", "recall_server", "add", "-", "--type", "procedure", "--json"]
    done = subprocess.run(
        command, input="Run make\ntwice.", capture_output=True, text=True, check=True
    )
    [memory] = recall("list", "--json").json()["memories"]  # type: ignore[index]

    assert json.loads(done.stdout)["memory_ids"] == [memory["id"]]
    assert (memory["type"], memory["text"]) == ("procedure", "Run make\ntwice.")


def test_a_server_that_does_not_answer_or_is_another_is_told() -> None:
    refused(recall("list", recall_url="http://127.0.0.1:1", recall_token="t"), "UNAVAILABLE")
    refused(recall("list", "--url", "http://127.0.0.1:1"), "UNAUTHENTICATED")
    refused(recall("list", "--url", "http://x", "--db", "y"), "INVALID_ARGUMENT")
    refused(recall("list", "--url", "http://x", "--token-file", "none"), "INVALID_ARGUMENT")


def test_a_new_token_stands_alone_on_standard_output() -> None:
    made = recall("create-token", "alice")
    accessor = recall("tokens", "list", "--json").json()[0]["accessor"]  # type: ignore[index]
    child = recall("tokens", "delegate", accessor)
    rotated = recall("tokens", "rotate", accessor)

    for said in (made, child, rotated):
        assert re.fullmatch(r"\S{40,}\n", said.out)
        assert "not shown again" in said.err


def test_a_dash_is_standard_output(tmp_path: Path) -> None:
    recall("create-token", "alice")
    exported = recall("export", "alice", "--out", "-")
    audit = recall("audit", "export", "alice", "--out", "-")

    assert json.loads(exported.out.splitlines()[0])
    assert json.loads(audit.out.splitlines()[0])
    assert list(Path.cwd().glob("-*")) == []


def test_what_is_shown_fits_the_terminal() -> None:
    recall("create-token", "alice", "--label", "laptop")
    recall("add", f"Ana: I live in Lisbon. {'I like long walks by the river. ' * 5}")
    for command in ("tokens list", "audit tail", "list", "ask Ana?", "search Ana"):
        lines = on_terminal(command.split(), 80)
        assert lines
        assert max(map(len, lines)) <= 80, command
    wide = on_terminal(["audit", "tail"], 240)

    assert wide[0].split()[0] == "at", "a line for each, below its headings"


def on_terminal(command: list[str], columns: int) -> list[str]:
    """The lines that a command prints on a terminal."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "recall_server", *command],
        stdout=theirs,
        env={**os.environ, "COLUMNS": str(columns), "TERM": "xterm"},
        check=True,
        timeout=30,
    )
    assert done.returncode == 0
    os.close(theirs)
    written = b""
    try:
        while piece := os.read(ours, 65_536):
            written += piece
    except OSError:  # the terminal is gone with the last who wrote to it
        pass
    os.close(ours)
    plain = re.sub(r"\x1b\[[0-9;]*m", "", written.decode())
    return [line.rstrip() for line in plain.splitlines()]


def test_every_command_that_does_not_print_data_anyway_has_json() -> None:
    commands = dict(generate.commands())
    without = {
        name
        for name, command in commands.items()
        if not any("--json" in getattr(one, "opts", ()) for one in command.params)
    }

    assert without == WITHOUT_JSON


def test_a_shell_can_complete_the_commands() -> None:
    script = subprocess.run(
        [sys.executable, "-m", "recall_server", "--show-completion", "bash"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"},
    )

    assert "COMPLETE" in script.stdout, script.stderr
