"""`recall demo` as somebody sees it who runs it first."""

import asyncio
import contextlib
import io
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from recall_server.config import Settings
from recall_server.demo import show
from recall_server.domain.errors import EmptyText, Invalid, InvalidText, TextTooLong

LIMIT = Settings.model_fields["text_chars_max"].default
STEPS = ("Store", "Search", "Supersede", "Time", "Ask", "Answer", "Isolate", "Erase")
# None of these settings may change the tour.
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


def shown(file: Path | None) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), capture_logs():
        asyncio.run(show(file, keep=False))
    return out.getvalue()


def step(output: str, title: str) -> str:
    parts = re.split(r"^([A-Z][a-z]+)$", output, flags=re.MULTILINE)
    return parts[parts.index(title) + 1]


@pytest.fixture(scope="module")
def output() -> Iterator[str]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in HOSTILE.items():
            patch.setenv(name, value)
        yield shown(None)


@pytest.mark.slow
def test_every_step_is_shown_in_its_order_in_plain_short_lines(output: str) -> None:
    lines = output.splitlines()

    assert tuple(re.findall(r"^([A-Z][a-z]+)$", output, flags=re.MULTILINE)) == STEPS
    assert len(lines) <= 80
    assert max(map(len, lines)) <= 100
    assert "\x1b" not in output


def test_a_repeated_store_is_answered_from_the_first_one(output: str) -> None:
    assert "sent again: the same job" in step(output, "Store")


def test_memories_of_several_types_are_extracted(output: str) -> None:
    assert {"preference", "fact", "decision", "procedure"} <= set(step(output, "Store").split())


def test_each_question_is_answered_with_the_words_it_rests_on(output: str) -> None:
    found = re.findall(
        r"^\? .+\n  \d\.\d\d  .+\n +(?:Priya|Owen), \d+ \w{3} 2026: \".+",
        step(output, "Search"),
        flags=re.MULTILINE,
    )

    assert len(found) == 3
    assert "merge to main" in found[2]


def test_a_superseded_memory_is_shown_with_the_one_in_its_place(output: str) -> None:
    history = step(output, "Supersede")

    assert re.search(r"^  superseded  .+\n.+\n  active  ", history, flags=re.MULTILINE)


def test_the_past_is_asked_and_a_change_is_taken_back_and_back_again(output: str) -> None:
    back = step(output, "Time")

    towns = re.findall(r"(?:as of|now) .*Ivo .*(Ghent|Porto|Oslo)", back)
    assert towns == ["Ghent", "Porto", "Oslo", "Porto", "Oslo"]
    assert "what is read is as texts and events say" in back


def test_a_contradiction_is_asked_about_and_answered_after_a_restart(output: str) -> None:
    answer = step(output, "Answer")

    assert "TASK_STATE_INPUT_REQUIRED" in step(output, "Ask")
    assert "keep_new: TASK_STATE_COMPLETED" in answer
    assert re.search(r"active +Nadia lives in Porto.; keep_new by acc_", answer)


def test_another_tenant_finds_nothing_and_cannot_tell_an_id_from_none(output: str) -> None:
    other = step(output, "Isolate")

    assert "search: 0 results" in other
    assert other.count("MEMORY_NOT_FOUND") == 2


def test_an_erased_person_is_gone_and_the_receipt_is_verified(output: str) -> None:
    erased = step(output, "Erase")

    assert re.search(r"^erased: \d+ memories", erased, flags=re.MULTILINE)
    assert "signature verified, files done" in erased
    assert "0 results that name Nadia" in erased
    assert "inspect the erased memory: MEMORY_NOT_FOUND" in erased


@pytest.mark.slow
def test_a_file_of_ones_own_is_stored_and_its_change_of_mind_found(tmp_path: Path) -> None:
    file = tmp_path / "chat.txt"
    file.write_text(DATED, "utf-8-sig")

    output = shown(file)

    assert "Rome" in step(output, "Store")
    assert "ice cream" not in step(output, "Store")
    assert 'Ann, 2 Mar 2026: "I live in Oslo' in step(output, "Supersede")


@pytest.mark.slow
def test_a_file_that_states_nothing_is_searched_by_its_own_words(tmp_path: Path) -> None:
    file = tmp_path / "hum.txt"
    file.write_text("Hmm [bold]hmm[/bold] \x1b[31mhmm?\n", "utf-8")

    output = shown(file)

    assert "states nothing plainly" in output
    assert "no memory was superseded" in output
    assert "\x1b" not in output
    assert "[bold]hmm[/bold]" in step(output, "Search")


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", EmptyText),
        (b" \n\t\n", EmptyText),
        (b"\xff\xfe\x00", Invalid),
        (b"a\x00b", InvalidText),
        (b"a" * (LIMIT + 1), TextTooLong),
    ],
)
async def test_an_unusable_file_is_refused_before_anything_starts(
    content: bytes, error: type[Exception], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "file.txt"
    file.write_bytes(content)

    with pytest.raises(error):
        await show(file, keep=False)

    assert capsys.readouterr().out == ""


@pytest.mark.slow
def test_a_server_that_is_kept_answers_until_it_is_told_to_stop(tmp_path: Path) -> None:
    file = tmp_path / "chat.txt"
    file.write_text("Ann: I live in Oslo.\n", "utf-8")
    command = [sys.executable, "-m", "recall_server", "demo", "--keep", "--file", str(file)]

    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        output = ""
        while "Bearer" not in output:
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
    assert f'"Authorization: Bearer {served[2]}"' in output
    assert Path(kept[1]).exists()
    for left in Path(kept[1]).parent.iterdir():
        left.unlink()
    Path(kept[1]).parent.rmdir()
