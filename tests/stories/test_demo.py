"""`recall demo`, as the person sees it who runs it first."""

import asyncio
import contextlib
import io
import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from http.client import HTTPConnection
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from recall_server.demo import show, story
from recall_server.domain.errors import EmptyText, Invalid, InvalidText, TextTooLong
from recall_server.domain.text.transcript import chunk, parse_turns
from recall_server.integrations.extraction.extractor import Passage
from recall_server.integrations.extraction.rules import RulesExtractor

NOW = datetime(2026, 12, 1, tzinfo=UTC)
LIMIT = 262_144
SCENES = (
    "Store",
    "What was made of it",
    "A change of mind",
    "Search",
    "Delegating",
    "Another tenant",
    "The book",
    "Connect",
)
# None of it may change what is shown.
HOSTILE = {
    "ANTHROPIC_API_KEY": "sk-ant-nobody",
    "RECALL_EXTRACTOR": "anthropic",
    "RECALL_DB_URL": "postgresql://127.0.0.1:1/nothing",
    "RECALL_WORKER_JOBS": "0",
    "RECALL_PORT": "1",
    "FORCE_COLOR": "1",
    "COLUMNS": "40",
}
DATED = """\
## 2 March 2026

Ann: Hello! I live in Oslo and I'm allergic to nuts.
Ben: Do you like it there?

## 9 April 2026

Ann: I moved from Oslo to Rome last week.
Ben: If I moved to Rome I would eat ice cream all day.
"""
PROSE = "The cellar is damp. We use Grafana for dashboards.\n\nAnna prefers tea to coffee.\n"


def shown(file: Path | None) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), capture_logs():
        asyncio.run(show(file, keep=False))
    return out.getvalue()


def scene(output: str, title: str) -> str:
    parts = re.split(r"^\d+  (.+)$", output, flags=re.MULTILINE)
    return parts[parts.index(title) + 1]


@pytest.fixture(scope="module")
def output() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in HOSTILE.items():
            patch.setenv(name, value)
        yield shown(None)


def conversation() -> str:
    return "\n".join(part.text for part in story.bundled(LIMIT).parts)


@pytest.mark.slow
def test_a_contradiction_is_asked_about_answered_and_remembered_with_who_decided(
    output: str,
) -> None:
    delegating = scene(output, "Delegating")

    assert "TASK_STATE_INPUT_REQUIRED" in delegating
    assert "Another agent answers keep_new: TASK_STATE_COMPLETED" in delegating
    assert re.search(r"active +Nadia · lives_in · Porto +keep_new by acc_", delegating)


def test_every_scene_is_shown_in_its_order(output: str) -> None:
    assert tuple(re.findall(r"^\d+  (.+)$", output, flags=re.MULTILINE)) == SCENES


@pytest.mark.slow
def test_it_is_read_in_two_minutes_and_in_any_log(output: str) -> None:
    lines = output.splitlines()

    assert len(lines) <= 130
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in output
    assert "rules/" in lines[1] + lines[2]


@pytest.mark.slow
def test_a_repeated_store_is_answered_from_the_first_one(output: str) -> None:
    assert "cached=True, the same job" in scene(output, "Store")


@pytest.mark.slow
def test_memories_of_every_type_are_listed_with_their_facts(output: str) -> None:
    table = scene(output, "What was made of it")

    assert {"preference", "fact", "decision", "procedure"} <= set(table.split())
    assert len(re.findall(r"\w · \w+ · ?\w*", table)) >= 10


@pytest.mark.slow
def test_a_superseded_fact_is_shown_with_the_words_of_the_older_and_the_newer(output: str) -> None:
    history = scene(output, "A change of mind")
    quotes = [quote.rstrip("…") for quote in re.findall(r'"(.+)"', history)]

    assert re.search(r"^superseded .+\n.+\n(?:.+\n)*active ", history, flags=re.MULTILINE)
    assert len(quotes) >= 2
    assert all(quote and quote in conversation() for quote in quotes)


@pytest.mark.slow
def test_each_question_is_answered_with_its_scores(output: str) -> None:
    found = scene(output, "Search")
    best = re.findall(r"^\? .+\n \d\.\d{3} .+ #1 .+\n +cites (.+)$", found, flags=re.MULTILINE)

    assert len(best) == 4
    assert all(re.match(r'(?:Priya|Owen), \d+ \w{3} 2026: ".+"', cited) for cited in best)
    assert "To deploy billing, just merge to main" in found


@pytest.mark.slow
def test_another_tenant_finds_nothing_and_cannot_tell_an_id_from_none(output: str) -> None:
    other = scene(output, "Another tenant")

    assert ": 0 results" in other
    assert other.count("MEMORY_NOT_FOUND") == 2


@pytest.mark.slow
def test_the_book_names_operations_and_never_what_was_said(output: str) -> None:
    book = scene(output, "The book")

    assert {"store_memory", "extract", "search_memories", "globex"} <= set(book.split())
    assert not {"Priya", "Lisbon", "billing"} & set(book.split())


@pytest.mark.slow
def test_what_is_to_be_copied_is_whole(output: str) -> None:
    connect = scene(output, "Connect")
    configs = [
        json.loads(text) for text in re.findall(r"^\{(?:.|\n)*?\}\}\}\}$", connect, re.MULTILINE)
    ]
    desktop, cursor = (config["mcpServers"]["recall"] for config in configs)

    url = "http://127.0.0.1:8000/mcp"
    assert desktop["args"][:3] == ["-y", "mcp-remote", url]
    assert desktop["env"] == {"AUTH_HEADER": "Bearer YOUR_TOKEN"}
    assert cursor == {"url": url, "headers": {"Authorization": "Bearer YOUR_TOKEN"}}
    assert f"claude mcp add --transport http recall {url}" in connect


@pytest.mark.slow
def test_a_file_of_ones_own_is_stored_by_session_and_its_change_of_mind_found(
    tmp_path: Path,
) -> None:
    file = tmp_path / "chat.txt"
    file.write_text(DATED, "utf-8")

    output = shown(file)

    assert "2 Mar 2026" in scene(output, "Store")
    assert "9 Apr 2026" in scene(output, "Store")
    assert '"I live in Oslo' in scene(output, "A change of mind")
    assert "ice cream" not in scene(output, "What was made of it")


@pytest.mark.slow
def test_prose_without_dates_or_changes_is_shown_for_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "notes.md"
    file.write_text(PROSE, "utf-8-sig")

    output = shown(file)

    assert "undated" in scene(output, "Store")
    assert "superseded" in scene(output, "A change of mind")
    assert "tea" in scene(output, "Search")


@pytest.mark.slow
def test_a_file_that_states_nothing_is_searched_by_its_own_words(tmp_path: Path) -> None:
    file = tmp_path / "hum.txt"
    file.write_text("Hmm [bold]hmm[/bold] \x1b[31mhmm?\n", "utf-8")

    output = shown(file)

    assert "Nothing in it is plainly stated" in output
    assert "\x1b" not in output
    assert "[bold]hmm[/bold]" in scene(output, "Search")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", EmptyText),
        (b" \n\t\n", EmptyText),
        (b"\xff\xfe\x00", Invalid),
        (b"a\x00b", InvalidText),
        (b"a" * (story.FILE_BYTES_MAX + 1), TextTooLong),
    ],
)
async def test_a_file_that_is_of_no_use_is_refused_before_anything_starts(
    content: bytes, error: type[Exception], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.txt"
    file.write_bytes(content)

    with pytest.raises(error):
        await show(file, keep=False)

    assert capsys.readouterr().out == ""


async def test_the_conversation_that_ships_is_one() -> None:
    turns = parse_turns(conversation(), NOW)

    assert len(turns) >= 36
    assert {turn.speaker for turn in turns} == {"Priya", "Owen"}
    assert len({turn.said_at for turn in turns}) >= 5


async def test_no_question_and_no_if_of_the_conversation_becomes_a_memory() -> None:
    text = conversation()
    extractor = RulesExtractor()
    cited = [
        text[candidate.span.start : candidate.span.end]
        for turns in chunk(parse_turns(text, NOW), extractor.passage_chars)
        for candidate in (await extractor.extract(Passage(text, turns, "demo", NOW))).candidates
    ]

    assert len(cited) >= 12
    assert not [quote for quote in cited if quote.endswith("?")]
    assert not [
        quote
        for quote in cited
        if re.search(r"\b(?:if|could|would|probably)\b", quote, re.IGNORECASE)
    ]


def test_a_long_session_is_cut_into_stores_that_each_bear_its_date(tmp_path: Path) -> None:
    file = tmp_path / "long.txt"
    said = "".join(f"Ann: This is sentence {number} of many.\n" for number in range(200))
    file.write_text(f"## 2 March 2026\n\n{said}", "utf-8")

    parts = story.of_file(file, 1_000).parts

    told = "".join(part.text.removeprefix("## 2 March 2026\n\n") for part in parts)
    assert all(len(part.text) <= 1_000 for part in parts)
    assert {part.said_at for part in parts} == {datetime(2026, 3, 2, tzinfo=UTC)}
    assert told == said
    assert sum(part.turns for part in parts) == 200


@pytest.mark.slow
def test_a_server_that_is_kept_answers_until_it_is_told_to_stop(tmp_path: Path) -> None:
    file = tmp_path / "chat.txt"
    file.write_text("Ann: I live in Oslo.\n", "utf-8")
    command = [sys.executable, "-m", "recall_server", "demo", "--keep", "--file", str(file)]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = ""
        while "Ctrl-C" not in output:
            line = process.stdout.readline()
            assert line, output
            output += line
        served = re.search(r"Serving http://(\S+)/mcp with the token (rcl_\w+)", output)
        kept = re.search(r"^from (.+)$", output, flags=re.MULTILINE)
        assert served is not None
        assert kept is not None
        connection = HTTPConnection(served[1], timeout=5)
        connection.request("GET", "/health")
        status = connection.getresponse().status
        connection.close()
        process.send_signal(signal.SIGINT)
        code = process.wait(timeout=30)

    assert (status, code) == (200, 0)
    assert output.count(served[2]) == 4
    assert Path(kept[1]).exists()
    for left in Path(kept[1]).parent.iterdir():
        left.unlink()
    Path(kept[1]).parent.rmdir()
