"""`recall hook` as a coding agent runs it: it reads and prints JSON, and never fails the agent."""

import asyncio
import json
import subprocess
import sys

from tests.support.engines import on_sqlite
from tests.support.processes import free_port
from tests.support.server import Running
from tests.support.stdio import ENDED_S, Home

pytest_plugins = ("tests.support.stdio",)


async def hook(home: Home, event: str, *options: str, **given: object) -> str:
    """Return what the command prints. It always exits with 0."""
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "recall_server", "hook", event, *options],
        input=json.dumps(given),
        env=home.environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=ENDED_S,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


async def to_server(running: Running, home: Home) -> tuple[str, ...]:
    """Return the options that name a server, with a token in a file."""
    token = home.folder / "token"
    token.write_text(await running.token())
    return "--url", running.url, "--token-file", str(token)


@on_sqlite
async def test_a_session_is_handed_in_once_and_the_next_one_is_told_of_it(
    running: Running, fresh_home: Home
) -> None:
    home = fresh_home
    project = home.folder / "harbour"
    (project / "src").mkdir(parents=True)
    (project / ".git").mkdir()
    options = await to_server(running, home)
    transcript = home.folder / "session.jsonl"
    said = {"message": {"role": "user", "content": "I live in Porto."}}
    transcript.write_text(json.dumps(said) + "\n")
    given = {"session_id": "s1", "cwd": str(project / "src"), "transcript_path": str(transcript)}

    assert [await hook(home, "stop", *options, **given) for _ in range(2)] == ["", ""]
    await running.extract()
    begun = await hook(home, "session-start", *options, cwd=str(project))

    answer = json.loads(begun)["hookSpecificOutput"]
    assert answer["hookEventName"] == "SessionStart"
    assert answer["additionalContext"].count("Porto") == 1
    async with running.http(await running.token()) as http:
        found = (await http.post("/v1/search", json={"query": "Porto"})).json()["results"]
    assert {one["container"] for one in found} == {"harbour"}


@on_sqlite
async def test_a_turn_that_the_host_hands_in_itself_is_stored_once(
    running: Running, fresh_home: Home
) -> None:
    options = await to_server(running, fresh_home)
    # Gemini CLI sends this, and its transcript repeats its lines.
    transcript = fresh_home.folder / "session.jsonl"
    transcript.write_text(json.dumps({"type": "user", "content": "I live in Porto."}) + "\n")
    given = {
        "session_id": "s1",
        "timestamp": "2026-03-01T09:00:00Z",
        "transcript_path": str(transcript),
        "prompt": "I live in Porto.",
        "prompt_response": "Noted.",
    }

    assert [await hook(fresh_home, "stop", *options, **given) for _ in range(2)] == ["", ""]
    given |= {"timestamp": "2026-03-01T09:01:00Z", "prompt": "I like tea.", "prompt_response": ""}
    assert await hook(fresh_home, "stop", *options, **given) == ""
    await running.extract()

    async with running.http(await running.token()) as http:
        texts = [one["text"] for one in (await http.get("/v1/texts")).json()["texts"]]
    [turn] = [one for one in texts if "Porto" in one]
    assert len(texts) == 2
    assert "Noted." in turn


@on_sqlite
async def test_cursor_is_answered_in_its_own_form_and_its_transcript_is_read(
    running: Running, fresh_home: Home
) -> None:
    """It names folder and session by other names, and shows files beside what a person asks."""
    options = await to_server(running, fresh_home)
    transcript = fresh_home.folder / "session.jsonl"
    shown = "<open_files>secret.py</open_files>\n<user_query>\nI live in Porto.\n</user_query>"
    for role, text in (("user", shown), ("assistant", "Noted.")):
        line = {"role": role, "message": {"content": [{"type": "text", "text": text}]}}
        with transcript.open("a") as file:
            file.write(json.dumps(line) + "\n")
    given = {
        "conversation_id": "c1",
        "cursor_version": "3.20.17",
        "workspace_roots": ["/home/ana/harbour"],
        "transcript_path": str(transcript),
    }

    assert [await hook(fresh_home, "stop", *options, **given) for _ in range(2)] == ["", ""]
    await running.extract()
    begun = json.loads(await hook(fresh_home, "session-start", *options, **given))
    asked = {**given, "prompt": "Where do I live?"}
    found = json.loads(await hook(fresh_home, "user-prompt-submit", *options, **asked))
    elsewhere = {**given, "workspace_roots": ["/home/ana/red"]}
    other = await hook(fresh_home, "session-start", *options, **elsewhere)

    async with running.http(await running.token()) as http:
        [text] = [one["text"] for one in (await http.get("/v1/texts")).json()["texts"]]
    assert "secret.py" not in text
    assert "Noted." in text
    for answer in (begun, found):
        assert answer.keys() == {"continue", "additional_context"}
        assert answer["continue"] is True
        assert "Porto" in answer["additional_context"]
    assert other == ""


async def test_it_is_silent_where_no_server_answers(fresh_home: Home) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    fresh_home.environment["RECALL_TOKEN"] = "rcl_any"

    assert await hook(fresh_home, "user-prompt-submit", "--url", address, prompt="Porto?") == ""


async def test_the_local_server_is_started_beside_it_for_the_next_one(home: Home) -> None:
    assert await hook(home, "session-start", cwd="/home/ana/red") == ""

    async with home.client() as client:
        assert (await client.list_tools()).tools
    assert len(home.servers()) == 1
    assert await hook(home, "user-prompt-submit", prompt="Porto?") == ""
